#pragma once

#include <Python.h>

namespace openxpu {

// Adds what torch.xpu's graphs need to the module: the type `Graph`, functions that ask. False with a Python
// error.
bool add_graphs(PyObject *module);

} // namespace openxpu

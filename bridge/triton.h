#pragma once

#include <Python.h>

namespace openxpu {

// Adds what the Triton backend (python/openxpu/triton) needs to the module: the functions
// `triton_launch` and `_empty_strided_xpu`, the types `TritonKernel` and `TritonLauncher`.
// False with a Python error.
bool add_triton(PyObject *module);

} // namespace openxpu

// Models that were compiled ahead of time, for Python.
#pragma once

#include <Python.h>

namespace openxpu {

// Puts AOTIModelContainerRunnerXpu into the module; false with a Python error set.
bool add_aoti(PyObject *module);

} // namespace openxpu

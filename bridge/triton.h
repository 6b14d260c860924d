#pragma once

#define PY_SSIZE_T_CLEAN // lengths of "s#" are Py_ssize_t
#include <Python.h>

namespace openxpu {

// Adds what the Triton backend (python/openxpu/triton) needs to the module: the functions
// `triton_launch` and `_empty_strided_xpu`, the types `TritonKernel` and `TritonLauncher`.
// False with a Python error.
bool add_triton(PyObject *module);

} // namespace openxpu

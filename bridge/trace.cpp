#include "trace.h"

#include <pybind11/pybind11.h>

namespace openxpu {

void call_python(const std::function<void()> &call) {
    if (!Py_IsInitialized()) return; // memory that outlives Python
    const pybind11::gil_scoped_acquire held;
    const pybind11::error_scope kept;
    call();
}

} // namespace openxpu

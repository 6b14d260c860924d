// What this library needs of Python, if the process has an interpreter. The Python module
// (python/module.cpp) fills it in; the library itself doesn't depend on Python, and C++ programs leave it
// empty.
#pragma once

#include <functional>

#include "export.h"

namespace openxpu {

struct Interpreter {
    // Calls a function that runs Python code. A pending Python error is preserved.
    void (*call)(const std::function<void()> &call);
    // Initializes the devices, and applies what Python deferred until then (seeds).
    void (*initialize)();
};

extern OPENXPU_API Interpreter interpreter;

} // namespace openxpu

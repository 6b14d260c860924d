// What this library needs of Python, if the process has an interpreter. The Python module
// (python/module.cpp) fills it in; the library itself doesn't depend on Python, and C++ programs leave it
// empty.
#pragma once

#include <functional>

#include "export.h"

namespace openxpu {

struct Interpreter {
    // Calls what runs Python. An error that is on its way stays as it is.
    void (*call)(const std::function<void()> &call);
    // Makes the devices ready, with what Python has kept back until then (seeds).
    void (*initialise)();
};

extern OPENXPU_API Interpreter interpreter;

} // namespace openxpu

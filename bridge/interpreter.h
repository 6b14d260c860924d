// What this library asks of Python where the process has an interpreter. Nothing in it knows Python: its
// module (python/module.cpp) fills this in, and a program in C++ leaves it as it is.
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

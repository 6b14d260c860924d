// What loading this library does beside the registrations of operators, hooks and the device guard, which
// stand where these are defined. No call of OpenCL is among it. The last of the library's sources: operators
// that are to run on the CPU are entered over kernels of ours.
#include <ATen/Context.h>

#include "allocator.h"
#include "fallback.h"
#include "interpreter.h"
#include "memory_settings.h"
#include "profiler.h"
#include "team.h"

namespace openxpu {

Interpreter interpreter = {
    .call = [](const std::function<void()> &) {},
    .initialise = [] { at::globalContext().lazyInitDevice(at::kXPU); },
};

namespace {

[[maybe_unused]] const bool started = [] {
    register_allocators();
    register_memory_settings();
    register_host_team();
    register_profiler();
    force_fallbacks();
    return true;
}();

} // namespace
} // namespace openxpu

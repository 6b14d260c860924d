// Initialization when this library is loaded, besides the registrations of operators, hooks and the device
// guard, which are next to their definitions. Makes no OpenCL call. Must be the library's last source: it
// registers the CPU fallback over existing kernels.
#include "allocator.h"
#include "fallback.h"
#include "memory_settings.h"
#include "profiler.h"
#include "thread_pool.h"

namespace openxpu {
namespace {

[[maybe_unused]] const bool started = [] {
    register_allocators();
    register_memory_settings();
    register_host_thread_pool();
    register_profiler();
    force_fallbacks();
    return true;
}();

} // namespace
} // namespace openxpu

// Observer of PyTorch's CPU kernels that work on host device memory.
#pragma once

#include <c10/core/Device.h>

#include <atomic>

#include "export.h"

namespace openxpu {

// Called for each tensor that as_cpu and as_cpu_input create: the profiler's while it records, else null.
OPENXPU_API extern std::atomic<void (*)(c10::DeviceIndex)> host_work_observer;

} // namespace openxpu

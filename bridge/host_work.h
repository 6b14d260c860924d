// Observer of PyTorch's CPU kernels that work on host device memory.
#pragma once

#include <c10/core/Device.h>

#include <atomic>

#include "export.h"

namespace openxpu {

// The profiler's while it records, else null: called for each tensor that as_cpu and as_cpu_input make.
OPENXPU_API extern std::atomic<void (*)(c10::DeviceIndex)> host_work_observer;

} // namespace openxpu

// The allocators that PyTorch sees: device memory and pinned host memory, both libxpu's.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include "xpu/memory.h"

namespace openxpu {

// Makes libxpu's allocator PyTorch's for xpu.
void register_allocators();

// Pinned host memory; its blocks' device is the CPU.
c10::Allocator *pinned_allocator();

c10::CachingDeviceAllocator::DeviceStats device_stats(c10::DeviceIndex device);

} // namespace openxpu

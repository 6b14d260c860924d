// PyTorch's allocators for xpu: device memory and pinned host memory, both from libxpu.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include "export.h"
#include "xpu/memory.h"

namespace openxpu {

// Registers libxpu's allocators with PyTorch.
void register_allocators();

// Allocates and frees device memory for PyTorch's tensors: from libxpu, reporting to PyTorch's history,
// profiler and trace; or with the user's functions.
void *take_memory(xpu_stream *stream, size_t size);
OPENXPU_API void give_memory(void *pointer);
bool give_if_ours(void *pointer); // false for any other memory, which it leaves alone

// Replaces the allocator by these functions; throws if that was done before.
OPENXPU_API void plug_in(xpu_pool_source source);
// Throws if the user's functions are set; `what` is the feature that they lack.
void check_native(const char *what);

// Pinned host memory; its blocks' device is the CPU.
c10::Allocator *pinned_allocator();

OPENXPU_API c10::CachingDeviceAllocator::DeviceStats device_stats(c10::DeviceIndex device);

} // namespace openxpu

// PyTorch's allocators for xpu: device memory and pinned host memory, both from libxpu.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include "export.h"
#include "xpu/memory.h"

namespace openxpu {

// Makes libxpu's allocator PyTorch's for xpu.
void register_allocators();

// Device memory for PyTorch's tensors, and the way back of any such block: libxpu's, with what PyTorch's
// history, profiler and trace want to know; or what a user's functions gave.
void *take_memory(xpu_stream *stream, size_t size);
OPENXPU_API void give_memory(void *pointer);
bool give_if_ours(void *pointer); // false for any other memory, which it leaves alone

// From now on memory comes from these functions; throws where they have been set before.
OPENXPU_API void plug_in(xpu_pool_source source);
// Throws, with what such memory hasn't got, where they are set.
void check_native(const char *what);

// Pinned host memory; its blocks' device is the CPU.
c10::Allocator *pinned_allocator();

OPENXPU_API c10::CachingDeviceAllocator::DeviceStats device_stats(c10::DeviceIndex device);

} // namespace openxpu

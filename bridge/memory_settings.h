// Passes PyTorch's caching allocator settings (PYTORCH_ALLOC_CONF) to libxpu.
#pragma once

namespace openxpu {

// Subscribes to later changes of settings (torch._C._accelerator_setAllocatorSettings).
void register_memory_settings();

// Applies the settings in the environment, on the first call; ValueError for an invalid one.
void apply_memory_settings();

} // namespace openxpu

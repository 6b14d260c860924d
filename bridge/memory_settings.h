// Passes PyTorch's caching allocator settings (PYTORCH_ALLOC_CONF) to libxpu.
#pragma once

namespace openxpu {

// Listens for settings that a program makes later (torch._C._accelerator_setAllocatorSettings).
void register_memory_settings();

// Applies what stands in the environment, the first time; ValueError for what isn't a setting.
void apply_memory_settings();

} // namespace openxpu

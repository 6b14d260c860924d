#pragma once

namespace openxpu {

// Gives libxpu PyTorch's OpenMP threads for CPU devices.
void register_host_thread_pool();

} // namespace openxpu

#pragma once

namespace openxpu {

// Makes torch.profiler collect what runs on xpu devices (ProfilerActivity.XPU).
void register_profiler();

} // namespace openxpu

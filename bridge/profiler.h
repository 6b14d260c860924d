#pragma once

namespace openxpu {

// Makes torch.profiler record device activity (ProfilerActivity.XPU).
void register_profiler();

} // namespace openxpu

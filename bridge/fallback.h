// The CPU fallback: what runs on the host because xpu has no kernel for it.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

namespace openxpu {

// Calls so far by operator ("aten::median"), and a fresh start if wanted. For tests.
std::unordered_map<std::string, int64_t> fallback_counts(bool reset);

// Enters the fallback for the operators that PYTORCH_XPU_FALLBACK_OP names, over kernels of ours.
void force_fallbacks();

} // namespace openxpu

// CPU fallback for operators without an xpu kernel.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <string>
#include <unordered_map>

#include "export.h"

namespace openxpu {

// Calls so far by operator ("aten::median"), and a fresh start if wanted. For tests.
OPENXPU_API std::unordered_map<std::string, int64_t> fallback_counts(bool reset);

// A boxed kernel: on host devices the CPU's kernel works on the tensors in place, and that is the
// implementation, not a fallback: nothing is counted or warned of. On other devices it is the fallback.
void run_on_host(const c10::OperatorHandle &op, torch::jit::Stack *stack);

// Enters the fallback for the operators that PYTORCH_XPU_FALLBACK_OP names, over kernels of ours.
void force_fallbacks();

} // namespace openxpu

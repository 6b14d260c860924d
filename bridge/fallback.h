// CPU fallback for operators without an xpu kernel.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <string>
#include <unordered_map>

#include "export.h"

namespace openxpu {

// Number of fallback calls per operator ("aten::median"); `reset` sets the counts to 0 afterwards. For
// tests.
OPENXPU_API std::unordered_map<std::string, int64_t> fallback_counts(bool reset);

// A boxed kernel. On CPU devices the CPU kernel works on the tensors in place; that is the
// implementation and is neither counted nor warned about. On other devices it is the fallback.
void run_on_host(const c10::OperatorHandle &op, torch::jit::Stack *stack);

// Registers the fallback for the operators in PYTORCH_XPU_FALLBACK_OP, overriding their xpu kernels.
void force_fallbacks();

} // namespace openxpu

// Autocast rules that PyTorch's table for xpu lacks.
//
// nn.TransformerEncoderLayer passes its whole layer to one operator, under autocast too. The products in it
// get a normalized fp32 input and half-precision weights.
#include <ATen/autocast_mode.h>
#include <ATen/ops/_addmm_activation.h>
#include <torch/library.h>

namespace at::autocast {

TORCH_LIBRARY_IMPL(aten, AutocastXPU, m) { KERNEL_XPU(_addmm_activation, lower_precision_fp) }

} // namespace at::autocast

// What PyTorch's own table of autocast for xpu lacks. nn.TransformerEncoderLayer gives its whole layer to one
// operator, also under autocast: the products in it get a normalized input in fp32, and weights in halves.
#include <ATen/autocast_mode.h>
#include <ATen/ops/_addmm_activation.h>
#include <torch/library.h>

namespace at::autocast {

TORCH_LIBRARY_IMPL(aten, AutocastXPU, m) { KERNEL_XPU(_addmm_activation, lower_precision_fp) }

} // namespace at::autocast

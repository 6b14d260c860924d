// Matrix products for compiled code. They bypass PyTorch's dispatcher and argument checks, which take as
// long as a small product.
#pragma once

#include <ATen/core/Tensor.h>

#include "../export.h"

namespace openxpu {

// The operators of these names: out = a b, for matrices or batches, and out = beta addend + alpha a b.
// They return false, with nothing done, unless all tensors are dense, of one dtype and on the current
// device, `out` has the product's size, and no observer records operators.
OPENXPU_API bool mm_out(const at::Tensor &out, const at::Tensor &a, const at::Tensor &b);
OPENXPU_API bool bmm_out(const at::Tensor &out, const at::Tensor &a, const at::Tensor &b);
OPENXPU_API bool addmm_out(const at::Tensor &out, const at::Tensor &addend, const at::Tensor &a,
                           const at::Tensor &b, const at::Scalar &beta, const at::Scalar &alpha);

} // namespace openxpu

// Nested tensors in libxpu's representation: levels of offsets. A Levels object owns its offsets and must
// outlive the submission of kernels that use it.
#pragma once

#include <ATen/core/Tensor.h>

#include "xpu/ops/nested.h"

namespace openxpu {

// The levels of a nested tensor with these sizes (items x dims, on the CPU), padded to `size`, with
// offsets in `device`'s memory.
struct Levels {
    Levels(const at::Tensor &sizes, at::IntArrayRef size, c10::Device device);
    // Arguments for packed `values` and `padded` of these levels; both are contiguous and must outlive
    // the result.
    xpu_nested between(const at::Tensor &values, const at::Tensor &padded) const;

    xpu_nested_levels levels;
    at::Tensor offsets;
};

// A mask [B, 1, 1, size] on `device`: true for positions below the item's entry in `lengths` (on the
// CPU). Undefined if all items have full length.
at::Tensor mask_of(const at::Tensor &lengths, int64_t size, c10::Device device);

} // namespace openxpu

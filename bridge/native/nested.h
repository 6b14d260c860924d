// Nested tensors in libxpu's representation: levels of offsets.
#pragma once

#include <ATen/core/Tensor.h>

#include "xpu/ops/nested.h"

namespace openxpu {

// The levels of a nested tensor's sizes (items x dims, on the CPU), padded to `size`, with the offsets in
// `device`'s memory.
struct Levels {
    Levels(const at::Tensor &sizes, at::IntArrayRef size, c10::Device device);
    // Packed `values` and `padded` of these levels; both are contiguous, and outlive the result.
    xpu_nested between(const at::Tensor &values, const at::Tensor &padded) const;

    xpu_nested_levels levels;
    at::Tensor offsets;
};

// [B, 1, 1, size] on `device`: true where an item has one of its `lengths` (on the CPU) elements. Undefined
// if all have all.
at::Tensor mask_of(const at::Tensor &lengths, int64_t size, c10::Device device);

} // namespace openxpu

// Post-ops of products and convolutions, by the names in PyTorch's fused operators (mkldnn::…).
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <string_view>

#include "xpu/ops/epilogue.h"

namespace openxpu {

using Scalars = c10::List<std::optional<at::Scalar>>;

// An element-wise function by name, and its number of scalars; empty for unknown names.
struct NamedEpilogue {
    xpu_epilogue epilogue;
    size_t scalars;
};
std::optional<NamedEpilogue> epilogue_of(std::string_view unary);

// "relu", "gelu", …, "none". Throws for other names, and if the name's scalars or algorithm are missing.
xpu_post_ops post_ops_of(std::string_view unary, const Scalars &scalars,
                         std::optional<std::string_view> algorithm);
// "add", "sub", "mul", "div". Throws for other names.
xpu_combine combine_of(std::string_view binary);

// The binary post-op's operand with the result's sizes and strides; copied if it has others.
at::Tensor lying_as(const at::Tensor &other, const at::Tensor &result);

} // namespace openxpu

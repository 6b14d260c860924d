#include "post_ops.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty_like.h>

namespace openxpu {
namespace {

struct Unary {
    std::string_view name;
    NamedEpilogue epilogue;
};
// PyTorch and libxpu have the same order of scalars.
constexpr Unary unaries[] = {{"none", {XPU_EPILOGUE_NONE, 0}},
                             {"relu", {XPU_EPILOGUE_RELU, 0}},
                             {"gelu", {XPU_EPILOGUE_GELU, 0}},
                             {"swish", {XPU_EPILOGUE_SILU, 0}},
                             {"sigmoid", {XPU_EPILOGUE_SIGMOID, 0}},
                             {"tanh", {XPU_EPILOGUE_TANH, 0}},
                             {"hardswish", {XPU_EPILOGUE_HARDSWISH, 0}},
                             {"hardsigmoid", {XPU_EPILOGUE_HARDSIGMOID, 0}},
                             {"leaky_relu", {XPU_EPILOGUE_LEAKY_RELU, 1}},
                             {"hardtanh", {XPU_EPILOGUE_CLAMP, 2}},
                             {"elu", {XPU_EPILOGUE_ELU, 1}},
                             {"mish", {XPU_EPILOGUE_MISH, 0}},
                             {"abs", {XPU_EPILOGUE_ABS, 0}}};

struct Binary {
    std::string_view name;
    xpu_combine combine;
};
constexpr Binary binaries[] = {
    {"add", XPU_COMBINE_ADD}, {"sub", XPU_COMBINE_SUB}, {"mul", XPU_COMBINE_MUL}, {"div", XPU_COMBINE_DIV}};

} // namespace

std::optional<NamedEpilogue> epilogue_of(std::string_view unary) {
    for (const Unary &known : unaries)
        if (known.name == unary) return known.epilogue;
    return std::nullopt;
}

xpu_post_ops post_ops_of(std::string_view unary, const Scalars &scalars,
                         std::optional<std::string_view> algorithm) {
    const auto known = epilogue_of(unary);
    TORCH_CHECK(known, "Unary attr ", unary, " is not supported for conv/linear post unary fusion");
    xpu_post_ops post_ops{.combine = XPU_COMBINE_NONE, .epilogue = known->epilogue, .scalar = {0, 0}};
    if (known->epilogue == XPU_EPILOGUE_GELU) {
        TORCH_CHECK(algorithm && (*algorithm == "none" || *algorithm == "tanh"),
                    "GELU algorithm is not specified, please specify it as 'none' or 'tanh'");
        if (*algorithm == "tanh") post_ops.epilogue = XPU_EPILOGUE_GELU_TANH;
    }
    TORCH_CHECK(scalars.size() >= known->scalars, "Unary attr ", unary, " takes ", known->scalars,
                " scalars, but got ", scalars.size());
    for (size_t i = 0; i < known->scalars; i++) {
        const std::optional<at::Scalar> scalar = scalars.get(i);
        TORCH_CHECK(scalar, "Unary attr ", unary, ": scalar ", i, " is None");
        post_ops.scalar[i] = scalar->toDouble();
    }
    return post_ops;
}

xpu_combine combine_of(std::string_view binary) {
    for (const Binary &known : binaries)
        if (known.name == binary) return known.combine;
    TORCH_CHECK(false, "Binary attr ", binary, " is not supported for conv/linear post binary fusion");
}

at::Tensor lying_as(const at::Tensor &other, const at::Tensor &result) {
    if (other.sizes() == result.sizes() && other.strides() == result.strides()) return other;
    return at::empty_like(result).copy_(*at::expand_size(other, result.sizes()));
}

} // namespace openxpu

// The operators that Inductor lowers quantised models to (onednn::…, torch.ao's and torchao's PT2E): linear
// layers and convolutions of 8-bit activations and weights, with what follows. Sums are in float32
// throughout.
#include <ATen/core/List.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <torch/library.h>

#include "../host_gemm.h"
#include "../operands.h"
#include "native/ending.h"
#include "native/pointwise.h"
#include "xpu/ops/gemm.h"

namespace {

using at::Tensor;
using openxpu::Scalars;
using Integers = c10::List<int64_t>;

// --- what stands for numbers ---

bool is_stored(const Tensor &t) {
    return t.scalar_type() == at::kChar || t.scalar_type() == at::kByte || c10::isFloat8Type(t.scalar_type());
}

// Scale and zero point of a tensor: on its device, or, of a zero point that the host knows, as an integer.
struct Parameters {
    Tensor scale, zero;
    int32_t middle = 0;
};
Parameters parameters(const Tensor &t, double scale, int64_t zero_point) {
    return {at::full({1}, scale, t.options().dtype(at::kFloat)), {}, static_cast<int32_t>(zero_point)};
}
Parameters parameters(const Tensor &t, const Tensor &scale, const Tensor &zero_point) {
    Parameters p;
    p.scale = scale.to(t.options().dtype(at::kFloat)).reshape({-1}).contiguous();
    if (!zero_point.defined() || zero_point.numel() == 0) return p;
    if (zero_point.is_cpu() && zero_point.numel() == 1)
        p.middle = zero_point.item<int32_t>();
    else
        p.zero = zero_point.to(t.options().dtype(at::kInt)).reshape({-1}).contiguous();
    return p;
}

// A scale (and a zero point) for all, or one for each row, or column, of which there are `lines`.
xpu_quantised quantised(const Tensor &t, const Parameters &p, bool by_row, int64_t lines) {
    const auto one_each = [&](const Tensor &of) {
        TORCH_CHECK(!of.defined() || of.numel() == 1 || of.numel() == lines,
                    "expected one scale and zero point, or ", lines, ", got ", of.numel());
        return of.defined() && of.numel() > 1;
    };
    const bool scales = one_each(p.scale), zeros = one_each(p.zero);
    xpu_quantised q{.dtype = openxpu::dtype_of(t),
                    .scale_dtype = XPU_FLOAT32,
                    .zero_dtype = XPU_INT32,
                    .middle = p.middle,
                    .scale = openxpu::input_data(p.scale)};
    if (p.zero.defined()) q.zero = openxpu::input_data(p.zero);
    if (scales || zeros) (by_row ? q.group_rows : q.group_columns) = 1;
    (by_row ? q.scale_row_stride : q.scale_column_stride) = scales;
    (by_row ? q.zero_row_stride : q.zero_column_stride) = zeros;
    return q;
}

// The numbers, where their elements lie; by rows along dimension 0.
Tensor numbers(const Tensor &stored, const Parameters &p) {
    if (!is_stored(stored)) return stored.to(at::kFloat);
    const bool outermost = stored.dim() > 0 && stored.size(0) > 0 &&
                           stored.stride(0) * stored.size(0) == stored.numel() &&
                           stored.is_non_overlapping_and_dense();
    const Tensor t = outermost ? stored : stored.contiguous();
    Tensor out = at::empty_like(t, t.options().dtype(at::kFloat));
    if (t.numel() == 0) return out;
    const int64_t rows = t.dim() > 0 ? t.size(0) : 1, columns = t.numel() / rows;
    const xpu_matrix from{openxpu::input_data(t), 0, columns, 1}, to{out.mutable_data_ptr(), 0, columns, 1};
    const xpu_quantised q = quantised(t, p, true, rows);
    openxpu::check(xpu_dequantise(openxpu::current_stream(t), &from, &q, 1, rows, columns, XPU_FLOAT32, &to));
    return out;
}

// --- what follows ---

void apply(std::string_view name, const Scalars &scalars, std::string_view algorithm, const Tensor &t) {
    const auto known = openxpu::epilogue_of(name);
    TORCH_CHECK_NOT_IMPLEMENTED(known, "quantised operators on xpu have no post op '", name, "'");
    TORCH_CHECK(scalars.size() >= known->scalars, "post op ", name, " wants more than ", scalars.size(),
                " arguments");
    const xpu_ending ending = openxpu::ending_of(name, scalars, algorithm.empty() ? "none" : algorithm);
    if (ending.epilogue == XPU_EPILOGUE_NONE || t.numel() == 0) return;
    const xpu_tensor x = openxpu::tensor_of(t);
    openxpu::check(xpu_ending_apply(openxpu::current_stream(t), &ending, nullptr, &x));
}

// The integers that the numbers become in `out`, or the numbers themselves.
void write(const Tensor &values, double scale, int64_t zero_point, const Tensor &out) {
    const auto type = out.scalar_type();
    const bool is_byte = type == at::kByte;
    if (!is_byte && type != at::kChar) {
        TORCH_CHECK(c10::isFloatingType(type) || c10::isFloat8Type(type),
                    "quantised operators on xpu give int8, uint8 or floating-point numbers, not ", type);
        out.copy_(c10::isFloat8Type(type) && scale != 1 ? values.div(scale) : values);
        return;
    }
    auto iter = at::TensorIteratorConfig()
                    .check_all_same_dtype(false)
                    .resize_outputs(false)
                    .add_output(out)
                    .add_const_input(values)
                    .build();
    using openxpu::scalar_of;
    openxpu::pointwise(iter, at::kFloat, XPU_POINTWISE_QUANTISE,
                       {scalar_of(scale), scalar_of(zero_point), scalar_of(int64_t{is_byte ? 0 : -128}),
                        scalar_of(int64_t{is_byte ? 255 : 127})});
}

struct Output {
    double scale;
    int64_t zero_point;
    std::optional<at::ScalarType> dtype;
};
struct Unary {
    std::string_view name;
    const Scalars &scalars;
    std::string_view algorithm;
};
// Another tensor that is added: into it ("sum"), or not ("add").
struct Binary {
    const Tensor &other;
    double scale;
    int64_t zero_point;
    std::string_view name;
    double alpha;
};

// `values` with what follows, lying as `strides` say.
Tensor finish(Tensor values, const Tensor &input, const Binary *binary, const Unary &unary,
              const Output &output, at::IntArrayRef strides) {
    if (binary && binary->name != "none") {
        TORCH_CHECK_NOT_IMPLEMENTED(binary->name == "sum" || binary->name == "add",
                                    "quantised operators on xpu have no binary post op '", binary->name, "'");
        TORCH_CHECK(binary->alpha == 1, "the binary post op's alpha must be 1, got ", binary->alpha);
        const Tensor &other = binary->other;
        values.add_(numbers(other, parameters(other, binary->scale, binary->zero_point)));
    }
    apply(unary.name, unary.scalars, unary.algorithm, values);
    Tensor out;
    if (binary && binary->name == "sum") {
        out = binary->other;
        TORCH_CHECK(out.sizes() == values.sizes(), "expected a tensor of shape ", values.sizes(),
                    " to sum into, got ", out.sizes());
        TORCH_CHECK(!output.dtype || *output.dtype == out.scalar_type(), "expected a tensor of dtype ",
                    *output.dtype, " to sum into, got ", out.scalar_type());
    } else {
        const auto dtype = output.dtype.value_or(input.scalar_type());
        if (dtype == at::kFloat && values.strides() == strides) return values;
        out = at::empty_strided(values.sizes(), strides, values.options().dtype(dtype));
    }
    write(values, output.scale, output.zero_point, out);
    return out;
}

// --- linear layers ---

// The transpose of the weight: nothing is packed.
Tensor prepack_linear(const Tensor &weight, const std::optional<Integers> & /*input_shape*/) {
    return weight.t();
}

Tensor multiply(const Tensor &x, const Parameters &of_x, const Tensor &w, const Parameters &of_w,
                const std::optional<Tensor> &bias) {
    TORCH_CHECK(w.dim() == 2 && is_stored(w), "expected a weight of 2 dimensions, int8 or float8, got ",
                w.scalar_type(), " of shape ", w.sizes());
    TORCH_CHECK(x.dim() >= 1 && x.size(-1) == w.size(0), "input of shape ", x.sizes(),
                " doesn't fit a weight of shape ", w.sizes());
    TORCH_CHECK(x.device() == w.device(), "input and weight are on ", x.device(), " and ", w.device());
    const int64_t m = c10::multiply_integers(x.sizes().slice(0, x.dim() - 1)), n = w.size(1);
    Tensor rows = x.reshape({m, x.size(-1)});
    if (!is_stored(x)) rows = rows.to(at::kFloat);
    Tensor out = at::empty({m, n}, x.options().dtype(at::kFloat)), addend;
    xpu_gemm_args args{.dtype = XPU_FLOAT32,
                       .batch = 1,
                       .m = m,
                       .n = n,
                       .k = w.size(0),
                       .a = {openxpu::input_data(rows), 0, rows.stride(0), rows.stride(1)},
                       .b = {openxpu::input_data(w), 0, w.stride(0), w.stride(1)},
                       .out = {out.mutable_data_ptr(), 0, n, 1},
                       .alpha = openxpu::scalar_of(int64_t{1}),
                       .beta = openxpu::scalar_of(int64_t{1})};
    if (bias && bias->defined()) {
        TORCH_CHECK(bias->numel() == n, "expected a bias of ", n, " elements, got ", bias->numel());
        addend = bias->to(out.options()).contiguous();
        args.c = {openxpu::input_data(addend), 0, 0, 1};
    }
    if (out.numel() > 0) {
        const xpu_quantised qw = quantised(w, of_w, false, n);
        xpu_quantised qx{};
        if (is_stored(x)) qx = quantised(rows, of_x, true, m);
        openxpu::check_product(
            xpu_gemm_quantised(openxpu::current_stream(x), &args, is_stored(x) ? &qx : nullptr, &qw));
    }
    auto shape = x.sizes().vec();
    shape.back() = n;
    return out.view(shape);
}

template <class Scale, class Zero> // numbers, or tensors
Tensor linear(const Tensor &x, Scale x_scale, Zero x_zero, const Tensor &w, const Tensor &w_scale,
              const Tensor &w_zero, const std::optional<Tensor> &bias, double scale, int64_t zero_point,
              std::optional<at::ScalarType> dtype, std::string_view unary, const Scalars &scalars,
              std::string_view algorithm) {
    Tensor values = multiply(x, parameters(x, x_scale, x_zero), w, parameters(w, w_scale, w_zero), bias);
    const auto strides = values.strides().vec();
    return finish(values, x, nullptr, {unary, scalars, algorithm}, {scale, zero_point, dtype}, strides);
}

template <class Scale, class Zero>
Tensor linear_binary(const Tensor &x, Scale x_scale, Zero x_zero, const Tensor &w, const Tensor &w_scale,
                     const Tensor &w_zero, const std::optional<Tensor> &other,
                     const std::optional<Tensor> &bias, double scale, int64_t zero_point,
                     std::optional<at::ScalarType> dtype, double other_scale, int64_t other_zero,
                     std::string_view binary, double alpha, std::string_view unary, const Scalars &scalars,
                     std::string_view algorithm) {
    TORCH_CHECK(other && other->defined(), "the binary post op '", binary, "' wants another tensor");
    Tensor values = multiply(x, parameters(x, x_scale, x_zero), w, parameters(w, w_scale, w_zero), bias);
    const Binary added{*other, other_scale, other_zero, binary, alpha};
    const auto strides = values.strides().vec();
    return finish(values, x, &added, {unary, scalars, algorithm}, {scale, zero_point, dtype}, strides);
}

// --- convolutions ---

Tensor prepack_convolution(const Tensor &weight, const Tensor & /*scales*/, double /*input_scale*/,
                           int64_t /*input_zero*/, const Integers & /*stride*/, const Integers & /*padding*/,
                           const Integers & /*dilation*/, int64_t /*groups*/,
                           const std::optional<Integers> & /*input_shape*/) {
    return weight;
}

// The layout that Inductor takes the result to have: that of the input, channels first where it is both.
std::vector<int64_t> strides_of_result(const Tensor &x, const Tensor &values) {
    const bool first = x.is_contiguous() || x.stride(0) == 0;
    std::vector<int64_t> strides(static_cast<size_t>(values.dim()), 1);
    int64_t next = first ? 1 : values.size(1);
    for (int64_t d = values.dim() - 1; d > (first ? -1 : 1); d--) {
        strides[d] = next;
        next *= std::max<int64_t>(values.size(d), 1);
    }
    if (!first) strides[0] = next;
    return strides;
}

Tensor convolve(const Tensor &x, const Parameters &of_x, const Tensor &w, const Parameters &of_w,
                const std::optional<Tensor> &bias, const Integers &stride, const Integers &padding,
                const Integers &dilation, int64_t groups) {
    TORCH_CHECK(x.dim() >= 3 && x.dim() <= 5, "expected an input of 3 to 5 dimensions, got ", x.dim());
    TORCH_CHECK(is_stored(w), "expected a weight of int8 or float8, got ", w.scalar_type());
    const Tensor kernel = w.dim() == x.dim() + 1 ? w.squeeze(2) : w;
    std::optional<Tensor> addend;
    if (bias && bias->defined()) addend = bias->to(at::kFloat);
    const auto dims = static_cast<size_t>(x.dim() - 2);
    return at::convolution(numbers(x, of_x), numbers(kernel, of_w), addend, stride.vec(), padding.vec(),
                           dilation.vec(), false, std::vector<int64_t>(dims, 0), groups);
}

template <class Scale, class Zero>
Tensor convolution(const Tensor &x, Scale x_scale, Zero x_zero, const Tensor &w, const Tensor &w_scale,
                   const Tensor &w_zero, const std::optional<Tensor> &bias, const Integers &stride,
                   const Integers &padding, const Integers &dilation, int64_t groups, double scale,
                   int64_t zero_point, std::optional<at::ScalarType> dtype, std::string_view unary,
                   const Scalars &scalars, std::optional<std::string_view> algorithm) {
    Tensor values = convolve(x, parameters(x, x_scale, x_zero), w, parameters(w, w_scale, w_zero), bias,
                             stride, padding, dilation, groups);
    return finish(values, x, nullptr, {unary, scalars, algorithm.value_or("")}, {scale, zero_point, dtype},
                  strides_of_result(x, values));
}

template <class Scale, class Zero>
Tensor convolution_binary(const Tensor &x, Scale x_scale, Zero x_zero, const Tensor &w, const Tensor &w_scale,
                          const Tensor &w_zero, const Tensor &accum, const std::optional<Tensor> &bias,
                          const Integers &stride, const Integers &padding, const Integers &dilation,
                          int64_t groups, double scale, int64_t zero_point,
                          std::optional<at::ScalarType> dtype, double accum_scale, int64_t accum_zero,
                          std::string_view binary, std::optional<at::Scalar> alpha,
                          std::optional<std::string_view> unary, const Scalars &scalars,
                          std::optional<std::string_view> algorithm) {
    Tensor values = convolve(x, parameters(x, x_scale, x_zero), w, parameters(w, w_scale, w_zero), bias,
                             stride, padding, dilation, groups);
    const Binary added{accum, accum_scale, accum_zero, binary, alpha ? alpha->toDouble() : 1.0};
    return finish(values, x, &added, {unary.value_or("none"), scalars, algorithm.value_or("")},
                  {scale, zero_point, dtype}, strides_of_result(x, values));
}

using Known = const Tensor &;

// As a function of the dispatcher's stack: others are compared with the CPU's in C++, where an argument is a
// reference in one version of PyTorch and a value in another.
template <auto *function>
void boxed(const c10::OperatorHandle &op, c10::DispatchKeySet keys, torch::jit::Stack *stack) {
    using Pointer = c10::CompileTimeFunctionPointer<std::remove_pointer_t<decltype(function)>, function>;
    using Functor = typename c10::impl::WrapFunctionIntoFunctor<Pointer>::type;
    Functor functor;
    c10::impl::make_boxed_from_unboxed_functor<Functor, false>::call(&functor, op, keys, stack);
}
template <auto *function> torch::CppFunction kernel() {
    return torch::CppFunction::makeFromBoxedFunction<&boxed<function>>();
}

} // namespace

TORCH_LIBRARY_IMPL(onednn, XPU, m) {
    m.impl("qlinear_prepack", kernel<prepack_linear>());
    m.impl("qlinear_pointwise", kernel<linear<double, int64_t>>());
    m.impl("qlinear_pointwise.tensor", kernel<linear<Known, Known>>());
    m.impl("qlinear_pointwise.binary", kernel<linear_binary<double, int64_t>>());
    m.impl("qlinear_pointwise.binary_tensor", kernel<linear_binary<Known, Known>>());
    m.impl("qconv_prepack", kernel<prepack_convolution>());
    for (const char *name :
         {"qconv_pointwise", "qconv1d_pointwise", "qconv2d_pointwise", "qconv3d_pointwise"})
        m.impl(name, kernel<convolution<double, int64_t>>());
    for (const char *name : {"qconv_pointwise.tensor", "qconv2d_pointwise.tensor"})
        m.impl(name, kernel<convolution<Known, Known>>());
    m.impl("qconv2d_pointwise.binary", kernel<convolution_binary<double, int64_t>>());
    m.impl("qconv2d_pointwise.binary_tensor", kernel<convolution_binary<Known, Known>>());
}

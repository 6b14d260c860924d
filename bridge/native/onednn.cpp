// The operators of quantized models (onednn::…, from torch.ao's and torchao's PT2E): linear layers and
// convolutions with 8-bit activations and weights, and post-ops.
//
// - Linear layers and 1 x 1 convolutions: one product each.
// - Other convolutions: one launch, with int8 matrix instructions if the device has them. On CPU devices
//   PyTorch's
// own, if the CPU has int8 instructions.
// - Anything else: computed in float32.
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/cpu/Utils.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <array>
#include <mutex>
#include <vector>

#include "../host_gemm.h"
#include "../host_memory.h"
#include "../operands.h"
#include "native/onednn_faults.h"
#include "native/post_ops.h"
#include "native/pointwise.h"
#include "xpu/memory.h"
#include "xpu/ops/conv.h"

namespace {

using at::Tensor;
using openxpu::Scalars;
using Integers = c10::List<int64_t>;

// --- quantization parameters ---

bool is_stored(const Tensor &t) {
    return t.scalar_type() == at::kChar || t.scalar_type() == at::kByte || c10::isFloat8Type(t.scalar_type());
}

// Cached facts about a weight or its zero points, stored with the tensor; valid until the tensor is
// modified.
enum Form { FORM_LINES, FORM_NUMBERS, FORM_ONEDNN, FORMS };
// A convolution's weight in the layout of its kernels, the key it was made for, and its tensors.
struct Formed {
    Tensor weight;
    std::vector<int64_t> how;
    std::array<Tensor, 2> held;
};
struct Learnt final : c10::BackendMeta {
    uint32_t version = 0;
    Tensor sums; // of a weight's columns
    std::array<Formed, FORMS> forms;
    bool is_zero = false;
};
std::mutex learning;

// Not in a pool: it may come back to an earlier state (xpu_pool_restore).
bool can_keep(const Tensor &t) {
    return !t.is_inference() && !(t.is_xpu() && (openxpu::is_captured(t.device().index()) ||
                                                 xpu_pool_serves(openxpu::current_stream(t))));
}
c10::intrusive_ptr<Learnt> learnt_of(const Tensor &t) {
    if (t.is_inference()) return {};
    const std::lock_guard<std::mutex> lock(learning);
    auto *known = dynamic_cast<Learnt *>(t.unsafeGetTensorImpl()->get_backend_meta());
    if (!known || known->version != t._version()) return {};
    return c10::intrusive_ptr<Learnt>::reclaim_copy(known);
}
void keep(const Tensor &t, c10::intrusive_ptr<Learnt> known) {
    if (!can_keep(t)) return;
    known->version = static_cast<uint32_t>(t._version());
    const std::lock_guard<std::mutex> lock(learning);
    t.unsafeGetTensorImpl()->set_backend_meta(std::move(known));
}

// The cached facts, to be extended.
c10::intrusive_ptr<Learnt> more_than(const c10::intrusive_ptr<Learnt> &known) {
    auto now = c10::make_intrusive<Learnt>();
    if (known) now->sums = known->sums, now->forms = known->forms;
    return now;
}

// `w`, whose memory belongs to `owner`, as the right operand of a product.
Tensor column_sums(const Tensor &owner, const Tensor &w) {
    const auto known = learnt_of(owner);
    if (known && known->sums.defined()) return known->sums;
    auto now = more_than(known);
    const Tensor sums = now->sums = at::sum(w, at::IntArrayRef{0}, false, at::kInt);
    keep(owner, std::move(now));
    return sums;
}

// A converted form of the weight `owner`; the last one of each kind is cached.
template <class Make>
Tensor form_of(const Tensor &owner, Form form, std::vector<int64_t> how, std::array<Tensor, 2> held,
               Make make) {
    const auto known = learnt_of(owner);
    if (known && known->forms[form].weight.defined() && known->forms[form].how == how)
        return known->forms[form].weight;
    auto now = more_than(known);
    const Tensor weight = make();
    now->forms[form] = {weight, std::move(how), std::move(held)};
    keep(owner, std::move(now));
    return weight;
}

// True if all zero points are known to be 0. They can't be read in a capture.
bool are_zero(const Tensor &zero) {
    if (const auto known = learnt_of(zero)) return known->is_zero;
    if (zero.is_xpu() && openxpu::is_captured(zero.device().index())) return false;
    auto now = c10::make_intrusive<Learnt>();
    now->is_zero = !zero.any().item<bool>();
    keep(zero, now);
    return now->is_zero;
}

// Scale and zero point of a tensor: on its device or, if known on the host, as values.
struct Parameters {
    Tensor scale, zero;
    double number = 1;
    int32_t zero_offset = 0;
};
Parameters parameters(const Tensor & /*t*/, double scale, int64_t zero_point) {
    return {{}, {}, scale, static_cast<int32_t>(zero_point)};
}
Parameters parameters(const Tensor &t, const Tensor &scale, const Tensor &zero_point) {
    Parameters p;
    p.scale = scale.to(t.options().dtype(at::kFloat)).reshape({-1}).contiguous();
    if (!zero_point.defined() || zero_point.numel() == 0) return p;
    if (zero_point.is_cpu() && zero_point.numel() == 1)
        p.zero_offset = zero_point.item<int32_t>();
    else if (!are_zero(zero_point))
        p.zero = zero_point.to(t.options().dtype(at::kInt)).reshape({-1}).contiguous();
    return p;
}

// One scale (and zero point) for all elements, or one per row or column, of which there are `lines`.
xpu_quant_params quantized(const Tensor &t, const Parameters &p, bool by_row, int64_t lines) {
    const auto one_each = [&](const Tensor &of) {
        TORCH_CHECK(!of.defined() || of.numel() == 1 || of.numel() == lines,
                    "expected one scale and zero point, or ", lines, ", got ", of.numel());
        return of.defined() && of.numel() > 1;
    };
    const bool scales = one_each(p.scale), zeros = one_each(p.zero);
    xpu_quant_params q{.dtype = openxpu::dtype_of(t),
                       .scale_dtype = XPU_FLOAT32,
                       .zero_dtype = XPU_INT32,
                       .zero_offset = p.zero_offset};
    if (p.scale.defined()) q.scale = openxpu::input_data(p.scale);
    if (p.zero.defined()) q.zero = openxpu::input_data(p.zero);
    if (scales || zeros) (by_row ? q.group_rows : q.group_columns) = 1;
    (by_row ? q.scale_row_stride : q.scale_column_stride) = scales;
    (by_row ? q.zero_row_stride : q.zero_column_stride) = zeros;
    return q;
}

// Dequantizes in the same layout; rows are along dimension 0.
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
    Parameters all = p;
    if (!p.scale.defined()) all.scale = at::full({1}, p.number, out.options());
    const xpu_quant_params q = quantized(t, all, true, rows);
    openxpu::check(xpu_dequantize(openxpu::current_stream(t), &from, &q, 1, rows, columns, XPU_FLOAT32, &to));
    return out;
}

// --- post-ops ---

xpu_post_ops post_ops_of(std::string_view name, const Scalars &scalars, std::string_view algorithm) {
    const auto known = openxpu::epilogue_of(name);
    TORCH_CHECK_NOT_IMPLEMENTED(known, "quantized operators on xpu don't support post op '", name, "'");
    TORCH_CHECK(scalars.size() >= known->scalars, "post op ", name, " needs more than ", scalars.size(),
                " arguments");
    return openxpu::post_ops_of(name, scalars, algorithm.empty() ? "none" : algorithm);
}
void apply(const xpu_post_ops &post_ops, const Tensor &t) {
    if (post_ops.epilogue == XPU_EPILOGUE_NONE || t.numel() == 0) return;
    const xpu_tensor x = openxpu::tensor_of(t);
    openxpu::check(xpu_post_ops_apply(openxpu::current_stream(t), &post_ops, nullptr, &x));
}

// Writes the values to `out`, quantized if it is.
void write(const Tensor &values, double scale, int64_t zero_point, const Tensor &out) {
    const auto type = out.scalar_type();
    const bool is_byte = type == at::kByte;
    if (!is_byte && type != at::kChar) {
        TORCH_CHECK(c10::isFloatingType(type) || c10::isFloat8Type(type),
                    "quantized operators on xpu return int8, uint8 or floating-point tensors, not ", type);
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
    openxpu::pointwise(iter, at::kFloat, XPU_POINTWISE_QUANTIZE,
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
// The binary post-op's tensor: added in place ("sum") or not ("add").
struct Binary {
    const Tensor &other;
    double scale;
    int64_t zero_point;
    std::string_view name;
    double alpha;
};

void check_binary(const Binary &binary, const Output &output, at::IntArrayRef sizes) {
    TORCH_CHECK_NOT_IMPLEMENTED(binary.name == "sum" || binary.name == "add",
                                "quantized operators on xpu don't support binary post op '", binary.name,
                                "'");
    TORCH_CHECK(binary.alpha == 1, "the binary post op's alpha must be 1, got ", binary.alpha);
    if (binary.name != "sum") return;
    const Tensor &out = binary.other;
    TORCH_CHECK(out.sizes() == sizes, "expected a tensor of shape ", sizes, " to sum into, got ",
                out.sizes());
    TORCH_CHECK(!output.dtype || *output.dtype == out.scalar_type(), "expected a tensor of dtype ",
                *output.dtype, " to sum into, got ", out.scalar_type());
}

// `values` with post-ops applied, with these strides.
Tensor finish(Tensor values, const Tensor &input, const Binary *binary, const Unary &unary,
              const Output &output, at::IntArrayRef strides) {
    if (binary && binary->name != "none") {
        check_binary(*binary, output, values.sizes());
        const Tensor &other = binary->other;
        values.add_(numbers(other, parameters(other, binary->scale, binary->zero_point)));
    }
    apply(post_ops_of(unary.name, unary.scalars, unary.algorithm), values);
    Tensor out;
    if (binary && binary->name == "sum") {
        out = binary->other;
    } else {
        const auto dtype = output.dtype.value_or(input.scalar_type());
        if (dtype == at::kFloat && values.strides() == strides) return values;
        out = at::empty_strided(values.sizes(), strides, values.options().dtype(dtype));
    }
    write(values, output.scale, output.zero_point, out);
    return out;
}

// --- linear layers ---

// The transposed weight: nothing is packed.
Tensor prepack_linear(const Tensor &weight, const std::optional<Integers> & /*input_shape*/) {
    Tensor packed = weight.t();
    if (packed.scalar_type() == at::kChar) column_sums(packed, packed);
    return packed;
}

bool can_leave(const Tensor &t) {
    const auto type = t.scalar_type();
    return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf || type == at::kChar ||
           type == at::kByte;
}

// out = post_ops(x w) in one pass: x [m, k], w [k, n] in the memory of `owner`, out and the added tensor
// [m, n].
struct Product {
    const Tensor &x;
    const Parameters &of_x;
    const Tensor &w, &owner;
    const Parameters &of_w;
    const std::optional<Tensor> &bias;
    Tensor other, out;
};
void multiply(const Product &p, const Binary *binary, const Unary &unary, const Output &output) {
    const int64_t m = p.x.size(0), k = p.x.size(1), n = p.w.size(1);
    const xpu_post_ops post_ops = post_ops_of(unary.name, unary.scalars, unary.algorithm);
    xpu_gemm_args args{.dtype = XPU_FLOAT32,
                       .epilogue = post_ops.epilogue,
                       .batch = 1,
                       .m = m,
                       .n = n,
                       .k = k,
                       .a = {openxpu::input_data(p.x), 0, p.x.stride(0), p.x.stride(1)},
                       .b = {openxpu::input_data(p.w), 0, p.w.stride(0), p.w.stride(1)},
                       .out = {p.out.mutable_data_ptr(), 0, p.out.stride(0), p.out.stride(1)},
                       .alpha = openxpu::scalar_of(p.of_x.number),
                       .beta = openxpu::scalar_of(int64_t{1}),
                       .epilogue_scalar = {post_ops.scalar[0], post_ops.scalar[1]}};
    xpu_output_quant output_quant{.dtype = openxpu::dtype_of(p.out),
                                  .other_dtype = XPU_FLOAT32,
                                  .scale = output.scale,
                                  .other_scale = 1,
                                  .zero = static_cast<int32_t>(output.zero_point),
                                  .other_zero = 0};
    if (binary) {
        args.combine = XPU_COMBINE_ADD;
        args.other = {openxpu::input_data(p.other), 0, p.other.stride(0), p.other.stride(1)};
        output_quant.other_dtype = openxpu::dtype_of(p.other);
        output_quant.other_scale = binary->scale,
        output_quant.other_zero = static_cast<int32_t>(binary->zero_point);
    }
    Tensor addend, sums;
    if (p.bias && p.bias->defined()) {
        TORCH_CHECK(p.bias->numel() == n, "expected a bias of ", n, " elements, got ", p.bias->numel());
        addend = p.bias->to(p.x.options().dtype(at::kFloat)).contiguous();
        args.c = {openxpu::input_data(addend), 0, 0, 1};
    }
    const xpu_quant_params qw = quantized(p.w, p.of_w, false, n);
    xpu_quant_params qx{};
    const bool is_bytes = is_stored(p.x) && !c10::isFloat8Type(p.x.scalar_type());
    if (is_stored(p.x)) qx = quantized(p.x, p.of_x, true, m);
    if (m == 0 || n == 0) return;
    if (is_bytes && p.w.scalar_type() == at::kChar && !xpu_host_provider_active(p.x.device().index()))
        sums = column_sums(p.owner, p.w);
    openxpu::check_product(
        xpu_gemm_requantized(openxpu::current_stream(p.x), &args, is_stored(p.x) ? &qx : nullptr, &qw,
                             sums.defined() ? sums.const_data_ptr<int32_t>() : nullptr, &output_quant));
}

// The result's rows, if products can write its dtype; else fp32 rows.
Tensor multiply_rows(const Tensor &x, const Parameters &of_x, const Tensor &w, const Parameters &of_w,
                     const std::optional<Tensor> &bias, const Binary *binary, const Unary &unary,
                     const Output &output) {
    TORCH_CHECK(w.dim() == 2 && is_stored(w), "expected a 2D weight of int8 or float8, got ", w.scalar_type(),
                " of shape ", w.sizes());
    TORCH_CHECK(x.dim() >= 1 && x.size(-1) == w.size(0), "input of shape ", x.sizes(),
                " doesn't fit a weight of shape ", w.sizes());
    TORCH_CHECK(x.device() == w.device(), "input and weight are on ", x.device(), " and ", w.device());
    const int64_t m = c10::multiply_integers(x.sizes().slice(0, x.dim() - 1)), n = w.size(1);
    auto shape = x.sizes().vec();
    shape.back() = n;
    if (binary && binary->name == "none") binary = nullptr;
    if (binary) check_binary(*binary, output, shape);
    Tensor rows = x.reshape({m, x.size(-1)});
    if (!is_stored(x)) rows = rows.to(at::kFloat);
    const bool sums = binary && binary->name == "sum";
    const auto dtype = sums ? binary->other.scalar_type() : output.dtype.value_or(x.scalar_type());
    const auto options = x.options().dtype(dtype);
    Product p{rows, of_x, w, w, of_w, bias, {}, {}};
    if (binary) p.other = binary->other.expand(shape).reshape({m, n});
    const bool in_place = sums && p.other.is_alias_of(binary->other);
    p.out = in_place ? p.other : at::empty({m, n}, options);
    if (can_leave(p.out) && (!binary || can_leave(p.other))) {
        multiply(p, binary, unary, output);
        if (sums && !in_place) binary->other.copy_(p.out.view(shape));
        return sums ? binary->other : p.out.view(shape);
    }
    TORCH_CHECK(c10::isFloatingType(dtype) || c10::isFloat8Type(dtype),
                "quantized operators on xpu return int8, uint8 or floating-point tensors, not ", dtype);
    p.out = at::empty({m, n}, options.dtype(at::kFloat));
    const c10::List<std::optional<at::Scalar>> nothing;
    multiply(p, nullptr, {"none", nothing, ""}, {1, 0, at::kFloat});
    const auto strides = p.out.view(shape).strides().vec();
    return finish(p.out.view(shape), x, binary, unary, output, strides);
}

template <class Scale, class Zero> // numbers, or tensors
Tensor linear(const Tensor &x, Scale x_scale, Zero x_zero, const Tensor &w, const Tensor &w_scale,
              const Tensor &w_zero, const std::optional<Tensor> &bias, double scale, int64_t zero_point,
              std::optional<at::ScalarType> dtype, std::string_view unary, const Scalars &scalars,
              std::string_view algorithm) {
    return multiply_rows(x, parameters(x, x_scale, x_zero), w, parameters(w, w_scale, w_zero), bias, nullptr,
                         {unary, scalars, algorithm}, {scale, zero_point, dtype});
}

template <class Scale, class Zero>
Tensor linear_binary(const Tensor &x, Scale x_scale, Zero x_zero, const Tensor &w, const Tensor &w_scale,
                     const Tensor &w_zero, const std::optional<Tensor> &other,
                     const std::optional<Tensor> &bias, double scale, int64_t zero_point,
                     std::optional<at::ScalarType> dtype, double other_scale, int64_t other_zero,
                     std::string_view binary, double alpha, std::string_view unary, const Scalars &scalars,
                     std::string_view algorithm) {
    TORCH_CHECK(other && other->defined(), "the binary post op '", binary, "' needs another tensor");
    const Binary added{*other, other_scale, other_zero, binary, alpha};
    return multiply_rows(x, parameters(x, x_scale, x_zero), w, parameters(w, w_scale, w_zero), bias, &added,
                         {unary, scalars, algorithm}, {scale, zero_point, dtype});
}

// --- convolutions ---

// An 8-bit 1 x 1 kernel, and the same as the right operand of the product over pixels.
bool is_by_pixel(const Tensor &w) {
    return w.dim() >= 3 && w.scalar_type() == at::kChar && w.numel() == w.size(0) * w.size(1) &&
           w.numel() > 0;
}
Tensor pixels_weight(const Tensor &w) { return w.reshape({w.size(0), w.size(1)}).t(); }
// The weight as a matrix with one column per output channel.
Tensor channels_weight(const Tensor &w) { return w.flatten(1).t(); }

Tensor prepack_convolution(const Tensor &weight, const Tensor & /*scales*/, double /*input_scale*/,
                           int64_t /*input_zero*/, const Integers & /*stride*/, const Integers & /*padding*/,
                           const Integers & /*dilation*/, int64_t /*groups*/,
                           const std::optional<Integers> & /*input_shape*/) {
    if (weight.scalar_type() == at::kChar && weight.dim() >= 3 && weight.numel() > 0)
        column_sums(weight, channels_weight(weight));
    return weight;
}

// The result's layout that Inductor assumes: the input's; channels first if it has both.
std::vector<int64_t> strides_of_result(const Tensor &x, at::IntArrayRef sizes) {
    const bool first = x.is_contiguous() || x.stride(0) == 0;
    const auto dims = static_cast<int64_t>(sizes.size());
    std::vector<int64_t> strides(sizes.size(), 1);
    int64_t next = first ? 1 : sizes[1];
    for (int64_t d = dims - 1; d > (first ? -1 : 1); d--) {
        strides[d] = next;
        next *= std::max<int64_t>(sizes[d], 1);
    }
    if (!first) strides[0] = next;
    return strides;
}

// [pixels, channels] of a channels-last tensor, or of a single image.
std::optional<Tensor> pixels_of(const Tensor &t) {
    const Tensor last = t.movedim(1, -1);
    if (last.is_contiguous()) return last.view({-1, t.size(1)});
    if (t.size(0) == 1 && t.is_contiguous()) return t.view({t.size(1), -1}).t();
    return std::nullopt;
}

// 1 x 1 convolution as a product over pixels in their memory order.
std::optional<Tensor> by_product(const Tensor &x, const Parameters &of_x, const Tensor &w,
                                 const Parameters &of_w, const std::optional<Tensor> &bias,
                                 const Integers &stride, const Integers &padding, int64_t groups,
                                 const Binary *binary, const Unary &unary, const Output &output) {
    const auto are = [](const Integers &all, int64_t value) {
        for (const int64_t v : all)
            if (v != value) return false;
        return true;
    };
    if (binary && binary->name == "none") binary = nullptr;
    if (!is_by_pixel(w) || x.dim() < 3 || x.numel() == 0 || !is_stored(x) || groups != 1 || !are(stride, 1) ||
        !are(padding, 0) || w.size(1) != x.size(1) || w.device() != x.device())
        return std::nullopt;
    const auto pixels = pixels_of(x);
    if (!pixels) return std::nullopt;
    auto shape = x.sizes().vec();
    shape[1] = w.size(0);
    if (binary) check_binary(*binary, output, shape);
    const bool sums = binary && binary->name == "sum";
    const auto dtype = sums ? binary->other.scalar_type() : output.dtype.value_or(x.scalar_type());
    const Tensor out = sums ? binary->other
                            : at::empty_strided(shape, strides_of_result(x, shape), x.options().dtype(dtype));
    const auto out_pixels = pixels_of(out);
    std::optional<Tensor> other_pixels;
    if (binary) other_pixels = pixels_of(binary->other.expand(shape));
    if (!can_leave(out) || !out_pixels ||
        (binary &&
         (!other_pixels || !can_leave(binary->other) || out_pixels->sizes() != other_pixels->sizes())))
        return std::nullopt;
    const Tensor right = pixels_weight(w);
    Product p{*pixels, of_x, right, w, of_w, bias, other_pixels.value_or(Tensor()), *out_pixels};
    multiply(p, binary, unary, output);
    return out;
}

// Arguments of a convolution, besides x.
struct Convolution {
    const Tensor &x;
    const Parameters &of_x;
    const Tensor &w;
    const Parameters &of_w;
    const std::optional<Tensor> &bias;
    const Integers &stride, &padding, &dilation;
    int64_t groups;

    // The weight with x's number of dimensions; a one-dimensional one may have been packed with an extra
    // dimension.
    Tensor kernel() const { return w.dim() == x.dim() + 1 ? w.squeeze(2) : w; }
};

// Checks that the implementations don't make.
void check_convolution(const Convolution &c) {
    TORCH_CHECK(c.x.dim() >= 3 && c.x.dim() <= 5, "expected an input of 3 to 5 dimensions, got ", c.x.dim());
    TORCH_CHECK(is_stored(c.w), "expected a weight of int8 or float8, got ", c.w.scalar_type());
    const Tensor kernel = c.kernel();
    TORCH_CHECK(kernel.dim() == c.x.dim(), "input of shape ", c.x.sizes(), " doesn't fit a weight of shape ",
                c.w.sizes());
    const auto dims = static_cast<size_t>(c.x.dim() - 2);
    const auto each = [&](const Integers &all, const char *name, int64_t least) {
        TORCH_CHECK(all.size() == 1 || all.size() == dims, "expected 1 or ", dims, " values for ", name,
                    ", got ", all.size());
        for (const int64_t v : all) TORCH_CHECK(v >= least, name, " must be at least ", least, ", got ", v);
    };
    each(c.stride, "stride", 1), each(c.padding, "padding", 0), each(c.dilation, "dilation", 1);
    const int64_t channels = kernel.size(0);
    TORCH_CHECK(c.groups > 0 && kernel.size(1) == c.x.size(1) / c.groups && c.x.size(1) % c.groups == 0 &&
                    channels % c.groups == 0,
                "input of shape ", c.x.sizes(), " doesn't fit a weight of shape ", c.w.sizes(), " in ",
                c.groups, " groups");
    for (size_t d = 0; d < dims; d++) {
        const auto at = [&](const Integers &all) { return all.get(all.size() == 1 ? 0 : d); };
        const auto dim = static_cast<int64_t>(d) + 2;
        const int64_t room = c.x.size(dim) + 2 * at(c.padding);
        TORCH_CHECK(room >= 1 && (kernel.size(dim) - 1) <= (room - 1) / at(c.dilation),
                    "the kernel is larger than the padded input, of ", room, " in dimension ", dim);
    }
    TORCH_CHECK(!c.bias || !c.bias->defined() || c.bias->numel() == channels, "expected a bias of ", channels,
                " elements, got ", c.bias ? c.bias->numel() : 0);
    for (const Tensor *each_or_one : {&c.of_w.scale, &c.of_w.zero})
        TORCH_CHECK(!each_or_one->defined() || each_or_one->numel() == 1 || each_or_one->numel() == channels,
                    "expected one scale and zero point of the weight, or ", channels, ", got ",
                    each_or_one->numel());
}

// True if it is an int8 convolution with a single zero point of x.
bool sums_bytes(const Convolution &c) {
    const auto type = c.x.scalar_type();
    const auto dims = static_cast<size_t>(c.x.dim() - 2);
    const auto is_one = [](const Tensor &t) { return !t.defined() || t.numel() == 1; };
    return (type == at::kChar || type == at::kByte) && c.w.scalar_type() == at::kChar && c.x.numel() > 0 &&
           c.w.numel() > 0 && c.w.device() == c.x.device() && !c.of_w.zero.defined() &&
           c.of_w.zero_offset == 0 && is_one(c.of_x.scale) && is_one(c.of_x.zero) &&
           c.stride.size() == dims && c.padding.size() == dims && c.dilation.size() == dims;
}

// With int8 kernels, if the device has one for this convolution.
std::optional<Tensor> by_matrix_engine(const Convolution &c, const Binary *binary, const Unary &unary,
                                       const Output &output) {
    if (binary && binary->name == "none") binary = nullptr;
    const Tensor &x = c.x;
    if (!sums_bytes(c) || xpu_host_provider_active(x.device().index())) return std::nullopt;
    const Tensor kernel = c.kernel();
    const auto dims = static_cast<size_t>(x.dim() - 2);
    const auto shape = at::native::conv_output_size(x.sizes(), kernel.sizes(), c.padding.vec(),
                                                    c.stride.vec(), c.dilation.vec());
    if (binary) check_binary(*binary, output, shape);
    const bool sums = binary && binary->name == "sum";
    const auto dtype = sums ? binary->other.scalar_type() : output.dtype.value_or(x.scalar_type());
    const Tensor out = sums ? binary->other
                            : at::empty_strided(shape, strides_of_result(x, shape), x.options().dtype(dtype));
    if (!can_leave(out) || (binary && !can_leave(binary->other))) return std::nullopt;
    const Tensor other = binary ? openxpu::lying_as(binary->other, out) : Tensor();
    /* by lines of channels, as kernels read it */
    const Tensor packed =
        kernel.movedim(1, -1).is_contiguous() ? kernel : form_of(c.w, FORM_LINES, {}, {}, [&] {
            return kernel.movedim(1, -1).contiguous().movedim(-1, 1);
        });
    const Tensor of_channels = column_sums(c.w, channels_weight(c.w));
    Tensor addend;
    if (c.bias && c.bias->defined()) addend = c.bias->to(x.options().dtype(at::kFloat)).contiguous();
    xpu_conv conv{.dims = static_cast<int>(dims), .transposed = false, .groups = c.groups};
    for (size_t d = 0; d < dims; d++)
        conv.stride[d] = c.stride[d], conv.padding[d] = c.padding[d], conv.dilation[d] = c.dilation[d];
    const xpu_quant_params qx = quantized(x, c.of_x, true, 1),
                           qw = quantized(c.w, c.of_w, true, kernel.size(0));
    xpu_post_ops post_ops = post_ops_of(unary.name, unary.scalars, unary.algorithm);
    xpu_output_quant output_quant{.dtype = openxpu::dtype_of(out),
                                  .other_dtype = XPU_FLOAT32,
                                  .scale = output.scale,
                                  .other_scale = 1,
                                  .zero = static_cast<int32_t>(output.zero_point),
                                  .other_zero = 0};
    const xpu_tensor in = openxpu::input_of(x), weights = openxpu::input_of(packed),
                     y = openxpu::tensor_of(out);
    xpu_tensor b{}, z{};
    if (addend.defined()) b = openxpu::input_of(addend);
    if (binary) {
        post_ops.combine = XPU_COMBINE_ADD, z = openxpu::input_of(other);
        output_quant.other_dtype = z.dtype, output_quant.other_scale = binary->scale;
        output_quant.other_zero = static_cast<int32_t>(binary->zero_point);
    }
    const xpu_status status = xpu_conv_requantized(
        openxpu::current_stream(x), &conv, &in, &qx, &weights, &qw, of_channels.const_data_ptr<int32_t>(),
        c.of_x.number, addend.defined() ? &b : nullptr, &post_ops, binary ? &z : nullptr, &output_quant, &y);
    if (status == XPU_ERROR_NOT_SUPPORTED) return std::nullopt;
    openxpu::check(status);
    return out;
}

// The dequantized weight, which is cached.
Tensor dequantized_weight(const Tensor &w, const Tensor &kernel, const Parameters &of_w) {
    std::vector<int64_t> how{of_w.zero_offset, kernel.dim()};
    for (const Tensor *t : {&of_w.scale, &of_w.zero}) {
        if (t->defined() && t->is_inference()) return numbers(kernel, of_w);
        how.push_back(t->defined() ? reinterpret_cast<int64_t>(t->const_data_ptr()) : 0);
        how.push_back(t->defined() ? static_cast<int64_t>(t->_version()) : 0);
    }
    return form_of(w, FORM_NUMBERS, std::move(how), {of_w.scale, of_w.zero},
                   [&] { return numbers(kernel, of_w); });
}

Tensor convolve(const Convolution &c) {
    const Tensor &x = c.x, &w = c.w;
    const Tensor kernel = c.kernel();
    std::optional<Tensor> addend;
    if (c.bias && c.bias->defined()) addend = c.bias->to(at::kFloat);
    const auto dims = static_cast<size_t>(x.dim() - 2);
    return at::convolution(numbers(x, c.of_x), dequantized_weight(w, kernel, c.of_w), addend, c.stride.vec(),
                           c.padding.vec(), c.dilation.vec(), false, std::vector<int64_t>(dims, 0), c.groups);
}

// --- convolutions by PyTorch's own kernel, on CPU devices ---

Tensor call_cpu(const char *name, const char *overload, torch::jit::Stack stack) {
    c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).callBoxed(stack);
    return stack.back().toTensor();
}

// Channels last, with regular strides in dimensions of size 1 too, from which oneDNN derives the layout.
Tensor with_lines(const Tensor &t) {
    const Tensor last = t.movedim(1, -1).contiguous();
    return last.as_strided(last.sizes(), c10::contiguous_strides(last.sizes())).movedim(-1, 1);
}

double number_of(const Tensor &one) { return openxpu::as_cpu_input(one).item<double>(); }

// oneDNN accumulates in int32 only on CPUs with int8 instructions; without them, its 16-bit sums
// saturate. It takes uint8 only, and not all post-ops; the others are applied to its result.
std::optional<Tensor> by_host(const Convolution &c, const Binary *binary, const Unary &unary,
                              const Output &output) {
    if (binary && binary->name == "none") binary = nullptr;
    const Tensor &x = c.x;
    const bool is_signed = x.scalar_type() == at::kChar;
    const auto device = x.device().index();
    if (!sums_bytes(c) || !c.of_w.scale.defined() || !xpu_host_provider_active(device) ||
        !at::cpu::is_avx512_vnni_supported() || openxpu::is_captured(device))
        return std::nullopt;
    const Tensor kernel = c.kernel();
    const auto dims = x.dim() - 2;
    const double x_scale = c.of_x.scale.defined() ? number_of(c.of_x.scale) : c.of_x.number;
    const int64_t raised = is_signed ? 128 : 0;
    const int64_t x_zero = c.of_x.zero_offset + raised +
                           (c.of_x.zero.defined() ? static_cast<int64_t>(number_of(c.of_x.zero)) : 0);
    if (x_zero < 0 || x_zero > 255) return std::nullopt;
    const auto shape = at::native::conv_output_size(x.sizes(), kernel.sizes(), c.padding.vec(),
                                                    c.stride.vec(), c.dilation.vec());
    if (openxpu::is_wrong_with_amx(shape, kernel.sizes(), c.stride.vec(), c.padding.vec()) ||
        openxpu::has_no_whole_window(x.sizes(), shape, kernel.sizes(), c.stride.vec(), c.padding.vec(),
                                     c.dilation.vec()))
        return std::nullopt;
    if (binary) check_binary(*binary, output, shape);
    post_ops_of(unary.name, unary.scalars, unary.algorithm); // or its error
    const auto dtype = output.dtype.value_or(x.scalar_type());
    const bool is_byte = dtype == at::kByte || dtype == at::kChar, plain = unary.name == "none";
    const bool follows =
        plain || (unary.name == "relu" && dims < 3) ||
        (dims == 2 && (unary.name == "hardtanh" || unary.name == "hardswish" || unary.name == "swish"));
    const bool ends = !binary && follows && (is_byte || dtype == at::kFloat || dtype == at::kBFloat16);

    const openxpu::HostScope scope(device);
    const Tensor w_scale = openxpu::as_cpu_input(c.of_w.scale);
    const Tensor w_zero = at::zeros({w_scale.numel()}, at::kLong);
    std::vector<int64_t> how{x_zero, c.groups, kernel.dim(), w_scale.numel()};
    for (const Integers *all : {&c.stride, &c.padding, &c.dilation})
        for (const int64_t v : *all) how.push_back(v);
    const Tensor packed = form_of(c.w, FORM_ONEDNN, std::move(how), {}, [&] {
        return call_cpu("onednn::qconv_prepack", "",
                        {openxpu::as_cpu_input(kernel).contiguous(), w_scale, x_scale, x_zero, c.stride,
                         c.padding, c.dilation, c.groups, at::IValue()});
    });
    Tensor bytes = with_lines(openxpu::as_cpu_input(x));
    if (is_signed) bytes = at::bitwise_xor(bytes.view(at::kByte), 128);
    at::IValue bias;
    if (c.bias && c.bias->defined()) bias = openxpu::as_cpu_input(c.bias->to(at::kFloat).contiguous());
    const bool rounds = ends && is_byte;
    torch::jit::Stack stack{bytes,
                            x_scale,
                            x_zero,
                            packed,
                            w_scale,
                            w_zero,
                            bias,
                            c.stride,
                            c.padding,
                            c.dilation,
                            c.groups,
                            rounds ? output.scale : 1.0,
                            rounds ? output.zero_point : int64_t{0},
                            static_cast<int64_t>(ends ? dtype : at::kFloat),
                            std::string(ends ? unary.name : "none")};
    stack.emplace_back(unary.scalars);
    stack.emplace_back(unary.algorithm.empty() ? at::IValue() : at::IValue(std::string(unary.algorithm)));
    const Tensor made = scope.adopt(call_cpu("onednn::qconv_pointwise", "", std::move(stack)));
    const auto strides = strides_of_result(x, made.sizes());
    if (!ends) return finish(made, x, binary, unary, output, strides);
    if (made.strides() == strides) return made;
    return at::empty_strided(made.sizes(), strides, made.options()).copy_(made);
}

template <class Scale, class Zero>
Tensor convolution(const Tensor &x, Scale x_scale, Zero x_zero, const Tensor &w, const Tensor &w_scale,
                   const Tensor &w_zero, const std::optional<Tensor> &bias, const Integers &stride,
                   const Integers &padding, const Integers &dilation, int64_t groups, double scale,
                   int64_t zero_point, std::optional<at::ScalarType> dtype, std::string_view unary,
                   const Scalars &scalars, std::optional<std::string_view> algorithm) {
    const Parameters of_x = parameters(x, x_scale, x_zero), of_w = parameters(w, w_scale, w_zero);
    const Unary then{unary, scalars, algorithm.value_or("")};
    const Output output{scale, zero_point, dtype};
    const Convolution all{x, of_x, w, of_w, bias, stride, padding, dilation, groups};
    check_convolution(all);
    if (auto out = by_host(all, nullptr, then, output)) return *out;
    if (auto out = by_product(x, of_x, w, of_w, bias, stride, padding, groups, nullptr, then, output))
        return *out;
    if (auto out = by_matrix_engine(all, nullptr, then, output)) return *out;
    Tensor values = convolve(all);
    return finish(values, x, nullptr, then, output, strides_of_result(x, values.sizes()));
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
    const Parameters of_x = parameters(x, x_scale, x_zero), of_w = parameters(w, w_scale, w_zero);
    const Binary added{accum, accum_scale, accum_zero, binary, alpha ? alpha->toDouble() : 1.0};
    const Unary then{unary.value_or("none"), scalars, algorithm.value_or("")};
    const Output output{scale, zero_point, dtype};
    const Convolution all{x, of_x, w, of_w, bias, stride, padding, dilation, groups};
    check_convolution(all);
    if (auto out = by_host(all, &added, then, output)) return *out;
    if (auto out = by_product(x, of_x, w, of_w, bias, stride, padding, groups, &added, then, output))
        return *out;
    if (auto out = by_matrix_engine(all, &added, then, output)) return *out;
    Tensor values = convolve(all);
    return finish(values, x, &added, then, output, strides_of_result(x, values.sizes()));
}

using Known = const Tensor &;

// A boxed kernel: unboxed signatures are compared with the CPU's in C++, and an argument is a reference
// in one version of PyTorch and a value in another.
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

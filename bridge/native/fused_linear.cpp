// Fused linear layers for Inductor's graphs (python/openxpu/_fuse_linear.py).
//
// - openxpu::fused_linear: layers that share activations with few rows, in one launch if the device has a
//   kernel
// (xpu_gemm_fused), else one after another.
// - openxpu::int8_linear: one layer with quantized activations and post-ops.
// - openxpu::qkv_rope_linear: a QKV projection with RoPE and KV-cache write (xpu_gemm_qkv_rope).
#include <ATen/TensorOperators.h>
#include <ATen/ops/_index_put_impl.h>
#include <ATen/ops/_int_mm.h>
#include <ATen/ops/_weight_int4pack_mm_with_scales_and_zeros.h>
#include <ATen/ops/_weight_int8pack_mm.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/silu.h>
#include <torch/library.h>

#include <array>

#include "../host_gemm.h"
#include "../host_memory.h"
#include "../operands.h"
#include "xpu/ops/gemm.h"

namespace {

using at::Tensor;

constexpr size_t PARTS = 4; // of xpu_gemm_fusion

struct Activation {
    std::string_view name;
    xpu_epilogue epilogue;
    Tensor (*apply)(const Tensor &);
};
constexpr Activation activations[] = {
    {"none", XPU_EPILOGUE_NONE, [](const Tensor &x) { return x; }},
    {"relu", XPU_EPILOGUE_RELU, [](const Tensor &x) { return at::relu(x); }},
    {"gelu", XPU_EPILOGUE_GELU, [](const Tensor &x) { return at::gelu(x); }},
    {"gelu_tanh", XPU_EPILOGUE_GELU_TANH, [](const Tensor &x) { return at::gelu(x, "tanh"); }},
    {"silu", XPU_EPILOGUE_SILU, [](const Tensor &x) { return at::silu(x); }}};
const Activation &activation_of(std::string_view name) {
    for (const Activation &known : activations)
        if (known.name == name) return known;
    TORCH_CHECK(false, "fused_linear: unknown activation ", name);
}

// Arguments of a product with left operand x and a row-major result.
xpu_gemm_args product_of(const Tensor &x, const Tensor &out) {
    return {.dtype = openxpu::dtype_of(x),
            .batch = 1,
            .m = x.size(0),
            .n = out.size(1),
            .k = x.size(1),
            .a = {openxpu::input_data(x), 0, x.stride(0), x.stride(1)},
            .out = {out.mutable_data_ptr(), 0, out.size(1), 1}};
}

// Weights: int32 with eight 4-bit integers each, scales and zero points [k / group, n]; int8 or float8,
// scales [n]; or unquantized, of x's dtype.
struct Layers {
    at::ArrayRef<Tensor> weight, scale, zero, bias;
    int64_t group;

    bool is_int4() const { return weight[0].scalar_type() == at::kInt; }
    bool is_int8() const { return weight[0].scalar_type() == at::kChar; }
    bool is_float8() const {
        return weight[0].scalar_type() == at::kFloat8_e4m3fn || weight[0].scalar_type() == at::kFloat8_e5m2;
    }
    xpu_quant_params quantized(size_t i) const {
        xpu_quant_params q{.dtype = is_int4() ? XPU_UINT4 : openxpu::dtype_of(weight[i]),
                           .scale_dtype = openxpu::dtype_of(scale[i]),
                           .scale = openxpu::input_data(scale[i]),
                           .group_rows = is_int4() ? group : 0,
                           .group_columns = 1,
                           .scale_column_stride = scale[i].stride(-1)};
        if (!is_int4()) return q;
        q.scale_row_stride = scale[i].stride(0);
        q.zero_dtype = openxpu::dtype_of(zero[i]), q.zero = openxpu::input_data(zero[i]);
        q.zero_row_stride = zero[i].stride(0), q.zero_column_stride = zero[i].stride(1);
        return q;
    }
    bool is_stored() const { return is_int4() || is_int8() || is_float8(); }
    // Fills in xpu_gemm_fusion; false if rows don't have the layout that the kernels require.
    bool parts(std::array<xpu_gemm_part, PARTS> &to, std::array<xpu_quant_params, PARTS> &of) const {
        bool is_along = true;
        for (size_t i = 0; i < weight.size(); i++) {
            const Tensor &w = weight[i];
            if (is_stored()) of[i] = quantized(i);
            to[i] = {.b = {openxpu::input_data(w), 0, w.stride(1), w.stride(0) * (is_int4() ? 8 : 1)},
                     .quantized = is_stored() ? &of[i] : nullptr,
                     .c = bias.empty() ? nullptr : openxpu::input_data(bias[i]),
                     .n = w.size(0)};
            is_along = is_along && w.stride(1) == 1 && (bias.empty() || bias[i].stride(0) == 1);
        }
        return is_along;
    }
    Tensor multiply(const Tensor &x, size_t i) const {
        if (is_int4())
            return at::_weight_int4pack_mm_with_scales_and_zeros(x, weight[i], group, scale[i], zero[i]);
        if (is_int8()) return at::_weight_int8pack_mm(x, weight[i], scale[i].to(x.scalar_type()));
        if (!is_float8()) return at::mm(x, weight[i].t());
        const Tensor w = weight[i].contiguous();
        const int64_t m = x.size(0), n = w.size(0);
        Tensor out = at::empty({m, n}, x.options());
        xpu_quant_params q = quantized(i);
        xpu_gemm_args args = product_of(x, out);
        args.b = {openxpu::input_data(w), 0, 1, w.size(1)};
        args.alpha = args.beta = openxpu::scalar_of(int64_t{1});
        openxpu::check_product(xpu_gemm_quantized(openxpu::current_stream(x), &args, nullptr, &q));
        return out;
    }
};

// Must also work on fake tensors, whose sizes may be symbolic.
void check(const Tensor &x, const Layers &all, bool gated, const std::optional<Tensor> &norm,
           const std::optional<Tensor> &residual) {
    const size_t count = all.weight.size();
    TORCH_CHECK(count >= 1, "fused_linear: expected at least one weight");
    TORCH_CHECK(count <= PARTS && (!gated || count == 2), "fused_linear: ", count,
                gated ? " weights; a gated layer needs 2" : " weights are too many");
    TORCH_CHECK(x.dim() == 2, "fused_linear: expected x to have 2 dimensions, got ", x.dim());
    const bool quantized = all.is_stored();
    TORCH_CHECK(
        all.scale.size() == (quantized ? count : 0) && all.zero.size() == (all.is_int4() ? count : 0) &&
            (all.bias.empty() || all.bias.size() == count),
        "fused_linear: the number of scales, zero points or biases doesn't match ", count, " weights");
    TORCH_CHECK(!gated || (all.bias.empty() && !residual),
                "fused_linear: a gated layer can't have biases or a residual");
    const auto is_here = [&](const Tensor &t) {
        TORCH_CHECK(t.device() == x.device(), "Expected all tensors to be on the same device, but found ",
                    t.device(), " and ", x.device());
    };
    c10::SymInt k, n = 0;
    for (size_t i = 0; i < count; i++) {
        const Tensor &w = all.weight[i];
        TORCH_CHECK(w.dim() == 2 && w.scalar_type() == all.weight[0].scalar_type() &&
                        (quantized || w.scalar_type() == x.scalar_type()),
                    "fused_linear: expected 2D weights of one dtype, got ", w.sym_sizes(), " ",
                    w.scalar_type());
        const c10::SymInt rows = w.sym_size(0);
        if (i == 0) {
            k = w.sym_size(1) * (all.is_int4() ? 8 : 1);
            TORCH_CHECK(!all.is_int4() || (all.group > 0 && k % all.group == 0), "fused_linear: group size ",
                        all.group, " does not divide rows of ", k);
        }
        TORCH_CHECK(w.sym_size(1) == all.weight[0].sym_size(1) && x.sym_size(1) == k,
                    "fused_linear: rows of x of length ", x.sym_size(1), " don't match a weight of shape ",
                    w.sym_sizes());
        TORCH_CHECK(!gated || rows == all.weight[0].sym_size(0),
                    "fused_linear: the weights of a gated layer must have the same shape, got ",
                    w.sym_sizes());
        is_here(w);
        n = gated ? rows : n + rows;
        if (quantized) {
            const Tensor &s = all.scale[i];
            TORCH_CHECK(all.is_int4()
                            ? s.dim() == 2 && s.sym_size(0) == k / all.group && s.sym_size(1) == rows
                            : s.dim() == 1 && s.sym_size(0) == rows,
                        "fused_linear: scales of shape ", s.sym_sizes(), " don't match a weight of shape ",
                        w.sym_sizes());
            is_here(s);
        }
        if (all.is_int4()) {
            TORCH_CHECK(all.zero[i].sym_sizes() == all.scale[i].sym_sizes() &&
                            all.zero[i].scalar_type() == at::kChar,
                        "fused_linear: expected int8 zero points in the shape of the scales, got ",
                        all.zero[i].sym_sizes(), " ", all.zero[i].scalar_type());
            is_here(all.zero[i]);
        }
        if (!all.bias.empty()) {
            TORCH_CHECK(all.bias[i].dim() == 1 && all.bias[i].sym_size(0) == rows &&
                            all.bias[i].scalar_type() == x.scalar_type(),
                        "fused_linear: the bias doesn't match its weight or x: ", all.bias[i].sym_sizes(),
                        " ", all.bias[i].scalar_type());
            is_here(all.bias[i]);
        }
    }
    if (norm) {
        TORCH_CHECK(norm->dim() == 1 && norm->sym_size(0) == k && norm->scalar_type() == x.scalar_type(),
                    "fused_linear: the norm's weight doesn't match x: ", norm->sym_sizes(), " ",
                    norm->scalar_type());
        is_here(*norm);
    }
    if (residual) {
        TORCH_CHECK(residual->dim() == 2 && residual->sym_size(0) == x.sym_size(0) &&
                        residual->sym_size(1) == n && residual->scalar_type() == x.scalar_type(),
                    "fused_linear: the residual must have the result's shape and dtype");
        is_here(*residual);
    }
}

// RMS norm of rows; with `plus_one` the weight is 1 + the stored one.
Tensor normed(const Tensor &x, const Tensor &weight, double eps, bool plus_one) {
    if (!plus_one) return at::rms_norm(x, x.size(-1), weight, eps);
    const Tensor wide = at::rms_norm(x.to(at::kFloat), x.size(-1), weight.to(at::kFloat) + 1, eps);
    return wide.to(x.scalar_type());
}

// The unfused fallback: one layer after another.
Tensor one_by_one(const Tensor &x, const Layers &all, bool gated, const Activation &activation,
                  const std::optional<Tensor> &norm, double eps, const std::optional<Tensor> &residual,
                  bool plus_one) {
    const Tensor a = norm ? normed(x, *norm, eps, plus_one) : x;
    std::vector<Tensor> results;
    for (size_t i = 0; i < all.weight.size(); i++) {
        results.push_back(all.multiply(a, i));
        if (!all.bias.empty()) results.back().add_(all.bias[i]);
    }
    if (gated) return activation.apply(results[0]).mul_(results[1]);
    const Tensor out = results.size() == 1 ? results[0] : at::cat(results, 1);
    return activation.apply(residual ? out + *residual : out);
}

Tensor fused_linear(const Tensor &x, at::TensorList weight, at::TensorList scale, at::TensorList zero,
                    at::TensorList bias, int64_t group, bool gated, std::string_view name,
                    const std::optional<Tensor> &norm, double eps, const std::optional<Tensor> &residual,
                    bool plus_one) {
    const std::vector<Tensor> kept[] = {weight.vec(), scale.vec(), zero.vec(), bias.vec()};
    const Layers all{kept[0], kept[1], kept[2], kept[3], group};
    const Activation &activation = activation_of(name);
    check(x, all, gated, norm, residual);
    int64_t n = 0;
    for (const Tensor &w : all.weight) n += w.size(0);
    if (gated) n /= 2;
    Tensor out = at::empty({x.size(0), n}, x.options());
    if (out.numel() == 0) return out;
    std::array<xpu_gemm_part, PARTS> parts{};
    std::array<xpu_quant_params, PARTS> quantized{};
    const bool is_told = all.parts(parts, quantized) && (!norm || norm->stride(0) == 1);
    const xpu_gemm_fusion joined{.count = static_cast<int>(all.weight.size()),
                                 .part = parts.data(),
                                 .gated = gated,
                                 .norm = norm ? openxpu::input_data(*norm) : nullptr,
                                 .eps = eps,
                                 .norm_plus_one = plus_one};
    xpu_gemm_args args = product_of(x, out);
    args.epilogue = activation.epilogue;
    if (residual) {
        args.combine = XPU_COMBINE_ADD;
        args.other = {openxpu::input_data(*residual), 0, residual->stride(0), residual->stride(1)};
    }
    const xpu_status status =
        is_told ? xpu_gemm_fused(openxpu::current_stream(x), &args, &joined) : XPU_ERROR_NOT_SUPPORTED;
    if (status == XPU_ERROR_NOT_SUPPORTED)
        return one_by_one(x, all, gated, activation, norm, eps, residual, plus_one);
    openxpu::check_product(status);
    return out;
}

// rotate_half: the operand that RoPE multiplies by the sines, with its sign.
Tensor rotated_half(const Tensor &x, double first_sign) {
    const int64_t half = x.size(-1) / 2;
    return at::cat({x.slice(-1, half).mul(first_sign), x.slice(-1, 0, half)}, -1);
}

// RoPE, head norms and caches. Angles are (1 or rows, depth), norms (depth).
struct Caches {
    int64_t depth;
    const std::optional<Tensor> &cos, &sin;
    double first_sign;
    const std::optional<Tensor> &query_norm, &key_norm;
    double head_eps;
    const Tensor &position;
    int64_t dim;
    const Tensor &keys, &values;
};

void check(const Tensor &x, const Layers &all, const std::optional<Tensor> &norm, const Caches &to) {
    TORCH_CHECK(all.weight.size() == 3, "qkv_rope_linear: ", all.weight.size(),
                " weights; expected 3, for queries, keys and values");
    check(x, all, false, norm, std::nullopt);
    const int64_t depth = to.depth, dim = to.dim;
    const c10::SymInt m = x.sym_size(0), n = all.weight[0].sym_size(0), of_keys = all.weight[1].sym_size(0);
    TORCH_CHECK(depth > 1 && depth % 2 == 0 && n % depth == 0 && of_keys % depth == 0 &&
                    all.weight[2].sym_size(0) == of_keys,
                "qkv_rope_linear: head size ", depth, " doesn't match weights of ", n, ", ", of_keys, " and ",
                all.weight[2].sym_size(0), " rows");
    TORCH_CHECK(dim == 1 || dim == 2,
                "qkv_rope_linear: the cache's positions must lie along dimension 1 or 2, got ", dim);
    TORCH_CHECK(to.cos.has_value() == to.sin.has_value(),
                "qkv_rope_linear: cos and sin must be passed together");
    TORCH_CHECK(to.query_norm.has_value() == to.key_norm.has_value(),
                "qkv_rope_linear: query_norm and key_norm must be passed together");
    TORCH_CHECK(to.position.scalar_type() == at::kLong && to.position.sym_numel() == 1,
                "qkv_rope_linear: expected one int64 position, got ", to.position.sym_sizes(), " ",
                to.position.scalar_type());
    const auto is_like = [&](const Tensor &t) {
        TORCH_CHECK(t.device() == x.device(), "Expected all tensors to be on the same device, but found ",
                    t.device(), " and ", x.device());
        return t.scalar_type() == x.scalar_type();
    };
    for (const Tensor *t : {&to.keys, &to.values})
        TORCH_CHECK(t->dim() == 4 && is_like(*t) && t->sym_size(0) == m &&
                        t->sym_size(3 - dim) == of_keys / depth &&
                        t->sym_size(dim) == to.keys.sym_size(dim) && t->sym_size(3) == depth,
                    "qkv_rope_linear: the cache doesn't match the projection: ", t->sym_sizes(), " ",
                    t->scalar_type(), " for ", m, " rows of ", of_keys / depth, " heads of ", depth);
    for (const auto *angle : {&to.cos, &to.sin})
        if (const auto &t = *angle)
            TORCH_CHECK(t->dim() == 2 && (t->sym_size(0) == 1 || t->sym_size(0) == m) &&
                            t->sym_size(1) == depth && is_like(*t),
                        "qkv_rope_linear: cos or sin doesn't match the projection: ", t->sym_sizes(), " ",
                        t->scalar_type(), " for ", m, " rows of heads of ", depth);
    for (const auto *given : {&to.query_norm, &to.key_norm})
        if (const auto &t = *given)
            TORCH_CHECK(t->dim() == 1 && t->sym_size(0) == depth && is_like(*t),
                        "qkv_rope_linear: a norm's weight doesn't match the heads: ", t->sym_sizes(), " ",
                        t->scalar_type(), " for heads of ", depth);
    TORCH_CHECK(to.position.device() == x.device(),
                "Expected all tensors to be on the same device, but found ", to.position.device(), " and ",
                x.device());
}

// QKV projection x @ w.t() with RoPE and KV-cache write, one token per row, heads of `depth`. Query and
// key heads get an RMS norm, if there are weights for it, and RoPE.
// Keys and values are written at `position` of 4D caches: positions along `dim` (1 or 2), heads along the
// other. Returns the queries.
Tensor qkv_rope_linear(const Tensor &x, at::TensorList weight, at::TensorList scale, at::TensorList zero,
                       at::TensorList bias, int64_t group, const std::optional<Tensor> &norm, double eps,
                       int64_t depth, const std::optional<Tensor> &cos, const std::optional<Tensor> &sin,
                       double first_sign, const std::optional<Tensor> &query_norm,
                       const std::optional<Tensor> &key_norm, double head_eps, const Tensor &position,
                       int64_t dim, const Tensor &keys, const Tensor &values, bool plus_one) {
    const std::vector<Tensor> kept[] = {weight.vec(), scale.vec(), zero.vec(), bias.vec()};
    const Layers all{kept[0], kept[1], kept[2], kept[3], group};
    check(x, all, norm,
          {depth, cos, sin, first_sign, query_norm, key_norm, head_eps, position, dim, keys, values});
    const int64_t m = x.size(0), n = weight[0].size(0), heads = weight[1].size(0) / depth;
    Tensor out = at::empty({m, n}, x.options());
    if (m == 0) return out;
    std::array<xpu_gemm_part, PARTS> parts{};
    std::array<xpu_quant_params, PARTS> quantized{};
    bool is_told = all.parts(parts, quantized) && (!norm || norm->stride(0) == 1) && keys.stride(3) == 1 &&
                   values.stride(3) == 1;
    int64_t angle_stride = 0;
    if (cos) {
        angle_stride = cos->size(0) == 1 ? 0 : cos->stride(0);
        is_told = is_told && cos->stride(1) == 1 && sin->stride(1) == 1 && sin->size(0) == cos->size(0) &&
                  (sin->size(0) == 1 || sin->stride(0) == angle_stride);
    }
    if (query_norm) is_told = is_told && query_norm->stride(0) == 1 && key_norm->stride(0) == 1;
    const auto cache_of = [&](const Tensor &t) {
        return xpu_kv_cache{t.mutable_data_ptr(), t.stride(0), t.stride(3 - dim), t.stride(dim)};
    };
    xpu_status status = XPU_ERROR_NOT_SUPPORTED;
    xpu_fault fault = {};
    if (is_told) {
        const xpu_gemm_fusion joined{.count = 3,
                                     .part = parts.data(),
                                     .norm = norm ? openxpu::input_data(*norm) : nullptr,
                                     .eps = eps,
                                     .norm_plus_one = plus_one};
        const xpu_qkv_rope cached{.depth = depth,
                                  .cos = cos ? openxpu::input_data(*cos) : nullptr,
                                  .sin = sin ? openxpu::input_data(*sin) : nullptr,
                                  .angle_stride = angle_stride,
                                  .first_sign = first_sign,
                                  .position = static_cast<const int64_t *>(openxpu::input_data(position)),
                                  .length = keys.size(dim),
                                  .keys = cache_of(keys),
                                  .values = cache_of(values),
                                  .query_norm = query_norm ? openxpu::input_data(*query_norm) : nullptr,
                                  .key_norm = key_norm ? openxpu::input_data(*key_norm) : nullptr,
                                  .head_eps = head_eps};
        const xpu_gemm_args args = product_of(x, out);
        status = xpu_gemm_qkv_rope(openxpu::current_stream(x), &args, &joined, &cached, &fault);
    }
    if (status != XPU_ERROR_NOT_SUPPORTED) {
        openxpu::check_product(status);
        TORCH_CHECK_INDEX(!fault.state, "index ", fault.index, " is out of bounds for dimension ", dim,
                          " with size ", fault.extent);
        return out;
    }
    const Tensor all_parts =
        one_by_one(x, all, false, activation_of("none"), norm, eps, std::nullopt, plus_one)
            .view({m, -1, depth});
    const std::vector<Tensor> three = all_parts.split_with_sizes({n / depth, heads, heads}, 1);
    const auto turn = [&](const Tensor &given, const std::optional<Tensor> &by) {
        const Tensor t = by ? normed(given, *by, head_eps, plus_one) : given;
        return cos ? t * cos->unsqueeze(1) + rotated_half(t, first_sign) * sin->unsqueeze(1) : t;
    };
    const auto put = [&](const Tensor &cache, const Tensor &t) {
        c10::List<std::optional<Tensor>> places;
        for (int64_t i = 0; i < dim; i++) places.push_back(std::nullopt);
        places.push_back(position.reshape({1}));
        at::_index_put_impl_(const_cast<Tensor &>(cache), places, t.unsqueeze(dim));
    };
    out = turn(three[0], query_norm).reshape({m, n});
    put(keys, turn(three[1], key_norm));
    put(values, three[2]);
    return out;
}
Tensor qkv_rope_linear_meta(const Tensor &x, at::TensorList weight, at::TensorList scale, at::TensorList zero,
                            at::TensorList bias, int64_t group, const std::optional<Tensor> &norm, double,
                            int64_t depth, const std::optional<Tensor> &cos, const std::optional<Tensor> &sin,
                            double first_sign, const std::optional<Tensor> &query_norm,
                            const std::optional<Tensor> &key_norm, double head_eps, const Tensor &position,
                            int64_t dim, const Tensor &keys, const Tensor &values, bool plus_one) {
    const std::vector<Tensor> kept[] = {weight.vec(), scale.vec(), zero.vec(), bias.vec()};
    check(x, {kept[0], kept[1], kept[2], kept[3], group}, norm,
          {depth, cos, sin, first_sign, query_norm, key_norm, head_eps, position, dim, keys, values});
    return at::empty_symint({x.sym_size(0), weight[0].sym_size(0)}, x.options());
}

// a times the transpose of w, both int8 with a scale per row. Accumulates in int32; scales and bias are
// applied once.
Tensor int8_linear(const Tensor &a, const Tensor &w, const Tensor &row_scale, const Tensor &column_scale,
                   const std::optional<Tensor> &bias, c10::ScalarType dtype) {
    TORCH_CHECK(a.dim() == 2 && w.dim() == 2 && a.size(1) == w.size(1), "int8_linear: activations of shape ",
                a.sizes(), " don't match a weight of shape ", w.sizes());
    TORCH_CHECK(a.scalar_type() == at::kChar && w.scalar_type() == at::kChar,
                "int8_linear: expected int8 operands, got ", a.scalar_type(), " and ", w.scalar_type());
    const int64_t m = a.size(0), n = w.size(0);
    const auto is_single = [](c10::ScalarType t) {
        return t == at::kFloat || t == at::kHalf || t == at::kBFloat16;
    };
    TORCH_CHECK(row_scale.numel() == m && column_scale.numel() == n && is_single(row_scale.scalar_type()) &&
                    is_single(column_scale.scalar_type()) && is_single(dtype),
                "int8_linear: scales of shapes ", row_scale.sizes(), " and ", column_scale.sizes(),
                " don't match a result of ", m, " x ", n, " ", dtype);
    TORCH_CHECK(!bias || (bias->dim() == 1 && bias->size(0) == n && bias->scalar_type() == dtype),
                "int8_linear: expected a bias of ", n, " elements of dtype ", dtype);
    for (const Tensor *t : {&w, &row_scale, &column_scale, bias ? &*bias : &w})
        TORCH_CHECK(t->device() == a.device(), "Expected all tensors to be on the same device, but found ",
                    t->device(), " and ", a.device());
    const Tensor rows = row_scale.reshape({-1}), columns = column_scale.reshape({-1});
    if (openxpu::uses_host_kernels(a.device().index())) { // int32 results use another kernel
        const Tensor out = at::_int_mm(a, w.t()).mul(rows.to(at::kFloat).unsqueeze(1)).mul_(columns);
        return (bias ? out + *bias : out).to(dtype);
    }
    Tensor out = at::empty({m, n}, a.options().dtype(dtype));
    if (out.numel() == 0) return out;
    const xpu_quant_params qa{.dtype = XPU_INT8,
                              .scale_dtype = openxpu::dtype_of(rows),
                              .scale = openxpu::input_data(rows),
                              .group_rows = 1,
                              .scale_row_stride = rows.stride(0)};
    const xpu_quant_params qb{.dtype = XPU_INT8,
                              .scale_dtype = openxpu::dtype_of(columns),
                              .scale = openxpu::input_data(columns),
                              .group_columns = 1,
                              .scale_column_stride = columns.stride(0)};
    xpu_gemm_args args{.dtype = openxpu::dtype_of(out),
                       .batch = 1,
                       .m = m,
                       .n = n,
                       .k = a.size(1),
                       .a = {openxpu::input_data(a), 0, a.stride(0), a.stride(1)},
                       .b = {openxpu::input_data(w), 0, w.stride(1), w.stride(0)},
                       .out = {out.mutable_data_ptr(), 0, n, 1},
                       .alpha = openxpu::scalar_of(int64_t{1}),
                       .beta = openxpu::scalar_of(int64_t{1})};
    if (bias) args.c = {openxpu::input_data(*bias), 0, 0, bias->stride(0)};
    openxpu::check_product(xpu_gemm_quantized(openxpu::current_stream(a), &args, &qa, &qb));
    return out;
}
Tensor int8_linear_meta(const Tensor &a, const Tensor &w, const Tensor &, const Tensor &,
                        const std::optional<Tensor> &, c10::ScalarType dtype) {
    return at::empty_symint({a.sym_size(0), w.sym_size(0)}, a.options().dtype(dtype));
}

Tensor fused_linear_meta(const Tensor &x, at::TensorList weight, at::TensorList scale, at::TensorList zero,
                         at::TensorList bias, int64_t group, bool gated, std::string_view name,
                         const std::optional<Tensor> &norm, double, const std::optional<Tensor> &residual,
                         bool) {
    const std::vector<Tensor> kept[] = {weight.vec(), scale.vec(), zero.vec(), bias.vec()};
    activation_of(name);
    check(x, {kept[0], kept[1], kept[2], kept[3], group}, gated, norm, residual);
    c10::SymInt n = 0;
    for (const Tensor &w : kept[0]) n += w.sym_size(0);
    return at::empty_symint({x.sym_size(0), gated ? n / 2 : n}, x.options());
}

} // namespace

TORCH_LIBRARY_FRAGMENT(openxpu, m) {
    m.def("fused_linear(Tensor x, Tensor[] weight, Tensor[] scale, Tensor[] zero, Tensor[] bias, int group, "
          "bool gated, str activation, Tensor? norm, float eps, Tensor? residual, bool norm_plus_one=False) "
          "-> Tensor");
    m.def("int8_linear(Tensor a, Tensor w, Tensor row_scale, Tensor column_scale, Tensor? bias, ScalarType "
          "dtype) "
          "-> Tensor");
    m.def(
        "qkv_rope_linear(Tensor x, Tensor[] weight, Tensor[] scale, Tensor[] zero, Tensor[] bias, int group, "
        "Tensor? norm, float eps, int depth, Tensor? cos, Tensor? sin, float first_sign, Tensor? query_norm, "
        "Tensor? key_norm, float head_eps, Tensor position, int dim, Tensor(a!) keys, Tensor(b!) values, "
        "bool norm_plus_one=False) -> Tensor");
}
TORCH_LIBRARY_IMPL(openxpu, XPU, m) {
    m.impl("fused_linear", fused_linear);
    m.impl("int8_linear", int8_linear);
    m.impl("qkv_rope_linear", qkv_rope_linear);
}
TORCH_LIBRARY_IMPL(openxpu, Meta, m) {
    m.impl("fused_linear", fused_linear_meta);
    m.impl("int8_linear", int8_linear_meta);
    m.impl("qkv_rope_linear", qkv_rope_linear_meta);
}

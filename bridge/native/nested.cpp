// Strided nested tensors: operators that PyTorch implements for CPU and CUDA only, and conversion between
// packed (including jagged) and padded tensors. Sizes live on the CPU, so shapes need no wait for the device;
// work runs on the current stream. Error texts are those of PyTorch.
#include "native/nested.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/nested/NestedTensorTransformerFunctions.h>
#include <ATen/native/nested/NestedTensorUtils.h>
#include <ATen/ops/_jagged_to_padded_dense_forward_native.h>
#include <ATen/ops/_masked_softmax.h>
#include <ATen/ops/_nested_from_padded.h>
#include <ATen/ops/_nested_from_padded_native.h>
#include <ATen/ops/_nested_sum_backward_native.h>
#include <ATen/ops/_nested_tensor_softmax_with_shape_native.h>
#include <ATen/ops/_padded_dense_to_jagged_forward_native.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/add.h>
#include <ATen/ops/add_native.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/mul_native.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/native_layer_norm_backward_native.h>
#include <ATen/ops/native_layer_norm_native.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>
#include <ATen/ops/sum_native.h>
#include <ATen/ops/to_padded_tensor_native.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "host_memory.h"
#include "lower.h"

namespace openxpu {

Levels::Levels(const at::Tensor &sizes, at::IntArrayRef size, c10::Device device) {
    const auto table = sizes.contiguous();
    const auto items = sizes.size(0);
    const auto dims = static_cast<int>(sizes.size(1));
    check(xpu_nested_levels_of(table.const_data_ptr<int64_t>(), items, dims, size.data(), &levels));
    // Pinned, so that the copy to the device is asynchronous.
    offsets = at::empty({levels.table},
                        at::TensorOptions(at::kLong).pinned_memory(!is_host_device(device.index())));
    xpu_nested_offsets(table.const_data_ptr<int64_t>(), items, dims, &levels,
                       offsets.mutable_data_ptr<int64_t>());
    offsets = offsets.to(device, at::kLong, true);
}

xpu_nested Levels::between(const at::Tensor &values, const at::Tensor &padded) const {
    TORCH_INTERNAL_ASSERT(values.scalar_type() == padded.scalar_type(),
                          "packed and padded tensor have different dtypes");
    xpu_nested args{.levels = levels.levels, .offset_dtype = XPU_INT64};
    const auto *table = offsets.const_data_ptr<int64_t>();
    for (int d = 0; d < levels.levels; d++) {
        args.offset[d] = table;
        table += levels.length[d] + 1;
        args.length[d] = levels.length[d];
        args.size[d] = levels.size[d];
    }
    args.items = padded.size(0);
    args.rows = levels.rows;
    args.row_size = levels.row_size;
    args.element_size = static_cast<int>(values.element_size());
    args.values = values.data_ptr();
    args.padded = padded.data_ptr();
    return args;
}

at::Tensor mask_of(const at::Tensor &lengths, int64_t size, c10::Device device) {
    if (lengths.min().item<int64_t>() == size) return {};
    const auto mask = at::arange(size, at::TensorOptions(at::kLong)).lt(lengths.unsqueeze(1));
    return mask.to(device).view({lengths.size(0), 1, 1, size});
}

} // namespace openxpu

namespace at::native {

using openxpu::check;
using openxpu::current_stream;
using openxpu::Levels;

namespace {

const Tensor &sizes_of(const Tensor &nested) { return get_nested_tensor_impl(nested)->get_nested_sizes(); }
Tensor buffer_of(const Tensor &nested) { return get_nested_tensor_impl(nested)->get_buffer(); }

// The sizes with the last dimension replaced by `last`.
Tensor with_last(const Tensor &sizes, int64_t last) {
    auto result = sizes.clone();
    result.select(1, -1).fill_(last);
    return result;
}

Tensor pad(const Tensor &values, const Levels &levels, IntArrayRef shape, double padding) {
    auto padded = at::empty(shape, values.options());
    const auto args = levels.between(values, padded);
    const auto element = at::scalar_tensor(padding, at::TensorOptions(values.scalar_type()));
    check(xpu_nested_pad(current_stream(values), &args, element.const_data_ptr()));
    return padded;
}

Tensor unpad(const Tensor &padded, const Levels &levels, IntArrayRef shape) {
    auto values = at::empty(shape, padded.options());
    const auto args = levels.between(values, padded);
    check(xpu_nested_unpad(current_stream(padded), &args));
    return values;
}

} // namespace

// --- packed and padded ---

Tensor NestedTensor_to_padded_tensor_xpu(const Tensor &self, double padding,
                                         OptionalIntArrayRef output_size) {
    const auto nested = self.contiguous();
    const auto &sizes = sizes_of(nested);
    if (nested.numel() == 0 || sizes.dim() < 2 || sizes.size(1) == 0)
        return NestedTensor_to_padded_tensor_generic(nested, padding, output_size);
    auto shape = NestedTensor_get_max_size(*get_nested_tensor_impl(nested));
    shape.insert(shape.begin(), sizes.size(0));
    if (output_size) {
        TORCH_CHECK(output_size->size() == shape.size(), "Length of output_size does not match NestedTensor "
                                                         "dims. Broadcasting is not supported.");
        for (size_t d = 0; d < shape.size(); d++)
            TORCH_CHECK((*output_size)[d] >= shape[d],
                        "Value in output_size is less than NestedTensor padded "
                        "size. Truncation is not supported.");
        shape = output_size->vec();
    }
    const Levels levels(sizes, IntArrayRef(shape).slice(1), nested.device());
    return pad(buffer_of(nested), levels, shape, padding);
}

Tensor nested_from_padded_xpu(const Tensor &padded, const Tensor &sizes, bool fuse_transform_0213) {
    const auto dense =
        fuse_transform_0213 ? padded.transpose(1, 2).flatten(2).contiguous() : padded.contiguous();
    TORCH_CHECK(dense.dim() > 1 && sizes.dim() == 2 && sizes.size(1) == dense.dim() - 1 &&
                    sizes.size(0) == dense.size(0),
                "a padded tensor of shape ", dense.sizes(), " doesn't fit nested sizes of shape ",
                sizes.sizes());
    const auto host_sizes = sizes.to(kCPU, kLong);
    const Levels levels(host_sizes, dense.sizes().slice(1), dense.device());
    return wrap_buffer(unpad(dense, levels, {levels.levels.rows * levels.levels.row_size}), host_sizes);
}

namespace {

// Arguments for both jagged conversions: one offsets tensor per level, and the padded shape.
xpu_nested jagged_args(const Tensor &values, const Tensor &padded, TensorList offsets, const char *op) {
    const auto levels = static_cast<int64_t>(offsets.size());
    TORCH_CHECK_NOT_IMPLEMENTED(levels <= XPU_NESTED_MAX_LEVELS, op, "(): ", levels,
                                " jagged dimensions; xpu supports up to ", XPU_NESTED_MAX_LEVELS);
    xpu_nested args{.levels = static_cast<int>(levels), .offset_dtype = openxpu::dtype_of(offsets[0])};
    for (int64_t d = 0; d < levels; d++) {
        args.offset[d] = offsets[d].const_data_ptr();
        args.length[d] = offsets[d].size(0) - 1;
        args.size[d] = padded.size(d + 1);
    }
    args.items = padded.size(0);
    args.rows = values.size(0);
    args.row_size = c10::multiply_integers(values.sizes().slice(1));
    args.element_size = static_cast<int>(values.element_size());
    args.values = values.data_ptr();
    args.padded = padded.data_ptr();
    return args;
}

std::vector<Tensor> checked_offsets(TensorList offsets, const Tensor &dense, const char *op) {
    TORCH_CHECK(!offsets.empty(), op, "(): expected at least one tensor of offsets");
    std::vector<Tensor> result;
    for (const auto &offset : offsets) {
        TORCH_CHECK(offset.dim() == 1, op,
                    "(): expected 1D offsets, but got offsets.dim() == ", offset.dim());
        TORCH_CHECK(offset.size(0) > 0 && offset.device() == dense.device() &&
                        offset.scalar_type() == offsets[0].scalar_type(),
                    op, "(): offsets must not be empty, and must share one dtype and the values' device");
        result.push_back(offset.contiguous());
    }
    return result;
}

} // namespace

Tensor jagged_to_padded_dense_forward_xpu(const Tensor &values, TensorList offsets_list,
                                          IntArrayRef max_lengths, double padding_value) {
    constexpr auto op = "_jagged_to_padded_dense_forward";
    const auto offsets = checked_offsets(offsets_list, values, op);
    TORCH_CHECK(max_lengths.size() == offsets.size() && values.dim() > 0, op, "(): ", offsets.size(),
                " tensors of offsets and ", max_lengths.size(), " maximum lengths don't match values of ",
                values.dim(), " dimensions");
    std::vector<int64_t> shape{offsets[0].size(0) - 1};
    shape.insert(shape.end(), max_lengths.begin(), max_lengths.end());
    shape.insert(shape.end(), values.sizes().begin() + 1, values.sizes().end());
    const auto packed = values.contiguous();
    auto padded = at::empty(shape, values.options());
    const auto args = jagged_args(packed, padded, offsets, op);
    const auto element = at::scalar_tensor(padding_value, at::TensorOptions(values.scalar_type()));
    check(xpu_nested_pad(current_stream(values), &args, element.const_data_ptr()));
    return padded;
}

Tensor padded_dense_to_jagged_forward_xpu(const Tensor &dense, TensorList offsets_list,
                                          std::optional<int64_t> total_L) {
    constexpr auto op = "_padded_dense_to_jagged_forward";
    const auto offsets = checked_offsets(offsets_list, dense, op);
    const auto levels = static_cast<int64_t>(offsets.size());
    TORCH_CHECK(dense.dim() > levels && dense.size(0) == offsets[0].size(0) - 1, op, "(): ", levels,
                " tensors of offsets, of ", offsets[0].size(0) - 1, " items, don't match a tensor of shape ",
                dense.sizes());
    // If reading it does not wait for a device, check the total as the CPU does.
    if (!total_L ||
        (openxpu::is_host_device(dense.device().index()) && !openxpu::is_captured(dense.device().index()))) {
        const auto last = offsets.back().select(0, -1).item<int64_t>();
        TORCH_CHECK(!total_L || *total_L == last, op, "(): final offset should match total_L value");
        total_L = last;
    }
    std::vector<int64_t> shape{*total_L};
    shape.insert(shape.end(), dense.sizes().begin() + 1 + levels, dense.sizes().end());
    const auto padded = dense.contiguous();
    auto values = at::empty(shape, dense.options());
    const auto args = jagged_args(values, padded, offsets, op);
    check(xpu_nested_unpad(current_stream(dense), &args));
    return values;
}

// --- elementwise with a dense tensor ---

namespace {

// Expands a dense operand [B, 1, D] of a nested [B, *, D], or [B, 1] of [B, *], to one row per row of the
// buffer. Undefined for any other operand.
Tensor by_row(const Tensor &self, const Tensor &other) {
    if (!self.is_nested() || other.is_nested() || !other.is_xpu() || self.dim() != other.dim() ||
        self.dim() < 2 || self.dim() > 3 || other.size(1) != 1)
        return {};
    const auto *nested = get_nested_tensor_impl(self);
    if (nested->size(0) != other.size(0) || (self.dim() == 3 && nested->opt_size(2) != other.size(2)))
        return {};
    const auto items = at::arange(nested->size(0), at::TensorOptions(kLong));
    const auto rows = at::repeat_interleave(items, nested->get_nested_sizes().select(1, 0));
    return at::index_select(other.reshape({other.size(0), -1}), 0, rows.to(other.device()));
}

template <class Function> Tensor with_rows(const Tensor &self, const Tensor &rows, Function function) {
    const auto nested = self.contiguous();
    const auto result = function(buffer_of(nested).view({rows.size(0), rows.size(1)}), rows);
    return wrap_buffer(result.reshape({-1}), sizes_of(nested));
}

} // namespace

Tensor NestedTensor_add_xpu(const Tensor &self, const Tensor &other, const Scalar &alpha) {
    const auto rows = by_row(self, other);
    if (!rows.defined()) return NestedTensor_add_Tensor(self, other, alpha);
    return with_rows(self, rows, [&](const Tensor &a, const Tensor &b) { return at::add(a, b, alpha); });
}

Tensor NestedTensor_mul_xpu(const Tensor &self, const Tensor &other) {
    const auto rows = by_row(self, other);
    if (!rows.defined()) return NestedTensor_mul_Tensor(self, other);
    return with_rows(self, rows, [](const Tensor &a, const Tensor &b) { return at::mul(a, b); });
}

// --- along the last dimensions ---

namespace {

// Views the buffer as rows of shape `shape`.
Tensor rows_of(const Tensor &nested, IntArrayRef shape) {
    const auto *impl = get_nested_tensor_impl(nested);
    const auto dims = static_cast<int64_t>(shape.size());
    TORCH_CHECK(dims >= 1 && dims < nested.dim(), "Expected normalized_shape to have 1 to ", nested.dim() - 1,
                " dimensions, but got normalized_shape = ", shape);
    std::vector<int64_t> view{-1};
    for (int64_t d = 0; d < dims; d++) {
        const auto size = impl->opt_size(nested.dim() - dims + d);
        TORCH_CHECK(size.has_value(),
                    "normalized_shape extends into irregular dimensions for the nested tensor");
        TORCH_CHECK(*size == shape[d], "The shape at dimension ", d,
                    " of normalized_shape doesn't match the input");
        view.push_back(*size);
    }
    if (nested.numel() == 0) view[0] = 0;
    return buffer_of(nested).view(view);
}

} // namespace

std::tuple<Tensor, Tensor, Tensor> nested_layer_norm_xpu(const Tensor &input, IntArrayRef normalized_shape,
                                                         const std::optional<Tensor> &weight,
                                                         const std::optional<Tensor> &bias, double eps) {
    TORCH_CHECK(weight && weight->defined() && bias && bias->defined(),
                "NestedTensor layer_norm requires weight and bias");
    const auto nested = input.contiguous();
    auto [out, mean, rstd] =
        at::native_layer_norm(rows_of(nested, normalized_shape), normalized_shape, weight, bias, eps);
    return {wrap_buffer(out.view({-1}), sizes_of(nested)), mean, rstd};
}

std::tuple<Tensor, Tensor, Tensor>
nested_layer_norm_backward_xpu(const Tensor &grad_out, const Tensor &input, IntArrayRef normalized_shape,
                               const Tensor &mean, const Tensor &rstd, const std::optional<Tensor> &weight,
                               const std::optional<Tensor> &bias, std::array<bool, 3> output_mask) {
    const auto nested = input.contiguous(), grad = grad_out.contiguous();
    auto [dx, dw, db] =
        at::native_layer_norm_backward(rows_of(grad, normalized_shape), rows_of(nested, normalized_shape),
                                       normalized_shape, mean, rstd, weight, bias, output_mask);
    return {dx.defined() ? wrap_buffer(dx.reshape({-1}), sizes_of(nested)) : dx, dw, db};
}

// As on the CPU: only over the last dimension, with keepdim.
Tensor NestedTensor_sum_dim_xpu(const Tensor &self, OptionalIntArrayRef dims, bool keepdim,
                                std::optional<ScalarType> dtype) {
    TORCH_CHECK(dims && dims->size() == 1,
                "NestedTensor only allows reduction of a single dimension for now.");
    const auto dim = maybe_wrap_dim(dims->front(), self.dim());
    TORCH_CHECK(dim == self.dim() - 1, "NestedTensor can only be reduced across the last dimension for now ",
                "got dimension ", dim, " instead.");
    TORCH_CHECK(keepdim, "NestedTensor always requires keepdim=True for now.");
    TORCH_CHECK(!dtype, "NestedTensor does not support dtype argument for now.");
    const auto &sizes = sizes_of(self);
    if (sizes.size(0) == 0) return self;
    const auto nested = self.contiguous(), sums = with_last(sizes, 1);
    if (self.numel() == 0)
        return wrap_buffer(at::zeros({sums.prod(1).sum().item<int64_t>()}, buffer_of(nested).options()),
                           sums);
    return nested_from_padded_xpu(nested.to_padded_tensor(0).sum(-1, true, self.scalar_type()), sums, false);
}

Tensor _nested_sum_backward_xpu(const Tensor &grad, const Tensor &self, OptionalIntArrayRef dims,
                                bool keepdim) {
    const auto &sizes = sizes_of(self);
    if (self.numel() == 0) return self.clone();
    auto shape = NestedTensor_get_max_size(*get_nested_tensor_impl(self));
    shape.insert(shape.begin(), sizes.size(0));
    return nested_from_padded_xpu(grad.contiguous().to_padded_tensor(0).expand(shape), sizes, false);
}

// --- attention ---

Tensor NestedTensor_softmax_dropout_xpu(const Tensor &self, const Tensor &query) {
    const auto mask = NestedTensor_to_mask(query, 2, self.size(2)).to(query.device());
    const auto rows = mask.view({mask.size(0), 1, mask.size(1), 1}); /* queries that aren't there */
    return at::_masked_softmax(self, mask, self.dim() - 1, 1).masked_fill_(rows, 0);
}

} // namespace at::native

namespace {

using at::Tensor;

// Can it be padded for the fused kernels? It must be [B, H, *, E], not empty, with the same H and E in all
// items.
bool is_padded_for_heads(const Tensor &x) {
    if (!x.is_nested() || !x.is_xpu() || x.dim() != 4 || x.numel() == 0) return false;
    const auto *impl = at::native::get_nested_tensor_impl(x);
    return impl->opt_size(1) && impl->opt_size(3);
}

// F.scaled_dot_product_attention of nested tensors: pads, calls the fused kernels, and packs again. Other
// shapes use plain operators. Registered above autograd, which differentiates the operators inside.
Tensor scaled_dot_product_attention_nested(const Tensor &query, const Tensor &key, const Tensor &value,
                                           const std::optional<Tensor> &attn_mask, double dropout_p,
                                           bool is_causal, std::optional<double> scale, bool enable_gqa) {
    if (!query.is_xpu() || query.layout() != at::kStrided)
        return at::native::scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal,
                                                        scale, enable_gqa);
    TORCH_CHECK(!attn_mask || !attn_mask->defined(),
                "Scaled_dot_product_attention: Nested tensors for query / key are not supported when an "
                "explicit attn_mask is set");
    if (!is_padded_for_heads(query) || !is_padded_for_heads(key) || !is_padded_for_heads(value))
        return std::get<0>(at::_scaled_dot_product_attention_math(
            query.contiguous(), key.contiguous(), value.contiguous(), std::nullopt, dropout_p, is_causal,
            std::nullopt, scale, enable_gqa));
    const auto sizes = [](const Tensor &x) -> const Tensor & {
        return at::native::get_nested_tensor_impl(x)->get_nested_sizes();
    };
    TORCH_CHECK(query.size(0) == key.size(0) && sizes(key).select(1, 1).equal(sizes(value).select(1, 1)),
                "Scaled_dot_product_attention: key and value must have the same batch and sequence lengths");
    const auto q = query.contiguous().to_padded_tensor(0), k = key.contiguous().to_padded_tensor(0),
               v = value.contiguous().to_padded_tensor(0);
    auto mask = openxpu::mask_of(sizes(key).select(1, 1), k.size(2), k.device());
    if (is_causal) {
        const auto causal = at::ones({q.size(2), k.size(2)}, q.options().dtype(at::kBool)).tril();
        mask = mask.defined() ? mask.logical_and(causal) : causal;
    }
    const auto out = at::scaled_dot_product_attention(
        q, k, v, mask.defined() ? std::optional(mask) : std::nullopt, dropout_p, false, scale, enable_gqa);
    auto packed = sizes(query).clone();
    packed.select(1, 2).fill_(out.size(3));
    return at::_nested_from_padded(out, packed, false);
}

} // namespace

TORCH_LIBRARY_IMPL(aten, NestedTensorXPU, m) {
    m.impl("scaled_dot_product_attention", scaled_dot_product_attention_nested);
}
TORCH_LIBRARY_IMPL(aten, AutogradNestedTensor, m) {
    m.impl("scaled_dot_product_attention", scaled_dot_product_attention_nested);
}

// Inference fast paths of nn.TransformerEncoder and nn.MultiheadAttention, for dense and nested inputs.
// Composed of linear layers, fused attention, and libxpu's kernel that splits heads, on the current stream.
#include <ATen/NestedTensorImpl.h>
#include <ATen/native/nested/NestedTensorUtils.h>
#include <ATen/ops/_native_multi_head_attention_native.h>
#include <ATen/ops/_nested_from_padded.h>
#include <ATen/ops/_transform_bias_rescale_qkv_native.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <cmath>

#include "lower.h"
#include "native/nested.h"
#include "xpu/ops/attention.h"

namespace at::native {

namespace {

// Splits a projection [B, T, 3HD], or its packed rows with `levels`, into query, key and value [B, H, T, D].
std::tuple<Tensor, Tensor, Tensor> split_heads(const Tensor &projected, const Tensor &bias, int64_t batch,
                                               int64_t length, int64_t heads, double scale,
                                               const openxpu::Levels *levels) {
    const auto width = projected.size(-1) / 3;
    TORCH_CHECK(projected.size(-1) == 3 * width && heads > 0 && width % heads == 0, "the last dimension is ",
                projected.size(-1), ", which is not three times a multiple of ", heads, " heads");
    TORCH_CHECK(bias.dim() == 1 && bias.size(0) == 3 * width, "bias of shape ", bias.sizes(),
                " doesn't match a projection of size ", 3 * width);
    // Under autocast, the projection has autocast's dtype but the bias keeps its own.
    const auto x = projected.contiguous(), b = bias.to(projected.scalar_type()).contiguous();
    std::array<Tensor, 3> out;
    for (auto &part : out) part = at::empty({batch, heads, length, width / heads}, x.options());
    const xpu_split_heads_args args{.projected = x.const_data_ptr(),
                                    .bias = b.const_data_ptr(),
                                    .offset = levels ? levels->offsets.const_data_ptr<int64_t>() : nullptr,
                                    .query = out[0].mutable_data_ptr(),
                                    .key = out[1].mutable_data_ptr(),
                                    .value = out[2].mutable_data_ptr(),
                                    .dtype = openxpu::dtype_of(x),
                                    .batch = batch,
                                    .heads = heads,
                                    .length = length,
                                    .depth = width / heads,
                                    .scale = scale};
    openxpu::check(xpu_split_heads(openxpu::current_stream(x), &args));
    return {out[0], out[1], out[2]};
}

// A nested tensor [B, *, W] viewed as a matrix of its rows.
struct SequenceRows {
    explicit SequenceRows(const Tensor &tensor) : nested(tensor.contiguous()) {
        const auto *impl = get_nested_tensor_impl(nested);
        TORCH_CHECK(nested.dim() == 3 && impl->opt_size(2),
                    "expected a nested tensor of 2D sequences with the same last dimension");
        const auto width = *impl->opt_size(2);
        matrix = impl->get_buffer().view({nested.numel() / std::max<int64_t>(width, 1), width});
        lengths = impl->get_nested_sizes().select(1, 0);
        longest = lengths.max().item<int64_t>();
    }
    openxpu::Levels levels() const {
        return {
            get_nested_tensor_impl(nested)->get_nested_sizes(), {longest, matrix.size(1)}, matrix.device()};
    }
    Tensor nested, matrix, lengths;
    int64_t longest;
};

} // namespace

std::tuple<Tensor, Tensor, Tensor> transform_bias_rescale_qkv_xpu(const Tensor &qkv, const Tensor &qkv_bias,
                                                                  int64_t num_heads) {
    TORCH_CHECK(num_heads > 0, "num_heads must be positive");
    const auto scale = 1 / std::sqrt(static_cast<double>(qkv_bias.numel() / 3 / num_heads));
    if (qkv.is_nested()) {
        const SequenceRows rows(qkv);
        const auto levels = rows.levels();
        return split_heads(rows.matrix, qkv_bias, rows.lengths.size(0), rows.longest, num_heads, scale,
                           &levels);
    }
    TORCH_CHECK(qkv.dim() == 3, "expected 3-D qkv, got ", qkv.dim(), "-D tensor");
    return split_heads(qkv, qkv_bias, qkv.size(0), qkv.size(1), num_heads, scale, nullptr);
}

namespace {

// Converts a mask, true where a score is masked out, to the inverse convention of
// scaled_dot_product_attention. Mask types: 0 is [L, L], 1 is [B, L], 2 is [B, H, L, L].
std::optional<Tensor> taking_part(const std::optional<Tensor> &mask, std::optional<int64_t> type) {
    if (!mask || !mask->defined()) return std::nullopt;
    const auto part = mask->to(kBool).logical_not();
    return type == 1 && part.dim() == 2 ? part.view({part.size(0), 1, 1, part.size(1)}) : part;
}

} // namespace

std::tuple<Tensor, Tensor>
native_multi_head_attention_xpu(const Tensor &query, const Tensor &key, const Tensor &value,
                                int64_t embed_dim, int64_t num_head, const Tensor &qkv_weight,
                                const Tensor &qkv_bias, const Tensor &proj_weight, const Tensor &proj_bias,
                                const std::optional<Tensor> &mask, bool need_weights,
                                bool average_attn_weights, std::optional<int64_t> mask_type) {
    const bool fits = query.is_same(key) && key.is_same(value) && !need_weights && query.dim() == 3 &&
                      query.numel() > 0 && num_head > 0 && embed_dim % num_head == 0 &&
                      qkv_weight.dim() == 2 && qkv_weight.size(0) == 3 * embed_dim &&
                      qkv_weight.size(1) == embed_dim && qkv_bias.dim() == 1 &&
                      qkv_bias.size(0) == 3 * embed_dim && !(query.is_nested() && mask) &&
                      (query.is_nested() || query.size(2) == embed_dim);
    /* PyTorch's own is made of operators that every device has; it says what doesn't fit, too. */
    if (!fits)
        return native_multi_head_attention_cpu(query, key, value, embed_dim, num_head, qkv_weight, qkv_bias,
                                               proj_weight, proj_bias, mask, need_weights,
                                               average_attn_weights, mask_type);
    if (!query.is_nested()) {
        const auto heads = at::linear(query, qkv_weight, qkv_bias)
                               .view({query.size(0), query.size(1), 3, num_head, embed_dim / num_head})
                               .permute({2, 0, 3, 1, 4});
        const auto attended =
            at::scaled_dot_product_attention(heads[0], heads[1], heads[2], taking_part(mask, mask_type));
        return {at::linear(attended.transpose(1, 2).reshape(query.sizes()), proj_weight, proj_bias),
                Tensor()};
    }
    const SequenceRows rows(query);
    const auto levels = rows.levels();
    const auto batch = rows.lengths.size(0);
    const auto [q, k, v] =
        split_heads(at::linear(rows.matrix, qkv_weight), qkv_bias, batch, rows.longest, num_head, 1, &levels);
    const auto part = openxpu::mask_of(rows.lengths, rows.longest, q.device());
    const auto padded =
        at::scaled_dot_product_attention(q, k, v, part.defined() ? std::optional(part) : std::nullopt)
            .transpose(1, 2)
            .reshape({batch, rows.longest, embed_dim});
    const auto attended = at::empty(rows.matrix.sizes(), padded.options());
    const auto args = levels.between(attended, padded);
    openxpu::check(xpu_nested_unpad(openxpu::current_stream(padded), &args));
    const auto out = at::linear(attended, proj_weight, proj_bias);
    return {wrap_buffer(out.reshape({-1}), get_nested_tensor_impl(rows.nested)->get_nested_sizes()),
            Tensor()};
}

} // namespace at::native

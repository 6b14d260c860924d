#include <ATen/TensorOperators.h>
#include <ATen/TensorUtils.h>
#include <ATen/ops/_embedding_bag_backward_native.h>
#include <ATen/ops/_embedding_bag_dense_backward_native.h>
#include <ATen/ops/_embedding_bag_forward_only_native.h>
#include <ATen/ops/_embedding_bag_native.h>
#include <ATen/ops/_embedding_bag_per_sample_weights_backward_native.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/embedding_dense_backward_native.h>
#include <ATen/ops/embedding_renorm_native.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "native/index.h"

namespace at::native {

using namespace openxpu;
using openxpu::check;

namespace {

// rows of `out` at `index` += rows of `source`
void add_rows(const Tensor &out, const Tensor &index, const Tensor &source) {
    const auto to = tensor_of(out), from = tensor_of(source), chooser = tensor_of(index);
    xpu_fault fault = {};
    check(xpu_index_scatter(current_stream(out), &to, 0, &chooser, &from, XPU_SCATTER_ADD, scatter_order(),
                            &fault));
    TORCH_CHECK_INDEX(!fault.state, "index out of range in self");
}

// Sums of halves are kept in fp32.
bool is_half(const Tensor &tensor) {
    return tensor.scalar_type() == kHalf || tensor.scalar_type() == kBFloat16;
}

enum BagMode : int64_t { bag_sum, bag_mean, bag_max };

// The bag of each of the indices.
Tensor bags_of(const Tensor &indices, const Tensor &offsets, int64_t bags) {
    const auto positions = at::arange(indices.numel(), offsets.options());
    const auto ends = at::searchsorted(offsets.slice(0, 0, bags), positions, false, /*right=*/true);
    return ends.sub_(1).to(indices.scalar_type());
}

} // namespace

Tensor embedding_dense_backward_xpu(const Tensor &grad_output, const Tensor &indices, int64_t num_weights,
                                    int64_t padding_idx, bool scale_grad_by_freq) {
    auto indices_arg = TensorArg(indices, "indices", 2);
    checkScalarTypes("embedding_backward", indices_arg, {kLong, kInt});
    const auto width = grad_output.size(-1);
    const auto index = indices.contiguous().view(-1);
    auto grad = grad_output.reshape({index.numel(), width});
    const bool half = is_half(grad);
    const auto sum_options = half ? grad.options().dtype(kFloat) : grad.options();
    auto weight = at::zeros({num_weights, width}, sum_options);
    if (index.numel() > 0 && width > 0) {
        if (half) grad = grad.to(kFloat);
        if (scale_grad_by_freq) {
            auto counts = at::zeros({num_weights}, sum_options);
            add_rows(counts, index, at::ones({1}, sum_options).expand({index.numel()}));
            grad = grad.div(counts.index_select(0, index).unsqueeze(1));
        }
        add_rows(weight, index, grad);
        if (padding_idx >= 0) weight.select(0, padding_idx).zero_();
    }
    return half ? weight.to(grad_output.scalar_type()) : weight;
}

Tensor &embedding_renorm_xpu_(Tensor &self, const Tensor &indices, double max_norm, double norm_type) {
    auto self_arg = TensorArg(self, "self", 1);
    auto indices_arg = TensorArg(indices, "indices", 2);
    checkDim("embedding_renorm_", self_arg, 2);
    checkScalarTypes("embedding_renorm_", indices_arg, {kLong, kInt});
    const auto index = indices.contiguous().view(-1);
    if (index.numel() == 0) return self;
    // Rows named twice are scaled from the same original, so both writes say the same.
    const auto rows = self.index_select(0, index);
    const auto norms = rows.norm(norm_type, {1}, true);
    const auto scale = at::where(norms > max_norm, max_norm / (norms + 1e-7), at::ones({}, norms.options()));
    return self.index_copy_(0, index.to(kLong), rows * scale);
}

// --- bags: the sum, mean or maximum of the rows that a bag names ---

std::tuple<Tensor, Tensor, Tensor, Tensor>
embedding_bag_xpu(const Tensor &weight, const Tensor &indices_given, const Tensor &offsets_given,
                  bool scale_grad_by_freq, int64_t mode, bool sparse,
                  const std::optional<Tensor> &per_sample_weights, bool include_last_offset,
                  int64_t padding_idx) {
    TORCH_CHECK(indices_given.dim() == 1 || indices_given.dim() == 2,
                "input has to be a 1D or 2D Tensor, but got Tensor of dimension ", indices_given.dim());
    TORCH_CHECK(offsets_given.dim() == 1, "offsets has to be a 1D Tensor, but got Tensor of dimension ",
                offsets_given.dim());
    TORCH_CHECK(weight.dim() == 2, "weight has to be a 2D Tensor, but got Tensor of dimension ",
                weight.dim());
    auto indices_arg = TensorArg(indices_given, "indices", 1);
    checkScalarTypes("embedding_bag", indices_arg, {kLong, kInt});
    const bool weighted = per_sample_weights && per_sample_weights->defined();
    TORCH_CHECK(!weighted || mode == bag_sum,
                "embedding_bag: per_sample_weights only supported with mode='sum'");
    const auto type = promoteTypes(indices_given.scalar_type(), offsets_given.scalar_type());
    const auto indices = indices_given.to(type).contiguous(), offsets = offsets_given.to(type);
    const int64_t bags = offsets.size(0) - include_last_offset, width = weight.size(1);
    const int64_t count = indices.numel();

    const auto bag = bags_of(indices, offsets, bags);
    const auto left_out = padding_idx >= 0 ? indices.eq(padding_idx) : Tensor();
    const auto counted =
        left_out.defined() ? left_out.logical_not().to(type) : at::ones({count}, indices.options());
    // as many as offsets, says PyTorch's meta function, also where the last one is an end
    const auto all_sizes = at::zeros({offsets.size(0)}, indices.options()).index_add_(0, bag, counted);
    const auto sizes = all_sizes.narrow(0, 0, bags);
    auto rows = weight.index_select(0, indices);

    if (mode != bag_max) {
        const auto sum_type = is_half(weight) ? kFloat : weight.scalar_type();
        rows = rows.to(sum_type);
        if (weighted) rows = rows.mul(per_sample_weights->to(sum_type).unsqueeze(1));
        if (left_out.defined()) rows = rows.masked_fill(left_out.unsqueeze(1), 0);
        auto out = at::zeros({bags, width}, rows.options()).index_add_(0, bag, rows);
        if (mode == bag_mean) out.div_(sizes.clamp_min(1).unsqueeze(1));
        return {out.to(weight.scalar_type()), bag, all_sizes, at::empty({0}, indices.options())};
    }
    const double lowest = -std::numeric_limits<double>::infinity();
    if (left_out.defined()) rows = rows.masked_fill(left_out.unsqueeze(1), lowest);
    auto out = at::full({bags, width}, lowest, weight.options());
    const auto to = bag.to(kLong).unsqueeze(1).expand_as(rows);
    out.scatter_reduce_(0, to, rows, "amax");
    // Of a bag's equal rows the first is the one that the gradient goes to.
    const auto nowhere = at::full({}, count, indices.options());
    const auto order = at::arange(count, indices.options()).unsqueeze(1);
    const auto place = at::where(rows.eq(out.index_select(0, bag)), order, nowhere);
    const auto first =
        at::full({bags, width}, count, indices.options()).scatter_reduce_(0, to, place, "amin");
    const auto empty = sizes.eq(0).unsqueeze(1);
    auto chosen = count ? indices.index_select(0, first.clamp_max(count - 1).view(-1)).view_as(first) : first;
    return {out.masked_fill_(empty, 0), bag, all_sizes, chosen.masked_fill(empty, -1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor>
embedding_bag_forward_only_xpu(const Tensor &weight, const Tensor &indices, const Tensor &offsets,
                               bool scale_grad_by_freq, int64_t mode, bool sparse,
                               const std::optional<Tensor> &per_sample_weights, bool include_last_offset,
                               int64_t padding_idx) {
    return embedding_bag_xpu(weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights,
                             include_last_offset, padding_idx);
}

Tensor embedding_bag_dense_backward_xpu(const Tensor &grad, const Tensor &indices, const Tensor &offset2bag,
                                        const Tensor &bag_size, const Tensor &maximum_indices,
                                        int64_t num_weights, bool scale_grad_by_freq, int64_t mode,
                                        const std::optional<Tensor> &per_sample_weights,
                                        int64_t padding_idx) {
    const auto sum_type = is_half(grad) ? kFloat : grad.scalar_type();
    if (mode == bag_max) {
        const auto weight = at::zeros({num_weights, grad.size(1)}, grad.options().dtype(sum_type));
        const auto none = maximum_indices.lt(0);
        weight.scatter_add_(0, maximum_indices.clamp_min(0).to(kLong),
                            grad.to(sum_type).masked_fill(none, 0));
        return weight.to(grad.scalar_type());
    }
    auto rows = grad.index_select(0, offset2bag).to(sum_type);
    if (mode == bag_mean) rows = rows.div(bag_size.index_select(0, offset2bag).clamp_min(1).unsqueeze(1));
    if (per_sample_weights && per_sample_weights->defined())
        rows = rows.mul(per_sample_weights->to(sum_type).unsqueeze(1));
    return at::embedding_dense_backward(rows, indices, num_weights, padding_idx, scale_grad_by_freq)
        .to(grad.scalar_type());
}

Tensor embedding_bag_per_sample_weights_backward_xpu(const Tensor &grad, const Tensor &weight,
                                                     const Tensor &indices, const Tensor &offsets,
                                                     const Tensor &offset2bag, int64_t mode,
                                                     int64_t padding_idx) {
    TORCH_CHECK(mode == bag_sum, "embedding_bag_backward: per_sample_weights only supported for mode='sum'");
    const auto bag =
        offset2bag.numel() || !indices.numel() ? offset2bag : bags_of(indices, offsets, offsets.size(0));
    const auto sum_type = is_half(grad) ? kFloat : grad.scalar_type();
    const auto rows = grad.index_select(0, bag).to(sum_type).mul_(weight.index_select(0, indices));
    auto result = rows.sum(1);
    if (padding_idx >= 0) result.masked_fill_(indices.eq(padding_idx), 0);
    return result.to(grad.scalar_type());
}

} // namespace at::native

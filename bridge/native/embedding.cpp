#include <ATen/TensorOperators.h>
#include <ATen/TensorUtils.h>
#include <ATen/ops/_embedding_bag_backward_native.h>
#include <ATen/ops/_embedding_bag_dense_backward_native.h>
#include <ATen/ops/_embedding_bag_forward_only_native.h>
#include <ATen/ops/_embedding_bag_native.h>
#include <ATen/ops/_embedding_bag_per_sample_weights_backward_native.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/embedding_dense_backward_native.h>
#include <ATen/ops/embedding_renorm_native.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "native/index.h"
#include "xpu/ops/embedding.h"
#include "xpu/policy.h"

namespace at::native {

using namespace openxpu;
using openxpu::check;

namespace {

// rows of `out` at `index` += rows of `source`
void add_rows(const Tensor &out, const Tensor &index, const Tensor &source) {
    const auto to = tensor_of(out), from = input_of(source), chooser = input_of(index);
    xpu_fault fault = {};
    check(xpu_index_scatter(current_stream(out), &to, 0, &chooser, &from, XPU_SCATTER_ADD, scatter_order(),
                            &fault));
    TORCH_CHECK_INDEX(!fault.state, "index out of range in self");
}

// fp16 and bf16 accumulate in fp32.
bool is_half(const Tensor &tensor) {
    return tensor.scalar_type() == kHalf || tensor.scalar_type() == kBFloat16;
}

enum BagMode : int64_t { bag_sum, bag_mean, bag_max };

xpu_bags bags_like(const Tensor &weight, const Tensor &indices, int64_t bags, int64_t padding_idx) {
    return {.dtype = dtype_of(weight),
            .index_dtype = dtype_of(indices),
            .rows = weight.size(0),
            .width = weight.size(1),
            .row_stride = weight.stride(0),
            .count = indices.numel(),
            .bags = bags,
            .padding_index = padding_idx < 0 ? -1 : padding_idx};
}

// The same tensor with contiguous rows.
Tensor with_dense_rows(const Tensor &weight) {
    return weight.size(1) <= 1 || weight.stride(1) == 1 ? weight : weight.contiguous();
}

void check_bag_fault(const xpu_fault &fault) {
    TORCH_CHECK_INDEX(!fault.state || fault.which == 0, "embedding_bag: offset ", fault.index,
                      " is out of range for ", fault.extent, " indices, or less than the offset before it");
    TORCH_CHECK_INDEX(!fault.state, "index out of range in self");
}

// Sums the rows of `grad` (row bag[i], if there are bags) by index; the speed doesn't depend on the
// number of distinct indices.
Tensor rows_gradient(const Tensor &grad, const Tensor &index, int64_t rows, int64_t padding_idx,
                     bool by_frequency, const Tensor &bag, const Tensor &sizes, const Tensor &factors) {
    auto weight = at::zeros({rows, grad.size(1)}, grad.options());
    if (index.numel() == 0 || grad.size(1) == 0) return weight;
    const auto [keys, places] = index.sort(/*stable=*/true, 0, false);
    auto args = bags_like(weight, index, grad.size(0), padding_idx);
    if (factors.defined()) args.sample_weight_stride = factors.stride(0);
    const auto data = [](const Tensor &tensor) {
        return tensor.defined() ? tensor.const_data_ptr() : nullptr;
    };
    check(xpu_embedding_backward(current_stream(grad), &args, grad.const_data_ptr(), keys.const_data_ptr(),
                                 places.const_data_ptr<int64_t>(), data(bag), data(sizes), data(factors),
                                 by_frequency, weight.mutable_data_ptr()));
    return weight;
}

} // namespace

Tensor embedding_dense_backward_xpu(const Tensor &grad_output, const Tensor &indices, int64_t num_weights,
                                    int64_t padding_idx, bool scale_grad_by_freq) {
    auto indices_arg = TensorArg(indices, "indices", 2);
    checkScalarTypes("embedding_backward", indices_arg, {kLong, kInt});
    const auto width = grad_output.size(-1);
    const auto index = indices.contiguous().view(-1);
    auto grad = grad_output.reshape({index.numel(), width});
    if (!xpu_uses_cpu_policy(grad.device().index()))
        return rows_gradient(grad.contiguous(), index, num_weights, padding_idx, scale_grad_by_freq, {}, {},
                             {});
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
    // Duplicate rows are scaled from the same original, so both writes are equal.
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
    TORCH_CHECK(bags >= 0,
                "embedding_bag: offsets should have at least one element with include_last_offset");

    const auto rows = with_dense_rows(weight);
    const auto factors = weighted ? per_sample_weights->to(weight.scalar_type()) : Tensor();
    TORCH_CHECK(!weighted || (factors.dim() == 1 && factors.size(0) == count),
                "embedding_bag: per_sample_weights should have the same shape as indices");
    const auto out = at::empty({bags, width}, weight.options());
    const auto bag = at::empty({count}, indices.options());
    // as many as offsets, as in PyTorch's meta function, even if the last one is an end
    auto sizes = at::empty({offsets.size(0)}, indices.options());
    if (include_last_offset) sizes.zero_();
    const auto chosen = at::empty({mode == bag_max ? bags : 0, width}, indices.options());
    auto args = bags_like(rows, indices, bags, padding_idx);
    args.last_is_end = include_last_offset;
    if (weighted) args.sample_weight_stride = factors.stride(0);
    if (bags == 0) bag.zero_();
    const auto starts = offsets.contiguous();
    xpu_fault fault = {};
    check(xpu_bag_forward(current_stream(weight), static_cast<xpu_bag_mode>(mode), &args,
                          rows.const_data_ptr(), indices.const_data_ptr(), starts.const_data_ptr(),
                          weighted ? factors.const_data_ptr() : nullptr, out.mutable_data_ptr(),
                          bag.mutable_data_ptr(), sizes.mutable_data_ptr(), chosen.mutable_data_ptr(),
                          &fault));
    check_bag_fault(fault);
    return {out, bag, sizes, mode == bag_max ? chosen : at::empty({0}, indices.options())};
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
    if (grad.size(0) == 0) return at::zeros({num_weights, grad.size(1)}, grad.options()); // no bags
    if (mode == bag_max) {
        const auto weight = at::zeros({num_weights, grad.size(1)}, grad.options().dtype(sum_type));
        const auto none = maximum_indices.eq(-1); // of an empty bag
        weight.scatter_add_(0, maximum_indices.masked_fill(none, 0).to(kLong),
                            grad.to(sum_type).masked_fill(none, 0));
        return weight.to(grad.scalar_type());
    }
    if (!xpu_uses_cpu_policy(grad.device().index())) {
        const bool weighted = per_sample_weights && per_sample_weights->defined();
        const auto factors = weighted ? per_sample_weights->to(grad.scalar_type()) : Tensor();
        const auto type = indices.scalar_type();
        return rows_gradient(grad.contiguous(), indices.contiguous(), num_weights, padding_idx,
                             scale_grad_by_freq, offset2bag.to(type).contiguous(),
                             mode == bag_mean ? bag_size.to(type).contiguous() : Tensor(), factors);
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
    const auto type = promoteTypes(indices.scalar_type(), offsets.scalar_type());
    const auto index = indices.to(type).contiguous(), starts = offsets.to(type).contiguous();
    auto bag = offset2bag.to(type).contiguous();
    if (bag.numel() == 0 && index.numel() > 0) // forward left it out
        bag = std::get<1>(embedding_bag_xpu(weight, index, starts, false, bag_sum, false, std::nullopt, false,
                                            padding_idx));
    const auto rows = with_dense_rows(weight).to(grad.scalar_type());
    const auto out = at::empty({index.numel()}, grad.options());
    const auto dense = grad.contiguous();
    if (grad.size(0) == 0) return at::zeros({index.numel()}, grad.options()); // no bags
    const auto args = bags_like(rows, index, grad.size(0), padding_idx);
    xpu_fault fault = {};
    check(xpu_bag_weights_backward(current_stream(grad), &args, dense.const_data_ptr(), rows.const_data_ptr(),
                                   index.const_data_ptr(), bag.const_data_ptr(), out.mutable_data_ptr(),
                                   &fault));
    check_bag_fault(fault);
    return out;
}

} // namespace at::native

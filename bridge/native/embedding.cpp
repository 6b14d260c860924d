#include <ATen/TensorOperators.h>
#include <ATen/TensorUtils.h>
#include <ATen/ops/embedding_dense_backward_native.h>
#include <ATen/ops/embedding_renorm_native.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/ones.h>
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

} // namespace

Tensor embedding_dense_backward_xpu(const Tensor &grad_output, const Tensor &indices, int64_t num_weights,
                                    int64_t padding_idx, bool scale_grad_by_freq) {
    auto indices_arg = TensorArg(indices, "indices", 2);
    checkScalarTypes("embedding_backward", indices_arg, {kLong, kInt});
    const auto width = grad_output.size(-1);
    const auto index = indices.contiguous().view(-1);
    auto grad = grad_output.reshape({index.numel(), width});
    // Sums of halves are kept in fp32.
    const bool half = grad.scalar_type() == kHalf || grad.scalar_type() == kBFloat16;
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

} // namespace at::native

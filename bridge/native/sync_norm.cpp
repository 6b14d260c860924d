// Building blocks of torch.nn.SyncBatchNorm: batch norm in steps, between which processes exchange sums.
// Passes over the input use batch norm's kernels; per-channel arithmetic is composed.
#include <ATen/TensorOperators.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/full.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sub.h>
#include <torch/library.h>

namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;

bool given(const Optional &tensor) { return tensor && tensor->defined(); }

std::tuple<Tensor, Tensor> stats(const Tensor &input, double eps) {
    auto [mean, variance] = at::batch_norm_update_stats(input, {}, {}, 0);
    return {mean, variance.add_(eps).rsqrt_()};
}

// The processes' means and inverse deviations, one row each, as one process would have them that saw all.
std::tuple<Tensor, Tensor> gather_with_counts(const Tensor &input, const Tensor &means, const Tensor &invstds,
                                              const Optional &running_mean, const Optional &running_var,
                                              double momentum, double eps, const Tensor &counts) {
    const Tensor n = counts.to(means.scalar_type()).reshape({-1, 1}), total = n.sum();
    const Tensor mean = (means * n).sum(0) / total;
    const Tensor squares = ((invstds.pow(-2) - eps + (means - mean).square()) * n).sum(0);
    if (given(running_mean)) running_mean->mul_(1 - momentum).add_(mean, momentum);
    if (given(running_var)) running_var->mul_(1 - momentum).add_(squares / (total - 1), momentum);
    return {mean, (squares / total).add_(eps).rsqrt_()};
}

std::tuple<Tensor, Tensor> gather(const Tensor &input, const Tensor &means, const Tensor &invstds,
                                  const Optional &running_mean, const Optional &running_var, double momentum,
                                  double eps, int64_t count) {
    return gather_with_counts(input, means, invstds, running_mean, running_var, momentum, eps,
                              at::full({means.size(0)}, count, means.options()));
}

// With given statistics: batch norm in evaluation mode, with eps already included.
Tensor apply(const Tensor &input, const Optional &weight, const Optional &bias, const Tensor &mean,
             const Tensor &invstd, double) {
    return std::get<0>(
        at::native_batch_norm(input, weight, bias, mean, invstd.to(mean.scalar_type()).pow(-2), false, 0, 0));
}

Tensor &apply_out(const Tensor &input, const Optional &weight, const Optional &bias, const Tensor &mean,
                  const Tensor &invstd, double eps, Tensor &out) {
    out.resize_(input.sizes());
    return out.copy_(apply(input, weight, bias, mean, invstd, eps));
}

std::tuple<Tensor, Tensor, Tensor, Tensor> backward_reduce(const Tensor &grad_out, const Tensor &input,
                                                           const Tensor &mean, const Tensor &invstd,
                                                           const Optional &weight, bool input_g,
                                                           bool weight_g, bool bias_g) {
    // With a deviation of 1 the weight's gradient is the sum of dy * (x - mean).
    const Tensor one = at::ones_like(mean);
    auto [nothing, sum_dy_xmu, sum_dy] =
        at::native_batch_norm_backward(grad_out, input, one, {}, {}, mean, one, true, 0, {false, true, true});
    Tensor grad_weight, grad_bias;
    if (weight_g) {
        grad_weight = sum_dy_xmu * invstd;
        if (given(weight)) grad_weight = grad_weight.to(weight->scalar_type());
    }
    if (bias_g) grad_bias = given(weight) ? sum_dy.to(weight->scalar_type(), false, true) : sum_dy.clone();
    if (!input_g) sum_dy = sum_dy_xmu = Tensor();
    return {sum_dy, sum_dy_xmu, grad_weight, grad_bias};
}

Tensor backward_apply(const Tensor &grad_out, const Tensor &input, const Tensor &mean, const Tensor &invstd,
                      const Optional &weight, const Tensor &sum_dy, const Tensor &sum_dy_xmu,
                      const Tensor &count) {
    const Tensor n = count.sum().to(mean.scalar_type());
    const Tensor slope = given(weight) ? invstd * weight->to(mean.scalar_type()) : invstd;
    at::DimVector shape(input.dim(), 1);
    shape[1] = input.size(1);
    const auto by_channel = [&](const Tensor &x) { return x.reshape(shape); };
    const Tensor centered = at::sub(input, by_channel(mean));
    const Tensor rest = at::addcmul(by_channel(sum_dy * slope / n).neg(), centered,
                                    by_channel(slope * invstd.square() * sum_dy_xmu / n), -1);
    return at::addcmul(rest, grad_out, by_channel(slope)).to(input.scalar_type());
}

} // namespace

TORCH_LIBRARY_IMPL(aten, XPU, m) {
    m.impl("batch_norm_stats", stats);
    m.impl("batch_norm_gather_stats", gather);
    m.impl("batch_norm_gather_stats_with_counts", gather_with_counts);
    m.impl("batch_norm_elemt", apply);
    m.impl("batch_norm_elemt.out", apply_out);
    m.impl("batch_norm_backward_reduce", backward_reduce);
    m.impl("batch_norm_backward_elemt", backward_apply);
}

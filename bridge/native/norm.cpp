// Layer norm, RMS norm, group norm and batch norm, forward and backward.
#include "xpu/ops/norm.h"

#include <ATen/OpMathType.h>
#include <ATen/native/Resize.h>
#include <ATen/native/layer_norm.h>
#include <ATen/ops/_batch_norm_with_update_native.h>
#include <ATen/ops/_fused_rms_norm_backward_native.h>
#include <ATen/ops/_fused_rms_norm_native.h>
#include <ATen/ops/_native_batch_norm_legit_native.h>
#include <ATen/ops/batch_norm_backward_native.h>
#include <ATen/ops/batch_norm_update_stats_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_batch_norm_backward_native.h>
#include <ATen/ops/native_batch_norm_native.h>
#include <ATen/ops/native_group_norm_backward_native.h>
#include <ATen/ops/native_group_norm_native.h>
#include <ATen/ops/native_layer_norm_backward_native.h>
#include <ATen/ops/native_layer_norm_native.h>
#include <ATen/ops/zeros_like.h>

#include <limits>

#include "operands.h"

namespace at::native {

using namespace openxpu;
using openxpu::check;

namespace {

using Optional = std::optional<Tensor>;

bool given(const Optional &tensor) { return tensor && tensor->defined(); }
const void *data_of(const Tensor &tensor) { return tensor.defined() ? tensor.const_data_ptr() : nullptr; }
void *result_of(const Tensor &tensor) { return tensor.defined() ? tensor.mutable_data_ptr() : nullptr; }

ScalarType statistics_type(const Tensor &input) { return toOpMathType(input.scalar_type()); }

// The parameters' common dtype: the input's, or its computation type.
ScalarType parameter_type(const Tensor &input, const Optional &weight, const Optional &bias) {
    for (const auto *parameter : {&weight, &bias})
        if (given(*parameter) && (*parameter)->scalar_type() != input.scalar_type())
            return statistics_type(input);
    return input.scalar_type();
}
Tensor parameter(const Optional &tensor, ScalarType type) {
    return given(tensor) ? tensor->to(type).contiguous() : Tensor();
}

// A gradient with the shape of `like`, if requested.
Tensor wanted(bool want, const Tensor &like, ScalarType type) {
    return want ? at::empty(like.sizes(), like.options().dtype(type)) : Tensor();
}
// Like its parameter.
Tensor as_parameter(const Tensor &gradient, const Optional &parameter) {
    return gradient.defined() && given(parameter) ? gradient.to(parameter->scalar_type()) : gradient;
}

// The kernels only use the input's shape: the other tensors must match it.
void check_shape_of_input(const Tensor &gradient, const Tensor &input, const char *op) {
    TORCH_CHECK(gradient.sizes() == input.sizes(), op, ": a gradient of shape ", gradient.sizes(),
                " doesn't fit an input of shape ", input.sizes());
}
void check_count(const Optional &tensor, int64_t count, const char *op, const char *name) {
    TORCH_CHECK(!given(tensor) || tensor->numel() == count, op, ": ", name, " should contain ", count,
                " elements not ", tensor->numel());
}

// --- rows ---

struct RowNorm {
    xpu_row_norm args;
    Tensor weight, bias;
    RowNorm(const Tensor &input, IntArrayRef normalized_shape, const Optional &w, const Optional &b,
            double eps, bool rms) {
        const auto type = parameter_type(input, w, b);
        weight = parameter(w, type);
        bias = parameter(b, type);
        int64_t length = 1;
        for (const auto size : normalized_shape) length *= size;
        args = {.rows = length ? input.numel() / length : 0,
                .length = length,
                .dtype = dtype_of(input),
                .parameter_dtype = dtype_of(type),
                .rms = rms,
                .eps = eps,
                .weight = data_of(weight),
                .bias = data_of(bias)};
        if (length == 0) { // rows there are, of nothing
            args.rows = 1;
            for (int64_t i = 0; i + static_cast<int64_t>(normalized_shape.size()) < input.dim(); i++)
                args.rows *= input.size(i);
        }
    }
};

// Sizes of mean and rstd: the input's, with 1 for the normalized dimensions.
std::vector<int64_t> statistics_shape(const Tensor &input, IntArrayRef normalized_shape) {
    const auto leading = input.dim() - static_cast<int64_t>(normalized_shape.size());
    std::vector<int64_t> shape(input.dim(), 1);
    for (int64_t i = 0; i < leading; i++) shape[i] = input.size(i);
    return shape;
}

std::tuple<Tensor, Tensor, Tensor> rows_backward(const Tensor &grad_out, const Tensor &input,
                                                 IntArrayRef normalized_shape, const Tensor &mean,
                                                 const Tensor &rstd, const Optional &weight,
                                                 const Optional &bias, bool rms, std::array<bool, 3> mask) {
    const auto *const op = rms ? "rms_norm_backward" : "layer_norm_backward";
    _check_layer_norm_inputs(input, normalized_shape, weight.value_or(Tensor()), bias.value_or(Tensor()));
    check_shape_of_input(grad_out, input, op);
    RowNorm norm(input, normalized_shape, weight, bias, 0, rms);
    const auto x = input.contiguous(), dy = grad_out.to(input.scalar_type()).contiguous();
    const auto type = parameter_type(input, weight, bias);
    auto grad_input = mask[0] ? at::empty_like(x, MemoryFormat::Contiguous) : Tensor();
    auto grad_weight = wanted(mask[1] && given(weight), given(weight) ? *weight : input, type);
    auto grad_bias = wanted(mask[2] && given(bias), given(bias) ? *bias : input, type);
    if (!rms) check_count(mean, norm.args.rows, op, "mean");
    check_count(rstd, norm.args.rows, op, "rstd");
    TORCH_CHECK(rstd.defined() && (rms || mean.defined()), op, ": the saved statistics are missing");
    const auto statistics = statistics_type(input);
    const auto m = mean.defined() ? mean.to(statistics).contiguous() : mean,
               r = rstd.to(statistics).contiguous();
    check(xpu_row_norm_backward(current_stream(input), &norm.args, dy.const_data_ptr(), x.const_data_ptr(),
                                data_of(m), data_of(r), result_of(grad_input), result_of(grad_weight),
                                result_of(grad_bias)));
    return {grad_input, as_parameter(grad_weight, weight), as_parameter(grad_bias, bias)};
}

} // namespace

std::tuple<Tensor, Tensor, Tensor> layer_norm_xpu(const Tensor &input, IntArrayRef normalized_shape,
                                                  const Optional &weight, const Optional &bias, double eps) {
    _check_layer_norm_inputs(input, normalized_shape, weight ? *weight : Tensor(), bias ? *bias : Tensor());
    RowNorm norm(input, normalized_shape, weight, bias, eps, false);
    const auto x = input.contiguous();
    auto output = at::empty_like(x, MemoryFormat::Contiguous);
    const auto shape = statistics_shape(input, normalized_shape);
    auto mean = at::empty(shape, input.options().dtype(statistics_type(input))), rstd = at::empty_like(mean);
    check(xpu_row_norm_forward(current_stream(input), &norm.args, x.const_data_ptr(),
                               output.mutable_data_ptr(), mean.mutable_data_ptr(), rstd.mutable_data_ptr()));
    return {output, mean, rstd};
}

std::tuple<Tensor, Tensor, Tensor> layer_norm_backward_xpu(const Tensor &grad_out, const Tensor &input,
                                                           IntArrayRef normalized_shape, const Tensor &mean,
                                                           const Tensor &rstd, const Optional &weight,
                                                           const Optional &bias,
                                                           std::array<bool, 3> output_mask) {
    return rows_backward(grad_out, input, normalized_shape, mean, rstd, weight, bias, false, output_mask);
}

std::tuple<Tensor, Tensor> _fused_rms_norm_xpu(const Tensor &input, IntArrayRef normalized_shape,
                                               const Optional &weight, std::optional<double> eps) {
    _check_layer_norm_inputs(input, normalized_shape, weight ? *weight : Tensor(), Tensor());
    const double smallest = input.scalar_type() == kDouble ? std::numeric_limits<double>::epsilon()
                                                           : std::numeric_limits<float>::epsilon();
    RowNorm norm(input, normalized_shape, weight, {}, eps.value_or(smallest), true);
    const auto x = input.contiguous();
    auto output = at::empty_like(x, MemoryFormat::Contiguous);
    auto rstd =
        at::empty(statistics_shape(input, normalized_shape), input.options().dtype(statistics_type(input)));
    check(xpu_row_norm_forward(current_stream(input), &norm.args, x.const_data_ptr(),
                               output.mutable_data_ptr(), nullptr, rstd.mutable_data_ptr()));
    return {output, rstd};
}

std::tuple<Tensor, Tensor> _fused_rms_norm_backward_xpu(const Tensor &grad_out, const Tensor &input,
                                                        IntArrayRef normalized_shape, const Tensor &rstd,
                                                        const Optional &weight,
                                                        std::array<bool, 2> output_mask) {
    auto [grad_input, grad_weight, none] = rows_backward(grad_out, input, normalized_shape, {}, rstd, weight,
                                                         {}, true, {output_mask[0], output_mask[1], false});
    return {grad_input, grad_weight};
}

// --- planes ---

namespace {

struct PlaneNorm {
    xpu_plane_norm args = {};
    Tensor weight, bias;
    PlaneNorm(const Tensor &input, const Optional &w, const Optional &b, double eps, ScalarType saved) {
        const auto type = parameter_type(input, w, b);
        weight = parameter(w, type);
        bias = parameter(b, type);
        args.dtype = dtype_of(input);
        args.parameter_dtype = dtype_of(type);
        args.running_dtype = args.saved_dtype = dtype_of(saved);
        args.eps = eps;
        args.weight = data_of(weight);
        args.bias = data_of(bias);
    }
};

// A layout that the kernels support: dense with channels first or last; else empty.
std::optional<MemoryFormat> known_format(const Tensor &input) {
    if (input.is_contiguous()) return MemoryFormat::Contiguous;
    if (input.dim() == 4 && input.is_contiguous(MemoryFormat::ChannelsLast))
        return MemoryFormat::ChannelsLast;
    if (input.dim() == 5 && input.is_contiguous(MemoryFormat::ChannelsLast3d))
        return MemoryFormat::ChannelsLast3d;
    return std::nullopt;
}

void set_shape(xpu_plane_norm &args, const Tensor &input, MemoryFormat format) {
    args.batch = input.size(0);
    args.channels = input.size(1);
    args.length = 1;
    for (int64_t i = 2; i < input.dim(); i++) args.length *= input.size(i);
    args.channels_last = format != MemoryFormat::Contiguous;
}

// Running statistics in one dtype, if the kernel updates them in place.
void set_running(xpu_plane_norm &args, const Tensor &mean, const Tensor &variance) {
    const auto &some = mean.defined() ? mean : variance;
    if (!some.defined()) return;
    TORCH_CHECK(!mean.defined() || !variance.defined() || mean.scalar_type() == variance.scalar_type(),
                "running_mean and running_var must have the same dtype");
    args.running_dtype = dtype_of(some);
    args.running_mean = result_of(mean);
    args.running_var = result_of(variance);
}

Tensor dense(const Optional &tensor) { return given(tensor) ? tensor->contiguous() : Tensor(); }

// Copies back tensors that were made contiguous.
void write_back(const Tensor &used, const Optional &original) {
    if (given(original) && !used.is_same(*original)) original->copy_(used);
}

void check_channels(const Tensor &input, const Optional &weight, const Optional &bias,
                    const Optional &running_mean, const Optional &running_var, const char *op) {
    TORCH_CHECK(input.dim() >= 2, op, ": expected an input of at least two dimensions, got shape ",
                input.sizes());
    const auto channels = input.size(1);
    check_count(weight, channels, op, "weight");
    check_count(bias, channels, op, "bias");
    check_count(running_mean, channels, op, "running_mean");
    check_count(running_var, channels, op, "running_var");
}

void batch_norm_into(const Tensor &input, const Optional &weight, const Optional &bias,
                     const Optional &running_mean, const Optional &running_var, bool training,
                     double momentum, double eps, const Tensor *output, Tensor &save_mean,
                     Tensor &save_invstd) {
    TORCH_CHECK(training || (given(running_mean) && given(running_var)),
                "Expected running_mean and running_var to be defined when training=False");
    check_channels(input, weight, bias, running_mean, running_var, "batch_norm");
    const auto statistics = statistics_type(input);
    if (training) {
        resize_output(save_mean, {input.size(1)});
        resize_output(save_invstd, {input.size(1)});
    } else {
        resize_output(save_mean, {0});
        resize_output(save_invstd, {0});
    }
    PlaneNorm norm(input, weight, bias, eps, statistics);
    const auto format = known_format(input).value_or(MemoryFormat::Contiguous);
    const auto x = input.contiguous(format);
    const auto saved_mean = dense_for(save_mean, statistics),
               saved_invstd = dense_for(save_invstd, statistics);
    const auto mean = dense(running_mean), variance = dense(running_var);
    set_shape(norm.args, x, format);
    set_running(norm.args, mean, variance);
    norm.args.evaluate = !training;
    norm.args.momentum = momentum;
    Tensor y;
    if (output) y = dense_for(*output, input.scalar_type(), format);
    check(xpu_plane_norm_forward(current_stream(input), &norm.args, x.const_data_ptr(), result_of(y),
                                 saved_mean.mutable_data_ptr(), saved_invstd.mutable_data_ptr()));
    if (training) {
        write_back(mean, running_mean);
        write_back(variance, running_var);
    }
    deliver(saved_mean, save_mean);
    deliver(saved_invstd, save_invstd);
    if (output) deliver(y, *output);
}

std::tuple<Tensor, Tensor, Tensor> batch_norm_new(const Tensor &input, const Optional &weight,
                                                  const Optional &bias, const Optional &running_mean,
                                                  const Optional &running_var, bool training, double momentum,
                                                  double eps) {
    auto output = at::empty_like(input, known_format(input).value_or(MemoryFormat::Contiguous));
    const auto options = input.options().dtype(statistics_type(input));
    auto mean = at::empty({0}, options), invstd = at::empty({0}, options);
    batch_norm_into(input, weight, bias, running_mean, running_var, training, momentum, eps, &output, mean,
                    invstd);
    return {output, mean, invstd};
}

} // namespace

std::tuple<Tensor, Tensor, Tensor> batch_norm_xpu(const Tensor &input, const Optional &weight,
                                                  const Optional &bias, const Optional &running_mean,
                                                  const Optional &running_var, bool training, double momentum,
                                                  double eps) {
    return batch_norm_new(input, weight, bias, running_mean, running_var, training, momentum, eps);
}

std::tuple<Tensor &, Tensor &, Tensor &>
batch_norm_xpu_out(const Tensor &input, const Optional &weight, const Optional &bias,
                   const Optional &running_mean, const Optional &running_var, bool training, double momentum,
                   double eps, Tensor &out, Tensor &save_mean, Tensor &save_invstd) {
    resize_output(out, input.sizes());
    batch_norm_into(input, weight, bias, running_mean, running_var, training, momentum, eps, &out, save_mean,
                    save_invstd);
    return std::forward_as_tuple(out, save_mean, save_invstd);
}

std::tuple<Tensor, Tensor, Tensor> _batch_norm_legit_xpu(const Tensor &input, const Optional &weight,
                                                         const Optional &bias, Tensor &running_mean,
                                                         Tensor &running_var, bool training, double momentum,
                                                         double eps) {
    return batch_norm_new(input, weight, bias, running_mean, running_var, training, momentum, eps);
}

std::tuple<Tensor &, Tensor &, Tensor &>
_batch_norm_legit_xpu_out(const Tensor &input, const Optional &weight, const Optional &bias,
                          Tensor &running_mean, Tensor &running_var, bool training, double momentum,
                          double eps, Tensor &out, Tensor &save_mean, Tensor &save_invstd) {
    return batch_norm_xpu_out(input, weight, bias, running_mean, running_var, training, momentum, eps, out,
                              save_mean, save_invstd);
}

std::tuple<Tensor, Tensor, Tensor> _batch_norm_legit_no_stats_xpu(const Tensor &input, const Optional &weight,
                                                                  const Optional &bias, bool training,
                                                                  double momentum, double eps) {
    return batch_norm_new(input, weight, bias, {}, {}, training, momentum, eps);
}

std::tuple<Tensor &, Tensor &, Tensor &>
_batch_norm_legit_no_stats_xpu_out(const Tensor &input, const Optional &weight, const Optional &bias,
                                   bool training, double momentum, double eps, Tensor &out, Tensor &save_mean,
                                   Tensor &save_invstd) {
    return batch_norm_xpu_out(input, weight, bias, {}, {}, training, momentum, eps, out, save_mean,
                              save_invstd);
}

std::tuple<Tensor, Tensor, Tensor, Tensor>
_batch_norm_with_update_xpu(const Tensor &input, const Optional &weight, const Optional &bias,
                            Tensor &running_mean, Tensor &running_var, double momentum, double eps) {
    auto [output, mean, invstd] =
        batch_norm_new(input, weight, bias, running_mean, running_var, true, momentum, eps);
    return {output, mean, invstd, at::empty({0}, input.options().dtype(kByte))};
}

std::tuple<Tensor &, Tensor &, Tensor &, Tensor &>
_batch_norm_with_update_xpu_out(const Tensor &input, const Optional &weight, const Optional &bias,
                                Tensor &running_mean, Tensor &running_var, double momentum, double eps,
                                Tensor &out, Tensor &save_mean, Tensor &save_invstd, Tensor &reserve) {
    batch_norm_xpu_out(input, weight, bias, running_mean, running_var, true, momentum, eps, out, save_mean,
                       save_invstd);
    return std::forward_as_tuple(out, save_mean, save_invstd, reserve);
}

std::tuple<Tensor, Tensor> batch_norm_update_stats_xpu(const Tensor &input, const Optional &running_mean,
                                                       const Optional &running_var, double momentum) {
    const auto options = input.options().dtype(statistics_type(input));
    auto mean = at::empty({0}, options), variance = at::empty({0}, options);
    batch_norm_into(input, {}, {}, running_mean, running_var, true, momentum, 0, nullptr, mean, variance);
    // With eps 0 the kernel gives 1 / sqrt(variance).
    return {mean, variance.pow(-2)};
}

std::tuple<Tensor, Tensor, Tensor>
batch_norm_backward_xpu(const Tensor &grad_out, const Tensor &input, const Optional &weight,
                        const Optional &running_mean, const Optional &running_var, const Optional &save_mean,
                        const Optional &save_invstd, bool train, double eps,
                        std::array<bool, 3> output_mask) {
    constexpr auto op = "batch_norm_backward";
    check_channels(input, weight, {}, running_mean, running_var, op);
    check_shape_of_input(grad_out, input, op);
    const auto statistics = statistics_type(input);
    const auto type = parameter_type(input, weight, {});
    const auto format = known_format(input).value_or(MemoryFormat::Contiguous);
    const auto x = input.contiguous(format), dy = grad_out.to(input.scalar_type()).contiguous(format);
    PlaneNorm norm(input, weight, {}, eps, statistics);
    set_shape(norm.args, x, format);
    norm.args.evaluate = !train;
    const auto channels = at::empty({input.size(1)}, input.options().dtype(type));
    auto grad_input = output_mask[0] ? at::empty_like(x) : Tensor();
    auto grad_weight = wanted(output_mask[1], channels, type),
         grad_bias = wanted(output_mask[2], channels, type);
    if (input.numel() == 0) {
        if (grad_weight.defined()) grad_weight.zero_();
        if (grad_bias.defined()) grad_bias.zero_();
        return {grad_input, grad_weight, grad_bias};
    }
    Tensor mean, invstd;
    if (train) {
        TORCH_CHECK(given(save_mean) && given(save_invstd), op, ": save_mean and save_invstd are required");
        check_count(save_mean, input.size(1), op, "save_mean");
        check_count(save_invstd, input.size(1), op, "save_invstd");
        mean = save_mean->to(statistics).contiguous();
        invstd = save_invstd->to(statistics).contiguous();
    } else {
        TORCH_CHECK(given(running_mean) && given(running_var), op,
                    ": running_mean and running_var are required");
        mean = dense(running_mean);
        invstd = dense(running_var);
        set_running(norm.args, mean, invstd);
    }
    check(xpu_plane_norm_backward(current_stream(input), &norm.args, dy.const_data_ptr(), x.const_data_ptr(),
                                  data_of(mean), data_of(invstd), result_of(grad_input),
                                  result_of(grad_weight), result_of(grad_bias)));
    return {grad_input, as_parameter(grad_weight, weight), as_parameter(grad_bias, weight)};
}

std::tuple<Tensor, Tensor, Tensor>
_new_batch_norm_backward_xpu(const Tensor &grad_out, const Tensor &input, const Tensor &weight,
                             const Optional &running_mean, const Optional &running_var,
                             const Optional &save_mean, const Optional &save_var, bool update, double eps,
                             std::array<bool, 3> output_mask, const Tensor &reserve) {
    return batch_norm_backward_xpu(grad_out, input, weight, running_mean, running_var, save_mean, save_var,
                                   update, eps, output_mask);
}

namespace {

void check_groups(const Tensor &X, int64_t N, int64_t C, int64_t HxW, int64_t group) {
    TORCH_CHECK(group > 0 && C % group == 0,
                "Expected number of channels in input to be divisible by num_groups, but got ",
                "input of shape ", X.sizes(), " and num_groups=", group);
    TORCH_CHECK(N >= 0 && C >= 0 && HxW >= 0 && c10::multiply_integers(std::array{N, C, HxW}) == X.numel(),
                "group_norm: an input of shape ", X.sizes(), " doesn't have ", N, " × ", C, " × ", HxW,
                " elements");
}

} // namespace

std::tuple<Tensor, Tensor, Tensor> group_norm_xpu(const Tensor &X, const Optional &gamma,
                                                  const Optional &beta, int64_t N, int64_t C, int64_t HxW,
                                                  int64_t group, double eps) {
    check_groups(X, N, C, HxW, group);
    check_count(gamma, C, "group_norm", "weight");
    check_count(beta, C, "group_norm", "bias");
    const auto mixed = parameter_type(X, gamma, beta);
    PlaneNorm norm(X, gamma, beta, eps, mixed);
    const auto x = X.contiguous();
    auto y = at::empty_like(x);
    auto mean = at::empty({N, group}, X.options().dtype(mixed)), rstd = at::empty_like(mean);
    norm.args.batch = N;
    norm.args.channels = C;
    norm.args.length = HxW;
    norm.args.groups = group;
    check(xpu_plane_norm_forward(current_stream(X), &norm.args, x.const_data_ptr(), y.mutable_data_ptr(),
                                 mean.mutable_data_ptr(), rstd.mutable_data_ptr()));
    return {y, mean, rstd};
}

std::tuple<Tensor, Tensor, Tensor> group_norm_backward_xpu(const Tensor &dY, const Tensor &X,
                                                           const Tensor &mean, const Tensor &rstd,
                                                           const Optional &gamma, int64_t N, int64_t C,
                                                           int64_t HxW, int64_t group,
                                                           std::array<bool, 3> output_mask) {
    constexpr auto op = "group_norm_backward";
    check_groups(X, N, C, HxW, group);
    check_shape_of_input(dY, X, op);
    check_count(gamma, C, op, "weight");
    check_count(mean, N * group, op, "mean");
    check_count(rstd, N * group, op, "rstd");
    const auto type = parameter_type(X, gamma, {});
    PlaneNorm norm(X, gamma, {}, 0, mean.scalar_type());
    const auto x = X.contiguous(), dy = dY.to(X.scalar_type()).contiguous(), m = mean.contiguous(),
               r = rstd.contiguous();
    norm.args.batch = N;
    norm.args.channels = C;
    norm.args.length = HxW;
    norm.args.groups = group;
    const auto channels = at::empty({C}, X.options().dtype(type));
    auto dx = output_mask[0] ? at::empty_like(x) : Tensor();
    auto grad_weight = wanted(output_mask[1], channels, type),
         grad_bias = wanted(output_mask[2], channels, type);
    if (X.numel() == 0) {
        if (grad_weight.defined()) grad_weight.zero_();
        if (grad_bias.defined()) grad_bias.zero_();
        return {dx, grad_weight, grad_bias};
    }
    check(xpu_plane_norm_backward(current_stream(X), &norm.args, dy.const_data_ptr(), x.const_data_ptr(),
                                  m.const_data_ptr(), r.const_data_ptr(), result_of(dx),
                                  result_of(grad_weight), result_of(grad_bias)));
    return {dx, grad_weight, grad_bias};
}

} // namespace at::native

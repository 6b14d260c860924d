// Fake quantization and the observers that choose scales. Checks are those of PyTorch's CPU and CUDA
// kernels.
#include <ATen/ops/_fake_quantize_learnable_per_channel_affine_native.h>
#include <ATen/ops/_fake_quantize_learnable_per_tensor_affine_native.h>
#include <ATen/ops/_fake_quantize_per_tensor_affine_cachemask_tensor_qparams.h>
#include <ATen/ops/_fake_quantize_per_tensor_affine_cachemask_tensor_qparams_native.h>
#include <ATen/ops/_fused_moving_avg_obs_fq_helper_native.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/fake_quantize_per_channel_affine_cachemask.h>
#include <ATen/ops/fake_quantize_per_channel_affine_cachemask_native.h>
#include <ATen/ops/fake_quantize_per_tensor_affine_cachemask_native.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scalar_tensor.h>

#include "native/pointwise.h"

namespace at::native {

using openxpu::pointwise;
using openxpu::scalar_of;

namespace {

using Result = std::tuple<Tensor, Tensor>;
using Gradients = std::tuple<Tensor, Tensor, Tensor>;

// One of each for each element along `axis`.
void check_channels(const Tensor &self, const Tensor &scale, const Tensor &zero_point, int64_t axis) {
    TORCH_CHECK(scale.dim() == 1, "scale should be a 1-D tensor");
    TORCH_CHECK(zero_point.dim() == 1, "zero point should be a 1-D tensor");
    TORCH_CHECK(scale.numel() == zero_point.numel(), "scale and zero-point need to have the same dimensions");
    TORCH_CHECK(axis >= 0 && axis < self.dim(), "`axis` must be between 0 and number of dimensions of input");
    TORCH_CHECK(scale.numel() == self.size(axis),
                "dimensions of scale and zero-point are not consistent with input tensor");
}

void check_range(int64_t quant_min, int64_t quant_max) {
    TORCH_CHECK(quant_min <= quant_max, "`quant_min` should be less than or equal to `quant_max`.");
    for (int64_t limit : {quant_min, quant_max})
        TORCH_CHECK_NOT_IMPLEMENTED(limit == static_cast<int32_t>(limit),
                                    "fake quantization on xpu supports integers of up to 32 bits, got ",
                                    limit);
}
void check_zero_point(bool within) {
    TORCH_CHECK(within, "`zero_point` must be between `quant_min` and `quant_max`.");
}

// The iterator takes one operand by value: the switch.
Tensor always() { return at::scalar_tensor(true, TensorOptions(kBool)); }

// A tensor of one element, as one that broadcasts.
Tensor one_of(const char *name, const Tensor &t) {
    TORCH_CHECK(t.numel() == 1, name, " must have one element, got ", t.numel());
    return t.reshape({});
}

// One number a channel, lying along `axis` of `self`.
Tensor along(const Tensor &channels, const Tensor &self, int64_t axis) {
    DimVector shape(self.dim(), 1);
    shape[axis] = channels.size(0);
    return channels.reshape(shape);
}

// Where `enabled` is undefined the zero points are fractions.
Result fake_quantize(const Tensor &self, const Tensor &scale, const Tensor &zero_point, const Tensor &enabled,
                     int64_t quant_min, int64_t quant_max, bool in_float) {
    TORCH_CHECK(isFloatingType(self.scalar_type()), "fake quantization needs a floating-point tensor, got ",
                self.scalar_type());
    Tensor out = at::empty_like(self), mask = at::empty_like(self, kBool);
    TensorIteratorConfig config;
    config.check_all_same_dtype(false)
        .allow_cpu_scalars(true)
        .resize_outputs(false)
        .add_output(out)
        .add_output(mask)
        .add_const_input(self)
        .add_const_input(scale)
        .add_const_input(zero_point);
    if (enabled.defined()) config.add_const_input(enabled);
    auto iter = config.build();
    // Not in a half type, to which scales would be rounded.
    const auto compute = self.scalar_type() == kDouble ? kDouble : kFloat;
    if (enabled.defined())
        pointwise(iter, compute, XPU_POINTWISE_FAKE_QUANTIZE,
                  {scalar_of(quant_min), scalar_of(quant_max), scalar_of(int64_t{in_float})});
    else
        pointwise(iter, compute, XPU_POINTWISE_FAKE_QUANTIZE_FRACTION,
                  {scalar_of(quant_min), scalar_of(quant_max)});
    return {out, mask};
}

// Of each element: the gradients with respect to input, scale and zero point.
Gradients gradients(const Tensor &grad, const Tensor &self, const Tensor &scale, const Tensor &zero_point,
                    int64_t quant_min, int64_t quant_max, double grad_factor) {
    Tensor of_self = at::empty_like(self), of_scale = at::empty_like(self), of_zero = at::empty_like(self);
    auto iter = TensorIteratorConfig()
                    .resize_outputs(false)
                    .add_output(of_self)
                    .add_output(of_scale)
                    .add_output(of_zero)
                    .add_const_input(grad)
                    .add_const_input(self)
                    .add_const_input(scale)
                    .add_const_input(zero_point)
                    .build();
    pointwise(iter, kFloat, XPU_POINTWISE_FAKE_QUANTIZE_BACKWARD,
              {scalar_of(quant_min), scalar_of(quant_max), scalar_of(grad_factor)});
    return {of_self, of_scale, of_zero};
}

void check_learnt(const Tensor &grad, const Tensor &self, const Tensor &scale, const Tensor &zero_point,
                  int64_t quant_min, int64_t quant_max) {
    for (const Tensor *t : {&grad, &self, &scale, &zero_point})
        TORCH_CHECK(t->scalar_type() == kFloat, "expected Float tensors, got ", t->scalar_type());
    TORCH_CHECK(self.sizes() == grad.sizes(), "`X` and `dY` are not the same size");
    check_range(quant_min, quant_max);
    TORCH_CHECK(quant_min <= 0 && quant_max >= 0, "Expecting `quant_min` <= 0 and `quant_max` >= 0");
}

// Updates the running minimum and maximum where the observer is on.
void observe(const Tensor &known, const Tensor &seen, const Tensor &on, double rate) {
    auto iter = TensorIteratorConfig()
                    .check_all_same_dtype(false)
                    .resize_outputs(false)
                    .add_output(known)
                    .add_const_input(known)
                    .add_const_input(seen)
                    .add_const_input(on)
                    .build();
    pointwise(iter, kFloat, XPU_POINTWISE_MOVING_EXTREME, {scalar_of(rate)});
}

} // namespace

Result fake_quantize_per_tensor_affine_cachemask_xpu(const Tensor &self, double scale, int64_t zero_point,
                                                     int64_t quant_min, int64_t quant_max) {
    check_range(quant_min, quant_max);
    check_zero_point(zero_point >= quant_min && zero_point <= quant_max);
    return fake_quantize(self, at::full({}, scale, self.options().dtype(kFloat)),
                         at::full({}, zero_point, self.options().dtype(kInt)), always(), quant_min, quant_max,
                         true);
}

Result fake_quantize_per_tensor_affine_cachemask_tensor_qparams_xpu(const Tensor &self, const Tensor &scale,
                                                                    const Tensor &zero_point,
                                                                    const Tensor &fake_quant_enabled,
                                                                    int64_t quant_min, int64_t quant_max) {
    check_range(quant_min, quant_max);
    return fake_quantize(self, one_of("scale", scale), one_of("zero_point", zero_point).to(kInt),
                         one_of("fake_quant_enabled", fake_quant_enabled), quant_min, quant_max, true);
}

Result fake_quantize_per_channel_affine_cachemask_xpu(const Tensor &self, const Tensor &scale,
                                                      const Tensor &zero_point, int64_t axis,
                                                      int64_t quant_min, int64_t quant_max) {
    TORCH_CHECK(scale.scalar_type() == kFloat || scale.scalar_type() == kBFloat16,
                "Scale must be Float or BFloat16, found ", scale.scalar_type());
    TORCH_CHECK(zero_point.scalar_type() == kInt || zero_point.scalar_type() == kFloat ||
                    zero_point.scalar_type() == kHalf,
                "Zero-point must be Int32, Float or Half, found ", zero_point.scalar_type());
    check_channels(self, scale, zero_point, axis);
    check_range(quant_min, quant_max);
    const bool is_fraction = isFloatingType(zero_point.scalar_type());
    if (!is_fraction && zero_point.numel() > 0) {
        const auto [lowest, highest] = at::aminmax(zero_point);
        check_zero_point(lowest.item<int>() >= quant_min && highest.item<int>() <= quant_max);
    }
    return fake_quantize(self, along(scale, self, axis), along(zero_point, self, axis),
                         is_fraction ? Tensor() : always(), quant_min, quant_max, false);
}

Gradients fake_quantize_learnable_per_tensor_affine_backward_xpu(const Tensor &grad, const Tensor &self,
                                                                 const Tensor &scale,
                                                                 const Tensor &zero_point, int64_t quant_min,
                                                                 int64_t quant_max, double grad_factor) {
    check_learnt(grad, self, scale, zero_point, quant_min, quant_max);
    if (self.numel() == 0) return {self, scale, zero_point};
    // The integer nearest to the zero point; ties go up.
    const Tensor zero = one_of("zero_point", zero_point).add(0.5).clamp_(quant_min, quant_max).trunc_();
    const auto [of_self, of_scale, of_zero] =
        gradients(grad, self, one_of("scale", scale), zero, quant_min, quant_max, grad_factor);
    return {of_self, of_scale.sum().unsqueeze(0), of_zero.sum().unsqueeze(0)};
}

Gradients fake_quantize_learnable_per_channel_affine_backward_xpu(const Tensor &grad, const Tensor &self,
                                                                  const Tensor &scale,
                                                                  const Tensor &zero_point, int64_t axis,
                                                                  int64_t quant_min, int64_t quant_max,
                                                                  double grad_factor) {
    if (self.scalar_type() == kBFloat16)
        return fake_quantize_learnable_per_channel_affine_backward_xpu(
            grad.to(kFloat), self.to(kFloat), scale.to(kFloat), zero_point.to(kFloat), axis, quant_min,
            quant_max, grad_factor);
    check_learnt(grad, self, scale, zero_point, quant_min, quant_max);
    check_channels(self, scale, zero_point, axis);
    if (self.numel() == 0) return {self, scale, zero_point};
    const Tensor zero = zero_point.round().clamp_(quant_min, quant_max);
    const auto [of_self, of_scale, of_zero] = gradients(
        grad, self, along(scale, self, axis), along(zero, self, axis), quant_min, quant_max, grad_factor);
    if (self.dim() == 1) return {of_self, of_scale, of_zero};
    DimVector others;
    for (int64_t d = 0; d < self.dim(); d++)
        if (d != axis) others.push_back(d);
    return {of_self, of_scale.sum(others), of_zero.sum(others)};
}

Result fused_moving_avg_obs_fake_quant_xpu(const Tensor &self, const Tensor &observer_on,
                                           const Tensor &fake_quant_on, Tensor &running_min,
                                           Tensor &running_max, Tensor &scale, Tensor &zero_point,
                                           double averaging_const, int64_t quant_min, int64_t quant_max,
                                           int64_t ch_axis, bool per_row_fake_quant, bool symmetric_quant) {
    TORCH_CHECK(ch_axis < self.dim(), "fused_moving_avg_obs_fake_quant: ch_axis must be < self.dim()");
    check_range(quant_min, quant_max);
    const double infinity = std::numeric_limits<double>::infinity();
    Tensor lowest, highest;
    if (per_row_fake_quant) {
        TORCH_CHECK(ch_axis >= 0, "fused_moving_avg_obs_fake_quant: ch_axis must not be negative");
        std::tie(lowest, highest) = at::aminmax(self.transpose(0, ch_axis).flatten(1), 1);
        if (running_min.numel() == 0) {
            const int64_t channels = self.size(ch_axis);
            running_min.resize_(channels).fill_(infinity);
            running_max.resize_(channels).fill_(-infinity);
            scale.resize_(channels);
            zero_point.resize_(channels);
        }
    } else {
        std::tie(lowest, highest) = at::aminmax(self);
    }
    const Tensor on = one_of("observer_on", observer_on);
    observe(running_min, lowest, on, averaging_const);
    observe(running_max, highest, on, averaging_const);
    if (fake_quant_on.item().toInt() == 0) return {self.clone(), at::ones_like(self, kBool)};

    const bool has_double = openxpu::properties_of(self.device().index()).has_fp64;
    auto iter = TensorIteratorConfig()
                    .check_all_same_dtype(false)
                    .resize_outputs(false)
                    .add_output(scale)
                    .add_output(zero_point)
                    .add_const_input(running_min)
                    .add_const_input(running_max)
                    .build();
    pointwise(iter, has_double ? kDouble : kFloat, XPU_POINTWISE_CHOOSE_QPARAMS,
              {scalar_of(quant_min), scalar_of(quant_max), scalar_of(int64_t{symmetric_quant})});
    if (per_row_fake_quant)
        return at::fake_quantize_per_channel_affine_cachemask(self, scale, zero_point, ch_axis, quant_min,
                                                              quant_max);
    return at::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams(self, scale, zero_point,
                                                                         fake_quant_on, quant_min, quant_max);
}

} // namespace at::native

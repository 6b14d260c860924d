// Fused optimizers and gradient scaling.
#include <ATen/native/ForeachUtils.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale_native.h>
#include <ATen/ops/_amp_update_scale_native.h>
#include <ATen/ops/_fused_adagrad_native.h>
#include <ATen/ops/_fused_adam_native.h>
#include <ATen/ops/_fused_adamw_native.h>
#include <ATen/ops/_fused_sgd_native.h>
#include <c10/util/SmallVector.h>

#include <map>

#include "lower.h"
#include "xpu/ops/optim.h"

namespace at::native {

using namespace openxpu;
using openxpu::check;

namespace {

// The address of a float on the device; `kept` holds what had to be converted.
const float *float_at(const Tensor &tensor, const Tensor &like, Tensor &kept) {
    kept = tensor.to(like.options().dtype(kFloat));
    return kept.const_data_ptr<float>();
}
const float *float_at(const std::optional<Tensor> &tensor, const Tensor &like, Tensor &kept) {
    return tensor.has_value() && tensor->defined() ? float_at(*tensor, like, kept) : nullptr;
}

struct Step {
    xpu_step_options options = {};
    Tensor kept[3];

    Step(const Tensor &like, double weight_decay, bool maximize, const std::optional<Tensor> &grad_scale,
         const std::optional<Tensor> &found_inf) {
        options.weight_decay = weight_decay;
        options.maximize = maximize;
        options.grad_scale = float_at(grad_scale, like, kept[0]);
        options.found_inf = float_at(found_inf, like, kept[1]);
    }
    Step &rate(double lr) {
        options.lr = lr;
        return *this;
    }
    Step &rate(const Tensor &lr, const Tensor &like) {
        if (lr.is_cpu())
            options.lr = lr.item<double>();
        else
            options.lr_tensor = float_at(lr, like, kept[2]);
        return *this;
    }
};

void check_lists(const char *name, ArrayRef<TensorList> lists) {
    TORCH_CHECK(check_fast_path_restrictions(lists), "params, grads and the states of ", name,
                " must have the same dtype, device, and layout");
}

// One float on the device for each parameter. `kept` holds what had to be converted.
const float *step_of(const Tensor &step, const Tensor &like, c10::SmallVectorImpl<Tensor> &kept) {
    if (step.is_xpu() && step.scalar_type() == kFloat) return step.const_data_ptr<float>();
    kept.push_back(step.to(like.options().dtype(kFloat)));
    return kept.back().const_data_ptr<float>();
}

void adam(TensorList self, TensorList grads, TensorList exp_avgs, TensorList exp_avg_sqs,
          TensorList max_exp_avg_sqs, TensorList state_steps, const Step &step, double beta1, double beta2,
          double eps, bool amsgrad, bool decoupled) {
    if (amsgrad)
        check_lists("adam", {self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs});
    else
        check_lists("adam", {self, grads, exp_avgs, exp_avg_sqs});
    c10::SmallVector<xpu_adam_row, 64> rows(self.size());
    c10::SmallVector<Tensor, 4> kept;
    for (size_t i = 0; i < self.size(); i++)
        rows[i] = {.param = self[i].mutable_data_ptr(),
                   .grad = grads[i].mutable_data_ptr(),
                   .exp_avg = exp_avgs[i].mutable_data_ptr(),
                   .exp_avg_sq = exp_avg_sqs[i].mutable_data_ptr(),
                   .max_exp_avg_sq = amsgrad ? max_exp_avg_sqs[i].mutable_data_ptr() : nullptr,
                   .step = step_of(state_steps[i], self[0], kept),
                   .count = self[i].numel()};
    const xpu_adam_options options = {step.options, beta1, beta2, eps, decoupled, amsgrad};
    check(xpu_adam(current_stream(self[0]), dtype_of(self[0]), rows.data(), static_cast<int64_t>(rows.size()),
                   &options));
}

void sgd(TensorList self, TensorList grads, TensorList momentum_buffers, const Step &step, double momentum,
         double dampening, bool nesterov, bool is_first_step) {
    const bool buffers = momentum != 0;
    if (buffers)
        check_lists("sgd", {self, grads, momentum_buffers});
    else
        check_lists("sgd", {self, grads});
    c10::SmallVector<xpu_sgd_row, 64> rows(self.size());
    for (size_t i = 0; i < self.size(); i++)
        rows[i] = {.param = self[i].mutable_data_ptr(),
                   .grad = grads[i].mutable_data_ptr(),
                   .momentum_buffer = buffers ? momentum_buffers[i].mutable_data_ptr() : nullptr,
                   .count = self[i].numel()};
    const xpu_sgd_options options = {step.options, momentum, dampening, nesterov, is_first_step};
    check(xpu_sgd(current_stream(self[0]), dtype_of(self[0]), rows.data(), static_cast<int64_t>(rows.size()),
                  &options));
}

void adagrad(TensorList self, TensorList grads, TensorList state_sums, TensorList state_steps,
             const Step &step, double lr_decay, double eps) {
    check_lists("adagrad", {self, grads, state_sums});
    c10::SmallVector<xpu_adagrad_row, 64> rows(self.size());
    c10::SmallVector<Tensor, 4> kept;
    for (size_t i = 0; i < self.size(); i++)
        rows[i] = {.param = self[i].mutable_data_ptr(),
                   .grad = grads[i].mutable_data_ptr(),
                   .state_sum = state_sums[i].mutable_data_ptr(),
                   .step = step_of(state_steps[i], self[0], kept),
                   .count = self[i].numel()};
    check(xpu_adagrad(current_stream(self[0]), dtype_of(self[0]), rows.data(),
                      static_cast<int64_t>(rows.size()), &step.options, lr_decay, eps));
}

} // namespace

#define XPU_ADAM(NAME, DECOUPLED)                                                                            \
    void NAME(TensorList self, TensorList grads, TensorList exp_avgs, TensorList exp_avg_sqs,                \
              TensorList max_exp_avg_sqs, TensorList state_steps, const double lr, const double beta1,       \
              const double beta2, const double weight_decay, const double eps, const bool amsgrad,           \
              const bool maximize, const std::optional<Tensor> &grad_scale,                                  \
              const std::optional<Tensor> &found_inf) {                                                      \
        adam(self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps,                               \
             Step(self[0], weight_decay, maximize, grad_scale, found_inf).rate(lr), beta1, beta2, eps,       \
             amsgrad, DECOUPLED);                                                                            \
    }                                                                                                        \
    void NAME(TensorList self, TensorList grads, TensorList exp_avgs, TensorList exp_avg_sqs,                \
              TensorList max_exp_avg_sqs, TensorList state_steps, const Tensor &lr, const double beta1,      \
              const double beta2, const double weight_decay, const double eps, const bool amsgrad,           \
              const bool maximize, const std::optional<Tensor> &grad_scale,                                  \
              const std::optional<Tensor> &found_inf) {                                                      \
        adam(self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps,                               \
             Step(self[0], weight_decay, maximize, grad_scale, found_inf).rate(lr, self[0]), beta1, beta2,   \
             eps, amsgrad, DECOUPLED);                                                                       \
    }
XPU_ADAM(fused_adam_xpu_, false)
XPU_ADAM(fused_adamw_xpu_, true)

void fused_sgd_xpu_(TensorList self, TensorList grads, TensorList momentum_buffer_list,
                    const double weight_decay, const double momentum, const double lr, const double dampening,
                    const bool nesterov, const bool maximize, const bool is_first_step,
                    const std::optional<Tensor> &grad_scale, const std::optional<Tensor> &found_inf) {
    sgd(self, grads, momentum_buffer_list,
        Step(self[0], weight_decay, maximize, grad_scale, found_inf).rate(lr), momentum, dampening, nesterov,
        is_first_step);
}

void fused_sgd_xpu_(TensorList self, TensorList grads, TensorList momentum_buffer_list,
                    const double weight_decay, const double momentum, const Tensor &lr,
                    const double dampening, const bool nesterov, const bool maximize,
                    const bool is_first_step, const std::optional<Tensor> &grad_scale,
                    const std::optional<Tensor> &found_inf) {
    sgd(self, grads, momentum_buffer_list,
        Step(self[0], weight_decay, maximize, grad_scale, found_inf).rate(lr, self[0]), momentum, dampening,
        nesterov, is_first_step);
}

void fused_adagrad_xpu_(TensorList self, TensorList grads, TensorList state_sums, TensorList state_steps,
                        const double lr, const double lr_decay, const double weight_decay, const double eps,
                        const bool maximize, const std::optional<Tensor> &grad_scale,
                        const std::optional<Tensor> &found_inf) {
    adagrad(self, grads, state_sums, state_steps,
            Step(self[0], weight_decay, maximize, grad_scale, found_inf).rate(lr), lr_decay, eps);
}

void fused_adagrad_xpu_(TensorList self, TensorList grads, TensorList state_sums, TensorList state_steps,
                        const Tensor &lr, const double lr_decay, const double weight_decay, const double eps,
                        const bool maximize, const std::optional<Tensor> &grad_scale,
                        const std::optional<Tensor> &found_inf) {
    adagrad(self, grads, state_sums, state_steps,
            Step(self[0], weight_decay, maximize, grad_scale, found_inf).rate(lr, self[0]), lr_decay, eps);
}

void amp_foreach_non_finite_check_and_unscale_xpu_(TensorList self, Tensor &found_inf,
                                                   const Tensor &inv_scale) {
    if (self.empty()) return;
    TORCH_CHECK(inv_scale.is_xpu(), "inv_scale must be an XPU tensor.");
    TORCH_CHECK(found_inf.is_xpu(), "found_inf must be an XPU tensor.");
    TORCH_CHECK(inv_scale.numel() == 1, "inv_scale must be a 1-element tensor.");
    TORCH_CHECK(found_inf.numel() == 1, "found_inf must be a 1-element tensor.");
    TORCH_CHECK(inv_scale.scalar_type() == kFloat, "inv_scale must be a float tensor.");
    TORCH_CHECK(found_inf.scalar_type() == kFloat, "found_inf must be a float tensor.");
    // One launch per dtype; tensors that are not dense are scaled as copies.
    std::vector<std::pair<Tensor, Tensor>> copies;
    std::map<ScalarType, c10::SmallVector<xpu_unscale_row, 64>> groups;
    for (const auto &tensor : self) {
        TORCH_CHECK(tensor.is_xpu(), "one of scaled_grads was not a XPU tensor.");
        TORCH_CHECK(tensor.device() == found_inf.device() && tensor.layout() == kStrided,
                    "scaled_grads must be strided tensors on the device of found_inf.");
        auto dense = tensor;
        if (!tensor.is_non_overlapping_and_dense()) {
            dense = tensor.contiguous();
            copies.emplace_back(tensor, dense);
        }
        groups[tensor.scalar_type()].push_back({dense.mutable_data_ptr(), dense.numel(), 0});
    }
    auto *stream = current_stream(found_inf);
    for (auto &[type, rows] : groups)
        check(xpu_unscale(stream, dtype_of(type), rows.data(), static_cast<int64_t>(rows.size()),
                          inv_scale.const_data_ptr<float>(), found_inf.mutable_data_ptr<float>()));
    for (auto &[tensor, copy] : copies) tensor.copy_(copy);
}

Tensor &amp_update_scale_xpu_(Tensor &self, Tensor &growth_tracker, const Tensor &found_inf,
                              double scale_growth_factor, double scale_backoff_factor,
                              int64_t growth_interval) {
    TORCH_CHECK(growth_tracker.is_xpu(), "growth_tracker must be an XPU tensor.");
    TORCH_CHECK(self.is_xpu(), "current_scale must be an XPU tensor.");
    TORCH_CHECK(found_inf.is_xpu(), "found_inf must be an XPU tensor.");
    TORCH_CHECK(growth_tracker.numel() == 1, "growth_tracker must be a 1-element tensor.");
    TORCH_CHECK(self.numel() == 1, "current_scale must be a 1-element tensor.");
    TORCH_CHECK(found_inf.numel() == 1, "found_inf must be a 1-element tensor.");
    TORCH_CHECK(growth_tracker.scalar_type() == ScalarType::Int, "growth_tracker must be an int tensor.");
    TORCH_CHECK(self.scalar_type() == ScalarType::Float, "current_scale must be a float tensor.");
    TORCH_CHECK(found_inf.scalar_type() == ScalarType::Float, "found_inf must be a float tensor.");
    check(xpu_update_scale(current_stream(self), self.mutable_data_ptr<float>(),
                           growth_tracker.mutable_data_ptr<int32_t>(), found_inf.const_data_ptr<float>(),
                           scale_growth_factor, scale_backoff_factor, static_cast<int>(growth_interval)));
    return self;
}

} // namespace at::native

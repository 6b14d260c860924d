// Connectionist temporal classification loss.
#include "xpu/ops/ctc.h"

#include <ATen/TensorUtils.h>
#include <ATen/ops/_ctc_loss_backward_native.h>
#include <ATen/ops/_ctc_loss_native.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "operands.h"

namespace at::native {

using namespace openxpu;
using openxpu::check;

namespace {

void check_lengths(const char *name, IntArrayRef lengths, int64_t batch) {
    TORCH_CHECK(static_cast<int64_t>(lengths.size()) == batch, name, " must be of size batch_size");
}

// The arguments, and the tensors that they point into.
struct Lowered {
    xpu_ctc args = {};
    Tensor log_probs, targets, tables; // tables: [3, batch] of int64

    Lowered(const Tensor &log_probs_, const Tensor &targets_, IntArrayRef input_lengths,
            IntArrayRef target_lengths, int64_t blank, bool zero_infinity)
        : log_probs(log_probs_.contiguous()), targets(targets_.contiguous()) {
        const auto batch = log_probs.size(1);
        auto rows = at::empty({3, batch}, kLong);
        auto *const row = rows.mutable_data_ptr<int64_t>();
        int64_t start = 0;
        for (int64_t b = 0; b < batch; b++) {
            row[b] = input_lengths[b];
            row[batch + b] = target_lengths[b];
            row[2 * batch + b] = start;
            start += targets.dim() == 1 ? target_lengths[b] : targets.size(1);
            args.longest = std::max(args.longest, target_lengths[b]);
        }
        tables = rows.to(log_probs.device());
        args.time = log_probs.size(0);
        args.batch = batch;
        args.labels = log_probs.size(2);
        args.blank = blank;
        args.zero_infinity = zero_infinity;
        args.dtype = dtype_of(log_probs);
        args.target_dtype = dtype_of(targets);
        args.log_probs = log_probs.const_data_ptr();
        args.targets = targets.const_data_ptr();
        const auto *const table = tables.const_data_ptr<int64_t>();
        args.input_lengths = table;
        args.target_lengths = table + batch;
        args.target_starts = table + 2 * batch;
    }
};

void check_arguments(const Tensor &log_probs, const Tensor &targets, IntArrayRef input_lengths,
                     IntArrayRef target_lengths, int64_t blank) {
    CheckedFrom c = "ctc_loss_xpu";
    TORCH_CHECK(log_probs.numel() > 0, "log_probs tensor must not be empty");
    const TensorArg log_probs_arg(log_probs, "log_probs", 1), targets_arg(targets, "targets", 2);
    checkScalarType(c, targets_arg, targets.scalar_type() == kLong ? kLong : kInt);
    checkDim(c, log_probs_arg, 3);
    checkDimRange(c, targets_arg, 1, 3);
    const auto time = log_probs.size(0), batch = log_probs.size(1);
    TORCH_CHECK(blank >= 0 && blank < log_probs.size(2), "blank must be in label range");
    check_lengths("input_lengths", input_lengths, batch);
    check_lengths("target_lengths", target_lengths, batch);
    int64_t longest = 0, all = 0;
    for (const auto length : target_lengths) {
        TORCH_CHECK(length >= 0, "Expected target_lengths to have value at least 0, but got value ", length,
                    " (while checking arguments for ", c, ")");
        longest = std::max(longest, length);
        all += length;
    }
    checkSize(c, targets_arg, 0, targets.dim() == 1 ? all : batch);
    TORCH_CHECK(targets.dim() == 1 || targets.size(1) >= longest, "Expected tensor to have size at least ",
                longest, " at dimension 1, but got size ", targets.dim() == 1 ? 0 : targets.size(1), " for ",
                targets_arg, " (while checking arguments for ", c, ")");
    for (const auto length : input_lengths) {
        TORCH_CHECK(length >= 0, "Expected input_lengths to have value at least 0, but got value ", length,
                    " (while checking arguments for ", c, ")");
        TORCH_CHECK(length <= time, "Expected input_lengths to have value at most ", time, ", but got value ",
                    length, " (while checking arguments for ", c, ")");
    }
}

} // namespace

std::tuple<Tensor, Tensor> ctc_loss_xpu(const Tensor &log_probs, const Tensor &targets,
                                        IntArrayRef input_lengths, IntArrayRef target_lengths, int64_t blank,
                                        bool zero_infinity) {
    check_arguments(log_probs, targets, input_lengths, target_lengths, blank);
    const Lowered lowered(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity);
    const auto &args = lowered.args;
    auto loss = at::empty({args.batch}, log_probs.options());
    auto log_alpha = at::empty({args.batch, args.time, 2 * args.longest + 1}, log_probs.options());
    xpu_fault fault = {};
    check(xpu_ctc_forward(current_stream(log_probs), &args, loss.mutable_data_ptr(),
                          log_alpha.mutable_data_ptr(), &fault));
    TORCH_CHECK_INDEX(!fault.state, "ctc_loss: target ", fault.index, " is out of range for ", args.labels,
                      " labels");
    return {std::move(loss), std::move(log_alpha)};
}

Tensor ctc_loss_backward_xpu(const Tensor &grad, const Tensor &log_probs, const Tensor &targets,
                             IntArrayRef input_lengths, IntArrayRef target_lengths,
                             const Tensor &neg_log_likelihood, const Tensor &log_alpha, int64_t blank,
                             bool zero_infinity) {
    check_arguments(log_probs, targets, input_lengths, target_lengths, blank);
    const Lowered lowered(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity);
    const auto &args = lowered.args;
    const std::array<int64_t, 3> steps{args.batch, args.time, 2 * args.longest + 1};
    TORCH_CHECK(grad.numel() == args.batch && neg_log_likelihood.numel() == args.batch,
                "ctc_loss_backward: expected grad and neg_log_likelihood of ", args.batch,
                " elements, but got ", grad.sizes(), " and ", neg_log_likelihood.sizes());
    TORCH_CHECK(log_alpha.sizes() == IntArrayRef(steps), "ctc_loss_backward: expected log_alpha of shape ",
                IntArrayRef(steps), ", but got ", log_alpha.sizes());
    const auto grad_loss = grad.contiguous(), loss = neg_log_likelihood.contiguous(),
               alpha = log_alpha.contiguous();
    auto result = at::empty(log_probs.sizes(), log_probs.options());
    check(xpu_ctc_backward(current_stream(log_probs), &args, grad_loss.const_data_ptr(),
                           loss.const_data_ptr(), alpha.const_data_ptr(), result.mutable_data_ptr()));
    return result;
}

} // namespace at::native

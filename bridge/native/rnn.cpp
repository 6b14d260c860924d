// The elementwise part of LSTM and GRU cells.
#include <ATen/ops/_thnn_fused_gru_cell_backward_native.h>
#include <ATen/ops/_thnn_fused_gru_cell_native.h>
#include <ATen/ops/_thnn_fused_lstm_cell_backward_impl_native.h>
#include <ATen/ops/_thnn_fused_lstm_cell_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sum.h>

#include "../lower.h"
#include "xpu/ops/rnn.h"

namespace {

using at::Tensor;

Tensor contiguous(const std::optional<Tensor> &tensor) {
    return tensor && tensor->defined() ? tensor->contiguous() : Tensor();
}
const void *data(const Tensor &tensor) { return tensor.defined() ? tensor.const_data_ptr() : nullptr; }

void check_gates(const Tensor &input_gates, const Tensor &hidden_gates, const Tensor &input_bias,
                 const Tensor &hidden_bias, const Tensor &state, int64_t factor) {
    TORCH_CHECK(input_gates.dim() == 2 && state.dim() == 2, "RNN cell: gates and state must be 2D");
    TORCH_CHECK(input_gates.sizes() == hidden_gates.sizes(), "RNN cell: gates must have the same shape, got ",
                input_gates.sizes(), " and ", hidden_gates.sizes());
    TORCH_CHECK(input_gates.size(0) == state.size(0) && input_gates.size(1) == factor * state.size(1),
                "RNN cell: gates of shape ", input_gates.sizes(), " don't match a state of shape ",
                state.sizes());
    TORCH_CHECK(input_bias.defined() == hidden_bias.defined(), "RNN cell: both biases or none must be given");
    for (const Tensor *other : {&hidden_gates, &input_bias, &hidden_bias, &state})
        TORCH_CHECK(!other->defined() || other->scalar_type() == input_gates.scalar_type(),
                    "RNN cell: dtypes differ: ", input_gates.scalar_type(), " and ", other->scalar_type());
    for (const Tensor *bias : {&input_bias, &hidden_bias})
        TORCH_CHECK(!bias->defined() || bias->numel() == input_gates.size(1),
                    "RNN cell: the bias doesn't match the gates: ", bias->numel(), " elements");
}

// What cell_forward gives: hy, cy (LSTM only) and the workspace.
struct Cell {
    Tensor hy, cy, workspace;
};

Cell cell_forward(xpu_rnn_kind kind, const Tensor &input_gates, const Tensor &hidden_gates,
                  const Tensor &state_given, const std::optional<Tensor> &input_bias,
                  const std::optional<Tensor> &hidden_bias) {
    const bool lstm = kind == XPU_RNN_LSTM;
    const Tensor in = input_gates.contiguous(), hidden = hidden_gates.contiguous();
    const Tensor state = state_given.contiguous(), b = contiguous(input_bias), hb = contiguous(hidden_bias);
    check_gates(in, hidden, b, hb, state, lstm ? 4 : 3);
    const int64_t rows = state.size(0), units = state.size(1);
    Cell out = {at::empty_like(state), lstm ? at::empty_like(state) : Tensor(),
                at::empty({rows, (lstm ? 4 : 5) * units}, state.options())};
    const xpu_rnn_cell cell{.kind = kind,
                            .dtype = openxpu::dtype_of(in),
                            .rows = rows,
                            .hidden = units,
                            .input_gates = data(in),
                            .hidden_gates = data(hidden),
                            .input_bias = data(b),
                            .hidden_bias = data(hb),
                            .state = data(state),
                            .hy = out.hy.mutable_data_ptr(),
                            .cy = lstm ? out.cy.mutable_data_ptr() : nullptr,
                            .workspace = out.workspace.mutable_data_ptr()};
    openxpu::check(xpu_rnn_cell_forward(openxpu::current_stream(in), &cell));
    return out;
}

// What cell_backward gives: of the input's gates, the hidden gates (GRU only) and the state.
struct CellGrad {
    Tensor input_gates, hidden_gates, state;
};

CellGrad cell_backward(xpu_rnn_kind kind, const Tensor &grad_hy, const Tensor &grad_cy, const Tensor &cx,
                       const Tensor &cy, const Tensor &workspace) {
    const bool lstm = kind == XPU_RNN_LSTM;
    const Tensor kept = workspace.contiguous();
    const int64_t rows = kept.size(0), units = kept.size(1) / (lstm ? 4 : 5);
    CellGrad out = {at::empty({rows, (lstm ? 4 : 3) * units}, kept.options()),
                    lstm ? Tensor() : at::empty({rows, 3 * units}, kept.options()),
                    at::empty({rows, units}, kept.options())};
    const xpu_rnn_cell_grad grad{.kind = kind,
                                 .dtype = openxpu::dtype_of(kept),
                                 .rows = rows,
                                 .hidden = units,
                                 .grad_hy = data(grad_hy),
                                 .grad_cy = data(grad_cy),
                                 .cx = data(cx),
                                 .cy = data(cy),
                                 .workspace = data(kept),
                                 .grad_input_gates = out.input_gates.mutable_data_ptr(),
                                 .grad_hidden_gates = lstm ? nullptr : out.hidden_gates.mutable_data_ptr(),
                                 .grad_state = out.state.mutable_data_ptr()};
    openxpu::check(xpu_rnn_cell_backward(openxpu::current_stream(kept), &grad));
    return out;
}

} // namespace

namespace at::native {

std::tuple<Tensor, Tensor, Tensor> thnn_fused_lstm_cell_xpu(const Tensor &input_gates,
                                                            const Tensor &hidden_gates, const Tensor &cx,
                                                            const std::optional<Tensor> &input_bias,
                                                            const std::optional<Tensor> &hidden_bias) {
    const auto out = cell_forward(XPU_RNN_LSTM, input_gates, hidden_gates, cx, input_bias, hidden_bias);
    return {out.hy, out.cy, out.workspace};
}

std::tuple<Tensor, Tensor, Tensor>
thnn_fused_lstm_cell_backward_impl_xpu(const std::optional<Tensor> &grad_hy,
                                       const std::optional<Tensor> &grad_cy, const Tensor &cx,
                                       const Tensor &cy, const Tensor &workspace, bool has_bias) {
    const Tensor grad_h = contiguous(grad_hy), grad_c = contiguous(grad_cy);
    if (!grad_h.defined() && !grad_c.defined()) return {};
    const auto grad =
        cell_backward(XPU_RNN_LSTM, grad_h, grad_c, cx.contiguous(), cy.contiguous(), workspace);
    return {grad.input_gates, grad.state, has_bias ? grad.input_gates.sum(0) : Tensor()};
}

std::tuple<Tensor, Tensor> thnn_fused_gru_cell_xpu(const Tensor &input_gates, const Tensor &hidden_gates,
                                                   const Tensor &hx, const std::optional<Tensor> &input_bias,
                                                   const std::optional<Tensor> &hidden_bias) {
    const auto out = cell_forward(XPU_RNN_GRU, input_gates, hidden_gates, hx, input_bias, hidden_bias);
    return {out.hy, out.workspace};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>
thnn_fused_gru_cell_backward_xpu(const Tensor &grad_hy, const Tensor &workspace, bool has_bias) {
    const auto grad = cell_backward(XPU_RNN_GRU, grad_hy.contiguous(), {}, {}, {}, workspace);
    return {grad.input_gates, grad.hidden_gates, grad.state, has_bias ? grad.input_gates.sum(0) : Tensor(),
            has_bias ? grad.hidden_gates.sum(0) : Tensor()};
}

} // namespace at::native

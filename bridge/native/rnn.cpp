// The pointwise halves of LSTM and GRU cells.
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
    TORCH_CHECK(input_gates.dim() == 2 && state.dim() == 2, "recurrent cell: gates and state must be 2D");
    TORCH_CHECK(input_gates.sizes() == hidden_gates.sizes(), "recurrent cell: gates of shapes ",
                input_gates.sizes(), " and ", hidden_gates.sizes());
    TORCH_CHECK(input_gates.size(0) == state.size(0) && input_gates.size(1) == factor * state.size(1),
                "recurrent cell: gates of shape ", input_gates.sizes(), " for a state of shape ",
                state.sizes());
    TORCH_CHECK(input_bias.defined() == hidden_bias.defined(), "recurrent cell: both biases or none");
    for (const Tensor *other : {&hidden_gates, &input_bias, &hidden_bias, &state})
        TORCH_CHECK(!other->defined() || other->scalar_type() == input_gates.scalar_type(),
                    "recurrent cell: dtypes differ: ", input_gates.scalar_type(), " and ",
                    other->scalar_type());
    for (const Tensor *bias : {&input_bias, &hidden_bias})
        TORCH_CHECK(!bias->defined() || bias->numel() == input_gates.size(1), "recurrent cell: bias of ",
                    bias->numel(), " elements");
}

} // namespace

namespace at::native {

std::tuple<Tensor, Tensor, Tensor> thnn_fused_lstm_cell_xpu(const Tensor &input_gates,
                                                            const Tensor &hidden_gates, const Tensor &cx,
                                                            const std::optional<Tensor> &input_bias,
                                                            const std::optional<Tensor> &hidden_bias) {
    const Tensor in = input_gates.contiguous(), hidden = hidden_gates.contiguous(), state = cx.contiguous();
    const Tensor b = contiguous(input_bias), hb = contiguous(hidden_bias);
    check_gates(in, hidden, b, hb, state, 4);
    Tensor hy = at::empty_like(state), cy = at::empty_like(state), workspace = at::empty_like(in);
    const xpu_lstm_cell cell{.dtype = openxpu::dtype_of(in),
                             .rows = state.size(0),
                             .hidden = state.size(1),
                             .input_gates = data(in),
                             .hidden_gates = data(hidden),
                             .input_bias = data(b),
                             .hidden_bias = data(hb),
                             .cx = data(state),
                             .hy = hy.mutable_data_ptr(),
                             .cy = cy.mutable_data_ptr(),
                             .workspace = workspace.mutable_data_ptr()};
    openxpu::check(xpu_lstm_cell_forward(openxpu::current_stream(in), &cell));
    return {hy, cy, workspace};
}

std::tuple<Tensor, Tensor, Tensor>
thnn_fused_lstm_cell_backward_impl_xpu(const std::optional<Tensor> &grad_hy,
                                       const std::optional<Tensor> &grad_cy, const Tensor &cx,
                                       const Tensor &cy, const Tensor &workspace, bool has_bias) {
    const Tensor grad_h = contiguous(grad_hy), grad_c = contiguous(grad_cy);
    if (!grad_h.defined() && !grad_c.defined()) return {};
    const Tensor before = cx.contiguous(), after = cy.contiguous(), gates = workspace.contiguous();
    Tensor grad_gates = at::empty_like(gates), grad_cx = at::empty_like(before);
    const xpu_lstm_cell_grad grad{.dtype = openxpu::dtype_of(gates),
                                  .rows = before.size(0),
                                  .hidden = before.size(1),
                                  .grad_hy = data(grad_h),
                                  .grad_cy = data(grad_c),
                                  .cx = data(before),
                                  .cy = data(after),
                                  .workspace = data(gates),
                                  .grad_gates = grad_gates.mutable_data_ptr(),
                                  .grad_cx = grad_cx.mutable_data_ptr()};
    openxpu::check(xpu_lstm_cell_backward(openxpu::current_stream(gates), &grad));
    return {grad_gates, grad_cx, has_bias ? grad_gates.sum(0) : Tensor()};
}

std::tuple<Tensor, Tensor> thnn_fused_gru_cell_xpu(const Tensor &input_gates, const Tensor &hidden_gates,
                                                   const Tensor &hx, const std::optional<Tensor> &input_bias,
                                                   const std::optional<Tensor> &hidden_bias) {
    const Tensor in = input_gates.contiguous(), hidden = hidden_gates.contiguous(), state = hx.contiguous();
    const Tensor b = contiguous(input_bias), hb = contiguous(hidden_bias);
    check_gates(in, hidden, b, hb, state, 3);
    Tensor hy = at::empty_like(state),
           workspace = at::empty({state.size(0), 5 * state.size(1)}, state.options());
    const xpu_gru_cell cell{.dtype = openxpu::dtype_of(in),
                            .rows = state.size(0),
                            .hidden = state.size(1),
                            .input_gates = data(in),
                            .hidden_gates = data(hidden),
                            .input_bias = data(b),
                            .hidden_bias = data(hb),
                            .hx = data(state),
                            .hy = hy.mutable_data_ptr(),
                            .workspace = workspace.mutable_data_ptr()};
    openxpu::check(xpu_gru_cell_forward(openxpu::current_stream(in), &cell));
    return {hy, workspace};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>
thnn_fused_gru_cell_backward_xpu(const Tensor &grad_hy, const Tensor &workspace, bool has_bias) {
    const Tensor incoming = grad_hy.contiguous(), kept = workspace.contiguous();
    const int64_t rows = incoming.size(0), hidden = incoming.size(1);
    Tensor grad_input = at::empty({rows, 3 * hidden}, kept.options()),
           grad_hidden = at::empty_like(grad_input);
    Tensor grad_hx = at::empty_like(incoming);
    const xpu_gru_cell_grad grad{.dtype = openxpu::dtype_of(kept),
                                 .rows = rows,
                                 .hidden = hidden,
                                 .grad_hy = data(incoming),
                                 .workspace = data(kept),
                                 .grad_input_gates = grad_input.mutable_data_ptr(),
                                 .grad_hidden_gates = grad_hidden.mutable_data_ptr(),
                                 .grad_hx = grad_hx.mutable_data_ptr()};
    openxpu::check(xpu_gru_cell_backward(openxpu::current_stream(kept), &grad));
    return {grad_input, grad_hidden, grad_hx, has_bias ? grad_input.sum(0) : Tensor(),
            has_bias ? grad_hidden.sum(0) : Tensor()};
}

} // namespace at::native

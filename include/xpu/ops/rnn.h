/* xpu/ops/rnn.h: the pointwise part of LSTM and GRU cells, after the two matrix products.
 *
 * Shapes, with N rows and H hidden units; contiguous; one floating dtype, halves computed in fp32. */
#ifndef XPU_OPS_RNN_H
#define XPU_OPS_RNN_H

#include "xpu/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* LSTM. Gates N x 4H in the order input, forget, cell, output; biases 4H or NULL (both or none).
 *     i, f, o = sigmoid(input_gates + hidden_gates + biases), g = tanh(…)
 *     cy = f cx + i g;  hy = o tanh(cy)
 * `workspace` N x 4H receives i, f, g, o. cx, cy, hy are N x H. */
typedef struct xpu_lstm_cell {
    xpu_dtype dtype;
    int64_t rows, hidden;
    const void *input_gates, *hidden_gates, *input_bias, *hidden_bias, *cx;
    void *hy, *cy, *workspace;
} xpu_lstm_cell;
XPU_API xpu_status xpu_lstm_cell_forward(xpu_stream *stream, const xpu_lstm_cell *cell);

/* grad_hy and grad_cy: either may be NULL. Writes grad_gates N x 4H (the same for input and hidden gates)
 * and grad_cx N x H. */
typedef struct xpu_lstm_cell_grad {
    xpu_dtype dtype;
    int64_t rows, hidden;
    const void *grad_hy, *grad_cy, *cx, *cy, *workspace;
    void *grad_gates, *grad_cx;
} xpu_lstm_cell_grad;
XPU_API xpu_status xpu_lstm_cell_backward(xpu_stream *stream, const xpu_lstm_cell_grad *grad);

/* GRU. Gates N x 3H in the order reset, update, new.
 *     r, z = sigmoid(input + hidden + biases);  n = tanh(input_n + b + r (hidden_n + b'))
 *     hy = (1 - z) n + z hx
 * `workspace` N x 5H receives r, z, n, hx, hidden_n + b'. */
typedef struct xpu_gru_cell {
    xpu_dtype dtype;
    int64_t rows, hidden;
    const void *input_gates, *hidden_gates, *input_bias, *hidden_bias, *hx;
    void *hy, *workspace;
} xpu_gru_cell;
XPU_API xpu_status xpu_gru_cell_forward(xpu_stream *stream, const xpu_gru_cell *cell);

/* Writes grad_input_gates and grad_hidden_gates N x 3H and grad_hx N x H. */
typedef struct xpu_gru_cell_grad {
    xpu_dtype dtype;
    int64_t rows, hidden;
    const void *grad_hy, *workspace;
    void *grad_input_gates, *grad_hidden_gates, *grad_hx;
} xpu_gru_cell_grad;
XPU_API xpu_status xpu_gru_cell_backward(xpu_stream *stream, const xpu_gru_cell_grad *grad);

#ifdef __cplusplus
}
#endif
#endif

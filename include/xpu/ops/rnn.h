/* xpu/ops/rnn.h: the pointwise part of LSTM and GRU cells, after the two matrix products.
 *
 * Shapes, with N rows and H hidden units; contiguous; one floating dtype, halves computed in fp32.
 *
 * LSTM. Gates N x 4H in the order input, forget, cell, output; the state is cx.
 *     i, f, o = sigmoid(input_gates + hidden_gates + biases), g = tanh(…)
 *     cy = f cx + i g;  hy = o tanh(cy)
 *     `workspace` N x 4H receives i, f, g, o.
 * GRU. Gates N x 3H in the order reset, update, new; the state is hx; no cy.
 *     r, z = sigmoid(input + hidden + biases);  n = tanh(input_n + b + r (hidden_n + b'))
 *     hy = (1 - z) n + z hx
 *     `workspace` N x 5H receives r, z, n, hx, hidden_n + b'. */
#ifndef XPU_OPS_RNN_H
#define XPU_OPS_RNN_H

#include "xpu/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum xpu_rnn_kind { XPU_RNN_LSTM, XPU_RNN_GRU } xpu_rnn_kind;

/* Biases are as long as a row of gates, both or none (NULL). state, hy and cy are N x H. */
typedef struct xpu_rnn_cell {
    xpu_rnn_kind kind;
    xpu_dtype dtype;
    int64_t rows, hidden;
    const void *input_gates, *hidden_gates, *input_bias, *hidden_bias, *state;
    void *hy, *cy, *workspace;
} xpu_rnn_cell;
XPU_API xpu_status xpu_rnn_cell_forward(xpu_stream *stream, const xpu_rnn_cell *cell);

/* LSTM: of grad_hy and grad_cy either may be NULL; cx, cy and the workspace are the forward call's;
 * grad_input_gates receives the gradient of both kinds of gates, and grad_hidden_gates is not used.
 * GRU: only grad_hy and the workspace are read. grad_state is N x H. */
typedef struct xpu_rnn_cell_grad {
    xpu_rnn_kind kind;
    xpu_dtype dtype;
    int64_t rows, hidden;
    const void *grad_hy, *grad_cy, *cx, *cy, *workspace;
    void *grad_input_gates, *grad_hidden_gates, *grad_state;
} xpu_rnn_cell_grad;
XPU_API xpu_status xpu_rnn_cell_backward(xpu_stream *stream, const xpu_rnn_cell_grad *grad);

#ifdef __cplusplus
}
#endif
#endif

/* xpu/ops/rnn.h: recurrent networks: the elementwise part of LSTM and GRU cells, after the two matrix
 * products; and whole sequences of one layer in one direction.
 *
 * Cells: N rows, H hidden units; contiguous; one floating dtype, fp16 and bf16 computed in fp32.
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

/* TANH and RELU are plain networks, hy = f(input + hidden), for sequences only. */
typedef enum xpu_rnn_kind { XPU_RNN_LSTM, XPU_RNN_GRU, XPU_RNN_TANH, XPU_RNN_RELU } xpu_rnn_kind;

/* Biases have the length of a row of gates; both or none (NULL). state, hy, cy: N x H. */
typedef struct xpu_rnn_cell {
    xpu_rnn_kind kind;
    xpu_dtype dtype;
    int64_t rows, hidden;
    const void *input_gates, *hidden_gates, *input_bias, *hidden_bias, *state;
    void *hy, *cy, *workspace;
} xpu_rnn_cell;
XPU_API xpu_status xpu_rnn_cell_forward(xpu_stream *stream, const xpu_rnn_cell *cell);

/* LSTM: reads cx, cy and the workspace of the forward call. grad_hy or grad_cy may be NULL. grad_input_gates
 *     receives the gradient of both kinds of gates; grad_hidden_gates is ignored.
 * GRU: reads grad_hy and the workspace only.
 * grad_state: N x H. */
typedef struct xpu_rnn_cell_grad {
    xpu_rnn_kind kind;
    xpu_dtype dtype;
    int64_t rows, hidden;
    const void *grad_hy, *grad_cy, *cx, *cy, *workspace;
    void *grad_input_gates, *grad_hidden_gates, *grad_state;
} xpu_rnn_cell_grad;
XPU_API xpu_status xpu_rnn_cell_backward(xpu_stream *stream, const xpu_rnn_cell_grad *grad);

/* --- sequences ---
 *
 * A layer in one direction: recurrent products and cells of all steps, one launch per step, as each step
 * depends on the previous one. For devices with the GPU policy (xpu/policy.h).
 *
 * G: number of gates: 4 (LSTM), 3 (GRU), 1.
 * N: rows of states and gates of all steps, contiguous, one step after another. A step has `rows` rows, or
 *     as many as step_rows says, which must not increase (packed sequences). A row that ends early, or in
 *     reverse starts late, has its own last or first step.
 * Dtypes: one floating dtype, fp16 and bf16 computed in fp32. */
typedef struct xpu_rnn {
    xpu_rnn_kind kind;
    xpu_dtype dtype;
    bool reverse;                /* from the last step to the first */
    int64_t steps, rows, hidden; /* rows: of the first step and of the initial states; none is 0 */
    const int64_t *step_rows;    /* `steps` values in host memory, or NULL: `rows` each */
    const void *weight;          /* GH x H, applied to the hidden state */
    const void *hx, *cx;         /* rows x H; cx: LSTM */
    void *y;                     /* N x H: all hidden states */
    void *gates;                 /* N x GH: LSTM and GRU, as forward leaves them */
    void *cells;                 /* N x H: likewise; fp64 if the dtype is, else fp32 */
} xpu_rnn;

/* Forward.
 *
 * gates: on input, the products of the layer input with their bias. With `keep`, receives the gates for
 *     backward.
 * cells: with `keep`, receives LSTM's c or GRU's hidden part of the new gate. May be NULL otherwise, and for
 *     plain networks.
 * hy, cy: the last hidden (and cell) state of each row. */
typedef struct xpu_rnn_forward_args {
    xpu_rnn net;
    const void *bias; /* of the hidden gates, length GH, or NULL */
    bool keep;
    void *hy, *cy; /* cy: LSTM */
} xpu_rnn_forward_args;
XPU_API xpu_status xpu_rnn_forward(xpu_stream *stream, const xpu_rnn_forward_args *args);

/* Gradients of all gates and of the initial states from those of y, hy and cy, each of which may be NULL.
 *
 * states: N x H; receives the state that each step starts with.
 * Weight gradients: products that the caller computes, of grad_gates with the input, and of
 *     grad_hidden_gates (GRU; else grad_gates) with `states`. */
typedef struct xpu_rnn_backward_args {
    xpu_rnn net;
    const void *grad_y, *grad_hy, *grad_cy;
    void *grad_gates, *grad_hidden_gates; /* N x GH; the second for GRU */
    void *grad_hx, *grad_cx;              /* grad_cx: LSTM */
    void *states;
} xpu_rnn_backward_args;
XPU_API xpu_status xpu_rnn_backward(xpu_stream *stream, const xpu_rnn_backward_args *args);

#ifdef __cplusplus
}
#endif
#endif

/* xpu/ops/rnn.h: recurrent nets: the pointwise part of LSTM and GRU cells, after the two matrix products, and
 * a layer's whole sequence in one direction.
 *
 * Cells. Shapes, with N rows and H hidden units; contiguous; one floating dtype, halves computed in fp32.
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

/* Plain nets, hy = tanh or relu(input + hidden), are for sequences only. */
typedef enum xpu_rnn_kind { XPU_RNN_LSTM, XPU_RNN_GRU, XPU_RNN_TANH, XPU_RNN_RELU } xpu_rnn_kind;

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

/* --- sequences ---
 *
 * A layer in one direction: the recurrent products and the cells of all steps, one launch a step. G is the
 * number of gates: 4 (LSTM), 3 (GRU), 1. Time's N rows of states and gates lie one step after the other,
 * contiguous: of `rows` each, or as many as `step_rows` says, which never grow, as in packed sequences; a row
 * that ends early, or begins late in reverse, has its own last or first step. One floating dtype, halves
 * computed in fp32. For devices that plan as GPUs do: each step waits for the one before. */
typedef struct xpu_rnn {
    xpu_rnn_kind kind;
    xpu_dtype dtype;
    bool reverse;                /* the last step first */
    int64_t steps, rows, hidden; /* rows: of the first step, and of the initial states; none is 0 */
    const int64_t *step_rows;    /* `steps` numbers on the host, or NULL: `rows` each */
    const void *weight;          /* GH x H, of the hidden state */
    const void *hx, *cx;         /* rows x H; cx: LSTM */
    void *y;                     /* N x H: all hidden states */
    void *gates;                 /* N x GH: of LSTM and GRU, as the forward call leaves them */
    void *cells;                 /* N x H: likewise; of fp64 where the dtype is, else fp32 */
} xpu_rnn;

/* Forward: `gates` has the input's products with their bias, and, with `keep`, receives the gates, which
 * gradients want, and `cells` (LSTM: c; GRU: the new gate's hidden part) is written. Without `keep`, or for
 * plain nets, `cells` may be NULL. The last hidden (and cell) state of each row goes to hy (and cy). */
typedef struct xpu_rnn_forward_args {
    xpu_rnn net;
    const void *bias; /* of the hidden gates, GH long, or NULL */
    bool keep;
    void *hy, *cy; /* cy: LSTM */
} xpu_rnn_forward_args;
XPU_API xpu_status xpu_rnn_forward(xpu_stream *stream, const xpu_rnn_forward_args *args);

/* Gradients of all gates and of the initial states, from those of y, hy and cy, each of which may be NULL.
 * Those of the weights are products: of grad_gates with the input, and of grad_hidden_gates (GRU; else
 * grad_gates) with `states`, N x H, which receives what each step began with. */
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

/* Parameters of rnn.cl and rnn_step.cl. Tensors are contiguous. */
#ifndef XPU_KERNELS_RNN_H
#define XPU_KERNELS_RNN_H
#include "shared.h"

typedef struct rnn_params {
    xpu_i64 rows, hidden;
    xpu_addr input_gates, hidden_gates, input_bias, hidden_bias; /* biases: both or none */
    xpu_addr state;                                              /* cx or hx */
    xpu_addr hy, cy, workspace;
    xpu_addr grad_hy, grad_cy; /* either may be 0 */
    xpu_addr grad_input_gates, grad_hidden_gates, grad_state;
} rnn_params;

/* A time step of a sequence; grad_… and `carried` are for gradients. A row's state comes from the previous
 * step (in the network's time direction) if that step has the row, else from the initial state. */
typedef struct rnn_step_params {
    xpu_i64 rows, hidden;
    xpu_i64 taken;    /* rows of the previously launched step */
    xpu_i64 kept;     /* forward: rows from here on are at their last step */
    xpu_i64 old_rows; /* gradients: rows of the previous step in time */
    xpu_i64 depth;    /* of the product; 0: no product */
    xpu_addr left;    /* taken x depth: hidden states, or gradients of the gates */
    xpu_addr weight;  /* forward gates hidden x hidden, else its transpose */
    xpu_addr bias;    /* of the hidden gates; may be 0 */
    xpu_addr hx, cx;  /* the initial states */
    xpu_addr gates;   /* in: the input's part; out: the gates. kept_gates = 0: they are not kept */
    xpu_addr kept_gates;
    xpu_addr cells, old_cells; /* of `real`: c (LSTM), the hidden part of the new gate (GRU; may be 0) */
    xpu_addr y, old_y, hy, cy;
    xpu_addr grad_y, grad_hy, grad_cy; /* each may be 0 */
    xpu_addr grad_gates, grad_hidden_gates, grad_hx, grad_cx;
    xpu_addr states;  /* receives the states at the start of the step */
    xpu_addr carried; /* of `real`: the other gradient passed to the previous step: dc, or dh * z */
} rnn_step_params;
#endif

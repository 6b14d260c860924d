/* What rnn.cl and rnn_step.cl are told. Tensors are contiguous. */
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

/* A step of a sequence; what begins with grad_, and `carried`, is for gradients. Rows of states are those of
 * the step before (in time as the net goes) as far as it has them, else the initial state's. */
typedef struct rnn_step_params {
    xpu_i64 rows, hidden;
    xpu_i64 taken;    /* rows of the step launched before this one */
    xpu_i64 kept;     /* forward: rows from here on have had their last step */
    xpu_i64 old_rows; /* gradients: rows of the step before in time */
    xpu_i64 depth;    /* of the product; 0: there is none */
    xpu_addr left;    /* taken x depth: hidden states, or gradients of the gates */
    xpu_addr weight;  /* forward gates hidden x hidden, else its transpose */
    xpu_addr bias;    /* of the hidden gates; may be 0 */
    xpu_addr hx, cx;  /* the initial states */
    xpu_addr gates;   /* the input's, and then the gates; 0 in `kept_gates`: they are not kept */
    xpu_addr kept_gates;
    xpu_addr cells, old_cells; /* of `real`: c (LSTM), the hidden part of the new gate (GRU; may be 0) */
    xpu_addr y, old_y, hy, cy;
    xpu_addr grad_y, grad_hy, grad_cy; /* each may be 0 */
    xpu_addr grad_gates, grad_hidden_gates, grad_hx, grad_cx;
    xpu_addr states;  /* receives the states that the step began with */
    xpu_addr carried; /* of `real`: what else reaches the step before: dc, or dh z */
} rnn_step_params;
#endif

/* What rnn.cl is told. Tensors are contiguous. */
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
#endif

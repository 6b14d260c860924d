/* The pointwise part of LSTM and GRU cells; formulas in xpu/ops/rnn.h. One work-item per element of the
 * hidden state. T=<floating dtype>; half-precision dtypes are computed in fp32. Portable. */
#include "rnn.h"

typedef COMPUTED(T) real;

#define READ(address, i) LOAD(T, XPU_CPTR(STORED(T), address), i)
#define WRITE(address, i, v) STORE(T, XPU_PTR(STORED(T), address), i, v)

static inline real sigmoid(real v) { return 1 / (1 + exp(-v)); }

/* This work-item's row `r` and hidden unit `u`; GATE(n) is the index of gate n of that row. */
#define PLACE                                                                                                \
    const long i = get_global_id(0);                                                                         \
    if (i >= p.rows * p.hidden) return;                                                                      \
    const long r = i / p.hidden, u = i % p.hidden
#define GATE(n) (r * GATES * p.hidden + (n) * p.hidden + u)

#ifdef LSTM
#define GATES 4
static inline real gate(const rnn_params *p, long at, long bias) {
    real v = READ(p->input_gates, at) + READ(p->hidden_gates, at);
    if (p->input_bias) v += READ(p->input_bias, bias) + READ(p->hidden_bias, bias);
    return v;
}

__kernel void lstm_forward(const rnn_params p) {
    PLACE;
    const real in = sigmoid(gate(&p, GATE(0), u)), forget = sigmoid(gate(&p, GATE(1), p.hidden + u));
    const real cell = tanh(gate(&p, GATE(2), 2 * p.hidden + u)),
               out = sigmoid(gate(&p, GATE(3), 3 * p.hidden + u));
    const real cy = forget * READ(p.state, i) + in * cell;
    WRITE(p.cy, i, cy);
    WRITE(p.hy, i, out * tanh(cy));
    WRITE(p.workspace, GATE(0), in);
    WRITE(p.workspace, GATE(1), forget);
    WRITE(p.workspace, GATE(2), cell);
    WRITE(p.workspace, GATE(3), out);
}

__kernel void lstm_backward(const rnn_params p) {
    PLACE;
    const real in = READ(p.workspace, GATE(0)), forget = READ(p.workspace, GATE(1));
    const real cell = READ(p.workspace, GATE(2)), out = READ(p.workspace, GATE(3));
    const real squashed = tanh(READ(p.cy, i)), grad_hy = p.grad_hy ? READ(p.grad_hy, i) : 0;
    const real grad_c = grad_hy * out * (1 - squashed * squashed) + (p.grad_cy ? READ(p.grad_cy, i) : 0);
    WRITE(p.grad_input_gates, GATE(0), grad_c * cell * in * (1 - in));
    WRITE(p.grad_input_gates, GATE(1), grad_c * READ(p.state, i) * forget * (1 - forget));
    WRITE(p.grad_input_gates, GATE(2), grad_c * in * (1 - cell * cell));
    WRITE(p.grad_input_gates, GATE(3), grad_hy * squashed * out * (1 - out));
    WRITE(p.grad_state, i, grad_c * forget);
}
#endif

#ifdef GRU
#define GATES 3
#define KEPT(n) (r * 5 * p.hidden + (n) * p.hidden + u)

__kernel void gru_forward(const rnn_params p) {
    PLACE;
    real bias[3] = {0, 0, 0}, hidden_bias = 0;
    if (p.input_bias) {
        for (int n = 0; n < 2; n++)
            bias[n] = READ(p.input_bias, n * p.hidden + u) + READ(p.hidden_bias, n * p.hidden + u);
        bias[2] = READ(p.input_bias, 2 * p.hidden + u);
        hidden_bias = READ(p.hidden_bias, 2 * p.hidden + u);
    }
    const real reset = sigmoid(READ(p.input_gates, GATE(0)) + READ(p.hidden_gates, GATE(0)) + bias[0]);
    const real update = sigmoid(READ(p.input_gates, GATE(1)) + READ(p.hidden_gates, GATE(1)) + bias[1]);
    const real hidden = READ(p.hidden_gates, GATE(2)) + hidden_bias;
    const real fresh = tanh(READ(p.input_gates, GATE(2)) + bias[2] + reset * hidden);
    const real hx = READ(p.state, i);
    WRITE(p.hy, i, fresh + update * (hx - fresh));
    WRITE(p.workspace, KEPT(0), reset);
    WRITE(p.workspace, KEPT(1), update);
    WRITE(p.workspace, KEPT(2), fresh);
    WRITE(p.workspace, KEPT(3), hx);
    WRITE(p.workspace, KEPT(4), hidden);
}

__kernel void gru_backward(const rnn_params p) {
    PLACE;
    const real reset = READ(p.workspace, KEPT(0)), update = READ(p.workspace, KEPT(1));
    const real fresh = READ(p.workspace, KEPT(2)), hx = READ(p.workspace, KEPT(3));
    const real hidden = READ(p.workspace, KEPT(4)), grad = READ(p.grad_hy, i);
    const real grad_fresh = grad * (1 - update) * (1 - fresh * fresh);
    const real grad_update = grad * (hx - fresh) * update * (1 - update);
    const real grad_reset = grad_fresh * hidden * reset * (1 - reset);
    WRITE(p.grad_input_gates, GATE(0), grad_reset);
    WRITE(p.grad_input_gates, GATE(1), grad_update);
    WRITE(p.grad_input_gates, GATE(2), grad_fresh);
    WRITE(p.grad_hidden_gates, GATE(0), grad_reset);
    WRITE(p.grad_hidden_gates, GATE(1), grad_update);
    WRITE(p.grad_hidden_gates, GATE(2), grad_fresh * reset);
    WRITE(p.grad_state, i, grad * update);
}
#endif

#include "xpu/ops/rnn.h"

#include <stdio.h>

#include "kernel.h"
#include "kernels/rnn.h"
#include "product.h"

typedef enum rnn_kernel { LSTM_FORWARD, LSTM_BACKWARD, GRU_FORWARD, GRU_BACKWARD } rnn_kernel;

static xpu_status run(xpu_stream *stream, xpu_dtype dtype, rnn_kernel which, const rnn_params *p) {
    static const char *const names[] = {"lstm_forward", "lstm_backward", "gru_forward", "gru_backward"};
    const int device = xpu_stream_device(stream);
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    if (dtype < XPU_FLOAT16 || dtype > XPU_FLOAT64)
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "recurrent cell: not implemented for dtype %s",
                       xpu_dtype_name(dtype));
    XPU_TRY(product_check_dtype(properties, dtype, "recurrent cell", true));
    const int64_t count = p->rows * p->hidden;
    if (count == 0) return XPU_SUCCESS;

    const kernel_key key = {.family = FAMILY_RNN, .word = {(uint64_t)dtype | (uint64_t)which << 8}};
    xpu_kernel *kernel = kernel_find(device, &key);
    if (!kernel) {
        char options[64], label[64];
        snprintf(options, sizeof options, "-DT=%s -D%s", xpu_dtype_name(dtype),
                 which < GRU_FORWARD ? "LSTM" : "GRU");
        snprintf(label, sizeof label, "%s %s", names[which], xpu_dtype_name(dtype));
        XPU_TRY(kernel_make(
            device, &key,
            &(kernel_recipe){.file = "rnn_ref.cl", .options = options, .name = names[which], .label = label},
            &kernel));
    }
    const xpu_range range = {
        .dims = 1, .groups = {(size_t)((count + 255) / 256)}, .local = {256}, .work = (uint64_t)count * 64};
    return xpu_launch(stream, kernel, &range, p, sizeof *p);
}

xpu_status xpu_lstm_cell_forward(xpu_stream *stream, const xpu_lstm_cell *c) {
    const rnn_params p = {.rows = c->rows,
                          .hidden = c->hidden,
                          .input_gates = XPU_ADDR(c->input_gates),
                          .hidden_gates = XPU_ADDR(c->hidden_gates),
                          .input_bias = XPU_ADDR(c->input_bias),
                          .hidden_bias = XPU_ADDR(c->hidden_bias),
                          .state = XPU_ADDR(c->cx),
                          .hy = XPU_ADDR(c->hy),
                          .cy = XPU_ADDR(c->cy),
                          .workspace = XPU_ADDR(c->workspace)};
    return run(stream, c->dtype, LSTM_FORWARD, &p);
}

xpu_status xpu_lstm_cell_backward(xpu_stream *stream, const xpu_lstm_cell_grad *g) {
    const rnn_params p = {.rows = g->rows,
                          .hidden = g->hidden,
                          .state = XPU_ADDR(g->cx),
                          .cy = XPU_ADDR(g->cy),
                          .workspace = XPU_ADDR(g->workspace),
                          .grad_hy = XPU_ADDR(g->grad_hy),
                          .grad_cy = XPU_ADDR(g->grad_cy),
                          .grad_input_gates = XPU_ADDR(g->grad_gates),
                          .grad_state = XPU_ADDR(g->grad_cx)};
    return run(stream, g->dtype, LSTM_BACKWARD, &p);
}

xpu_status xpu_gru_cell_forward(xpu_stream *stream, const xpu_gru_cell *c) {
    const rnn_params p = {.rows = c->rows,
                          .hidden = c->hidden,
                          .input_gates = XPU_ADDR(c->input_gates),
                          .hidden_gates = XPU_ADDR(c->hidden_gates),
                          .input_bias = XPU_ADDR(c->input_bias),
                          .hidden_bias = XPU_ADDR(c->hidden_bias),
                          .state = XPU_ADDR(c->hx),
                          .hy = XPU_ADDR(c->hy),
                          .workspace = XPU_ADDR(c->workspace)};
    return run(stream, c->dtype, GRU_FORWARD, &p);
}

xpu_status xpu_gru_cell_backward(xpu_stream *stream, const xpu_gru_cell_grad *g) {
    const rnn_params p = {.rows = g->rows,
                          .hidden = g->hidden,
                          .workspace = XPU_ADDR(g->workspace),
                          .grad_hy = XPU_ADDR(g->grad_hy),
                          .grad_input_gates = XPU_ADDR(g->grad_input_gates),
                          .grad_hidden_gates = XPU_ADDR(g->grad_hidden_gates),
                          .grad_state = XPU_ADDR(g->grad_hx)};
    return run(stream, g->dtype, GRU_BACKWARD, &p);
}

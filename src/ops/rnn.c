#include "xpu/ops/rnn.h"

#include "kernel.h"
#include "kernels/rnn.h"
#include "product.h"

static xpu_status run(xpu_stream *stream, xpu_dtype dtype, xpu_rnn_kind kind, bool backward,
                      const rnn_params *p) {
    static const char *const names[][2] = {{"lstm_forward", "lstm_backward"},
                                           {"gru_forward", "gru_backward"}};
    const char *name = names[kind][backward];
    const int device = xpu_stream_device(stream);
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    if (dtype < XPU_FLOAT16 || dtype > XPU_FLOAT64) return op_lacks("recurrent cell", dtype, NULL);
    XPU_TRY(product_check_dtype(properties, dtype, "recurrent cell", true));
    const int64_t count = p->rows * p->hidden;
    if (count == 0) return XPU_SUCCESS;

    kernel_spec spec;
    spec_begin(&spec, FAMILY_RNN);
    spec_dtype(&spec, "T", dtype);
    spec_pack(&spec, "kind", kind, 4);
    spec_follows(&spec, kind == XPU_RNN_LSTM ? "LSTM" : "GRU", "");
    spec_pack(&spec, "backward", backward, 1);
    xpu_kernel *kernel = kernel_find(device, &spec);
    if (!kernel)
        XPU_TRY(kernel_of_file(device, &spec, "rnn.cl", name, &kernel, "%s %s", name, xpu_dtype_name(dtype)));
    const xpu_range range = {
        .dims = 1, .groups = {(size_t)((count + 255) / 256)}, .local = {256}, .work = (uint64_t)count * 64};
    return xpu_launch(stream, kernel, &range, p, sizeof *p);
}

xpu_status xpu_rnn_cell_forward(xpu_stream *stream, const xpu_rnn_cell *c) {
    const rnn_params p = {.rows = c->rows,
                          .hidden = c->hidden,
                          .input_gates = XPU_ADDR(c->input_gates),
                          .hidden_gates = XPU_ADDR(c->hidden_gates),
                          .input_bias = XPU_ADDR(c->input_bias),
                          .hidden_bias = XPU_ADDR(c->hidden_bias),
                          .state = XPU_ADDR(c->state),
                          .hy = XPU_ADDR(c->hy),
                          .cy = XPU_ADDR(c->cy),
                          .workspace = XPU_ADDR(c->workspace)};
    return run(stream, c->dtype, c->kind, false, &p);
}

xpu_status xpu_rnn_cell_backward(xpu_stream *stream, const xpu_rnn_cell_grad *g) {
    const rnn_params p = {.rows = g->rows,
                          .hidden = g->hidden,
                          .state = XPU_ADDR(g->cx),
                          .cy = XPU_ADDR(g->cy),
                          .workspace = XPU_ADDR(g->workspace),
                          .grad_hy = XPU_ADDR(g->grad_hy),
                          .grad_cy = XPU_ADDR(g->grad_cy),
                          .grad_input_gates = XPU_ADDR(g->grad_input_gates),
                          .grad_hidden_gates = XPU_ADDR(g->grad_hidden_gates),
                          .grad_state = XPU_ADDR(g->grad_state)};
    return run(stream, g->dtype, g->kind, true, &p);
}

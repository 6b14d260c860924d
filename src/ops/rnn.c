/* LSTM, GRU and plain recurrent networks: cells, and sequences step by step with the recurrent product fused
 * into the cell. */
#include "xpu/ops/rnn.h"

#include "kernels/rnn.h"
#include "ops/gemm/matrix.h"
#include "ops/gemm/product.h"
#include "ops/kernel.h"
#include "ops/row_group.h"
#include "xpu/ops/copy.h"
#include "xpu/trace.h"

static const char *const options[] = {"LSTM", "GRU", "RNN_TANH", "RNN_RELU"};

static xpu_status check_dtype(const xpu_device_properties *properties, xpu_dtype dtype) {
    if (dtype < XPU_FLOAT16 || dtype > XPU_FLOAT64)
        return op_unsupported_dtype("recurrent cell", dtype, NULL);
    return product_check_dtype(properties, dtype, "recurrent cell", true);
}

/* --- cells --- */

static xpu_status run(xpu_stream *stream, xpu_dtype dtype, xpu_rnn_kind kind, bool backward,
                      const rnn_params *p) {
    static const char *const names[][2] = {{"lstm_forward", "lstm_backward"},
                                           {"gru_forward", "gru_backward"}};
    if (kind > XPU_RNN_GRU)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "RNN cell: the kind must be LSTM or GRU");
    const char *name = names[kind][backward];
    const int device = xpu_stream_device(stream);
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    XPU_TRY(check_dtype(properties, dtype));
    const int64_t count = p->rows * p->hidden;
    if (count == 0) return XPU_SUCCESS;

    kernel_spec spec;
    spec_begin(&spec, FAMILY_RNN);
    spec_dtype(&spec, "T", dtype);
    spec_key_only(&spec, "kind", kind, 4);
    spec_option(&spec, options[kind], "");
    spec_key_only(&spec, "backward", backward, 1);
    xpu_kernel *kernel = kernel_find(device, &spec);
    if (!kernel)
        XPU_TRY(
            kernel_from_file(device, &spec, "rnn.cl", name, &kernel, "%s %s", name, xpu_dtype_name(dtype)));
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

/* --- sequences --- */

enum { THREADS = 256 };

/* Execution plan of a network's steps. */
typedef struct step_plan {
    int rows, units;      /* of a work-group */
    int side, side_units; /* of a work-item, without matrix engines */
    bool aligned, units_used, emulated;
    xpu_kernel *kernel;
    size_t element, real; /* bytes */
    int64_t gates;
} step_plan;

static int64_t gates_of(xpu_rnn_kind kind) { return kind == XPU_RNN_LSTM ? 4 : kind == XPU_RNN_GRU ? 3 : 1; }

/* The largest tile (rows x hidden units) that still gives every compute unit a work-group. Backward, a unit
 * has one column, and square tiles are most efficient; without a matrix engine, two groups per compute unit
 * hide memory latency. */
static void choose_tile(const xpu_device_properties *properties, const xpu_rnn *net, int parts,
                        step_plan *plan) {
    static const struct {
        int rows, units;
    } wide[] = {{32, 8}, {16, 8}, {16, 4}, {8, 4}}, square[] = {{32, 16}, {16, 16}, {16, 8}, {8, 8}, {8, 4}};
    const bool several = parts > 1;
    const bool by_turns = !several && !plan->units_used;
    const int count = several ? (int)(sizeof wide / sizeof *wide) : (int)(sizeof square / sizeof *square);
    for (int i = 0; i < count; i++) {
        const int rows = several ? wide[i].rows : square[i].rows,
                  units = several ? wide[i].units : square[i].units;
        if (plan->units_used && (rows % 16 || units * parts % 8)) continue;
        plan->rows = rows, plan->units = units;
        const int64_t groups = tiles(net->rows, rows) * tiles(net->hidden, units);
        const int64_t wanted = (int64_t)properties->gpu_subslice_count * (by_turns && rows > 8 ? 2 : 1);
        if (net->rows > rows / 2 && groups * 4 >= wanted * 3) break;
    }
    plan->side = several && net->dtype != XPU_FLOAT64 ? 8 : 4;
    plan->side_units = several ? 1 : 4;
}

static xpu_status plan_steps(int device, const xpu_rnn *net, bool backward, const void *const *read,
                             step_plan *plan) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    XPU_TRY(check_dtype(properties, net->dtype));
    if (net->steps <= 0 || net->rows <= 0 || net->hidden <= 0)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "RNN: the numbers of steps, rows and hidden units must be positive");
    for (int64_t t = 0; net->step_rows && t < net->steps; t++)
        if (net->step_rows[t] <= 0 || net->step_rows[t] > (t ? net->step_rows[t - 1] : net->rows))
            return op_fail(
                XPU_ERROR_INVALID_ARGUMENT,
                "RNN: step %lld has %lld rows; must be at least 1 and not exceed the step before it",
                (long long)t, (long long)net->step_rows[t]);
    if (net->step_rows && net->step_rows[0] != net->rows)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "RNN: the first step must contain all rows");
    *plan = (step_plan){.element = xpu_dtype_size(net->dtype),
                        .real = net->dtype == XPU_FLOAT64 ? 8 : 4,
                        .gates = gates_of(net->kind)};
    const int parts = backward ? 1 : (int)plan->gates;
    uintptr_t places = (uintptr_t)net->hidden * plan->element;
    for (; *read; read++) places |= (uintptr_t)*read;
    plan->aligned = places % (4 * plan->element) == 0;
    plan->units_used =
        places % 16 == 0 && matrix_unit_of(properties, net->dtype, &plan->emulated) == MATRIX_UNIT_PTX;
    choose_tile(properties, net, parts, plan);

    const bool plain = !plan->units_used;
    kernel_spec spec;
    spec_begin(&spec, FAMILY_RNN_STEP);
    spec_dtype(&spec, "T", net->dtype);
    spec_key_only(&spec, "kind", net->kind, 4);
    spec_option(&spec, options[net->kind], "");
    spec_option_int(&spec, "GATES", plan->gates);
    spec_bool(&spec, "BACKWARD", backward);
    spec_int(&spec, "ROWS", plan->rows, 8);
    spec_int(&spec, "UNITS", plan->units, 8);
    spec_int_if(&spec, plain, "ALIGNED", plain && plan->aligned, 1);
    spec_int_if(&spec, plain, "SIDE", plan->side, 4);
    spec_int_if(&spec, plain, "SIDE_UNITS", plan->side_units, 4);
    matrix_unit_spec(&spec, plan->units_used ? MATRIX_UNIT_PTX : MATRIX_UNIT_NONE,
                     plan->units_used && plan->emulated, false, net->dtype);
    plan->kernel = kernel_find(device, &spec);
    if (plan->kernel) return XPU_SUCCESS;
    return kernel_from_file(device, &spec, "rnn_step.cl", "rnn_step", &plan->kernel, "%s step%s %s",
                            (const char *const[]){"lstm", "gru", "rnn tanh", "rnn relu"}[net->kind],
                            backward ? " backward" : "", xpu_dtype_name(net->dtype));
}

/* The rows of a time step: number, and first row among all steps. */
typedef struct span {
    int64_t rows, begin;
} span;

static int64_t rows_at(const xpu_rnn *net, int64_t t) {
    if (t < 0 || t >= net->steps) return 0;
    return net->step_rows ? net->step_rows[t] : net->rows;
}

/* The span of step `t`, which follows (towards = 1) or precedes (-1) `beside` in memory. */
static span span_at(const xpu_rnn *net, int64_t t, span beside, int towards) {
    const int64_t rows = rows_at(net, t);
    return (span){rows, towards > 0 ? beside.begin + beside.rows : beside.begin - rows};
}

/* The first step in that direction. */
static span first_span(const xpu_rnn *net, int towards) {
    span last = {0, 0};
    const int64_t end = towards > 0 ? 1 : net->steps;
    for (int64_t t = 0; t < end; t++) last = span_at(net, t, last, 1);
    return last;
}

/* Address of the span's rows of `width` elements. */
static xpu_addr rows_from(const void *of, span step, int64_t width, size_t size) {
    return of ? XPU_ADDR(of) + (uint64_t)(step.begin * width) * size : 0;
}

static xpu_status launch(xpu_stream *stream, const step_plan *plan, int64_t rows, const rnn_step_params *p) {
    const xpu_range range = {.dims = 1,
                             .groups = {(size_t)(tiles(rows, plan->rows) * tiles(p->hidden, plan->units))},
                             .local = {THREADS},
                             .work = (uint64_t)(rows * p->hidden) * (uint64_t)(plan->gates * p->hidden)};
    return xpu_launch(stream, plan->kernel, &range, p, sizeof *p);
}

static xpu_status forward(xpu_stream *stream, const xpu_rnn_forward_args *args, const step_plan *plan,
                          void *cells) {
    const xpu_rnn *net = &args->net;
    const int towards = net->reverse ? -1 : 1;
    const int64_t width = net->hidden, gates = plan->gates * width;
    const bool one = cells != net->cells; /* one step's cells are reused by all steps */
    rnn_step_params p = {.hidden = width,
                         .depth = width,
                         .weight = XPU_ADDR(net->weight),
                         .bias = XPU_ADDR(args->bias),
                         .hx = XPU_ADDR(net->hx),
                         .cx = XPU_ADDR(net->cx),
                         .hy = XPU_ADDR(args->hy),
                         .cy = XPU_ADDR(args->cy),
                         .kept_gates = args->keep};
    span before = {0, 0}, step = first_span(net, towards);
    int64_t t = net->reverse ? net->steps - 1 : 0;
    for (int64_t i = 0; i < net->steps; i++) {
        const span next = span_at(net, t += towards, step, towards);
        p.rows = step.rows, p.taken = before.rows, p.kept = next.rows;
        p.left = p.old_y = rows_from(net->y, before, width, plan->element);
        p.y = rows_from(net->y, step, width, plan->element);
        p.gates = rows_from(net->gates, step, gates, plan->element);
        p.old_cells = one ? XPU_ADDR(cells) : rows_from(cells, before, width, plan->real);
        p.cells = one ? XPU_ADDR(cells) : rows_from(cells, step, width, plan->real);
        XPU_TRY(launch(stream, plan, step.rows, &p));
        before = step, step = next;
    }
    return XPU_SUCCESS;
}

xpu_status xpu_rnn_forward(xpu_stream *stream, const xpu_rnn_forward_args *args) {
    const xpu_rnn *net = &args->net;
    step_plan plan;
    XPU_TRY(plan_steps(xpu_stream_device(stream), net, false,
                       (const void *const[]){net->weight, net->hx, net->y, NULL}, &plan));
    if (args->keep || net->kind != XPU_RNN_LSTM) {
        xpu_rnn_forward_args kept = *args;
        if (!args->keep) kept.net.cells = NULL;
        return forward(stream, &kept, &plan, kept.net.cells);
    }
    void *cells = NULL;
    XPU_TRY(xpu_workspace_take(stream, (size_t)(net->rows * net->hidden) * plan.real, &cells));
    const xpu_status status = forward(stream, args, &plan, cells);
    return workspace_release(cells, status);
}

/* `weight`: transposed. */
static xpu_status backward(xpu_stream *stream, const xpu_rnn_backward_args *args, const step_plan *plan,
                           void *weight, void *carried) {
    const xpu_rnn *net = &args->net;
    const int towards = net->reverse ? 1 : -1;
    const int64_t width = net->hidden, gates = plan->gates * width;
    const bool gru = net->kind == XPU_RNN_GRU;
    rnn_step_params p = {.hidden = width,
                         .weight = XPU_ADDR(weight),
                         .hx = XPU_ADDR(net->hx),
                         .cx = XPU_ADDR(net->cx),
                         .grad_hy = XPU_ADDR(args->grad_hy),
                         .grad_cy = XPU_ADDR(args->grad_cy),
                         .grad_hx = XPU_ADDR(args->grad_hx),
                         .grad_cx = XPU_ADDR(args->grad_cx),
                         .carried = XPU_ADDR(carried)};
    const void *hidden_gates = gru ? args->grad_hidden_gates : args->grad_gates;
    span taken = {0, 0}, step = first_span(net, towards);
    int64_t t = net->reverse ? 0 : net->steps - 1;
    for (int64_t i = 0; i <= net->steps;
         i++) { /* the last iteration only computes gradients of the initial states */
        const span old = span_at(net, t += towards, step, towards);
        p.rows = step.rows, p.taken = taken.rows, p.old_rows = old.rows;
        p.depth = taken.rows ? gates : 0;
        p.left = rows_from(hidden_gates, taken, gates, plan->element);
        p.gates = rows_from(net->gates, step, gates, plan->element);
        p.cells = rows_from(net->cells, step, width, plan->real);
        p.old_cells = rows_from(net->cells, old, width, plan->real);
        p.y = rows_from(net->y, step, width, plan->element);
        p.old_y = rows_from(net->y, old, width, plan->element);
        p.grad_y = rows_from(args->grad_y, step, width, plan->element);
        p.grad_gates = rows_from(args->grad_gates, step, gates, plan->element);
        p.grad_hidden_gates = rows_from(args->grad_hidden_gates, step, gates, plan->element);
        p.states = rows_from(args->states, step, width, plan->element);
        XPU_TRY(launch(stream, plan, step.rows > taken.rows ? step.rows : taken.rows, &p));
        taken = step, step = old;
    }
    return XPU_SUCCESS;
}

/* Transposes the hidden weights, so that a unit's column is contiguous along the depth. */
static xpu_status transpose(xpu_stream *stream, const xpu_rnn *net, int64_t rows, void *to) {
    const int64_t size = (int64_t)xpu_dtype_size(net->dtype);
    const xpu_iter iter = {.outputs = 1,
                           .inputs = 1,
                           .dims = 2,
                           .size = {rows, net->hidden},
                           .operand = {{.data = to, .dtype = net->dtype, .stride = {size, rows * size}},
                                       {.data = (void *)(uintptr_t)net->weight,
                                        .dtype = net->dtype,
                                        .stride = {net->hidden * size, size}}}};
    return xpu_copy(stream, &iter);
}

xpu_status xpu_rnn_backward(xpu_stream *stream, const xpu_rnn_backward_args *args) {
    const xpu_rnn *net = &args->net;
    const void *hidden_gates = net->kind == XPU_RNN_GRU ? args->grad_hidden_gates : args->grad_gates;
    step_plan plan;
    XPU_TRY(
        plan_steps(xpu_stream_device(stream), net, true, (const void *const[]){hidden_gates, NULL}, &plan));
    const int64_t gates = plan.gates * net->hidden;
    void *weight = NULL, *carried = NULL;
    XPU_TRY(xpu_workspace_take(stream, (size_t)(gates * net->hidden) * plan.element, &weight));
    xpu_status status = xpu_workspace_take(stream, (size_t)(net->rows * net->hidden) * plan.real, &carried);
    if (status == XPU_SUCCESS) status = transpose(stream, net, gates, weight);
    if (status == XPU_SUCCESS) status = backward(stream, args, &plan, weight, carried);
    void *const taken[] = {carried, weight};
    for (int i = 0; i < 2; i++) status = workspace_release(taken[i], status);
    return status;
}

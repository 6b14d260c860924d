/* Plans and launches depthwise convolutions (conv_depthwise.h). */
#include "ops/conv/conv_depthwise.h"

#include <stdlib.h>

#include "ops/gemm/epilogue.h"
#include "ops/gemm/product.h"
#include "xpu/trace.h"

enum {
    STRIP = 4,              /* as in conv_depthwise.cl */
    MOST_LANES = 16,        /* adjacent vectors per work-group */
    MOST_RUN = 8,           /* taps per run */
    MOST_SUMS = 40,         /* accumulators of w's gradient per work-item */
    MOST_WEIGHTS = 8 << 10, /* floats in local memory */
    GROUPS = 8,             /* work-groups per compute unit, for w's gradient */
    STRIPS = 4              /* strips per work-item; fewer would not pay for adding up its sums */
};

typedef enum depthwise_kernel {
    KERNEL_DEPTHWISE,
    KERNEL_DEPTHWISE_WEIGHT,
    KERNEL_DEPTHWISE_REDUCE
} depthwise_kernel;

typedef struct choice {
    depthwise_kernel kernel;
    xpu_dtype dtype;
    conv_direction direction;
    bool volume, phases, exact;
    int64_t group, lanes, rows, run, runs, taps, step, tap_step;
    post_ops_params end;
} choice;

static xpu_status get_kernel(int device, const choice *c, xpu_kernel **kernel) {
    static const char *const names[] = {"conv_depthwise", "conv_depthwise_weights", "conv_depthwise_reduce"};
    static const char *const purposes[] = {"", " grad_input", " grad_weight"};
    const bool last = c->kernel == KERNEL_DEPTHWISE_REDUCE;
    kernel_spec spec;
    spec_begin(&spec, FAMILY_CONV_DEPTHWISE);
    spec_key_only(&spec, "which", c->kernel, 2);
    spec_option_flag(&spec, "FINISH", last);
    spec_dtype(&spec, "T", c->dtype);
    spec_int(&spec, "DIRECTION", c->direction, 2);
    spec_bool(&spec, "VOLUME", c->volume);
    spec_bool(&spec, "PHASES", c->phases);
    spec_bool(&spec, "EXACT", c->exact);
    spec_int(&spec, "GROUP", c->group, 3);
    spec_int(&spec, "LANES", c->lanes, 5);
    spec_int(&spec, "ROWS", c->rows, 9);
    spec_int(&spec, "RUN", c->run, 4);
    spec_int(&spec, "STEP", c->step, 16);
    spec_key_only(&spec, "TAP_STEP", c->tap_step & 0xffff, 16);
    spec_option_int(&spec, "TAP_STEP", c->tap_step);
    post_ops_spec(&spec, &c->end);
    spec_int_if(&spec, c->kernel == KERNEL_DEPTHWISE, "TAPS", c->taps, 16);
    spec_int_if(&spec, c->kernel == KERNEL_DEPTHWISE_WEIGHT, "RUNS", c->runs, 7);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(device, &spec, "conv_depthwise.cl", names[c->kernel], kernel, "%s %s%s",
                            names[c->kernel], xpu_dtype_name(c->dtype), last ? "" : purposes[c->direction]);
}

static xpu_range range_of(const choice *c, int64_t groups, int64_t work) {
    return (xpu_range){.dims = 1,
                       .groups = {(size_t)groups},
                       .local = {(size_t)(c->lanes * c->rows)},
                       .work = (uint64_t)work};
}

/* Gradient of w. Strips of y are split into slices, so that all compute units are busy. */
static xpu_status sum_weights(xpu_stream *stream, const xpu_device_properties *properties, choice c,
                              conv_depthwise_params *q) {
    conv_matrix_params *m = &q->geometry;
    const int64_t lines = (int64_t)m->phase[0][0].taps.value * m->phase[1][0].taps.value;
    const int64_t taps = lines * m->phase[2][0].taps.value, results = q->channels * c.group * taps;
    q->runs = (xpu_u32)(lines * div_up(m->phase[2][0].taps.value, c.run));
    c.runs = MOST_SUMS / (c.run * c.group * (16 / (int64_t)xpu_dtype_size(c.dtype)));
    if (c.runs > q->runs) c.runs = q->runs;
    if (c.runs < 1) c.runs = 1;
    q->turns = (xpu_u32)div_up(q->runs, c.runs);
    int64_t slices = div_up(GROUPS * (int64_t)properties->gpu_subslice_count, (int64_t)q->turns * q->chunks);
    if (slices > div_up(q->strips, c.rows * STRIPS)) slices = div_up(q->strips, c.rows * STRIPS);
    if (slices < 1) slices = 1;
    q->slice = (xpu_u32)align_up(div_up(q->strips, slices), c.rows);
    m->slices = div_up(q->strips, q->slice);

    c.kernel = KERNEL_DEPTHWISE_WEIGHT;
    const choice last = {
        .kernel = KERNEL_DEPTHWISE_REDUCE, .dtype = c.dtype, .direction = c.direction, .group = c.group};
    split_k_product product = {.range = range_of(&c, m->slices * q->chunks * q->turns,
                                                 (int64_t)q->strips * STRIP * q->channels * c.group * taps),
                               .dtype = c.dtype,
                               .results = results,
                               .slices = m->slices,
                               .finished = 32};
    XPU_TRY(get_kernel(xpu_stream_device(stream), &c, &product.sum));
    XPU_TRY(get_kernel(xpu_stream_device(stream), &last, &product.finish));
    return product_split_k(stream, &product, q, sizeof *q, &m->partial);
}

xpu_status conv_by_depthwise(xpu_stream *stream, xpu_dtype dtype, conv_direction direction,
                             const conv_params *p, bool *done) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &properties));
    *done = false;
    if (p->groups == 1 || p->c != p->k || (p->c != 1 && p->c != 2 && p->c != 4) ||
        xpu_dtype_size(dtype) > 4 || p->end.other % 16 != 0 || p->batch == 0 || conv_volume(p->in) == 0 ||
        conv_volume(p->out) == 0 || conv_volume(p->taps) == 0)
        return XPU_SUCCESS;
    const conv_operand x = conv_operand_of(dtype, p->x, p->x_stride, p->batch, 1, p->groups * p->c, p->in);
    const conv_operand y = conv_operand_of(dtype, p->y, p->y_stride, p->batch, 1, p->groups * p->k, p->out);
    const conv_operand *const im2col = direction == CONV_BACKWARD_DATA ? &y : &x;
    const conv_operand *const result = direction == CONV_FORWARD ? &y : &x;
    conv_depthwise_params q = {.w = p->w,
                               .y = y.data,
                               .channels = (xpu_u32)(p->groups * p->c),
                               .vectors = (xpu_u32)(p->groups * p->c / x.vec)};
    conv_matrix_params *m = &q.geometry;
    if (!conv_is_vector_aligned(&x) || !conv_is_vector_aligned(&y) ||
        !conv_describe_dimensions(p, direction, m) || !conv_offsets_fit_32bit(im2col, m) ||
        !conv_offsets_fit_32bit(&y, NULL))
        return XPU_SUCCESS;

    choice c = {.dtype = dtype, .direction = direction, .group = p->c, .volume = conv_is_3d(p)};
    m->im2col = im2col->data, m->result = result->data;
    m->groups = 1;
    if (direction != CONV_BACKWARD_WEIGHT)
        m->bias = p->bias, m->bias_stride = p->bias_stride, q.end = c.end = p->end;
    for (int i = 0; i < 5; i++) m->result_stride[i] = result->stride[i], q.w_stride[i] = p->w_stride[i];
    for (int i = 0; i < 4; i++) {
        m->im2col_pitch[i] = (xpu_i32)(im2col->stride[i ? i + 1 : 0] / im2col->vec);
        q.y_pitch[i] = (xpu_i32)(y.stride[i ? i + 1 : 0] / y.vec);
    }
    c.taps = 1;
    c.exact = true;
    int64_t phases = 1;
    for (int d = 0; d < 3; d++) {
        c.taps *= m->phase[d][0].taps.value; /* of the phase with most taps */
        phases *= m->phases[d];
        q.apart[d] = direction == CONV_BACKWARD_DATA
                         ? p->stride[d] / (xpu_i32)conv_common_divisor(p->stride[d], p->dilation[d])
                         : 1;
    }
    const int64_t wide = m->phase[2][0].taps.value;
    c.phases = phases > 1;
    c.run = wide < 1 ? 1 : wide < MOST_RUN ? wide : MOST_RUN;
    for (xpu_u32 i = 0; i < m->phases[2]; i++) c.exact = c.exact && m->phase[2][i].taps.value % c.run == 0;
    c.step = m->step[2], c.tap_step = m->tap_step[2];
    if (c.taps < 1) c.taps = 1;
    /* Larger strides or dilations would unroll too much code. */
    if (c.step > 8 || abs((int)c.tap_step) > 4) return XPU_SUCCESS;

    m->extent[2] = conv_divisor_of(div_up(m->extent[2].value, STRIP));
    const int64_t strips = p->batch * m->extent[0].value * m->extent[1].value * m->extent[2].value;
    if (strips > INT32_MAX / 8) return XPU_SUCCESS;
    q.strips = (xpu_u32)strips;
    int64_t lanes =
        direction == CONV_BACKWARD_WEIGHT ? MOST_LANES : MOST_WEIGHTS / (c.taps * c.group * x.vec);
    if (lanes < 1) return XPU_SUCCESS;
    if (lanes > MOST_LANES) lanes = MOST_LANES;
    q.chunks = (xpu_u32)div_up(q.vectors, lanes);
    c.lanes = div_up(q.vectors, q.chunks);
    c.rows = 256 / c.lanes;
    q.blocks = (xpu_u32)div_up(strips, c.rows);
    *done = true;
    if (direction == CONV_BACKWARD_WEIGHT) return sum_weights(stream, properties, c, &q);
    c.kernel = KERNEL_DEPTHWISE;
    const xpu_range range = range_of(&c, phases * q.chunks * q.blocks,
                                     phases * strips * STRIP * (int64_t)q.channels * c.group * c.taps);
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(xpu_stream_device(stream), &c, &kernel));
    return xpu_launch(stream, kernel, &range, &q, sizeof q);
}

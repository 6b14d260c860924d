/* Plans and launches the gradient of x with few channels (conv_few_channels.h). */
#include "ops/conv/conv_few_channels.h"

#include <stdlib.h>

#include "kernels/conv/conv_few_channels.h"
#include "ops/gemm/epilogue.h"
#include "ops/gemm/matrix.h"
#include "ops/gemm/product.h"
#include "xpu/trace.h"

enum {
    MOST_CHANNELS = 4,  /* of x per group */
    LEAST_CHANNELS = 4, /* of y; fewer give too short sums */
    MOST_STRIDE = 4,
    MOST_SPAN = 24,      /* pixels of a row of y per work-item */
    MOST_WRITTEN = 2400, /* unrolled multiply-adds */
    MOST_THREADS = 128,
    MOST_LANES = 16,
    MOST_LOCAL = 40 << 10, /* bytes of local memory; NVIDIA GPUs allow 48 KiB per kernel */
    LOAD_COST = 6          /* cost of loading an element of y or w, in multiply-adds */
};

/* Pixels of x per work-item along width and height, by stride: those of 4, 4, 2 and 2 pixels of y along the
 * width, so that rows are read 16 or 8 bytes at a time. Second row: Intel GPUs, whose compiler prefetches so
 * much that more pixels would spill. */
static const int wide_of[2][MOST_STRIDE + 1] = {{0, 4, 8, 6, 8}, {0, 4, 8, 6, 4}};
static const int high_of[2][MOST_STRIDE + 1] = {{0, 4, 2, 3, 4}, {0, 2, 2, 3, 4}};

/* Along one dimension. */
typedef struct along {
    int64_t taps, stride, dilation, pixels; /* pixels of x per work-item */
    int64_t least, ahead, span;             /* as in conv_few_channels.cl */
} along;

typedef struct choice {
    xpu_dtype dtype;
    int64_t channels, lanes, rows, step;
    along h, w;
    bool y_quads, registers; /* Intel GPUs: large register mode */
    int subgroup;            /* Intel GPUs: subgroup size */
    int out;
    post_ops_params end;
} choice;

static xpu_status get_kernel(int device, const choice *c, xpu_kernel **kernel) {
    kernel_spec spec;
    spec_begin(&spec, FAMILY_CONV_FEW_CHANNELS);
    spec_dtype(&spec, "T", c->dtype);
    post_ops_spec(&spec, &c->end);
    spec_int(&spec, "CHANNELS", c->channels, 3);
    spec_int(&spec, "LANES", c->lanes, 5);
    spec_int(&spec, "ROWS", c->rows, 8);
    spec_int(&spec, "STEP", c->step, 4);
    spec_int(&spec, "TAPS_H", c->h.taps, 12);
    spec_int(&spec, "TAPS_W", c->w.taps, 12);
    spec_int(&spec, "STRIDE_H", c->h.stride, 3);
    spec_int(&spec, "STRIDE_W", c->w.stride, 3);
    spec_int(&spec, "DILATION_H", c->h.dilation, 8);
    spec_int(&spec, "DILATION_W", c->w.dilation, 8);
    spec_int(&spec, "AHEAD_H", c->h.ahead, 8);
    spec_int(&spec, "AHEAD_W", c->w.ahead, 8);
    spec_int(&spec, "SPAN_H", c->h.span, 5);
    spec_int(&spec, "SPAN_W", c->w.span, 5);
    spec_bool(&spec, "Y_QUADS", c->y_quads);
    spec_int(&spec, "OUT", c->out, 2);
    spec_int(&spec, "HIGH", c->h.pixels, 4);
    spec_int(&spec, "WIDE", c->w.pixels, 4);
    spec_int_if(&spec, c->subgroup > 0, "SUBGROUP_SIZE", c->subgroup, 6);
    spec_key_only(&spec, "registers", c->registers, 1);
    if (c->registers) spec_option_text(&spec, "-cl-intel-256-GRF-per-thread");
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(device, &spec, "conv_few_channels.cl", "conv_few_channels", kernel,
                            "conv_few_channels %s grad_input", xpu_dtype_name(c->dtype));
}

/* The quotient, rounded up. */
static int64_t quotient_up(int64_t a, int64_t b) { return a >= 0 ? div_up(a, b) : -(-a / b); }

/* False if the taps reach too far, or if no tap reaches the first pixels. */
static bool describe(const conv_params *p, int d, const int *pixels_of, along *a) {
    if (p->stride[d] > MOST_STRIDE) return false;
    *a = (along){.taps = p->taps[d],
                 .stride = p->stride[d],
                 .dilation = p->taps[d] > 1 ? p->dilation[d] : 1,
                 .pixels = p->in[d] > 1 ? pixels_of[p->stride[d]] : p->stride[d]};
    const int64_t reach = (a->taps - 1) * a->dilation, padding = p->padding[d];
    a->least = quotient_up(padding - reach, a->stride);
    a->ahead = padding - a->stride * a->least;
    a->span = (a->pixels - 1 + a->ahead) / a->stride + 1;
    return a->ahead >= 0 && a->span <= MOST_SPAN;
}

static int64_t vector_of(const along *w) { return w->pixels / w->stride; }

static int64_t plane_of(const choice *c) {
    const int64_t vector = vector_of(&c->w);
    return align_up(((c->lanes - 1) * vector + align_up(c->w.span, vector)) *
                        ((c->rows - 1) * (c->h.pixels / c->h.stride) + c->h.span),
                    4);
}

/* Channels of y per step; 0 if local memory has no room for one. */
static int64_t step_of(const choice *c, int64_t local) {
    int64_t step = 8;
    const int64_t held = c->channels == 3 ? 4 : c->channels;
    while (step > 0 && step * (plane_of(c) + c->h.taps * c->w.taps * held) * (int64_t)sizeof(float) > local)
        step /= 2;
    return step;
}

/* Chooses the work-group shape with the lowest total cost. False if none fits. */
static bool shape_group(const conv_params *p, int64_t local, choice *c) {
    const int64_t strips = div_up(p->in[2], c->w.pixels), lines = div_up(p->in[1], c->h.pixels);
    const int64_t written =
        c->h.pixels * c->w.pixels * c->channels * c->h.taps * c->w.taps / (c->h.stride * c->w.stride);
    choice best = {0};
    int64_t least = INT64_MAX;
    for (int64_t lanes = 1; lanes <= MOST_LANES; lanes++)
        for (int64_t threads = MOST_THREADS / 4; threads <= MOST_THREADS; threads += MOST_THREADS / 4) {
            c->lanes = lanes, c->rows = threads / lanes;
            c->step = step_of(c, local);
            if (c->step < 1) continue;
            /* the barriers of a step cost as much as the multiply-adds of a strip */
            const int64_t cost =
                div_up(strips, lanes) * div_up(lines, c->rows) *
                (align_up(lanes * c->rows, 32) * (written + written / c->step) + LOAD_COST * plane_of(c));
            if (cost < least) least = cost, best = *c;
        }
    if (least < INT64_MAX) *c = best;
    return least < INT64_MAX;
}

static bool are_quads(xpu_dtype dtype, xpu_addr data, const xpu_i64 *stride, int first, int second,
                      int third) {
    return dtype == XPU_FLOAT32 && data % 16 == 0 &&
           (stride[first] | stride[second] | stride[third]) % 4 == 0;
}

/* How results are stored: OUT in conv_few_channels.cl. */
static int out_of(const choice *c, const conv_params *p) {
    if (c->end.combine || c->end.epilogue || c->w.pixels % 4 != 0) return 0;
    if (p->x_stride[1] == 1 && p->x_stride[4] == p->c && p->groups == 1 &&
        are_quads(c->dtype, p->x, p->x_stride, 0, 3, 3))
        return 1;
    return p->x_stride[4] == 1 && are_quads(c->dtype, p->x, p->x_stride, 0, 1, 3) ? 2 : 0;
}

static bool is_flat(const conv_params *p) {
    return p->in[0] == 1 && p->out[0] == 1 && p->taps[0] == 1 && p->padding[0] == 0;
}

xpu_status conv_by_few_channels(xpu_stream *stream, xpu_dtype dtype, conv_direction direction,
                                const conv_params *p, bool *done) {
    const xpu_device_properties *properties;
    const int device = xpu_stream_device(stream);
    XPU_TRY(xpu_device_get_properties(device, &properties));
    *done = false;
    bool emulated;
    if (direction != CONV_BACKWARD_DATA || p->c < 1 || p->c > MOST_CHANNELS || p->k < LEAST_CHANNELS ||
        (dtype != XPU_FLOAT32 && dtype != XPU_FLOAT16 && dtype != XPU_BFLOAT16) || !is_flat(p) ||
        matrix_fma_of(properties) == MATRIX_UNIT_NONE ||
        matrix_unit_of(properties, dtype, &emulated) != MATRIX_UNIT_NONE || p->batch == 0 ||
        conv_volume(p->in) == 0 || conv_volume(p->out) == 0 || conv_volume(p->taps) == 0)
        return XPU_SUCCESS;
    choice c = {.dtype = dtype, .channels = p->c, .end = p->end};
    c.subgroup = matrix_intel_lanes(properties);
    c.registers = c.subgroup > 0 && matrix_accumulator_bytes(properties) > 128;
    if (!describe(p, 1, high_of[c.subgroup > 0], &c.h) || !describe(p, 2, wide_of[c.subgroup > 0], &c.w))
        return XPU_SUCCESS;
    const int64_t written = c.h.pixels * c.w.pixels * c.channels * c.h.taps * c.w.taps,
                  phases = c.h.stride * c.w.stride;
    /* Offsets within an image of y have 32 bits. */
    const int64_t reach =
        llabs(p->y_stride[1]) * p->k + llabs(p->y_stride[3]) * p->out[1] + llabs(p->y_stride[4]) * p->out[2];
    const int64_t local = (int64_t)properties->local_mem_size;
    if (written > MOST_WRITTEN * phases ||
        c.h.pixels * c.w.pixels * c.channels * (int64_t)sizeof(float) * 2 >
            (int64_t)matrix_accumulator_bytes(properties) * 3 ||
        reach > INT32_MAX || !shape_group(p, local < MOST_LOCAL ? local : MOST_LOCAL, &c))
        return XPU_SUCCESS;
    c.y_quads = p->y_stride[1] == 1 && p->k % 4 == 0 && c.step % 4 == 0 &&
                are_quads(dtype, p->y, p->y_stride, 0, 3, 4);
    c.out = out_of(&c, p);

    conv_few_channels_params q = {.end = p->end,
                                  .x = p->x,
                                  .w = p->w,
                                  .y = p->y,
                                  .bias = p->bias,
                                  .bias_stride = p->bias_stride,
                                  .y_image = p->y_stride[0],
                                  .y_channel = (xpu_i32)p->y_stride[1],
                                  .least = {(xpu_i32)c.h.least, (xpu_i32)c.w.least},
                                  .k = (xpu_u32)p->k,
                                  .groups = (xpu_u32)p->groups,
                                  .tiles = {(xpu_u32)div_up(p->in[1], c.rows * c.h.pixels),
                                            (xpu_u32)div_up(p->in[2], c.lanes * c.w.pixels)}};
    static const int dimension[4] = {0, 1, 3, 4};
    for (int i = 0; i < 4; i++)
        q.x_stride[i] = p->x_stride[dimension[i]], q.w_stride[i] = p->w_stride[dimension[i]];
    for (int i = 0; i < 2; i++)
        q.y_pitch[i] = (xpu_i32)p->y_stride[3 + i], q.in[i] = p->in[1 + i], q.out[i] = p->out[1 + i];
    *done = true;
    const int64_t groups = p->batch * p->groups * q.tiles[0] * q.tiles[1];
    const xpu_range range = {.dims = 1,
                             .groups = {(size_t)groups},
                             .local = {(size_t)(c.lanes * c.rows)},
                             .work =
                                 (uint64_t)(groups * c.lanes * c.rows * p->k) * (uint64_t)(written / phases)};
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(device, &c, &kernel));
    return xpu_launch(stream, kernel, &range, &q, sizeof q);
}

/* Plans Winograd convolutions: transforms and the batched product of planes (conv_winograd.h). */
#include "ops/conv/conv_winograd.h"

#include <math.h>

#include "kernels/conv/conv_winograd.h"
#include "ops/gemm/matrix.h"
#include "xpu/ops/gemm.h"
#include "xpu/trace.h"

enum {
    PLANES = 16,
    STEP = 2, /* pixels between adjacent windows */
    TAPS = 3,
    QUAD = 4,               /* rows of planes are a multiple of this many elements */
    MOST_BYTES = 512 << 20, /* of the planes */
    MOST_WINDOWS = 1 << 28, /* times channels; kernels count them with 32 bits */
};

/* conv_winograd.cl's WAY. */
typedef enum transform_kind { OF_X, OF_TAPS, OF_GRAD_Y, TO_PIXELS, TO_TAPS } transform_kind;

/* A tensor and its planes. */
typedef struct side {
    transform_kind way;
    bool channels_fast; /* … of which channels, or else windows, are contiguous */
    conv_winograd_params params;
} side;

typedef struct winograd_plan {
    side im2col, other, result; /* x (gradient of x: y); w (gradient of w: y); the output */
    xpu_gemm_args product;      /* of planes, without their addresses */
    bool other_first;           /* A is the transformed dense operand, B the im2col operand's */
} winograd_plan;

static xpu_status get_kernel(int device, xpu_dtype dtype, const side *s, xpu_kernel **kernel) {
    static const char *const labels[] = {"of x", "of taps", "of grad_output", "to pixels", "to taps"};
    kernel_spec spec;
    spec_begin(&spec, FAMILY_CONV_WINOGRAD);
    spec_dtype(&spec, "T", dtype);
    spec_int(&spec, "WAY", s->way, 3);
    spec_bool(&spec, "CHANNELS_CONTIGUOUS", s->channels_fast);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(device, &spec, "conv_winograd.cl", "conv_winograd", kernel, "conv_winograd %s %s",
                            xpu_dtype_name(dtype), labels[s->way]);
}

static int64_t plane_bytes(const side *s) { return PLANES * s->params.plane * (int64_t)sizeof(float); }

static void set_planes(side *s, int64_t windows, int64_t channels, bool channels_fast) {
    conv_winograd_params *const q = &s->params;
    const int64_t pitch = align_up(channels_fast ? channels : windows, QUAD);
    s->channels_fast = channels_fast;
    q->windows = (xpu_u32)windows, q->channels = (xpu_u32)channels;
    q->window = channels_fast ? pitch : 1, q->channel = channels_fast ? 1 : pitch;
    q->plane = pitch * (channels_fast ? windows : channels);
}

/* x or y, `tiles` windows per image; padded as in y = x * w or, for the gradient of x, as its transpose. */
static side side_of_images(transform_kind way, xpu_addr data, const xpu_i64 stride[5], const xpu_i32 size[3],
                           int64_t batch, int64_t channels, const xpu_u32 tiles[2],
                           const xpu_i32 padding[2]) {
    side s = {.way = way,
              .params = {.data = data,
                         .stride = {stride[0], stride[1], stride[3], stride[4]},
                         .across = {tiles[0], tiles[1]},
                         .size = {size[1], size[2]},
                         .padding = {padding[0], padding[1]}}};
    set_planes(&s, batch * tiles[0] * tiles[1], channels, stride[1] <= stride[4]);
    return s;
}

/* w, rotated by 180 degrees and transposed for the gradient of x: one window per channel pair. */
static side side_of_taps(transform_kind way, xpu_dtype dtype, const conv_params *p, bool transposed) {
    side s = {.way = way,
              .params = {.data = p->w,
                         .stride = {p->w_stride[0], p->w_stride[1], p->w_stride[3], p->w_stride[4]},
                         .across = {1, 1},
                         .size = {TAPS, TAPS}}};
    for (int i = 2; i < 4 && transposed; i++) {
        s.params.data += (xpu_addr)(s.params.stride[i] * (TAPS - 1) * (xpu_i64)xpu_dtype_size(dtype));
        s.params.stride[i] = -s.params.stride[i];
    }
    set_planes(&s, p->k, p->c, true);
    return s;
}

/* A side's planes as [window][channel], or the other way around. */
static xpu_matrix matrix_of(const side *s, bool transposed) {
    const conv_winograd_params *const q = &s->params;
    return (xpu_matrix){.batch_stride = q->plane,
                        .row_stride = transposed ? q->channel : q->window,
                        .column_stride = transposed ? q->window : q->channel};
}

static bool serves(int device, xpu_dtype dtype, const conv_params *p) {
    const xpu_device_properties *properties;
    if ((dtype != XPU_FLOAT32 && dtype != XPU_FLOAT16 && dtype != XPU_BFLOAT16) || p->groups != 1 ||
        p->batch == 0 || p->c == 0 || p->k == 0 || p->in[0] != 1 || p->out[0] != 1 || p->taps[0] != 1 ||
        p->padding[0] != 0)
        return false;
    for (int d = 1; d < 3; d++)
        if (p->taps[d] != TAPS || p->stride[d] != 1 || p->dilation[d] != 1 || p->in[d] == 0 || p->out[d] <= 0)
            return false;
    return xpu_device_get_properties(device, &properties) == XPU_SUCCESS &&
           matrix_fma_of(properties) != MATRIX_UNIT_NONE;
}

/* False if there are too many windows or bytes. */
static bool make_plan(xpu_dtype dtype, conv_direction direction, const conv_params *p, winograd_plan *plan) {
    const xpu_i32 *const tiled = direction == CONV_BACKWARD_DATA ? p->in : p->out;
    const xpu_u32 tiles[2] = {(xpu_u32)div_up(tiled[1], STEP), (xpu_u32)div_up(tiled[2], STEP)};
    const int64_t windows = p->batch * tiles[0] * tiles[1];
    if (windows * (p->c > p->k ? p->c : p->k) > MOST_WINDOWS || p->c * p->k > MOST_WINDOWS) return false;
    const xpu_i32 given[2] = {p->padding[1], p->padding[2]}, none[2] = {0, 0};
    const xpu_i32 transposed[2] = {TAPS - 1 - given[0], TAPS - 1 - given[1]};
#define OF_IMAGES(way, of, size, channels, padding)                                                          \
    side_of_images(way, p->of, p->of##_stride, p->size, p->batch, p->channels, tiles, padding)
    const bool of_x = direction == CONV_BACKWARD_DATA, of_w = direction == CONV_BACKWARD_WEIGHT;
    plan->im2col = of_x ? OF_IMAGES(OF_X, y, out, k, transposed) : OF_IMAGES(OF_X, x, in, c, given);
    plan->other = of_w ? OF_IMAGES(OF_GRAD_Y, y, out, k, none) : side_of_taps(OF_TAPS, dtype, p, of_x);
    plan->result = of_w   ? side_of_taps(TO_TAPS, dtype, p, false)
                   : of_x ? OF_IMAGES(TO_PIXELS, x, in, c, none)
                          : OF_IMAGES(TO_PIXELS, y, out, k, none);
#undef OF_IMAGES
    if (!of_w) plan->result.params.bias = p->bias, plan->result.params.bias_stride = p->bias_stride;
    if (plane_bytes(&plan->im2col) + plane_bytes(&plan->other) + plane_bytes(&plan->result) > MOST_BYTES)
        return false;

    const bool transposed_result = !plan->result.channels_fast; /* [channel][window] */
    xpu_gemm_args *const g = &plan->product;
    *g = (xpu_gemm_args){.dtype = XPU_FLOAT32,
                         .batch = PLANES,
                         .alpha = {.dtype = XPU_FLOAT64, .value.f = 1},
                         .out = matrix_of(&plan->result, transposed_result)};
    const int64_t channels = of_x ? p->c : p->k;
    g->m = of_w ? p->k : transposed_result ? channels : windows;
    g->n = of_w ? p->c : transposed_result ? windows : channels;
    g->k = of_w ? windows : of_x ? p->k : p->c;
    plan->other_first = of_w || transposed_result;
    g->a = of_w                ? matrix_of(&plan->other, true)
           : transposed_result ? matrix_of(&plan->other, of_x)
                               : matrix_of(&plan->im2col, false);
    g->b = of_w                ? matrix_of(&plan->im2col, false)
           : transposed_result ? matrix_of(&plan->im2col, true)
                               : matrix_of(&plan->other, !of_x);
    return true;
}

/* Estimated clocks of launches that are bound by memory. GPUs other than NVIDIA's have half the memory
 * bandwidth per compute unit. */
static double moved(const xpu_device_properties *properties, int64_t bytes) {
    return matrix_clocks_of_traffic(properties,
                                    properties->vendor_id == XPU_VENDOR_NVIDIA ? bytes : 2 * bytes);
}

/* Estimated clocks of one side's transform: the tensor and its planes are read or written. */
static double transform_clocks(const xpu_device_properties *properties, xpu_dtype dtype, const side *s) {
    const int64_t windows = s->params.windows, images = windows / s->params.across[0] / s->params.across[1];
    const int64_t pixels = images * s->params.size[0] * s->params.size[1];
    return moved(properties, plane_bytes(s) + pixels * s->params.channels * (int64_t)xpu_dtype_size(dtype));
}

double conv_winograd_clocks(int device, xpu_dtype dtype, conv_direction direction, const conv_params *p) {
    const xpu_device_properties *properties;
    winograd_plan plan;
    if (!serves(device, dtype, p) || !make_plan(dtype, direction, p, &plan) ||
        xpu_device_get_properties(device, &properties) != XPU_SUCCESS)
        return HUGE_VAL;
    const xpu_gemm_args *g = &plan.product;
    matrix_choice choice = {
        .device = device, .unit = matrix_fma_of(properties), .a_alignment = 16, .b_alignment = 16};
    const int along_k = (g->a.column_stride == 1) + (g->b.row_stride == 1);
    int64_t slices;
    choice.tile =
        matrix_tile_for(&choice, XPU_FLOAT32, properties, g->batch, g->m, g->n, g->k, along_k, &slices);
    if (choice.tile < 0) return HUGE_VAL;
    /* With few channels, products are bound by memory. */
    const double product = fmax(
        matrix_clocks(&choice, XPU_FLOAT32, properties, g->batch, g->m, g->n, g->k, along_k, slices),
        moved(properties, plane_bytes(&plan.im2col) + plane_bytes(&plan.other) + plane_bytes(&plan.result)));
    return product + transform_clocks(properties, dtype, &plan.im2col) +
           transform_clocks(properties, dtype, &plan.other) +
           transform_clocks(properties, dtype, &plan.result);
}

static xpu_status transform(xpu_stream *stream, xpu_dtype dtype, const side *s) {
    const uint64_t count = (uint64_t)s->params.windows * s->params.channels;
    const xpu_range range = {
        .dims = 1, .groups = {(size_t)div_up((int64_t)count, 256)}, .local = {256}, .work = count * PLANES};
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(xpu_stream_device(stream), dtype, s, &kernel));
    return xpu_launch(stream, kernel, &range, &s->params, sizeof s->params);
}

static xpu_status run(xpu_stream *stream, xpu_dtype dtype, winograd_plan *plan) {
    XPU_TRY(transform(stream, dtype, &plan->im2col));
    XPU_TRY(transform(stream, dtype, &plan->other));
    XPU_TRY(xpu_gemm(stream, &plan->product));
    return transform(stream, dtype, &plan->result);
}

xpu_status conv_by_winograd(xpu_stream *stream, xpu_dtype dtype, conv_direction direction,
                            const conv_params *p) {
    winograd_plan plan;
    if (!serves(xpu_stream_device(stream), dtype, p) || !make_plan(dtype, direction, p, &plan))
        return op_fail(XPU_ERROR_NOT_SUPPORTED,
                       "convolution: the Winograd algorithm doesn't support this convolution");
    const int64_t im2col = plane_bytes(&plan.im2col), other = plane_bytes(&plan.other);
    void *planes;
    XPU_TRY(xpu_workspace_take(stream, (size_t)(im2col + other + plane_bytes(&plan.result)), &planes));
    char *const of[] = {planes, (char *)planes + im2col, (char *)planes + im2col + other};
    plan.im2col.params.planes = XPU_ADDR(of[0]), plan.other.params.planes = XPU_ADDR(of[1]);
    plan.result.params.planes = XPU_ADDR(of[2]);
    plan.product.a.data = of[plan.other_first], plan.product.b.data = of[!plan.other_first];
    plan.product.out.data = of[2];
    return workspace_release(planes, run(stream, dtype, &plan));
}

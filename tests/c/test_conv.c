/* Convolutions on matrix engines, and on GPUs in other dtypes, with gradients and post-ops: elements are
 * chosen so that sums are exact, and results must be equal to the last bit. All strides, paddings, dilations,
 * groups, layouts and alignments. On devices without a matrix engine its instructions are emulated in OpenCL
 * C.
 *
 *     test_conv [problems [seed [every]]]    random problems, and one in `every` of those below
 *
 * OPENXPU_MATRIX=xmx, xmx8 selects XMX with SIMD16, SIMD8 instead of NVIDIA tensor cores; fma selects the GPU
 * kernel without a matrix engine, with all dtypes; none selects what the device uses otherwise: im2col on a
 * CPU. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdlib.h>

#include "numbers.h"
#include "units_test.h"
#include "xpu/ops/conv.h"
#include "xpu/tuning.h"

static int launches, by_units; /* by_units: kernels on a matrix engine, or for few channels per group */
static int by_tiles, by_depth, by_few, by_patches, plain, packs, transforms;
static int of_y, of_x; /* by tiles */

static void count_launch(const xpu_work *work, xpu_trace_point point, xpu_status status, void *unused) {
    if (point != XPU_TRACE_BEGIN) return;
    if (strstr(work->name, "conv_") || strstr(work->name, "gemm")) launches++;
    if (strstr(work->name, "_matrix") || strstr(work->name, "conv_depthwise") ||
        strstr(work->name, "conv_few_channels"))
        by_units++;
    if (strstr(work->name, "conv_depthwise"))
        by_depth++;
    else if (strstr(work->name, "conv_few_channels"))
        by_few++;
    else if (strstr(work->name, "_matrix") || strstr(work->name, "gemm"))
        by_tiles++;
    else if (strstr(work->name, "conv_tiles") || strstr(work->name, "conv_point"))
        plain++;
    if (strstr(work->name, "gemm")) by_patches++; /* or, for y, the host's product */
    if (strstr(work->name, "conv_pack")) packs++;
    if (strstr(work->name, "conv_winograd")) transforms++;
    if (strstr(work->name, "conv_matrix ") && !strstr(work->name, "grad")) of_y++;
    if (strstr(work->name, "conv_matrix ") && strstr(work->name, "grad_input")) of_x++;
}

typedef enum layout { CHANNELS_FIRST, CHANNELS_LAST, ANY_LAYOUT } layout;

/* A tensor on the host and the device, with room around it that has to stay as it is. */
typedef struct memory {
    char *host;
    void *device;
    size_t count, bytes;
    int64_t offset, size[5], stride[5];
    xpu_tensor tensor;
} memory;

static void make(memory *x, xpu_dtype dtype, int dims, const int64_t *size, layout layout, int align) {
    int order[5]; /* dimensions, fastest first */
    const int last = dims + 1;
    for (int i = 0; i <= last; i++)
        order[i] = layout == CHANNELS_LAST ? (i == 0 ? 1 : i == last ? 0 : last - i + 1) : last - i;
    if (layout == ANY_LAYOUT)
        for (int i = last; i > 0; i--) {
            const int j = (int)pick(0, i), t = order[i];
            order[i] = order[j], order[j] = t;
        }
    int64_t stride = 1;
    for (int i = 0; i <= last; i++) {
        x->size[order[i]] = size[order[i]];
        x->stride[order[i]] = stride;
        stride *= size[order[i]];
        if (i == 0 && layout != CHANNELS_FIRST) stride = (stride + align - 1) / align * align;
        if (layout != CHANNELS_FIRST && pick(0, 3) == 0) stride += align;
    }
    x->offset = align * pick(0, 3);
    x->count = (size_t)(x->offset + stride + 64);
    x->bytes = x->count * xpu_dtype_size(dtype);
    x->host = malloc(x->bytes);
    for (size_t i = 0; i < x->count; i++)
        encode_number(dtype, number(dtype), x->host + i * xpu_dtype_size(dtype));
    SUCCEEDS(xpu_malloc(stream, x->bytes, &x->device));
    SUCCEEDS(xpu_memcpy(stream, x->device, x->host, x->bytes, true));
    x->tensor = (xpu_tensor){(char *)x->device + (size_t)x->offset * xpu_dtype_size(dtype), dtype, dims + 2,
                             x->size, x->stride};
}

static void drop(memory *x) {
    SUCCEEDS(xpu_free(x->device));
    free(x->host);
}

/* What decides the kernels, and a problem. */
typedef struct problem {
    xpu_dtype dtype;
    int tile, dims;
    layout x, w, y;
    int align;
    int64_t batch, groups, c, k; /* channels of x and y in a group */
    int64_t in[3], taps[3], stride[3], padding[3], dilation[3];
    bool bias;
    bool spread; /* x has one column of pixels, which all of a line are */
} problem;

/* Everything of a tensor in order: [n][channel][d][h][w]. */
static int64_t place(const memory *x, int dims, int64_t number) {
    int64_t at = x->offset;
    for (int i = dims + 1; i >= 0; i--) at += number % x->size[i] * x->stride[i], number /= x->size[i];
    return at;
}

static double complex *numbers(const memory *x, xpu_dtype dtype, int dims, int64_t *count) {
    *count = 1;
    for (int i = 0; i < dims + 2; i++) *count *= x->size[i];
    double complex *all = malloc((size_t)*count * sizeof *all);
    for (int64_t i = 0; i < *count; i++)
        all[i] = decode_number(dtype, x->host + (size_t)place(x, dims, i) * xpu_dtype_size(dtype));
    return all;
}

static void compare(const problem *w, const char *what, const memory *x, const double complex *want,
                    int64_t count) {
    const size_t size = xpu_dtype_size(w->dtype);
    char *got = malloc(x->bytes);
    SUCCEEDS(xpu_memcpy(stream, got, x->device, x->bytes, true));
    for (int64_t i = 0; i < count; i++) {
        char *at = got + (size_t)place(x, w->dims, i) * size;
        const double complex is = decode_number(w->dtype, at);
        if (is != rounded_number(w->dtype, want[i]))
            fail_msg(
                "%s, %s, tile %d, dims %d, batch %d, %d groups of %d to %d, in %d %d %d, taps %d %d %d, "
                "stride "
                "%d %d %d, padding %d %d %d, dilation %d %d %d, layouts %d %d %d: %g%+gi at %lld, not %g%+gi",
                what, xpu_dtype_name(w->dtype), w->tile, w->dims, (int)w->batch, (int)w->groups, (int)w->c,
                (int)w->k, (int)w->in[0], (int)w->in[1], (int)w->in[2], (int)w->taps[0], (int)w->taps[1],
                (int)w->taps[2], (int)w->stride[0], (int)w->stride[1], (int)w->stride[2], (int)w->padding[0],
                (int)w->padding[1], (int)w->padding[2], (int)w->dilation[0], (int)w->dilation[1],
                (int)w->dilation[2], w->x, w->w, w->y, creal(is), cimag(is), (long long)i, creal(want[i]),
                cimag(want[i]));
        memcpy(at, x->host + (at - got), size); /* bytes that must be unchanged */
    }
    assert_memory_equal(got, x->host, x->bytes);
    free(got);
}

/* The three sums, over all pairs of a pixel of y and a tap. */
static void reference(const problem *p, const int64_t out[3], const double complex *x,
                      const double complex *w, const double complex *y, double complex *to_x,
                      double complex *to_w, double complex *to_y) {
    const bool is_pair = is_complex(p->dtype);
    int64_t in[3] = {1, 1, 1}, o[3] = {1, 1, 1}, t[3] = {1, 1, 1}, s[3] = {1, 1, 1}, pad[3] = {0},
            dil[3] = {1, 1, 1};
    for (int i = 0; i < p->dims; i++) {
        const int j = 3 - p->dims + i;
        in[j] = p->in[i], o[j] = out[i], t[j] = p->taps[i], s[j] = p->stride[i], pad[j] = p->padding[i];
        dil[j] = p->dilation[i];
    }
    const int64_t pixels = o[0] * o[1] * o[2], taps = t[0] * t[1] * t[2], volume = in[0] * in[1] * in[2];
    for (int64_t n = 0; n < p->batch; n++)
        for (int64_t q = 0; q < pixels; q++)
            for (int64_t tap = 0; tap < taps; tap++) {
                const int64_t d = q / (o[1] * o[2]) * s[0] + tap / (t[1] * t[2]) * dil[0] - pad[0];
                const int64_t h = q / o[2] % o[1] * s[1] + tap / t[2] % t[1] * dil[1] - pad[1];
                const int64_t v = q % o[2] * s[2] + tap % t[2] * dil[2] - pad[2];
                if (d < 0 || d >= in[0] || h < 0 || h >= in[1] || v < 0 || v >= in[2]) continue;
                for (int64_t k = 0; k < p->groups * p->k; k++)
                    for (int64_t c = 0; c < p->c; c++) {
                        const int64_t all = k / p->k * p->c + c;
                        const int64_t at =
                            ((n * p->groups * p->c + all) * volume) + (d * in[1] + h) * in[2] + v;
                        const int64_t of_w = (k * p->c + c) * taps + tap;
                        const int64_t of_y = (n * p->groups * p->k + k) * pixels + q;
                        if (is_pair) {
                            to_y[of_y] += x[at] * w[of_w];
                            to_x[at] += y[of_y] * w[of_w];
                            to_w[of_w] += y[of_y] * x[at];
                        } else {
                            to_y[of_y] += creal(x[at]) * creal(w[of_w]);
                            to_x[at] += creal(y[of_y]) * creal(w[of_w]);
                            to_w[of_w] += creal(y[of_y]) * creal(x[at]);
                        }
                    }
            }
}

/* A line of matrix.def for the selected engine; wide dtypes have the smaller tiles. */
static int tile_of(const problem *p) {
    const bool wide = xpu_dtype_size(p->dtype) > 4;
    static const int of_blocks[] = {8, 9, 10, 11, 26}, of_squares[] = {22, 23, 24, 25, 28, 29, 30};
    return by_blocks ? of_blocks[p->tile % 5]
           : by_xmx8 ? of_squares[p->tile % 7]
           : by_fma  ? (wide ? 17 + p->tile % 5 : 12 + p->tile % 10)
                     : p->tile;
}

/* A problem's tensors, the expected results of all three, and the biases of x and y. */
typedef struct operands {
    memory x, w, y, x_bias, y_bias;
    int64_t sums[3];
    double complex *xs, *ws, *ys, *xb, *yb, *to_x, *to_w, *to_y;
    xpu_conv conv;
} operands;

static void set(const problem *p, operands *o) {
    int64_t out[3], size[5] = {p->batch, p->groups * p->c}, count;
    for (int i = 0; i < p->dims; i++)
        out[i] = (p->in[i] + 2 * p->padding[i] - p->dilation[i] * (p->taps[i] - 1) - 1) / p->stride[i] + 1;
    memcpy(size + 2, p->in, sizeof p->in);
    make(&o->x, p->dtype, p->dims, size, p->x, p->align);
    if (p->spread) o->x.stride[p->dims + 1] = 0;
    size[0] = p->groups * p->k, size[1] = p->c, memcpy(size + 2, p->taps, sizeof p->taps);
    make(&o->w, p->dtype, p->dims, size, p->w, p->align);
    size[0] = p->batch, size[1] = p->groups * p->k, memcpy(size + 2, out, sizeof out);
    make(&o->y, p->dtype, p->dims, size, p->y, p->align);
    make(&o->x_bias, p->dtype, -1, (int64_t[]){p->groups * p->c}, CHANNELS_FIRST, 1);
    make(&o->y_bias, p->dtype, -1, (int64_t[]){p->groups * p->k}, CHANNELS_FIRST, 1);
    o->xs = numbers(&o->x, p->dtype, p->dims, &o->sums[0]);
    o->ws = numbers(&o->w, p->dtype, p->dims, &o->sums[1]);
    o->ys = numbers(&o->y, p->dtype, p->dims, &o->sums[2]);
    o->xb = numbers(&o->x_bias, p->dtype, -1, &count), o->yb = numbers(&o->y_bias, p->dtype, -1, &count);
    o->to_x = calloc((size_t)o->sums[0], sizeof *o->to_x);
    o->to_w = calloc((size_t)o->sums[1], sizeof *o->to_w);
    o->to_y = calloc((size_t)o->sums[2], sizeof *o->to_y);
    reference(p, out, o->xs, o->ws, o->ys, o->to_x, o->to_w, o->to_y);
    /* A transposed convolution is the gradient of x. */
    const int64_t volume = o->sums[0] / p->batch / p->groups / p->c;
    const int64_t pixels = o->sums[2] / p->batch / p->groups / p->k;
    for (int64_t i = 0; i < o->sums[0] && p->bias; i++) o->to_x[i] += o->xb[i / volume % (p->groups * p->c)];
    for (int64_t i = 0; i < o->sums[2] && p->bias; i++) o->to_y[i] += o->yb[i / pixels % (p->groups * p->k)];
    o->conv = (xpu_conv){.dims = p->dims, .groups = p->groups};
    memcpy(o->conv.stride, p->stride, sizeof o->conv.stride);
    memcpy(o->conv.padding, p->padding, sizeof o->conv.padding);
    memcpy(o->conv.dilation, p->dilation, sizeof o->conv.dilation);
}

static void drop_all(operands *o) {
    free(o->xs), free(o->ws), free(o->ys), free(o->xb), free(o->yb);
    free(o->to_x), free(o->to_w), free(o->to_y);
    drop(&o->x), drop(&o->w), drop(&o->y), drop(&o->x_bias), drop(&o->y_bias);
}

/* Puts back what a convolution has written over. */
static void restore(const memory *x) { SUCCEEDS(xpu_memcpy(stream, x->device, x->host, x->bytes, true)); }

static void try_problem(const problem *p) {
    SUCCEEDS(xpu_tuning_set(0, xpu_tuning_index("matrix_tile"), tile_of(p)));
    operands o;
    set(p, &o);
    const xpu_tensor *const x = &o.x.tensor, *const w = &o.w.tensor, *const y = &o.y.tensor;
    SUCCEEDS(xpu_conv_backward(stream, &o.conv, y, x, w, NULL, w, NULL));
    compare(p, "gradient of w", &o.w, o.to_w, o.sums[1]);
    restore(&o.w);
    o.conv.transposed = p->bias;
    SUCCEEDS(p->bias ? xpu_conv_forward(stream, &o.conv, y, w, &o.x_bias.tensor, x)
                     : xpu_conv_backward(stream, &o.conv, y, x, w, x, NULL, NULL));
    o.conv.transposed = false;
    compare(p, "gradient of x", &o.x, o.to_x, o.sums[0]);
    restore(&o.x);
    SUCCEEDS(xpu_conv_forward(stream, &o.conv, x, w, p->bias ? &o.y_bias.tensor : NULL, y));
    compare(p, "y", &o.y, o.to_y, o.sums[2]);
    drop_all(&o);
}

/* Applies post-ops to a sum. If they are a separate pass, the sum and the operand of the binary post-op are
 * rounded in between. */
static double ended(const xpu_post_ops *e, xpu_dtype dtype, bool in_passes, double v, double other) {
    if (in_passes) v = creal(rounded_number(dtype, v));
    v = e->combine == XPU_COMBINE_ADD   ? v + other
        : e->combine == XPU_COMBINE_SUB ? v - other
        : e->combine == XPU_COMBINE_MUL ? v * other
                                        : v;
    if (in_passes) v = creal(rounded_number(dtype, v));
    switch (e->epilogue) {
    case XPU_EPILOGUE_RELU: return v > 0 ? v : 0;
    case XPU_EPILOGUE_ABS: return fabs(v);
    case XPU_EPILOGUE_LEAKY_RELU: return v > 0 ? v : e->scalar[0] * v;
    case XPU_EPILOGUE_CLAMP: return fmin(fmax(v, e->scalar[0]), e->scalar[1]);
    default: return v;
    }
}

/* y, or x of a transposed convolution, with a binary post-op whose operand is a separate tensor or the result
 * itself. */
static void try_ending(const problem *p, const xpu_post_ops *ending, bool transposed, bool in_place) {
    operands o;
    set(p, &o);
    memory *const result = transposed ? &o.x : &o.y, other = *result;
    double complex *const want = transposed ? o.to_x : o.to_y;
    const double complex *const with = transposed ? o.xs : o.ys;
    const size_t offset = (size_t)((char *)result->tensor.data - (char *)result->device);
    if (!in_place) {
        SUCCEEDS(xpu_malloc(stream, other.bytes, &other.device));
        SUCCEEDS(xpu_memcpy(stream, other.device, other.host, other.bytes, true));
        other.tensor.data = (char *)other.device + offset;
    }
    o.conv.transposed = transposed;
    const int tiles_before = by_tiles;
    SUCCEEDS(xpu_conv_forward_post_ops(stream, &o.conv, transposed ? &o.y.tensor : &o.x.tensor, &o.w.tensor,
                                       !p->bias     ? NULL
                                       : transposed ? &o.x_bias.tensor
                                                    : &o.y_bias.tensor,
                                       ending, ending->combine ? &other.tensor : NULL, &result->tensor));
    const bool in_passes = by_tiles > tiles_before;
    const int64_t count = o.sums[transposed ? 0 : 2];
    for (int64_t i = 0; i < count; i++)
        want[i] = ended(ending, p->dtype, in_passes, creal(want[i]), creal(with[i]));
    compare(p, in_place ? "ended in place" : transposed ? "ended x" : "ended y", result, want, count);
    if (!in_place) SUCCEEDS(xpu_free(other.device));
    drop_all(&o);
}

/* --- the problems --- */

#define LAST CHANNELS_LAST, CHANNELS_LAST, CHANNELS_LAST
#define FIRST CHANNELS_FIRST, CHANNELS_FIRST, CHANNELS_FIRST
#define MIXED CHANNELS_LAST, CHANNELS_FIRST, CHANNELS_LAST /* x, w, y */
#define TURNED CHANNELS_FIRST, CHANNELS_LAST, CHANNELS_FIRST
#define AT(...) {__VA_ARGS__}

/* What a problem is for: the kernel that comes up for it, or the test that takes it. */
typedef enum purpose {
    BY_IMPLICIT_GEMM,
    BY_PRODUCT, /* a plain one */
    BY_DEPTH,   /* few channels a group */
    LONG_SUMS,  /* few results, cut into slices */
    ENDED_BY_TILES,
    ENDED_BY_PRODUCT,
    ENDED_BY_DEPTH,
    ENDED_PLAIN,
    SPREAD,
    BY_FEW,     /* the gradient of x, of few channels … */
    BY_PATCHES, /* … that w divides into patches */
    LARGE,      /* large enough for tiles without a matrix engine, … */
    SMALL       /* … and not */
} purpose;

/* clang-format off */
static const struct {
    purpose purpose;
    problem p;
} cases[] = {
/* purpose, dtype, tile, dims, layouts, align, batch, groups, c, k,
 * in, taps, stride, padding, dilation, bias */
#define X(purpose, dtype, tile, dims, layouts, ...) \
    {purpose, {XPU_##dtype, tile, dims, layouts, __VA_ARGS__, purpose == SPREAD}},
X(BY_IMPLICIT_GEMM, BFLOAT16, 6, 2, LAST,    8, 2,  1,  64,  40,
  AT(9, 7),    AT(3, 3),    AT(1, 1),    AT(1, 1),    AT(1, 1),    true)
X(BY_IMPLICIT_GEMM, FLOAT16,  6, 2, LAST,    8, 2,  1,  24,  33,
  AT(9, 8),    AT(3, 3),    AT(2, 2),    AT(1, 1),    AT(1, 1),    false)
X(BY_IMPLICIT_GEMM, BFLOAT16, 7, 2, FIRST,   1, 1,  1,   3,  20,
  AT(19, 17),  AT(7, 7),    AT(2, 2),    AT(3, 3),    AT(1, 1),    true)
X(BY_IMPLICIT_GEMM, BFLOAT16, 7, 2, LAST,    8, 2,  1,  64,  64,
  AT(9, 10),   AT(1, 1),    AT(2, 2),    AT(0, 0),    AT(1, 1),    false)
X(BY_PRODUCT,       BFLOAT16, 7, 2, LAST,    8, 2,  1,  32,  48,
  AT(6, 6),    AT(1, 1),    AT(1, 1),    AT(0, 0),    AT(1, 1),    true)
X(BY_PRODUCT,       BFLOAT16, 7, 2, FIRST,   8, 2,  1,  32,  48,
  AT(4, 6),    AT(1, 1),    AT(1, 1),    AT(0, 0),    AT(1, 1),    true)
X(BY_IMPLICIT_GEMM, FLOAT16,  5, 2, LAST,    8, 1,  3,  16,  24,
  AT(9, 9),    AT(3, 2),    AT(1, 3),    AT(2, 0),    AT(2, 3),    true)
X(BY_IMPLICIT_GEMM, BFLOAT16, 7, 3, MIXED,   8, 2,  1,  13,  18,
  AT(5, 4, 6), AT(3, 2, 3), AT(2, 1, 2), AT(1, 0, 1), AT(1, 2, 1), true)
X(BY_IMPLICIT_GEMM, BFLOAT16, 6, 1, TURNED,  1, 3,  2,  12,   9,
  AT(70),      AT(5),       AT(3),       AT(4),       AT(2),       false)
X(BY_DEPTH,         BFLOAT16, 7, 2, LAST,    8, 2, 24,   1,   1,
  AT(9, 11),   AT(3, 3),    AT(1, 1),    AT(1, 1),    AT(1, 1),    true)
X(BY_DEPTH,         FLOAT16,  7, 2, LAST,    8, 2,  8,   1,   1,
  AT(14, 13),  AT(5, 3),    AT(2, 2),    AT(2, 1),    AT(1, 1),    false)
X(BY_DEPTH,         BFLOAT16, 7, 2, LAST,    8, 1,  6,   4,   4,
  AT(9, 11),   AT(3, 3),    AT(1, 2),    AT(1, 1),    AT(1, 1),    true)
X(BY_DEPTH,         BFLOAT16, 7, 3, LAST,    8, 1,  8,   2,   2,
  AT(4, 5, 9), AT(2, 1, 9), AT(1, 1, 1), AT(1, 0, 4), AT(1, 1, 2), true)
X(BY_IMPLICIT_GEMM, FLOAT16,  0, 2, LAST,    8, 1,  1,  72, 130,
  AT(12, 13),  AT(3, 3),    AT(1, 1),    AT(1, 1),    AT(1, 1),    false)
X(BY_IMPLICIT_GEMM, BFLOAT16, 8, 2, LAST,   32, 2,  2,  32,  64,
  AT(5, 37),   AT(3, 3),    AT(1, 2),    AT(1, 2),    AT(2, 1),    false)
X(BY_PRODUCT,       FLOAT16,  9, 2, LAST,   32, 1,  1,  64,  32,
  AT(7, 5),    AT(1, 1),    AT(1, 1),    AT(0, 0),    AT(1, 1),    false)
X(LONG_SUMS,        BFLOAT16, 7, 2, LAST,    8, 8,  1,   8,  24,
  AT(24, 25),  AT(3, 3),    AT(1, 1),    AT(1, 1),    AT(1, 1),    true)
X(LONG_SUMS,        FLOAT16,  7, 2, TURNED,  8, 5,  1,   3,  24,
  AT(24, 25),  AT(3, 3),    AT(2, 1),    AT(1, 1),    AT(1, 1),    true)
X(LONG_SUMS,        BFLOAT16, 7, 2, LAST,    8, 1,  1, 264,  80,
  AT(3, 4),    AT(3, 3),    AT(1, 1),    AT(1, 1),    AT(1, 1),    true)
X(ENDED_BY_DEPTH,   BFLOAT16, 7, 2, LAST,    8, 2, 24,   1,   1,
  AT(9, 11),   AT(3, 3),    AT(1, 1),    AT(1, 1),    AT(1, 1),    true)
X(ENDED_BY_TILES,   FLOAT16,  6, 2, LAST,   32, 2,  1,  32,  64,
  AT(9, 7),    AT(3, 3),    AT(1, 1),    AT(1, 1),    AT(1, 1),    true)
X(ENDED_BY_PRODUCT, BFLOAT16, 7, 2, LAST,   32, 2,  1,  32,  64,
  AT(6, 6),    AT(1, 1),    AT(1, 1),    AT(0, 0),    AT(1, 1),    false)
X(ENDED_PLAIN,      FLOAT64,  7, 1, FIRST,   1, 2,  1,   5,   9,
  AT(30),      AT(3),       AT(2),       AT(1),       AT(1),       true)
X(SPREAD,           BFLOAT16, 7, 2, LAST,   32, 2,  1,  32,  40,
  AT(6, 19),   AT(3, 3),    AT(1, 1),    AT(1, 1),    AT(1, 1),    false)
X(BY_FEW,           FLOAT32,  0, 2, LAST,    4, 2,  1,   3,  20,
  AT(19, 18),  AT(7, 7),    AT(2, 2),    AT(3, 3),    AT(1, 1),    true)
X(BY_FEW,           FLOAT32,  0, 2, FIRST,   4, 2,  1,   3,   9,
  AT(13, 70),  AT(3, 3),    AT(1, 1),    AT(1, 1),    AT(1, 1),    false)
X(BY_FEW,           FLOAT32,  0, 2, LAST,    4, 1,  1,   4,  12,
  AT(40, 16),  AT(3, 3),    AT(1, 1),    AT(0, 2),    AT(1, 1),    true)
X(BY_FEW,           FLOAT32,  0, 2, LAST,    1, 1,  1,   3,  10,
  AT(31, 45),  AT(11, 11),  AT(4, 4),    AT(2, 2),    AT(1, 1),    false)
X(BY_FEW,           BFLOAT16, 0, 2, MIXED,   1, 1,  3,   2,   6,
  AT(21, 17),  AT(3, 5),    AT(2, 3),    AT(0, 4),    AT(2, 1),    true)
X(BY_FEW,           FLOAT32,  0, 2, TURNED,  1, 2,  1,   1,   5,
  AT(16, 33),  AT(3, 2),    AT(3, 1),    AT(2, 0),    AT(1, 5),    true)
X(BY_FEW,           FLOAT16,  0, 1, FIRST,   1, 3,  2,   3,   7,
  AT(65),      AT(5),       AT(2),       AT(2),       AT(1),       true)
X(BY_FEW,           FLOAT32,  0, 2, CHANNELS_FIRST, ANY_LAYOUT, ANY_LAYOUT,  1, 1,  1,   3,  16,
  AT(32, 33),  AT(4, 4),    AT(4, 4),    AT(0, 0),    AT(1, 1),    false)
X(BY_PATCHES,       FLOAT32,  0, 2, LAST,    1, 2,  1,   3,  12,
  AT(16, 24),  AT(8, 8),    AT(8, 8),    AT(0, 0),    AT(1, 1),    false)
X(BY_PATCHES,       FLOAT32,  0, 2, FIRST,   1, 2,  1,   2,  20,
  AT(21, 14),  AT(7, 7),    AT(7, 7),    AT(0, 0),    AT(1, 1),    false)
X(BY_PATCHES,       FLOAT64,  0, 2, CHANNELS_FIRST, CHANNELS_LAST, ANY_LAYOUT,  1, 2,  1,   3,   9,
  AT(10, 32),  AT(5, 8),    AT(5, 8),    AT(0, 0),    AT(1, 1),    false)
X(BY_PATCHES,       FLOAT32,  0, 3, FIRST,   1, 1,  1,   1,  10,
  AT(4, 6, 9), AT(4, 3, 3), AT(4, 3, 3), AT(0, 0, 0), AT(1, 1, 1), false)
X(LARGE,            FLOAT32,  0, 2, LAST,    4, 1,  1,  64,  64,
  AT(14, 14),  AT(3, 3),    AT(1, 1),    AT(1, 1),    AT(1, 1),    false)
X(SMALL,            FLOAT32,  0, 2, LAST,    4, 1,  1,   4,   8,
  AT(5, 5),    AT(3, 3),    AT(1, 1),    AT(1, 1),    AT(1, 1),    false)
#undef X
};
/* clang-format on */
enum { CASES = sizeof cases / sizeof *cases };

static const xpu_dtype of_any_width[] = {XPU_FLOAT32, XPU_FLOAT32,   XPU_FLOAT16,   XPU_FLOAT32,  XPU_FLOAT64,
                                         XPU_FLOAT32, XPU_COMPLEX64, XPU_FLOAT32,   XPU_BFLOAT16, XPU_FLOAT32,
                                         XPU_FLOAT32, XPU_FLOAT32,   XPU_COMPLEX128};
enum { WIDTHS = sizeof of_any_width / sizeof *of_any_width };

static void every_kind(void **unused) {
    const int tiles_before = by_tiles;
    bool tiled = false;
    for (int n = 0; n < CASES * (1 + by_xmx8); n++) {
        const int before = by_units, i = n % CASES;
        if (cases[i].purpose > BY_DEPTH || is_left_out((size_t)i)) continue;
        tiled = tiled || cases[i].purpose < BY_DEPTH;
        problem p = cases[i].p;
        if (by_fma) p.dtype = of_any_width[i % WIDTHS];
        if (by_fma || n >= CASES) p.tile = i;
        try_problem(&p);
        assert_true(by_none || by_units >= before + 3);
    }
    /* of a part of the cases perhaps none takes tiles on this device */
    assert_true(!tiled || every > 1 || by_tiles > tiles_before);
}

/* Post-ops: in the kernel for direct and depthwise convolutions, a separate pass after the tiles, which never
 * overwrite the operand of the binary post-op. */
static void endings(void **unused) {
    static const xpu_post_ops ways[] = {{XPU_COMBINE_ADD, XPU_EPILOGUE_RELU, {0}},
                                        {XPU_COMBINE_NONE, XPU_EPILOGUE_CLAMP, {-0.5, 1.5}},
                                        {XPU_COMBINE_SUB, XPU_EPILOGUE_LEAKY_RELU, {0.5}},
                                        {XPU_COMBINE_MUL, XPU_EPILOGUE_ABS, {0}}};
    for (int i = 0; i < CASES; i++) {
        problem p = cases[i].p;
        purpose kind = cases[i].purpose;
        if (kind < ENDED_BY_TILES || kind > ENDED_PLAIN) continue;
        if (by_fma && kind != ENDED_PLAIN) p.dtype = XPU_FLOAT32;
        if (by_fma && kind == ENDED_PLAIN) kind = ENDED_BY_TILES;
        SUCCEEDS(xpu_tuning_set(0, xpu_tuning_index("matrix_tile"), tile_of(&p)));
        for (int way = 0; way < 4; way++) {
            const xpu_post_ops *const e = &ways[(way + i) % 4];
            if (is_left_out((size_t)(i + way))) continue;
            const bool in_place = way % 2 == 0 && e->combine != XPU_COMBINE_NONE;
            const bool transposed = way > 1;
            const int before[] = {by_depth, by_tiles, plain};
            try_ending(&p, e, transposed, in_place);
            if (by_none) continue;
            const bool depth = kind == ENDED_BY_DEPTH, tiles = !depth && kind != ENDED_PLAIN && !in_place;
            assert_int_equal(by_depth > before[0], depth);
            assert_int_equal(by_tiles > before[1], tiles);
            assert_int_equal(plain > before[2], !depth && !tiles);
        }
    }
}

/* Are the dimensions of x from `first` on contiguous with a common stride: in their order, or in any
 * order? */
static bool lies_evenly(const memory *x, int dims, int first, bool in_order) {
    int64_t step = 0, count = 1, all = 1;
    for (int i = first; i < dims + 2; i++) all *= x->size[i];
    while (count < all) {
        int next = -1;
        for (int i = dims + 1; i >= first; i--)
            if (x->size[i] > 1 && (count == 1 || x->stride[i] >= step * count) &&
                (next < 0 || (!in_order && x->stride[i] < x->stride[next])))
                next = i;
        if (next < 0) return false;
        if (count == 1) step = x->stride[next];
        if (x->stride[next] != step * count) return false;
        count *= x->size[next];
    }
    return true;
}

/* Gradients of images with few channels, with post-ops. */
static void few_channels(void **unused) {
    static const xpu_post_ops ways[] = {{XPU_COMBINE_ADD, XPU_EPILOGUE_RELU, {0}},
                                        {XPU_COMBINE_NONE, XPU_EPILOGUE_CLAMP, {-0.5, 1.5}}};
    if (!by_fma) return;
    SUCCEEDS(xpu_tuning_set(0, xpu_tuning_index("matrix_tile"), 1 << 20));
    for (int i = 0; i < CASES; i++) {
        const problem *const p = &cases[i].p;
        if ((cases[i].purpose != BY_FEW && cases[i].purpose != BY_PATCHES) || is_left_out((size_t)i))
            continue;
        const bool few = cases[i].purpose == BY_FEW;
        operands o;
        set(p, &o);
        const int few_before = by_few, patches_before = by_patches;
        o.conv.transposed = p->bias;
        SUCCEEDS(p->bias ? xpu_conv_forward(stream, &o.conv, &o.y.tensor, &o.w.tensor, &o.x_bias.tensor,
                                            &o.x.tensor)
                         : xpu_conv_backward(stream, &o.conv, &o.y.tensor, &o.x.tensor, &o.w.tensor,
                                             &o.x.tensor, NULL, NULL));
        compare(p, "gradient of x", &o.x, o.to_x, o.sums[0]);
        const bool even = lies_evenly(&o.w, p->dims, 1, false) && lies_evenly(&o.y, p->dims, 2, true);
        drop_all(&o);
        assert_int_equal(by_few - few_before, few);
        assert_int_equal(by_patches > patches_before, !few && even);
        for (int way = 0; way < 2 && few; way++) try_ending(p, &ways[way], true, way == 0);
        assert_int_equal(by_few - few_before, few ? 3 : 0);
    }
}

/* Without a matrix engine, the cost model decides between tiles and the direct kernel or, on a CPU with a
 * suitable layout, im2col. */
static void choice(void **unused) {
    if (!by_fma) return;
    for (int i = 0; i < CASES; i++) {
        const problem *const p = &cases[i].p;
        const bool large = cases[i].purpose == LARGE;
        if (!large && cases[i].purpose != SMALL) continue;
        for (int pinned = 0; pinned < 2; pinned++) {
            SUCCEEDS(xpu_tuning_set(0, xpu_tuning_index("matrix_tile"),
                                    pinned ? tile_that_fits(p->dtype, tile_of(p)) : 1 << 20));
            operands o;
            set(p, &o);
            const int tiles_before = of_y, others_before = plain + by_patches;
            SUCCEEDS(xpu_conv_forward(stream, &o.conv, &o.x.tensor, &o.w.tensor, NULL, &o.y.tensor));
            compare(p, "y", &o.y, o.to_y, o.sums[2]);
            drop_all(&o);
            assert_int_equal(of_y > tiles_before, pinned || large);
            assert_int_equal(plain + by_patches > others_before, !pinned && !large);
        }
    }
}

/* Few results of long sums are cut into slices. */
static void long_sums(void **unused) {
    size_t sum = 0;
    for (int i = 0; i < CASES; i++) {
        if (cases[i].purpose != LONG_SUMS || is_left_out_of(sum++, 3)) continue;
        problem p = cases[i].p;
        if (by_fma) p.dtype = XPU_FLOAT32, p.tile = 8;
        try_problem(&p);
    }
}

/* Gradient of w for images: few results of long sums. The slices of a sum are added up by several work-items.
 * x has few channels, so each of its pixels is packed by one work-item. */
static void many_slices(void **unused) {
    size_t sum = 0;
    const int number = xpu_tuning_index("matrix_split_k");
    SUCCEEDS(xpu_tuning_set(0, number, 130));
    for (int i = 0; i < CASES; i++) {
        if (cases[i].purpose != LONG_SUMS || is_left_out_of(sum++, 3)) continue;
        problem p = cases[i].p;
        if (by_fma) p.dtype = XPU_FLOAT32, p.tile = 8;
        try_problem(&p);
    }
    SUCCEEDS(xpu_tuning_set(0, number, 1 << 20));
}

/* Overlapping pixels. */
static void spread_source(void **unused) {
    for (int i = 0; i < CASES; i++) {
        problem p = cases[i].p;
        if (cases[i].purpose != SPREAD) continue;
        if (by_fma) p.dtype = XPU_FLOAT32;
        SUCCEEDS(xpu_tuning_set(0, xpu_tuning_index("matrix_tile"), tile_of(&p)));
        operands o;
        set(&p, &o);
        SUCCEEDS(xpu_conv_backward(stream, &o.conv, &o.y.tensor, &o.x.tensor, &o.w.tensor, NULL, &o.w.tensor,
                                   NULL));
        compare(&p, "gradient of w", &o.w, o.to_w, o.sums[1]);
        restore(&o.w);
        SUCCEEDS(xpu_conv_forward(stream, &o.conv, &o.x.tensor, &o.w.tensor, NULL, &o.y.tensor));
        compare(&p, "y", &o.y, o.to_y, o.sums[2]);
        drop_all(&o);
    }
}

/* y and x are stored, and y's gradient is read for the gradient of w, without packing if an image's pixels
 * are contiguous in whole vectors; otherwise the latter is packed, as x is. XMX needs its own layout. */
static void pixels_as_they_lie(void **unused) {
    /* clang-format off */
    static const struct {
        bool whole[2]; /* in vectors of eight, of four */
        problem p;
    } all[] = {
    {{true, true},   {XPU_BFLOAT16, 0, 2, FIRST,  8, 3, 1,  3, 37,
                      AT(16, 14),  AT(3, 3),    AT(1, 1),    AT(1, 1),    AT(1, 1),    true,  false}},
    {{true, true},   {XPU_FLOAT16,  2, 2, FIRST,  8, 2, 2, 12, 20,
                      AT(8, 12),   AT(3, 3),    AT(1, 1),    AT(1, 1),    AT(1, 1),    false, false}},
    {{true, true},   {XPU_BFLOAT16, 5, 3, TURNED, 8, 2, 1,  9, 70,
                      AT(4, 6, 4), AT(3, 1, 3), AT(1, 1, 1), AT(1, 0, 1), AT(1, 1, 1), true,  false}},
    {{true, true},   {XPU_FLOAT16,  7, 2, FIRST,  8, 2, 1,  6, 33,
                      AT(21, 16),  AT(4, 5),    AT(2, 2),    AT(0, 2),    AT(1, 1),    true,  false}},
    {{false, true},  {XPU_BFLOAT16, 1, 2, FIRST,  8, 3, 1,  5, 40,
                      AT(10, 14),  AT(3, 3),    AT(1, 1),    AT(1, 1),    AT(1, 1),    true,  false}},
    {{false, false}, {XPU_FLOAT16,  3, 2, FIRST,  8, 2, 1,  5, 40,
                      AT(15, 13),  AT(3, 3),    AT(1, 1),    AT(1, 1),    AT(1, 1),    true,  false}},
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof all / sizeof *all && !by_none; i++) {
        problem p = all[i].p;
        if (is_left_out(i)) continue;
        if (by_fma) p.dtype = i == 2 ? XPU_FLOAT64 : i == 1 ? XPU_FLOAT16 : XPU_FLOAT32;
        SUCCEEDS(xpu_tuning_set(0, xpu_tuning_index("matrix_tile"), tile_of(&p)));
        operands o;
        set(&p, &o);
        packs = 0;
        SUCCEEDS(xpu_conv_backward(stream, &o.conv, &o.y.tensor, &o.x.tensor, &o.w.tensor, NULL, &o.w.tensor,
                                   NULL));
        compare(&p, "gradient of w", &o.w, o.to_w, o.sums[1]);
        drop_all(&o);
        assert_int_equal(packs, all[i].whole[by_fma] && !by_blocks && !by_xmx8 ? 1 : 2);
        try_problem(&p);
    }
}

/* Winograd: 3 x 3 taps with fewer multiplications; sums of small elements are still exact. All layouts, with
 * windows that reach over every edge. Other convolutions are not transformed. */
static void transformed(void **unused) {
    const int number = xpu_tuning_index("conv_winograd"), tile = xpu_tuning_index("matrix_tile");
    SUCCEEDS(xpu_tuning_set(0, tile, 1 << 20));
    for (int i = 0; i < (every > 1 ? 20 : 40) + extra / 4 && by_fma; i++) {
        static const layout layouts[] = {CHANNELS_FIRST, CHANNELS_LAST, ANY_LAYOUT};
        problem p = {.dtype = XPU_FLOAT32, .dims = 2, .groups = 1, .bias = pick(0, 1), .align = 1};
        if (i % 4 == 3) p.dtype = pick(0, 1) ? XPU_FLOAT16 : XPU_BFLOAT16;
        p.x = layouts[i % 3], p.w = layouts[pick(0, 2)], p.y = layouts[(i / 3) % 3];
        p.batch = pick(1, 3), p.c = pick(1, 40), p.k = pick(1, 40), p.tile = (int)pick(0, 9);
        for (int d = 0; d < 2; d++) {
            p.taps[d] = 3, p.stride[d] = p.dilation[d] = 1;
            p.padding[d] = pick(0, 3), p.in[d] = pick(p.padding[d] ? 1 : 3, 12);
        }
        if (i % 8 == 7) { /* not supported by Winograd */
            const int d = i / 8 % 2;
            if (i % 5 == 0) p.taps[d] = 2;
            if (i % 5 == 1) p.stride[d] = 2;
            if (i % 5 == 2) p.dilation[d] = 2, p.in[d] += 2;
            if (i % 5 == 3) p.groups = 2;
            if (i % 5 == 4) p.dtype = XPU_FLOAT64;
        }
        SUCCEEDS(xpu_tuning_set(0, number, INT64_C(1) << 62));
        transforms = 0;
        try_problem(&p);
        SUCCEEDS(xpu_tuning_set(0, tile, 1 << 20));
        /* of the gradient of w, of x, and of y; those of 1 to 4 channels of x have a kernel of their own */
        const bool few = p.c <= 4 && p.k >= 4;
        if (i % 8 == 7)
            assert_int_equal(transforms, 0);
        else
            assert_in_range(transforms, few ? 6 : 9, 9);
        if (i % 8 == 7) continue;
        SUCCEEDS(xpu_tuning_set(0, number, 0));
        transforms = 0;
        try_problem(&p);
        assert_int_equal(transforms, 0);
    }
    SUCCEEDS(xpu_tuning_reset(0, number));
}

static int refused;

static xpu_status take_little(xpu_stream *of, size_t size, void **memory, void *most) {
    if (size <= *(const size_t *)most) return xpu_malloc(of, size, memory);
    refused++;
    return XPU_ERROR_OUT_OF_MEMORY;
}
static xpu_status give_back(void *memory, void *unused) { return xpu_free(memory); }

/* Without memory for the planes the implicit GEMM runs, which needs less. */
static void transforms_lack_memory(void **unused) {
    const int number = xpu_tuning_index("conv_winograd"), tile = xpu_tuning_index("matrix_tile");
    size_t most = 40000;
    const xpu_workspace_source source = {take_little, give_back, &most};
    problem p = {.dtype = XPU_FLOAT32,
                 .dims = 2,
                 .x = CHANNELS_LAST,
                 .w = CHANNELS_LAST,
                 .y = CHANNELS_LAST,
                 .align = 4,
                 .batch = 1,
                 .groups = 1,
                 .c = 16,
                 .k = 16};
    for (int d = 0; d < 2; d++) p.taps[d] = 3, p.stride[d] = p.dilation[d] = p.padding[d] = 1, p.in[d] = 8;
    if (!by_fma) return;
    SUCCEEDS(xpu_tuning_set(0, number, INT64_C(1) << 62));
    SUCCEEDS(xpu_tuning_set(0, tile, 1 << 20));
    SUCCEEDS(xpu_workspace_set_source(&source));
    refused = transforms = 0;
    try_problem(&p);
    SUCCEEDS(xpu_workspace_set_source(NULL));
    assert_int_equal(refused, 3);
    assert_int_equal(transforms, 0);
    SUCCEEDS(xpu_tuning_reset(0, number));
}

/* Kernels are told of sizes in 32 bits: none is cut off. */
static void too_long(void **unused) {
    const int64_t size[] = {1, 1, (INT64_C(1) << 32) + 8}, stride[] = {1, 1, 1}, one[] = {1, 1, 1};
    const xpu_tensor x = {NULL, XPU_FLOAT32, 3, size, stride}, w = {NULL, XPU_FLOAT32, 3, one, stride};
    const xpu_conv conv = {.dims = 1, .groups = 1, .stride = {1}, .dilation = {1}};
    assert_int_equal(xpu_conv_forward(stream, &conv, &x, &w, NULL, &x), XPU_ERROR_NOT_SUPPORTED);
    assert_int_equal(xpu_conv_backward(stream, &conv, &x, &x, &w, &x, NULL, NULL), XPU_ERROR_NOT_SUPPORTED);
}

/* The first images by a launch of their own, and then the others. */
static void two_launches(void **unused) {
    const int number = xpu_tuning_index("conv_images");
    for (int i = 0; i < 4 && !by_none; i++) {
        if (is_left_out_of((size_t)i, 4)) continue;
        problem p = {i % 2 && !by_fma ? XPU_FLOAT16 : XPU_BFLOAT16,
                     7,
                     2,
                     LAST,
                     32,
                     3,
                     1,
                     32,
                     64,
                     AT(7, 9),
                     AT(3, 3),
                     AT(1 + i % 2, 1 + i % 2),
                     AT(1, 1),
                     AT(1, 1),
                     false,
                     false};
        if (by_fma) p.dtype = XPU_FLOAT32;
        if (i > 1) p.x = p.y = CHANNELS_FIRST, p.align = 1;
        int launched[2][2];
        for (int apart = 0; apart < 2; apart++) {
            SUCCEEDS(xpu_tuning_set(0, number, apart ? 1 + i % 2 : 1 << 20));
            of_y = of_x = 0;
            try_problem(&p);
            launched[apart][0] = of_y, launched[apart][1] = of_x;
        }
        for (int of = 0; of < 2; of++) {
            assert_in_range(launched[0][of], 1, 2);
            assert_int_equal(launched[1][of], 2 * launched[0][of]);
        }
    }
    SUCCEEDS(xpu_tuning_reset(0, number));
}

static void whatever_comes(void **unused) {
    static const int aligns[] = {1, 2, 8, 8, 8};
    problem p = {0};
    for (int i = 0; i < extra; i++) {
        if (i % 40 == 0) { /* new kernels take seconds to build */
            p.tile = (int)pick(0, 7), p.dims = (int)(pick(0, 3) ? 2 : pick(1, 3));
            p.dtype = pick(0, 1) ? XPU_BFLOAT16 : XPU_FLOAT16;
            if (by_fma) p.tile = (int)pick(0, 9), p.dtype = of_any_width[pick(0, WIDTHS - 1)];
        }
        static const layout layouts[] = {CHANNELS_LAST,  CHANNELS_LAST,  CHANNELS_LAST,
                                         CHANNELS_FIRST, CHANNELS_FIRST, ANY_LAYOUT};
        p.x = layouts[pick(0, 5)], p.y = pick(0, 3) ? p.x : layouts[pick(0, 5)];
        p.w = pick(0, 3) ? p.x : layouts[pick(0, 5)], p.align = aligns[pick(0, 4)];
        p.batch = pick(1, 3), p.groups = pick(0, 4) ? 1 : pick(2, 3), p.bias = pick(0, 1);
        p.c = pick(0, 2) ? 8 * pick(1, 9) : pick(1, 70), p.k = pick(0, 2) ? 8 * pick(1, 9) : pick(1, 70);
        if (pick(0, 4) == 0) p.groups = 8 * pick(1, 12), p.c = p.k = 1 << pick(0, 2); /* of few channels */
        for (;;) {
            int64_t work = p.batch * p.groups * p.c * p.k;
            bool fits = true;
            for (int j = 0; j < p.dims; j++) {
                p.taps[j] = pick(0, 3) ? pick(1, 3) : pick(1, 8),
                p.stride[j] = pick(0, 2) ? pick(1, 2) : pick(1, 5);
                p.padding[j] = pick(0, 3) ? pick(0, 1) : pick(0, 9),
                p.dilation[j] = pick(0, 2) ? 1 : pick(1, 4);
                p.in[j] = pick(1, p.dims == 1 ? 200 : p.dims == 2 ? 24 : 9);
                const int64_t left = p.in[j] + 2 * p.padding[j] - p.dilation[j] * (p.taps[j] - 1) - 1;
                fits = fits && left >= 0;
                if (fits) work *= (left / p.stride[j] + 1) * p.taps[j];
            }
            if (fits && work < 4000000) break;
            if (fits) p.batch = 1, p.groups > 3 ? p.groups = 8 : (p.c = (p.c + 1) / 2);
        }
        try_problem(&p);
        if (i % 100 == 99) print_message("%d problems\n", i + 1);
    }
    if (extra) print_message("%d of %d launches used the units\n", by_units, launches);
}

int main(int count, char **words) {
    build_quickly(words);
    read_words(count, words);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind),
        cmocka_unit_test(long_sums),
        cmocka_unit_test(many_slices),
        cmocka_unit_test(endings),
        cmocka_unit_test(choice),
        cmocka_unit_test(spread_source),
        cmocka_unit_test(whatever_comes),
        cmocka_unit_test(too_long),
        cmocka_unit_test(few_channels),
        cmocka_unit_test(two_launches),
        cmocka_unit_test(pixels_as_they_lie),
        cmocka_unit_test(transformed),
        cmocka_unit_test(transforms_lack_memory),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}

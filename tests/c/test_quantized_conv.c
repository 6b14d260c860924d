/* int8 convolutions with zero points, scales, bias, added tensor and activation, with quantized or floating
 * results, against integer sums: layouts, tiles, dimensions, groups, split-K.
 *
 *     test_quantized_conv [problems [seed]]
 *
 * OPENXPU_MATRIX=ptx, xmx, xmx8, fma or dot selects the GPU kernels, emulated on CPUs. */
#include <math.h>

#include "quantized_test.h"
#include "xpu/ops/conv.h"
#include "xpu/tuning.h"

static int by_convolution, by_slices;

static void count_launch(const xpu_work *work, xpu_trace_point point, xpu_status status, void *unused) {
    if (point == XPU_TRACE_BEGIN && strstr(work->name, "conv_matrix i8")) by_convolution++;
    if (point == XPU_TRACE_BEGIN && strstr(work->name, "conv_matrix_reduce_slices")) by_slices++;
}

/* A tensor of n x channels x dims, channels last or first, with gaps between elements. */
typedef struct image {
    memory data;
    int64_t size[5], stride[5], count;
    xpu_tensor tensor;
} image;
static void make_image(image *x, xpu_dtype dtype, int dims, const int64_t *size, bool last, int64_t align) {
    int64_t next = 1;
    for (int i = 0; i < dims + 2; i++) {
        const int d = last ? (i == 0 ? 1 : i == dims + 1 ? 0 : dims + 2 - i) : dims + 1 - i;
        x->size[d] = size[d], x->stride[d] = next;
        next *= size[d];
        if (i == 0 && last) next = (next + align - 1) / align * align;
    }
    x->count = next + 64;
    x->data = memory_of((size_t)x->count * xpu_dtype_size(dtype));
    x->tensor = (xpu_tensor){x->data.device, dtype, dims + 2, x->size, x->stride};
    for (int64_t i = 0; i < x->count; i++)
        if (xpu_dtype_size(dtype) == 1)
            x->data.host[i] = (uint8_t)pick(0, 255);
        else
            put_number(dtype, x->data.host, i, (double)pick(-16, 16) / 4);
    send(&x->data, (size_t)x->count * xpu_dtype_size(dtype));
}
static int64_t place_in(const image *x, int dims, int64_t n, int64_t channel, const int64_t at[3]) {
    int64_t place = n * x->stride[0] + channel * x->stride[1];
    for (int d = 0; d < dims; d++) place += at[d] * x->stride[2 + d];
    return place;
}

typedef struct convolution {
    int tile, dims;
    int64_t batch, groups, c, k, in[3], taps[3], stride[3], padding[3], dilation[3];
    bool last[3]; /* x, w, y: channels last */
    int64_t align;
    xpu_dtype of_x, to, of_other;
    int zero;           /* of x */
    bool zero_is_there; /* on the device */
    bool by_channel, bias, adds, relu, with_sums;
} convolution;

/* Returns whether a kernel supported the problem. */
static bool try_convolution(const convolution *p) {
    static const int tiles[][8] = {{0, 1, 2, 3, 4, 5, 6, 7},
                                   {8, 9, 10, 11, 26, 9, 10, 11},
                                   {12, 13, 14, 15, 16, 17, 18, 20},
                                   {22, 23, 24, 25, 24, 25, 24, 23}};
    SUCCEEDS(xpu_tuning_set(0, xpu_tuning_index("matrix_tile"),
                            p->tile < 0 ? 1 << 20
                                        : tiles[by_ptx    ? 0
                                                : by_xmx  ? 1
                                                : by_xmx8 ? 3
                                                          : 2][p->tile % 8]));
    int64_t out[3] = {0}, x_size[5] = {p->batch, p->groups * p->c}, w_size[5] = {p->groups * p->k, p->c};
    int64_t y_size[5] = {p->batch, p->groups * p->k}, pixels = 1, taps = 1;
    for (int d = 0; d < p->dims; d++) {
        out[d] = (p->in[d] + 2 * p->padding[d] - p->dilation[d] * (p->taps[d] - 1) - 1) / p->stride[d] + 1;
        x_size[2 + d] = p->in[d], w_size[2 + d] = p->taps[d], y_size[2 + d] = out[d];
        pixels *= out[d], taps *= p->taps[d];
    }
    image x, w, y, other;
    make_image(&x, p->of_x, p->dims, x_size, p->last[0], p->align);
    make_image(&w, XPU_INT8, p->dims, w_size, p->last[1], p->align);
    make_image(&y, p->to, p->dims, y_size, p->last[2], p->align);
    make_image(&other, p->of_other, p->dims, y_size, p->last[2], p->align);
    const int64_t channels = p->groups * p->k;
    memory scale = memory_of((size_t)(channels + 1) * 4), sums = memory_of((size_t)channels * 4),
           bias = memory_of((size_t)channels * 4), zero = memory_of(4);
    for (int64_t k = 0; k <= channels; k++) ((float *)scale.host)[k] = (float)pick(10, 30) * 0x1p-10f;
    for (int64_t k = 0; k < channels; k++) {
        ((float *)bias.host)[k] = (float)pick(-8, 8) / 2;
        for (int64_t c = 0; c < p->c; c++)
            for (int64_t t = 0; t < taps; t++) {
                int64_t at[3] = {0}, rest = t;
                for (int d = p->dims - 1; d >= 0; d--) at[d] = rest % p->taps[d], rest /= p->taps[d];
                ((int32_t *)sums.host)[k] += (int8_t)w.data.host[place_in(&w, p->dims, k, c, at)];
            }
    }
    *(int32_t *)zero.host = p->zero;
    send(&scale, (size_t)(channels + 1) * 4), send(&sums, (size_t)channels * 4);
    send(&bias, (size_t)channels * 4), send(&zero, 4);
    xpu_conv conv = {.dims = p->dims, .groups = p->groups};
    memcpy(conv.stride, p->stride, sizeof p->stride), memcpy(conv.padding, p->padding, sizeof p->padding);
    memcpy(conv.dilation, p->dilation, sizeof p->dilation);
    const xpu_quant_params of_x = {.dtype = p->of_x,
                                   .scale_dtype = XPU_FLOAT32,
                                   .zero_dtype = XPU_INT32,
                                   .scale = (float *)scale.device + channels,
                                   .zero = p->zero_is_there ? zero.device : NULL,
                                   .zero_offset = p->zero_is_there ? 0 : p->zero};
    const xpu_quant_params of_w = {.dtype = XPU_INT8,
                                   .scale_dtype = XPU_FLOAT32,
                                   .scale = scale.device,
                                   .group_rows = p->by_channel,
                                   .scale_row_stride = p->by_channel};
    const xpu_output_quant way = {p->to, p->of_other, 0.25, 0.03125, p->to == XPU_UINT8 ? 99 : -7, 3};
    const xpu_post_ops ending = {
        p->adds ? XPU_COMBINE_ADD : XPU_COMBINE_NONE, p->relu ? XPU_EPILOGUE_RELU : XPU_EPILOGUE_NONE, {0}};
    const int64_t one = 1;
    const xpu_tensor biases = {bias.device, XPU_FLOAT32, 1, &channels, &one};
    const xpu_status status = xpu_conv_requantized(
        stream, &conv, &x.tensor, &of_x, &w.tensor, &of_w, p->with_sums ? sums.device : NULL, 0.5,
        p->bias ? &biases : NULL, &ending, p->adds ? &other.tensor : NULL, &way, &y.tensor);
    if (status != XPU_ERROR_NOT_SUPPORTED) {
        SUCCEEDS(status);
        uint8_t *const before = y.data.host;
        const size_t size = (size_t)y.count * xpu_dtype_size(p->to);
        y.data.host = malloc(size);
        SUCCEEDS(xpu_memcpy(stream, y.data.host, y.data.device, size, true));
        for (int64_t i = 0; i < p->batch * channels * pixels; i++) {
            const int64_t n = i / pixels / channels, k = i / pixels % channels;
            int64_t at[3] = {0}, rest = i % pixels, sum = 0;
            for (int d = p->dims - 1; d >= 0; d--) at[d] = rest % out[d], rest /= out[d];
            for (int64_t t = 0; t < taps; t++) {
                int64_t tap[3] = {0}, from[3] = {0}, left = t;
                bool inside = true;
                for (int d = p->dims - 1; d >= 0; d--) {
                    tap[d] = left % p->taps[d], left /= p->taps[d];
                    from[d] = at[d] * p->stride[d] + tap[d] * p->dilation[d] - p->padding[d];
                    inside = inside && from[d] >= 0 && from[d] < p->in[d];
                }
                for (int64_t c = 0; c < p->c && inside; c++) {
                    const uint8_t u = x.data.host[place_in(&x, p->dims, n, k / p->k * p->c + c, from)];
                    sum += ((p->of_x == XPU_UINT8 ? u : (int8_t)u) - p->zero) *
                           (int8_t)w.data.host[place_in(&w, p->dims, k, c, tap)];
                }
            }
            const int64_t place = place_in(&y, p->dims, n, k, at);
            double v = 0.5 * (double)sum * ((float *)scale.host)[channels] *
                       ((float *)scale.host)[p->by_channel ? k : 0];
            /* Sums are exact; the error is that of rounding scales and the result. Kernels without a matrix
             * engine round sums, too. */
            double most = 3e-7 * fabs(v) + (by_fma ? 4e-7 * (double)(p->c * taps) : 0) + 1e-5;
            if (p->bias) v += ((float *)bias.host)[k];
            if (p->adds) v += byte_or_number(p->of_other, &other.data, place, 0.03125, 3);
            if (p->relu && v < 0) v = 0;
            const double got = byte_or_number(p->to, &y.data, place, 0.25, way.zero);
            if (p->to == XPU_FLOAT16 && fabs(v) > 65000) continue;
            most += fabs(v) * (p->to == XPU_BFLOAT16 ? 0x1p-8 : p->to == XPU_FLOAT16 ? 0x1p-10 : 0);
            if (xpu_dtype_size(p->to) == 1) {
                const double low = ((p->to == XPU_UINT8 ? 0 : -128) - way.zero) * 0.25;
                v = fmin(fmax(v, low), low + 255 * 0.25), most += 0.125;
            }
            if (!(fabs(got - v) <= most))
                fail_msg(
                    "%s to %s, tile %d, dims %d, batch %d, %d groups of %d to %d, in %d %d %d, taps %d %d "
                    "%d, "
                    "stride %d %d %d, padding %d %d %d, dilation %d %d %d, last %d %d %d, zero %d: %g at "
                    "%d, channel %d, instead of %g",
                    xpu_dtype_name(p->of_x), xpu_dtype_name(p->to), p->tile, p->dims, (int)p->batch,
                    (int)p->groups, (int)p->c, (int)p->k, (int)p->in[0], (int)p->in[1], (int)p->in[2],
                    (int)p->taps[0], (int)p->taps[1], (int)p->taps[2], (int)p->stride[0], (int)p->stride[1],
                    (int)p->stride[2], (int)p->padding[0], (int)p->padding[1], (int)p->padding[2],
                    (int)p->dilation[0], (int)p->dilation[1], (int)p->dilation[2], p->last[0], p->last[1],
                    p->last[2], p->zero, got, (int)i, (int)k, v);
            memcpy(y.data.host + place * (int64_t)xpu_dtype_size(p->to),
                   before + place * (int64_t)xpu_dtype_size(p->to), xpu_dtype_size(p->to));
        }
        assert_memory_equal(y.data.host, before, size); /* bytes around it must be unchanged */
        free(before);
    }
    drop(&x.data), drop(&w.data), drop(&y.data), drop(&other.data);
    drop(&scale), drop(&sums), drop(&bias), drop(&zero);
    return status == XPU_SUCCESS;
}

static void convolutions_of_bytes(void **unused) {
    static const xpu_dtype ways[] = {XPU_UINT8, XPU_INT8, XPU_FLOAT32, XPU_BFLOAT16, XPU_FLOAT16};
    static const int64_t channels[] = {16, 32, 48, 64, 3, 20, 70};
    const bool serves = has_unit || by_fma;
    const int launches_before = by_convolution;
    int served = 0;
    for (int i = 0; i < 8 + problems / 2; i++) {
        const bool grouped = pick(0, 3) == 0;
        convolution p = {.tile = i % 5 ? 5 + (int)pick(0, 2) : (int)pick(-1, 7),
                         .dims = i % 4 == 3 ? (int)pick(1, 3) : 2,
                         .batch = pick(1, 2),
                         .groups = grouped ? pick(2, 3) : 1,
                         .c = channels[pick(0, grouped ? 2 : 6)],
                         .k = channels[pick(0, grouped ? 2 : 6)],
                         .align = pick(0, 1) ? 64 : 16,
                         .of_x = pick(0, 1) ? XPU_UINT8 : XPU_INT8,
                         .to = ways[i % 5],
                         .of_other = ways[pick(0, 4)],
                         .zero_is_there = pick(0, 3) == 0,
                         .by_channel = pick(0, 4) > 0,
                         .bias = pick(0, 1),
                         .adds = pick(0, 1),
                         .relu = pick(0, 1),
                         .with_sums = true};
        for (int d = 0; d < 3; d++) {
            p.taps[d] = pick(1, 3), p.dilation[d] = pick(1, 2), p.stride[d] = pick(1, 2);
            p.padding[d] = pick(0, 2);
            p.in[d] = p.dilation[d] * (p.taps[d] - 1) + pick(1, p.dims == 3 ? 3 : 9);
        }
        for (int j = 0; j < 3; j++) p.last[j] = pick(0, 3) > 0;
        const int low = p.of_x == XPU_UINT8 ? 0 : -128;
        p.zero = pick(0, 3) ? (int)pick(low, low + 255) : 0;
        served += try_convolution(&p);
    }
    /* Few results of long sums with split-K; the largest sums; zero points without the sums of w. */
    convolution p = {.tile = 7,
                     .dims = 2,
                     .batch = 1,
                     .groups = 1,
                     .c = 2048,
                     .k = 16,
                     .in = {3, 4},
                     .taps = {3, 3},
                     .stride = {1, 1},
                     .padding = {1, 1},
                     .dilation = {1, 1},
                     .last = {true, true, true},
                     .align = 16,
                     .of_x = XPU_UINT8,
                     .to = XPU_UINT8,
                     .of_other = XPU_INT8,
                     .zero = 77,
                     .by_channel = true,
                     .bias = true,
                     .adds = true,
                     .relu = true,
                     .with_sums = true};
    const int cut_before = by_slices;
    assert_int_equal(try_convolution(&p), serves);
    if (by_ptx) assert_true(by_slices > cut_before);
    p.to = XPU_FLOAT32, p.adds = p.relu = p.bias = false, p.c = 1600;
    assert_int_equal(try_convolution(&p), serves);
    p.with_sums = false;
    assert_false(try_convolution(&p));
    p.of_x = XPU_INT8, p.zero = 0;
    assert_int_equal(try_convolution(&p), serves);
    p.of_x = XPU_UINT8, p.with_sums = true, p.zero = 256;
    assert_false(try_convolution(&p));
    p.zero = 128, p.c = 8192;
    assert_false(try_convolution(&p)); /* sums of more than 2^16 products */
    p.groups = 8, p.c = p.k = 4;
    assert_false(try_convolution(&p));
    print_message("%d of %d convolutions of bytes\n", served, 8 + problems / 2);
    assert_int_equal(served > 0, serves);
    assert_int_equal(by_convolution > launches_before, serves);
    if (serves) assert_true(served > (8 + problems / 2) * 3 / 4);
    p = (convolution){.dims = 2};
    xpu_conv conv = {.dims = 2, .groups = 1, .stride = {1, 1}, .dilation = {1, 1}};
    const int64_t size[] = {1, 16, 4, 4}, wrong[] = {1, 16, 4, 5};
    const xpu_tensor x = {NULL, XPU_INT8, 4, size, size},
                     w = {NULL, XPU_INT8, 4, (int64_t[]){16, 16, 1, 1}, size};
    const xpu_tensor y = {NULL, XPU_INT8, 4, wrong, size}, z = {NULL, XPU_INT32, 4, size, size};
    const xpu_quant_params q = {.dtype = XPU_INT8};
    const xpu_post_ops none = {0}, adds = {XPU_COMBINE_ADD, XPU_EPILOGUE_NONE, {0}},
                       muls = {XPU_COMBINE_MUL, XPU_EPILOGUE_NONE, {0}};
    const xpu_output_quant way = {XPU_INT8, XPU_FLOAT32, 1, 1, 0, 0},
                           no_way = {XPU_INT32, XPU_FLOAT32, 1, 1, 0, 0};
#define TRY(w, ending, other, way, y)                                                                        \
    assert_int_equal(                                                                                        \
        xpu_conv_requantized(stream, &conv, &x, &q, w, &q, NULL, 1, NULL, ending, other, way, y),            \
        XPU_ERROR_INVALID_ARGUMENT)
    TRY(&w, &none, NULL, &way, &y);
    TRY(&w, &none, NULL, &no_way, &z);
    TRY(&z, &none, NULL, &way, &x);
    TRY(&w, &adds, NULL, &way, &x);
    TRY(&w, &adds, &x, &way, &x);
    TRY(&w, &muls, &x, &way, &x);
#undef TRY
    const int64_t beyond[] = {1, 16, 4, (INT64_C(1) << 32) + 4};
    const xpu_tensor long_x = {NULL, XPU_INT8, 4, beyond, size};
    assert_int_equal(
        xpu_conv_requantized(stream, &conv, &long_x, &q, &w, &q, NULL, 1, NULL, &none, NULL, &way, &long_x),
        XPU_ERROR_NOT_SUPPORTED);
}

int main(int count, char **words) {
    read_words(count, words);
    const struct CMUnitTest tests[] = {cmocka_unit_test(convolutions_of_bytes)};
    return cmocka_run_group_tests(tests, set_up, NULL);
}

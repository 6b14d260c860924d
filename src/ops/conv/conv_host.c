/* Convolutions of fp32, fp16 and bf16 on CPUs without a BLAS: im2col into a workspace, some images at a time,
 * then a matrix product with the weights (gemm.c). Rows of the im2col matrix are in the order of the weights,
 * columns are pixels. */
#include "ops/conv/conv_host.h"

#include "ops/gemm/matrix.h"
#include "ops/gemm/product.h"
#include "ops/iter.h"
#include "ops/kernel.h"
#include "ops/row_group.h"
#include "xpu/memory.h"
#include "xpu/ops/copy.h"
#include "xpu/ops/gemm.h"
#include "xpu/trace.h"

enum { FEWEST_CHANNELS = 8, MATRIX_IS_INT8 = 4 << 20 };

static int64_t volume(const xpu_i32 size[3]) { return (int64_t)size[0] * size[1] * size[2]; }
static int64_t taps_of(const conv_params *p) { return volume(p->taps); }

/* Is the filter dense: do its elements occupy the first c x taps positions in some order? */
static bool is_dense(const conv_params *p) {
    int64_t size[4] = {p->c, p->taps[0], p->taps[1], p->taps[2]}, next = 1;
    for (int found = 0; found < 4; found++) {
        int d = 0;
        while (d < 4 && (size[d] == 0 || (size[d] != 1 && p->w_stride[1 + d] != next))) d++;
        if (d == 4) return false;
        next *= size[d];
        size[d] = 0;
    }
    return true;
}

/* The common stride of an image's consecutive pixels, or 0 if there is none. */
static int64_t pixel_stride(const xpu_i32 size[3], const xpu_i64 *stride) {
    int64_t step = 0, next = 0;
    for (int d = 2; d >= 0; d--) {
        if (size[d] == 1) continue;
        if (step && stride[d] != next) return 0;
        if (!step) step = stride[d];
        next = stride[d] * size[d];
    }
    return step ? step : 1;
}

/* Images from `first` on, surrounded by zeros; a copy if there is padding. */
typedef struct images {
    xpu_dtype dtype;
    const char *data;
    int64_t stride[5];
} images;
/* The address of an element. */
static char *element_at(xpu_dtype dtype, xpu_addr data, int64_t at) {
    return (char *)(uintptr_t)data + at * (int64_t)xpu_dtype_size(dtype);
}
static xpu_status pad(xpu_stream *stream, xpu_dtype dtype, const conv_params *p, int64_t first, int64_t count,
                      void *room, images *to) {
    const int64_t element = (int64_t)xpu_dtype_size(dtype);
    char *from = element_at(dtype, p->x, first * p->x_stride[0]);
    *to = (images){
        dtype, from, {p->x_stride[0], p->x_stride[1], p->x_stride[2], p->x_stride[3], p->x_stride[4]}};
    if (!room) return XPU_SUCCESS;
    const int64_t channels = p->c * p->groups;
    int64_t next = 1, inside = 0;
    for (int d = 2; d >= 0; d--) {
        to->stride[2 + d] = next;
        inside += p->padding[d] * next;
        next *= p->in[d] + 2 * p->padding[d];
    }
    to->stride[1] = next, to->stride[0] = next * channels;
    to->data = room;
    const uint32_t zero = 0;
    XPU_TRY(xpu_memset(stream, room, &zero, (size_t)element, (size_t)(to->stride[0] * count * element)));
    xpu_iter iter = {.outputs = 1, .inputs = 1, .dims = 5};
    iter.operand[0] = (xpu_operand){.data = (char *)room + inside * element, .dtype = dtype};
    iter.operand[1] = (xpu_operand){.data = from, .dtype = dtype};
    const int64_t size[5] = {count, channels, p->in[0], p->in[1], p->in[2]};
    for (int d = 0; d < 5; d++) {
        iter.size[4 - d] = size[d];
        iter.operand[0].stride[4 - d] = to->stride[d] * element;
        iter.operand[1].stride[4 - d] = p->x_stride[d] * element;
    }
    xpu_iter_coalesce(&iter);
    return xpu_copy(stream, &iter);
}

/* im2col of one group: matrix[image][position in the filter][pixel]. */
static xpu_status unfold_im2col(xpu_stream *stream, const conv_params *p, int64_t group, int64_t count,
                                const images *from, void *matrix) {
    const int64_t pixels = volume(p->out), length = p->c * taps_of(p);
    const int64_t element = (int64_t)xpu_dtype_size(from->dtype);
    xpu_iter iter = {.outputs = 1, .inputs = 1, .dims = 8};
    iter.operand[0] = (xpu_operand){.data = matrix, .dtype = from->dtype};
    iter.operand[1] =
        (xpu_operand){.data = element_at(from->dtype, XPU_ADDR(from->data), group * p->c * from->stride[1]),
                      .dtype = from->dtype};
    int64_t next = 1;
    for (int i = 0; i < 3; i++) {
        const int d = 2 - i;
        iter.size[i] = p->out[d];
        iter.operand[0].stride[i] = next * element;
        iter.operand[1].stride[i] = p->stride[d] * from->stride[2 + d] * element;
        next *= p->out[d];
        iter.size[3 + i] = p->taps[d];
        iter.operand[0].stride[3 + i] = p->w_stride[2 + d] * pixels * element;
        iter.operand[1].stride[3 + i] = p->dilation[d] * from->stride[2 + d] * element;
    }
    iter.size[6] = p->c, iter.size[7] = count;
    iter.operand[0].stride[6] = p->w_stride[1] * pixels * element;
    iter.operand[1].stride[6] = from->stride[1] * element;
    iter.operand[0].stride[7] = length * pixels * element;
    iter.operand[1].stride[7] = from->stride[0] * element;
    xpu_iter_coalesce(&iter);
    return xpu_copy(stream, &iter);
}

/* results[image][channel][pixel] = filters[channel][position] matrix[image][position][pixel] +
 * bias[channel] */
static xpu_status multiply(xpu_stream *stream, xpu_dtype dtype, const conv_params *p, int64_t group,
                           int64_t first, int64_t count, const xpu_matrix *matrix) {
    const int64_t pixels = volume(p->out), channel = group * p->k;
    char *y = element_at(dtype, p->y, first * p->y_stride[0] + channel * p->y_stride[1]);
    char *w = element_at(dtype, p->w, channel * p->w_stride[0]);
    char *bias = p->bias ? element_at(dtype, p->bias, channel * p->bias_stride) : NULL;
    const xpu_scalar one = {.dtype = XPU_FLOAT64, .value.f = 1};
    const int64_t step = pixel_stride(p->out, p->y_stride + 2);
    xpu_gemm_args args = {.dtype = dtype,
                          .batch = count,
                          .m = p->k,
                          .n = pixels,
                          .k = p->c * taps_of(p),
                          .alpha = one,
                          .beta = one};
    args.a = (xpu_matrix){w, 0, p->w_stride[0], 1};
    args.b = *matrix;
    args.c = (xpu_matrix){bias, 0, p->bias_stride, 0};
    args.out = (xpu_matrix){y, p->y_stride[0], p->y_stride[1], step};
    if (p->y_stride[1] == 1 && step != 1) { /* channels are contiguous: the transpose */
        xpu_gemm_args transposed = args;
        transposed.m = args.n, transposed.n = args.m;
        transposed.a =
            (xpu_matrix){matrix->data, matrix->batch_stride, matrix->column_stride, matrix->row_stride};
        transposed.b = (xpu_matrix){w, 0, 1, p->w_stride[0]};
        transposed.c = (xpu_matrix){bias, 0, 0, p->bias_stride};
        transposed.out = (xpu_matrix){y, p->y_stride[0], step, 1};
        args = transposed;
    }
    return xpu_gemm(stream, &args);
}

static xpu_status convolve(xpu_stream *stream, xpu_dtype dtype, const conv_params *p, int64_t at_once,
                           void *padded, void *matrix) {
    const int64_t pixels = volume(p->out), length = p->c * taps_of(p);
    for (int64_t first = 0; first < p->batch; first += at_once) {
        const int64_t count = p->batch - first < at_once ? p->batch - first : at_once;
        images from;
        XPU_TRY(pad(stream, dtype, p, first, count, padded, &from));
        for (int64_t group = 0; group < p->groups; group++) {
            xpu_matrix taken = {matrix, length * pixels, pixels, 1};
            if (matrix)
                XPU_TRY(unfold_im2col(stream, p, group, count, &from, matrix));
            else
                taken = (xpu_matrix){element_at(dtype, XPU_ADDR(from.data), group * p->c * from.stride[1]),
                                     from.stride[0], from.stride[1], pixel_stride(p->in, p->x_stride + 2)};
            XPU_TRY(multiply(stream, dtype, p, group, first, count, &taken));
        }
    }
    return XPU_SUCCESS;
}

xpu_status conv_on_host(xpu_stream *stream, xpu_dtype dtype, const conv_params *p, bool *done) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &properties));
    const int64_t pixels = volume(p->out), length = p->c * taps_of(p);
    const int64_t element = (int64_t)xpu_dtype_size(dtype);
    const bool is_known = dtype == XPU_FLOAT32 || dtype == XPU_FLOAT16 || dtype == XPU_BFLOAT16;
    *done = false;
    if (properties->type != XPU_DEVICE_CPU || !uses_cpu_policy(properties) || !is_known ||
        p->k < FEWEST_CHANNELS || pixels * length * p->batch == 0 || !is_dense(p) ||
        !pixel_stride(p->out, p->y_stride + 2))
        return XPU_SUCCESS;
    bool is_padded = false,
         is_point = taps_of(p) == 1 && pixel_stride(p->in, p->x_stride + 2) && p->w_stride[1] == 1;
    int64_t image = p->c * p->groups;
    for (int d = 0; d < 3; d++) {
        is_padded = is_padded || p->padding[d];
        is_point = is_point && p->stride[d] == 1 && !p->padding[d];
        image *= p->in[d] + 2 * p->padding[d];
    }
    int64_t at_once = MATRIX_IS_INT8 / (pixels * length * element);
    if (at_once < 1) at_once = 1;
    if (at_once > p->batch || is_point) at_once = p->batch;
    void *padded = NULL, *matrix = NULL;
    xpu_status status = XPU_SUCCESS;
    if (is_padded) status = xpu_workspace_take(stream, (size_t)(image * at_once * element), &padded);
    if (status == XPU_SUCCESS && !is_point)
        status = xpu_workspace_take(stream, (size_t)(pixels * length * at_once * element), &matrix);
    if (status == XPU_SUCCESS) status = convolve(stream, dtype, p, at_once, padded, matrix);
    status = workspace_release(matrix, status);
    status = workspace_release(padded, status);
    *done = status == XPU_SUCCESS;
    return status;
}

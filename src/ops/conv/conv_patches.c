/* Gradient of x for disjoint patches (conv_patches.h). */
#include "ops/conv/conv_patches.h"

#include "ops/gemm/matrix.h"
#include "ops/gemm/product.h"
#include "ops/iter.h"
#include "xpu/memory.h"
#include "xpu/ops/copy.h"
#include "xpu/ops/gemm.h"

enum {
    MOST_CHANNELS = 4,
    LEAST_TAPS = 25, /* or strides are conv_few_channels.cl's */
};

#define POINTER(address) ((void *)(uintptr_t)(address))

static bool has_patches(const conv_params *p) {
    for (int d = 0; d < 3; d++)
        if (p->taps[d] != p->stride[d] || p->padding[d] != 0 || (p->taps[d] > 1 && p->dilation[d] != 1) ||
            p->in[d] != p->out[d] * p->stride[d])
            return false;
    return p->groups == 1 && p->c <= MOST_CHANNELS && conv_volume(p->taps) >= LEAST_TAPS;
}

/* The distance of adjacent elements if the channels and taps of one channel of y are contiguous in some
 * order, else 0. `place` receives the position of channel, depth, height and width in that order. */
static int64_t patch_stride(const conv_params *p, int64_t place[4]) {
    const int64_t size[4] = {p->c, p->taps[0], p->taps[1], p->taps[2]};
    bool placed[4];
    for (int i = 0; i < 4; i++) placed[i] = size[i] == 1, place[i] = 0;
    int64_t apart = 0, count = 1;
    for (;;) {
        int next = -1;
        for (int i = 0; i < 4; i++)
            if (!placed[i] && (next < 0 || p->w_stride[1 + i] < p->w_stride[1 + next])) next = i;
        if (next < 0) return count == 1 ? 1 : apart;
        if (count == 1) apart = p->w_stride[1 + next];
        if (apart < 1 || p->w_stride[1 + next] != apart * count) return 0;
        placed[next] = true, place[next] = count;
        count *= size[next];
    }
}

static xpu_status put_patches(xpu_stream *stream, xpu_dtype dtype, const conv_params *p, void *patches,
                              const int64_t place[4]) {
    const int64_t columns = p->c * conv_volume(p->taps), element = (int64_t)xpu_dtype_size(dtype);
    xpu_iter iter = {.outputs = 1,
                     .inputs = 1,
                     .operand = {{.data = POINTER(p->x), .dtype = dtype}, {.data = patches, .dtype = dtype}}};
    int64_t pitch = columns; /* of y's pixels in the workspace */
#define ADD(count, there, here)                                                                              \
    if ((count) > 1) {                                                                                       \
        iter.size[iter.dims] = count;                                                                        \
        iter.operand[0].stride[iter.dims] = (there) * element;                                               \
        iter.operand[1].stride[iter.dims++] = (here) * element;                                              \
    }
    ADD(p->c, p->x_stride[1], place[0])
    for (int d = 2; d >= 0; d--) {
        ADD(p->taps[d], p->x_stride[2 + d], place[1 + d])
        ADD(p->out[d], p->x_stride[2 + d] * p->stride[d], pitch)
        pitch *= p->out[d];
    }
    ADD(p->batch, p->x_stride[0], pitch)
#undef ADD
    if (iter.dims == 0) iter.dims = 1, iter.size[0] = 1;
    iter_sort(&iter, 0);
    xpu_iter_coalesce(&iter);
    return xpu_copy(stream, &iter);
}

xpu_status conv_by_patches(xpu_stream *stream, xpu_dtype dtype, conv_direction direction,
                           const conv_params *p, bool *done) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &properties));
    *done = false;
    bool emulated;
    int64_t place[4];
    if (direction != CONV_BACKWARD_DATA || p->bias || !has_patches(p) || p->batch == 0 || p->k == 0 ||
        p->c == 0 || conv_volume(p->out) == 0 || matrix_fma_of(properties) == MATRIX_UNIT_NONE ||
        matrix_unit_of(properties, dtype, &emulated) != MATRIX_UNIT_NONE)
        return XPU_SUCCESS;
    const int64_t apart = patch_stride(p, place), pixels = conv_volume(p->out);
    const conv_operand y = conv_operand_of(dtype, p->y, p->y_stride, p->batch, 1, p->k, p->out);
    const int64_t all = conv_pixel_pitch(&y, 0), image = conv_pixel_pitch(&y, 2);
    if (apart == 0 || image < 0) return XPU_SUCCESS;

    const int64_t columns = p->c * conv_volume(p->taps), batch = all < 0 ? p->batch : 1;
    xpu_gemm_args args = {.dtype = dtype,
                          .batch = batch,
                          .m = p->batch / batch * pixels,
                          .n = columns,
                          .k = p->k,
                          .alpha = {.dtype = XPU_FLOAT64, .value.f = 1},
                          .a = {POINTER(p->y), p->y_stride[0], all < 0 ? image : all, y.stride[1]},
                          .b = {POINTER(p->w), 0, p->w_stride[0], apart}};
    const size_t size = (size_t)(p->batch * pixels * columns) * xpu_dtype_size(dtype);
    void *patches;
    XPU_TRY(xpu_workspace_take(stream, size, &patches));
    args.out = (xpu_matrix){patches, pixels * columns, columns, 1};
    xpu_status status = xpu_gemm(stream, &args);
    *done = status != XPU_ERROR_NOT_SUPPORTED; /* other algorithms may support it */
    if (status == XPU_SUCCESS) status = put_patches(stream, dtype, p, patches, place);
    return workspace_release(patches, *done ? status : XPU_SUCCESS);
}

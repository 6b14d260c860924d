/* Pairwise distances and gradient (kernels/distance.cl). */
#include "xpu/ops/distance.h"

#include <math.h>

#include "kernels/distance.h"
#include "ops/kernel.h"
#include "xpu/memory.h"

#define SIDE 16 /* as in the kernel */
#define TILE 32
#define GROUP 64

static xpu_status get_kernel(int device, const xpu_distance *args, bool backward, bool rows,
                             xpu_kernel **kernel) {
    static const char *const norms[] = {"ZERO", "ONE", "TWO", "INF", "P"};
    const int norm = args->p == 0 ? 0 : args->p == 1 ? 1 : args->p == 2 ? 2 : isinf(args->p) ? 3 : 4;
    const char *name = backward ? "distance_backward" : "distance_forward";
    kernel_spec spec;
    spec_begin(&spec, FAMILY_DISTANCE);
    spec_dtype(&spec, "T", args->dtype);
    spec_enum(&spec, "NORM_", norms, norm, 4);
    spec_flag(&spec, "PAIRS", args->pairs);
    spec_flag(&spec, "ROWS", rows);
    spec_key_only(&spec, "backward", backward, 1);
    spec_option(&spec, "BUILD_", name);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(device, &spec, "distance.cl", name, kernel, "%s %s %s", name, norms[norm],
                            dtype_token(args->dtype));
}

static xpu_status describe(xpu_stream *stream, const xpu_distance *args, distance_params *p) {
    const xpu_device_properties *device;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &device));
    const bool wide = args->dtype == XPU_FLOAT64;
    if (args->dtype != XPU_FLOAT32 && !(wide && device->has_fp64))
        return op_unsupported_dtype(args->pairs ? "pdist" : "cdist", args->dtype, device);
    if (!(args->p >= 0) || (args->pairs && args->rows1 != args->rows2))
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "distance: p = %g must not be negative; %lld and %lld rows must be equal for pdist",
                       args->p, (long long)args->rows1, (long long)args->rows2);
    p->rows1 = args->rows1;
    p->rows2 = args->rows2;
    p->columns = args->columns;
    p->pairs = args->pairs ? args->rows1 * (args->rows1 - 1) / 2 : 0;
    p->p = (float)args->p;
    p->p_rest = wide && !isinf(args->p) ? (float)(args->p - p->p) : 0;
    return XPU_SUCCESS;
}

xpu_status xpu_distance_forward(xpu_stream *stream, const xpu_distance *args, const void *x1, const void *x2,
                                void *distances) {
    distance_params p = {.x1 = XPU_ADDR(x1), .x2 = XPU_ADDR(x2), .distances = XPU_ADDR(distances)};
    XPU_TRY(describe(stream, args, &p));
    if (args->batch == 0 || args->rows1 == 0 || args->rows2 == 0) return XPU_SUCCESS;
    p.tiles = (args->rows1 + TILE - 1) / TILE;
    const uint64_t tiles2 = ((uint64_t)args->rows2 + TILE - 1) / TILE;
    const uint64_t tiles = (uint64_t)(args->batch * p.tiles);
    const xpu_range range = {.dims = 2,
                             .groups = {tiles2, tiles},
                             .local = {SIDE, SIDE},
                             .work = tiles * tiles2 * TILE * TILE * ((uint64_t)args->columns + 1)};
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(xpu_stream_device(stream), args, false, false, &kernel));
    return xpu_launch(stream, kernel, &range, &p, sizeof p);
}

xpu_status xpu_distance_backward(xpu_stream *stream, const xpu_distance *args, const void *grad_distances,
                                 const void *x1, const void *x2, const void *distances, void *grad_x1) {
    distance_params p = {.x1 = XPU_ADDR(x1),
                         .x2 = XPU_ADDR(x2),
                         .distances = XPU_ADDR(distances),
                         .grad = XPU_ADDR(grad_distances),
                         .grad_x1 = XPU_ADDR(grad_x1)};
    XPU_TRY(describe(stream, args, &p));
    const uint64_t elements = (uint64_t)(args->rows1 * args->columns);
    if (args->batch == 0 || elements == 0) return XPU_SUCCESS;
    if (args->p == 0) {
        const uint8_t zero = 0;
        const size_t bytes = (size_t)args->batch * elements * xpu_dtype_size(args->dtype);
        return xpu_memset(stream, grad_x1, &zero, 1, bytes);
    }
    const bool rows = args->columns >= GROUP / 2;
    const uint64_t along = rows ? (uint64_t)args->columns : elements;
    const uint64_t lines = (uint64_t)(rows ? args->batch * args->rows1 : args->batch);
    const xpu_range range = {.dims = 2,
                             .groups = {(along + GROUP - 1) / GROUP, lines},
                             .local = {GROUP, 1},
                             .work = elements * (uint64_t)(args->batch * args->rows2) * 4};
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(xpu_stream_device(stream), args, true, rows, &kernel));
    return xpu_launch(stream, kernel, &range, &p, sizeof p);
}

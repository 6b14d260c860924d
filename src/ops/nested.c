/* nested: chooses tile and element sizes; derives levels from sizes. */
#include "xpu/ops/nested.h"

#include <string.h>

#include "kernels/nested.h"
#include "ops/kernel.h"
#include "xpu/fault.h"
#include "xpu/memory.h"

_Static_assert(NESTED_LEVELS == XPU_NESTED_MAX_LEVELS,
               "kernels and libxpu must agree on the number of levels");

#define BLOCK_BYTES 16384

typedef struct tiling {
    int element; /* bytes */
    int x, y;    /* the group's size */
    int block;   /* elements of a segment per work-group */
    int64_t down;
} tiling;

/* The largest element size that divides all sizes and addresses. */
static int element_of(uint64_t bits, int widest) {
    int element = widest;
    while (bits % (uint64_t)element) element /= 2;
    return element;
}

static tiling tiling_of(const xpu_device_properties *properties, const xpu_nested *args) {
    const bool cpu = properties->type == XPU_DEVICE_CPU;
    const int64_t row_bytes = args->row_size * args->element_size;
    tiling t = {.element = element_of((uint64_t)(uintptr_t)args->values | (uint64_t)(uintptr_t)args->padded |
                                          (uint64_t)row_bytes,
                                      cpu ? 8 : 16)};
    const int64_t width = args->size[args->levels - 1] * row_bytes / t.element;
    if (cpu) {
        t.x = t.y = 1;
        t.block = BLOCK_BYTES / t.element;
        t.down = width < t.block ? t.block / (width ? width : 1) : 1;
        return t;
    }
    /* powers of two keep the number of kernels small */
    int group = 256;
    if ((size_t)group > properties->max_work_group_size) group = (int)properties->max_work_group_size;
    for (t.x = 16; t.x < width && t.x < group;) t.x *= 2;
    t.y = group / t.x;
    t.block = t.x * 4;
    t.down = t.y;
    return t;
}

static xpu_status kernel_for(int device, const xpu_nested *args, const tiling *t, bool unpad,
                             xpu_kernel **kernel) {
    kernel_spec spec;
    spec_begin(&spec, FAMILY_NESTED);
    spec_int(&spec, "E", t->element, 8);
    spec_dtype(&spec, "I", args->offset_dtype);
    spec_int(&spec, "LEVELS", args->levels, 8);
    spec_bool(&spec, "UNPAD", unpad);
    spec_int(&spec, "TX", t->x, 32);
    spec_int(&spec, "TY", t->y, 32);
    spec_int(&spec, "BLOCK", t->block, 32);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(device, &spec, "nested.cl", "nested_move", kernel, "%s %d bytes",
                            unpad ? "nested_unpad" : "nested_pad", t->element);
}

static xpu_status check(const char *op, const xpu_nested *args, bool unpad) {
    if (args->levels < 1 || args->levels > XPU_NESTED_MAX_LEVELS)
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "%s: %d jagged levels; at most %d are supported", op,
                       args->levels, XPU_NESTED_MAX_LEVELS);
    if (args->offset_dtype != XPU_INT64 && args->offset_dtype != XPU_INT32)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "%s: offsets must be int64 or int32", op);
    if (unpad ? args->items != args->length[0] : args->items < args->length[0])
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "%s: %lld items can't be padded to %lld", op,
                       (long long)args->length[0], (long long)args->items);
    return XPU_SUCCESS;
}

static xpu_status move(xpu_stream *stream, const char *op, const xpu_nested *args, const void *padding) {
    const xpu_device_properties *properties;
    const int device = xpu_stream_device(stream);
    XPU_TRY(check(op, args, !padding));
    XPU_TRY(xpu_device_get_properties(device, &properties));
    struct nested_params params = {.values = XPU_ADDR(args->values), .padded = XPU_ADDR(args->padded)};
    params.segments = args->items;
    for (int d = 0; d < args->levels; d++) {
        params.offset[d] = XPU_ADDR(args->offset[d]);
        params.length[d] = args->length[d];
        params.size[d] = args->size[d];
        if (d + 1 < args->levels) params.segments *= args->size[d];
    }
    params.length[args->levels] = args->rows;
    const int64_t elements = params.segments * args->size[args->levels - 1] * args->row_size;
    if (!padding && args->rows * args->row_size > 0 && (args->levels > 1 || elements == 0)) {
        /* the kernel only writes zeros for segments that exist in `padded` */
        const uint32_t zero = 0;
        XPU_TRY(xpu_memset(stream, args->values, &zero, 1,
                           (size_t)(args->rows * args->row_size * args->element_size)));
    }
    if (elements == 0) return XPU_SUCCESS;

    const tiling t = tiling_of(properties, args);
    xpu_kernel *kernel;
    XPU_TRY(kernel_for(device, args, &t, !padding, &kernel));
    params.row_size = args->row_size * args->element_size / t.element;
    params.down = t.down;
    for (size_t i = 0; padding && i < sizeof params.padding; i += (size_t)args->element_size)
        memcpy((char *)params.padding + i, padding, (size_t)args->element_size);

    xpu_fault *place;
    XPU_TRY(xpu_fault_watch(stream, &place));
    params.watch = (struct fault_watch){XPU_ADDR(place), XPU_ADDR(op)};
    const int64_t width = args->size[args->levels - 1] * params.row_size;
    const int64_t across = (width + t.block - 1) / t.block;
    const xpu_range range = {2,
                             {1, (size_t)(across * ((params.segments + t.down - 1) / t.down))},
                             {(size_t)t.x, (size_t)t.y},
                             (uint64_t)elements * (uint64_t)args->element_size / 8};
    XPU_TRY(xpu_launch(stream, kernel, &range, &params, sizeof params));
    return xpu_fault_raise(stream, place);
}

xpu_status xpu_nested_pad(xpu_stream *stream, const xpu_nested *args, const void *padding) {
    return move(stream, "nested_pad", args, padding);
}

xpu_status xpu_nested_unpad(xpu_stream *stream, const xpu_nested *args) {
    return move(stream, "nested_unpad", args, NULL);
}

xpu_status xpu_nested_levels_of(const int64_t *sizes, int64_t items, int dims, const int64_t *size,
                                xpu_nested_levels *levels) {
    int ragged = dims;
    for (int64_t i = 0; i < items * dims; i++)
        if (sizes[i] > size[i % dims])
            return op_fail(
                XPU_ERROR_INVALID_ARGUMENT,
                "nested tensors: item %lld has size %lld in dimension %d, which exceeds the padded size %lld",
                (long long)(i / dims), (long long)sizes[i], (int)(i % dims), (long long)size[i % dims]);
    while (ragged > 1) { /* is the last remaining dimension regular, so that it belongs to the row? */
        bool same = true;
        for (int64_t i = 0; same && i < items; i++) same = sizes[i * dims + ragged - 1] == size[ragged - 1];
        if (!same) break;
        ragged--;
    }
    if (ragged < 1 || ragged > XPU_NESTED_MAX_LEVELS)
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "nested tensors: %d jagged dimensions are not supported",
                       ragged);
    *levels = (xpu_nested_levels){.levels = ragged, .row_size = 1};
    for (int d = 0; d < ragged; d++) levels->size[d] = size[d];
    for (int d = ragged; d < dims; d++) levels->row_size *= size[d];
    levels->length[0] = items;
    for (int64_t i = 0; i < items; i++) {
        int64_t indices = 1;
        for (int d = 0; d < ragged; d++) {
            indices *= sizes[i * dims + d];
            *(d + 1 < ragged ? &levels->length[d + 1] : &levels->rows) += indices;
        }
    }
    for (int d = 0; d < ragged; d++) levels->table += levels->length[d] + 1;
    return XPU_SUCCESS;
}

void xpu_nested_offsets(const int64_t *sizes, int64_t items, int dims, const xpu_nested_levels *levels,
                        int64_t *table) {
    for (int d = 0; d < levels->levels; d++) {
        int64_t offset = 0;
        for (int64_t i = 0; i < items; i++) {
            int64_t indices = 1;
            for (int e = 0; e < d; e++) indices *= sizes[i * dims + e];
            for (int64_t k = 0; k < indices; k++, offset += sizes[i * dims + d]) *table++ = offset;
        }
        *table++ = offset;
    }
}

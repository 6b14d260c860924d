/* Sort: tiles in local memory, merges of doubling runs between two buffers, then stores in the output's
 * layout. */
#include "xpu/ops/sort.h"

#include <string.h>

#include "kernels/sort.h"
#include "ops/kernel.h"
#include "ops/row_walk.h"
#include "xpu/trace.h"

typedef enum sort_entry { ENTRY_TILES, ENTRY_MERGE, ENTRY_STORE } sort_entry;

#define GROUP 64 /* work-items of the kernels that go by elements */

static xpu_status find_kernel(int device, xpu_dtype dtype, bool descending, int row_dims, int local,
                              sort_entry entry, xpu_kernel **kernel) {
    static const char *const entries[] = {"sort_tiles", "sort_merge", "sort_store"};
    kernel_spec spec;
    spec_begin(&spec, FAMILY_SORT);
    spec_dtype(&spec, "T", dtype);
    spec_int(&spec, "ROW_DIMS", row_dims, 8);
    spec_int(&spec, "LOCAL", local, 24);
    spec_option_flag(&spec, "T_FLOAT", dtype_class(dtype) == 'f');
    spec_flag(&spec, "DESCENDING", descending);
    spec_key_only(&spec, "entry", entry, 8);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(device, &spec, "sort.cl", entries[entry], kernel, "%s %s", entries[entry],
                            dtype_token(dtype));
}

static xpu_status check(const xpu_tensor *values, const xpu_tensor *indices, const xpu_tensor *in, int dim,
                        int64_t first, const xpu_device_properties *device) {
    if (dim < 0 || dim >= in->dims || in->dims > XPU_MAX_DIMS || values->dims != in->dims ||
        indices->dims != in->dims)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "sort: dimension %d is out of range, or the ranks of input (%d), values (%d) and "
                       "indices (%d) differ",
                       dim, in->dims, values->dims, indices->dims);
    for (int d = 0; d < in->dims; d++)
        if (values->size[d] != indices->size[d] ||
            (d == dim ? first < 0 || first + values->size[d] > in->size[d] : values->size[d] != in->size[d]))
            return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                           "sort: the shapes of values and indices don't match the input");
    if (values->dtype != in->dtype || indices->dtype != XPU_INT64)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "sort: values must have the input's dtype, and indices must be int64");
    if (in->size[dim] >= INT32_MAX - 4096)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "sort: a row of %lld elements is too long",
                       (long long)in->size[dim]);
    if (!dtype_is_ordered(in->dtype) || (dtype_needs_fp64(in->dtype) && !device->has_fp64))
        return op_unsupported_dtype("sort", in->dtype, device);
    return XPU_SUCCESS;
}

static void swap_buffers(sort_params *p) {
    xpu_addr keys = p->keys[0], positions = p->positions[0];
    p->keys[0] = p->keys[1];
    p->positions[0] = p->positions[1];
    p->keys[1] = keys;
    p->positions[1] = positions;
}

static xpu_range by_elements(int64_t elements, int64_t cost) {
    xpu_range range = {1, {(size_t)((elements + GROUP - 1) / GROUP)}, {GROUP}, (uint64_t)(elements * cost)};
    return range;
}

xpu_status xpu_sort(xpu_stream *stream, const xpu_tensor *values, const xpu_tensor *indices,
                    const xpu_tensor *in, int dim, bool descending, int64_t first) {
    int device = xpu_stream_device(stream);
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    XPU_TRY(check(values, indices, in, dim, first, properties));
    const xpu_tensor *operands[3] = {in, values, indices};
    sort_params p;
    memset(&p, 0, sizeof p);
    int row_dims = row_walk_fill(operands, dim, &p.walk);
    p.in = XPU_ADDR(in->data);
    p.values = XPU_ADDR(values->data);
    p.indices = XPU_ADDR(indices->data);
    p.length = in->size[dim];
    p.first = first;
    p.count = values->size[dim];
    int64_t elements = p.walk.rows * p.length;
    if (p.walk.rows * p.count == 0) return XPU_SUCCESS;

    int local = 16, most = properties->max_work_group_size < 256 ? (int)properties->max_work_group_size : 256;
    while (2 * local < p.length && 2 * local <= most) local *= 2;
    xpu_kernel *tiles, *merge, *store;
    XPU_TRY(find_kernel(device, in->dtype, descending, row_dims, local, ENTRY_TILES, &tiles));
    XPU_TRY(find_kernel(device, in->dtype, descending, row_dims, local, ENTRY_MERGE, &merge));
    XPU_TRY(find_kernel(device, in->dtype, descending, row_dims, local, ENTRY_STORE, &store));

    size_t key_bytes = ((size_t)elements * xpu_dtype_size(in->dtype) + 63) / 64 * 64;
    size_t place_bytes = ((size_t)elements * sizeof(int32_t) + 63) / 64 * 64;
    void *memory;
    XPU_TRY(xpu_workspace_take(stream, 2 * (key_bytes + place_bytes), &memory));
    for (int i = 0; i < 2; i++) {
        p.keys[i] = XPU_ADDR(memory) + (xpu_addr)i * (key_bytes + place_bytes);
        p.positions[i] = p.keys[i] + key_bytes;
    }
    int64_t tile = 2 * (int64_t)local;
    xpu_range range = {1,
                       {(size_t)(p.walk.rows * ((p.length + tile - 1) / tile))},
                       {(size_t)local},
                       (uint64_t)elements * 50};
    xpu_status status = xpu_launch(stream, tiles, &range, &p, sizeof p);
    swap_buffers(&p);
    for (p.run = tile; p.run < p.length && status == XPU_SUCCESS; p.run *= 2) {
        range = by_elements(elements, 40);
        status = xpu_launch(stream, merge, &range, &p, sizeof p);
        swap_buffers(&p);
    }
    if (status == XPU_SUCCESS) {
        range = by_elements(p.walk.rows * p.count, 4);
        status = xpu_launch(stream, store, &range, &p, sizeof p);
    }
    return workspace_release(memory, status);
}

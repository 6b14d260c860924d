/* Sparse tensors: keys, search, segmented reduction, products (kernels/sparse.cl). */
#include "xpu/ops/sparse.h"

#include "core/status.h"
#include "kernels/sparse.h"
#include "ops/gemm/product.h"
#include "ops/iter.h"
#include "ops/kernel.h"
#include "xpu/fault.h"

typedef enum sparse_entry { ENTRY_KEYS, ENTRY_SEARCH, ENTRY_REDUCE, ENTRY_PRODUCT, ENTRY_CHECK } sparse_entry;

#define GROUP 64

static const char *const names[] = {"sparse_keys", "sparse_search", "sparse_reduce", "sparse_product",
                                    "sparse_check"};

static void begin(kernel_spec *spec, sparse_entry entry) {
    static const char *const builds[] = {"KEYS", "SEARCH", "REDUCE", "PRODUCT", "CHECK"};
    spec_begin(spec, FAMILY_SPARSE);
    spec_enum(spec, "", builds, entry, 4);
}

static xpu_status find_kernel(int device, const kernel_spec *spec, sparse_entry entry, xpu_dtype label,
                              xpu_kernel **kernel) {
    *kernel = kernel_find(device, spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(device, spec, "sparse.cl", names[entry], kernel, "%s %s", names[entry],
                            dtype_token(label));
}

static xpu_range over(int64_t count, uint64_t work) {
    return (xpu_range){1, {(size_t)((count + GROUP - 1) / GROUP)}, {GROUP}, work};
}

/* Wide rows get work-groups of their own, so that lanes access contiguous elements. */
static bool is_wide(int64_t width) { return width >= 16; }

static xpu_range over_rows(int64_t rows, int64_t width, uint64_t work) {
    if (!is_wide(width)) return over(rows * width, work);
    const size_t local = width >= GROUP ? GROUP : 16;
    return (xpu_range){1, {((size_t)width + local - 1) / local * (size_t)rows}, {local}, work};
}

static bool is_index(xpu_dtype dtype) { return dtype == XPU_INT64 || dtype == XPU_INT32; }

xpu_status xpu_sparse_keys(xpu_stream *stream, const xpu_tensor *indices, const int64_t *size,
                           const int64_t *step, int64_t *keys) {
    if (indices->dtype != XPU_INT64 || indices->dims != 2 || indices->size[0] > XPU_MAX_DIMS)
        return op_fail(XPU_ERROR_NOT_SUPPORTED,
                       "sparse tensor: indices must be int64, with at most %d sparse dimensions",
                       XPU_MAX_DIMS);
    struct sparse_keys_params p = {.indices = XPU_ADDR(indices->data),
                                   .keys = XPU_ADDR(keys),
                                   .count = indices->size[1],
                                   .row_stride = indices->stride[0],
                                   .column_stride = indices->stride[1],
                                   .dims = indices->size[0]};
    for (int d = 0; d < p.dims; d++) p.size[d] = size[d], p.step[d] = step[d];
    if (p.count == 0) return XPU_SUCCESS;
    xpu_fault *place;
    XPU_TRY(xpu_fault_watch(stream, &place));
    p.watch = (struct fault_watch){XPU_ADDR(place), XPU_ADDR("sparse tensor")};
    kernel_spec spec;
    begin(&spec, ENTRY_KEYS);
    xpu_kernel *kernel;
    XPU_TRY(find_kernel(xpu_stream_device(stream), &spec, ENTRY_KEYS, XPU_INT64, &kernel));
    const xpu_range range = over(p.count, (uint64_t)(p.count * p.dims) * 4);
    XPU_TRY(xpu_launch(stream, kernel, &range, &p, sizeof p));
    return xpu_fault_raise(stream, place);
}

xpu_status xpu_sparse_check(xpu_stream *stream, const xpu_sparse_check_args *a) {
    if (!is_index(a->dtype)) return op_fail(XPU_ERROR_NOT_SUPPORTED, "sparse tensor: indices are i32 or i64");
    const int64_t starts = a->batch * (a->rows + 1), columns = a->columns ? a->batch * a->count : 0;
    const int64_t items = starts > columns ? starts : columns;
    if (items == 0) return XPU_SUCCESS;
    kernel_spec spec;
    begin(&spec, ENTRY_CHECK);
    spec_dtype(&spec, "I", a->dtype);
    xpu_kernel *kernel;
    XPU_TRY(find_kernel(xpu_stream_device(stream), &spec, ENTRY_CHECK, a->dtype, &kernel));
    xpu_fault *place;
    XPU_TRY(xpu_fault_watch(stream, &place));
    const char *text = "sparse tensor: compressed indices don't rise from 0 to the number of elements";
    const struct sparse_check_params p = {.starts = XPU_ADDR(a->starts),
                                          .columns = XPU_ADDR(a->columns),
                                          .length = a->rows + 1,
                                          .batch = a->batch,
                                          .count = a->count,
                                          .width = a->width,
                                          .bad_starts = {XPU_ADDR(place), XPU_ADDR(text)},
                                          .bad_column = {XPU_ADDR(place), XPU_ADDR("sparse tensor")}};
    const xpu_range range = over(items, (uint64_t)items * 4);
    XPU_TRY(xpu_launch(stream, kernel, &range, &p, sizeof p));
    return xpu_fault_raise(stream, place);
}

xpu_status xpu_sparse_search(xpu_stream *stream, const xpu_sparse_search_args *a) {
    if (!is_index(a->dtype) || !is_index(a->position_dtype))
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "sparse tensor: indices must be int32 or int64");
    if (a->count == 0) return XPU_SUCCESS;
    kernel_spec spec;
    begin(&spec, ENTRY_SEARCH);
    spec_dtype(&spec, "I", a->dtype);
    spec_dtype(&spec, "O", a->position_dtype);
    xpu_kernel *kernel;
    XPU_TRY(find_kernel(xpu_stream_device(stream), &spec, ENTRY_SEARCH, a->dtype, &kernel));
    const struct sparse_search_params p = {.sorted = XPU_ADDR(a->sorted),
                                           .keys = XPU_ADDR(a->keys),
                                           .positions = XPU_ADDR(a->positions),
                                           .length = a->length,
                                           .count = a->count,
                                           .upper = a->upper};
    const xpu_range range = over(a->count, (uint64_t)a->count * 64);
    return xpu_launch(stream, kernel, &range, &p, sizeof p);
}

static xpu_status check_dtype(int device, xpu_dtype dtype) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    if ((!dtype_is_ordered(dtype) && !dtype_is_complex(dtype)) ||
        (dtype_needs_fp64(dtype) && !properties->has_fp64))
        return op_unsupported_dtype("sparse tensor", dtype, properties);
    return XPU_SUCCESS;
}

xpu_status xpu_sparse_reduce(xpu_stream *stream, const xpu_sparse_reduce_args *a) {
    const int device = xpu_stream_device(stream);
    XPU_TRY(check_dtype(device, a->dtype));
    XPU_REJECT_IF(a->reduction > XPU_SPARSE_PRODUCT, "unknown reduction %d", (int)a->reduction);
    if (a->reduction == XPU_SPARSE_MAX && dtype_is_complex(a->dtype))
        return op_fail(XPU_ERROR_NOT_SUPPORTED,
                       "sparse tensor: the maximum is not defined for complex dtypes");
    if (a->segments * a->width == 0) return XPU_SUCCESS;
    kernel_spec spec;
    begin(&spec, ENTRY_REDUCE);
    spec_dtype(&spec, "T", a->dtype);
    static const char *const kinds[] = {['b'] = "b", ['c'] = "c", ['f'] = "f", ['i'] = "i", ['u'] = "u"};
    spec_option(&spec, "KIND_", kinds[(int)dtype_class(a->dtype)]);
    static const char *const reductions[] = {"SUM", "MAXIMUM", "PRODUCT"};
    spec_enum(&spec, "REDUCTION_", reductions, a->reduction, 2);
    spec_flag(&spec, "WIDE", is_wide(a->width));
    xpu_kernel *kernel;
    XPU_TRY(find_kernel(device, &spec, ENTRY_REDUCE, a->dtype, &kernel));
    const struct sparse_reduce_params p = {.values = XPU_ADDR(a->values),
                                           .positions = XPU_ADDR(a->positions),
                                           .starts = XPU_ADDR(a->starts),
                                           .out = XPU_ADDR(a->out),
                                           .segments = a->segments,
                                           .count = a->count,
                                           .width = a->width};
    const xpu_range range = over_rows(a->segments, a->width, (uint64_t)(a->count * a->width) * 4);
    return xpu_launch(stream, kernel, &range, &p, sizeof p);
}

xpu_status xpu_sparse_product(xpu_stream *stream, const xpu_sparse_product_args *a) {
    const int device = xpu_stream_device(stream);
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    XPU_TRY(product_check_dtype(properties, a->dtype, "sparse matrix product", false));
    if (!is_index(a->index_dtype))
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "sparse matrix product: indices must be int32 or int64");
    if (a->rows * a->width == 0) return XPU_SUCCESS;
    kernel_spec spec;
    begin(&spec, ENTRY_PRODUCT);
    product_spec(&spec, a->dtype);
    spec_dtype(&spec, "I", a->index_dtype);
    spec_flag(&spec, "WIDE", is_wide(a->width));
    xpu_kernel *kernel;
    XPU_TRY(find_kernel(device, &spec, ENTRY_PRODUCT, a->dtype, &kernel));
    xpu_fault *place;
    XPU_TRY(xpu_fault_watch(stream, &place));
    struct sparse_product_params p = {.starts = XPU_ADDR(a->starts),
                                      .columns = XPU_ADDR(a->columns),
                                      .positions = XPU_ADDR(a->positions),
                                      .values = XPU_ADDR(a->values),
                                      .dense = XPU_ADDR(a->dense),
                                      .in = XPU_ADDR(a->in),
                                      .out = XPU_ADDR(a->out),
                                      .rows = a->rows,
                                      .count = a->count,
                                      .width = a->width,
                                      .height = a->height,
                                      .dense_stride = a->dense_stride,
                                      .in_row = a->in_stride[0],
                                      .in_column = a->in_stride[1],
                                      .bad_starts = {XPU_ADDR(place), XPU_ADDR("sparse matrix product: row "
                                                                               "indices are out of range")},
                                      .bad_column = {XPU_ADDR(place), XPU_ADDR("sparse matrix product")}};
    product_scalar(a->dtype, &a->alpha, p.alpha);
    product_scalar(a->dtype, &a->beta, p.beta);
    /* The number of elements per row is in device memory. */
    const xpu_range range = over_rows(a->rows, a->width, (uint64_t)(a->rows * a->width) * 32);
    XPU_TRY(xpu_launch(stream, kernel, &range, &p, sizeof p));
    return xpu_fault_raise(stream, place);
}

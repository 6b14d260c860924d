/* xpu/ops.h: types shared by all operations. Each family has its own header in xpu/ops/ (pointwise.h,
 * reduce.h, …).
 *
 * Operations submit work to a stream and return.
 * Results follow PyTorch: fp16 and bf16 are computed in fp32, integers wrap around, float to integer casts
 *     truncate. An operation on no elements does nothing.
 * Errors: XPU_ERROR_NOT_SUPPORTED for a dtype the device can't compute (fp64 without has_fp64). */
#ifndef XPU_OPS_H
#define XPU_OPS_H

#include <stdbool.h>
#include <stdint.h>

#include "dtype.h"
#include "random.h"
#include "stream.h"

#ifdef __cplusplus
extern "C" {
#endif

#define XPU_MAX_DIMS 16
#define XPU_MAX_OPERANDS 8

/* A tensor of any layout. Strides count elements and may be 0 or negative. `data` points at element 0. The
 * arrays belong to the caller and are read during the call only. */
typedef struct xpu_tensor {
    void *data;
    xpu_dtype dtype;
    int dims;
    const int64_t *size, *stride;
} xpu_tensor;

/* A scalar passed by value, in the C type for its class of dtype. */
typedef struct xpu_scalar {
    xpu_dtype dtype; /* XPU_BOOL, XPU_INT64, XPU_UINT64, XPU_FLOAT64 or XPU_COMPLEX128 */
    union {
        int64_t i;
        uint64_t u;
        double f;
        double c[2]; /* real, imaginary */
    } value;
} xpu_scalar;

/* One operand of an iteration. A scalar on the host is passed by value: `data` is NULL and `scalar` holds
 * it. */
typedef struct xpu_operand {
    void *data;
    xpu_dtype dtype;
    int64_t stride[XPU_MAX_DIMS]; /* bytes; 0 where the operand is broadcast */
    xpu_scalar scalar;
} xpu_operand;

/* An iteration: operands, outputs first, over one common shape. Dimension 0 varies fastest (innermost).
 *
 * Dimensions should be coalesced (xpu_iter_coalesce). An output's elements must not overlap. Only the first
 * `dims` sizes and strides of each operand are set. */
typedef struct xpu_iter {
    int outputs, inputs, dims;
    int64_t size[XPU_MAX_DIMS];
    xpu_operand operand[XPU_MAX_OPERANDS];
} xpu_iter;

/* Number of elements; 1 if dims is 0. */
XPU_API int64_t xpu_iter_numel(const xpu_iter *iter);
/* Merges dimensions that are contiguous with each other in all operands, and drops those of size 1. */
XPU_API void xpu_iter_coalesce(xpu_iter *iter);

/* Size of an element in bytes; 0 for sub-byte dtypes, which operations reject unless they say otherwise. */
XPU_API size_t xpu_dtype_size(xpu_dtype dtype);
XPU_API int xpu_dtype_bits(xpu_dtype dtype);
/* Bytes that `count` packed elements take, starting at a byte boundary. */
XPU_API size_t xpu_dtype_bytes(xpu_dtype dtype, size_t count);
XPU_API const char *xpu_dtype_name(xpu_dtype dtype); /* "f32" */

#ifdef __cplusplus
}
#endif
#endif

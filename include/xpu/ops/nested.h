/* xpu/ops/nested.h: nested (jagged) tensors: packed values with offsets, and the same padded to one shape.
 *
 * Sizes are levels of offsets. Index i of level d has the indices offset[d][i] … offset[d][i + 1] - 1 of
 * level d + 1; those of the last level are rows of `values`. Level 0 has an index for each item. Example:
 * with one level, offsets 0 2 2 5 are three items of 2, 0 and 3 rows. */
#ifndef XPU_OPS_NESTED_H
#define XPU_OPS_NESTED_H

#include "xpu/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#define XPU_NESTED_MAX_LEVELS 5

/* values: `rows` rows of `row_size` elements. padded: items x size[0] x … x size[levels - 1] x row_size.
 * Both are contiguous. Elements are copied as `element_size` bytes (1, 2, 4, 8 or 16). */
typedef struct xpu_nested {
    int levels;
    const void *offset[XPU_NESTED_MAX_LEVELS]; /* device addresses of length[d] + 1 offsets each */
    int64_t length[XPU_NESTED_MAX_LEVELS];     /* indices per level; length[0] is the number of items */
    xpu_dtype offset_dtype;                    /* XPU_INT32 or XPU_INT64 */
    int64_t size[XPU_NESTED_MAX_LEVELS];       /* padded sizes */
    int64_t items;                             /* of padded: length[0], or more if it is written */
    int64_t rows, row_size;
    int element_size;
    void *values, *padded;
} xpu_nested;

/* Writes all of `padded`: the values, truncated to `size`, and elsewhere the element at `padding` (host
 * memory). */
XPU_API xpu_status xpu_nested_pad(xpu_stream *stream, const xpu_nested *args, const void *padding);
/* Writes all values that an offset reaches: those of `padded`, and zeros where it is too short.
 * In both functions, offsets out of range are reported (xpu/fault.h) and count as empty. */
XPU_API xpu_status xpu_nested_unpad(xpu_stream *stream, const xpu_nested *args);

/* Computes the levels of `items` tensors of `dims` dimensions that are padded to `size`.
 *
 * sizes: the sizes of all tensors, one after another. All in host memory.
 * Trailing dimensions in which every tensor has the padded size form the row. There is at least one level.
 * Errors: XPU_ERROR_NOT_SUPPORTED for more than XPU_NESTED_MAX_LEVELS levels; XPU_ERROR_INVALID_ARGUMENT for
 *     a tensor larger than `size`. */
typedef struct xpu_nested_levels {
    int levels;
    int64_t length[XPU_NESTED_MAX_LEVELS];
    int64_t size[XPU_NESTED_MAX_LEVELS];
    int64_t rows, row_size;
    int64_t table; /* number of offsets of all levels */
} xpu_nested_levels;
XPU_API xpu_status xpu_nested_levels_of(const int64_t *sizes, int64_t items, int dims, const int64_t *size,
                                        xpu_nested_levels *levels);
/* Writes their offsets, level after level, to `table` in host memory. */
XPU_API void xpu_nested_offsets(const int64_t *sizes, int64_t items, int dims,
                                const xpu_nested_levels *levels, int64_t *table);

#ifdef __cplusplus
}
#endif
#endif

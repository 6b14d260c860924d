/* xpu/ops/nested.h: tensors of different sizes in one piece of memory, one after another, and the same
 * padded to one shape.
 *
 * Sizes come as levels of offsets. An index i of level d has the indices offset[d][i] … offset[d][i + 1] - 1
 * of level d + 1; those of the last level are rows of `values`. Level 0 has an index for each item. Example,
 * one level, offsets 0 2 2 5: three items of 2, 0 and 3 rows. */
#ifndef XPU_OPS_NESTED_H
#define XPU_OPS_NESTED_H

#include "xpu/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#define XPU_NESTED_MAX_LEVELS 5

/* values: `rows` rows of `row_size` elements. padded: items x size[0] x … x size[levels - 1] x row_size.
 * Both without gaps; elements are moved as `element_size` bytes (1, 2, 4, 8 or 16). */
typedef struct xpu_nested {
    int levels;
    const void *offset[XPU_NESTED_MAX_LEVELS]; /* device addresses of length[d] + 1 numbers */
    int64_t length[XPU_NESTED_MAX_LEVELS];     /* indices of each level; length[0] is the items */
    xpu_dtype offset_dtype;                    /* XPU_INT32 or XPU_INT64 */
    int64_t size[XPU_NESTED_MAX_LEVELS];       /* what is padded to */
    int64_t items;                             /* of padded: length[0], or more when it is written */
    int64_t rows, row_size;
    int element_size;
    void *values, *padded;
} xpu_nested;

/* Writes all of `padded`: the values, cut at `size`, and the element at `padding`, host memory, elsewhere. */
XPU_API xpu_status xpu_nested_pad(xpu_stream *stream, const xpu_nested *args, const void *padding);
/* Writes all values that an offset reaches: those of `padded`, and zeros for what it is too short for.
 * Of both: offsets that lead out of what they count are reported (xpu/fault.h) and count as empty. */
XPU_API xpu_status xpu_nested_unpad(xpu_stream *stream, const xpu_nested *args);

/* The levels of `items` tensors of `dims` dimensions, the sizes of one after those of the other in `sizes`,
 * that are padded to `size`; all in host memory. Dimensions at the end in which all have the size that is
 * padded to make up the row; there is always a level. XPU_ERROR_NOT_SUPPORTED where the others are more than
 * XPU_NESTED_MAX_LEVELS, XPU_ERROR_INVALID_ARGUMENT where a tensor is larger than `size`. */
typedef struct xpu_nested_levels {
    int levels;
    int64_t length[XPU_NESTED_MAX_LEVELS];
    int64_t size[XPU_NESTED_MAX_LEVELS];
    int64_t rows, row_size;
    int64_t table; /* offsets of all levels together */
} xpu_nested_levels;
XPU_API xpu_status xpu_nested_levels_of(const int64_t *sizes, int64_t items, int dims, const int64_t *size,
                                        xpu_nested_levels *levels);
/* Writes their offsets, level after level, to `table`, host memory. */
XPU_API void xpu_nested_offsets(const int64_t *sizes, int64_t items, int dims,
                                const xpu_nested_levels *levels, int64_t *table);

#ifdef __cplusplus
}
#endif
#endif

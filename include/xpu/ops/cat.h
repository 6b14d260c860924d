/* xpu/ops/cat.h: concatenation. */
#ifndef XPU_OPS_CAT_H
#define XPU_OPS_CAT_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One input: contiguous rows of `row_size` bytes, copied to byte `offset` of each output row. */
typedef struct xpu_cat_input {
    const void *data;
    int64_t row_size, offset;
} xpu_cat_input;

/* Concatenates the inputs into `out`: `rows` contiguous rows of `row_size` bytes.
 *
 * Inputs of row size 0 are ignored. An input must not overlap the output, and the inputs' destinations must
 * not overlap. */
XPU_API xpu_status xpu_cat(xpu_stream *stream, void *out, int64_t rows, int64_t row_size,
                           const xpu_cat_input *inputs, int count);

#ifdef __cplusplus
}
#endif
#endif

/* xpu/ops/cat.h: several pieces of memory laid side by side. */
#ifndef XPU_OPS_CAT_H
#define XPU_OPS_CAT_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One input: rows of `row_size` bytes without gaps, that go to byte `offset` of each row of the output. */
typedef struct xpu_cat_input {
    const void *data;
    int64_t row_size, offset;
} xpu_cat_input;

/* Copies every input into `out`, `rows` rows of `row_size` bytes without gaps. Inputs of row size 0 are
 * nothing. No input overlaps the output or another's place in it. */
XPU_API xpu_status xpu_cat(xpu_stream *stream, void *out, int64_t rows, int64_t row_size,
                           const xpu_cat_input *inputs, int count);

#ifdef __cplusplus
}
#endif
#endif

/* Parameters of the reduction kernels. Reduced dimensions are one inner dimension (`length` elements,
 * `stride` bytes apart) and `outer` further ones; an output's elements are split into `chunks` chunks of
 * `chunk`. Task t is chunk t % chunks of output t / chunks. */
#ifndef XPU_KERNELS_REDUCE_H
#define XPU_KERNELS_REDUCE_H
#include "shared.h"

#define REDUCE_DIMS 16

typedef struct reduce_params {
    xpu_addr in;
    xpu_addr out[2];
    xpu_addr partial; /* accumulators, one per task; unused if chunks is 1 */
    xpu_i64 outputs;
    xpu_i64 total; /* elements reduced to one output */
    xpu_i64 length, stride;
    xpu_i64 chunk, chunks;
    xpu_i64 tasks;                  /* outputs * chunks */
    xpu_i64 batch;                  /* consecutive tasks of one worker */
    xpu_u64 count, parameter;       /* bits of a float, or of a double if A is double */
    xpu_i32 width, pad;             /* work-items that share a task */
    xpu_i64 size[REDUCE_DIMS];      /* KEPT dimensions of the output, then OUTER reduced ones */
    xpu_i64 in_stride[REDUCE_DIMS]; /* bytes */
    xpu_i64 out_stride[2][REDUCE_DIMS];
} reduce_params;

#endif

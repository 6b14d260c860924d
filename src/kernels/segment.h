/* Parameters of segment.cl. */
#ifndef XPU_KERNELS_SEGMENT_H
#define XPU_KERNELS_SEGMENT_H
#include "fault.h"

typedef struct segment_params {
    xpu_addr data, output;           /* T [outer, length, inner], [outer, segments, inner] */
    xpu_addr offsets;                /* int64 [outer, segments + 1] */
    xpu_addr grad_output, grad_data; /* T */
    xpu_addr ties;                   /* int32, as the output: how many elements are the maximum */
    xpu_i64 outer, segments, length, inner;
    xpu_u64 initial; /* ACC's bits */
    xpu_u32 has_initial;
    struct fault_watch watch;
} segment_params;
#endif

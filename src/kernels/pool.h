/* Parameters of pool.cl. Tensors are [batch, channels, depth, height, width], or [batch, depth, height,
 * width, channels]; arrays below are in the order depth, height, width. */
#ifndef XPU_KERNELS_POOL_H
#define XPU_KERNELS_POOL_H
#include "fault.h"

typedef struct pool_params {
    xpu_addr input, output; /* T; backward: the gradients of both */
    xpu_addr indices;       /* int64, shaped as the output; position in the plane of the input */
    xpu_addr samples;       /* FRACTIONAL: T [batch, channels, 3] */
    xpu_u64 alpha[3];       /* ACC's bits */
    xpu_i64 batch, channels;
    xpu_i64 rows; /* of the range: positions along all dimensions but the first */
    xpu_i32 in[3], out[3];
    xpu_i32 window[3], stride[3], pad[3], dilation[3]; /* unused when adaptive */
    xpu_i32 divisor;                                   /* of averages; 0: the window's elements */
    xpu_i32 count_pad;                                 /* averages count padding */
    struct fault_watch watch;                          /* backward, of maxima */
} pool_params;
#endif

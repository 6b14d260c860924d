/* Parameters of conv.cl: a convolution y = x * w in any of the three directions. */
#ifndef XPU_KERNELS_CONV_H
#define XPU_KERNELS_CONV_H
#include "matrix/epilogue.h"
#include "shared.h"

typedef struct conv_params {
    xpu_addr x, w, y, bias;      /* bias is added to the output; 0 for none */
    xpu_addr partial;            /* sums of slices: [slice][group][row][column] of the accumulator's type */
    xpu_i64 batch, groups, c, k; /* c and k: channels of x and y in one group */
    xpu_i64 slices, slice;
    xpu_i64 rows, columns, depth;     /* the product as a matrix product, one group */
    xpu_i64 x_stride[5], y_stride[5]; /* n, channel, depth, height, width; elements */
    xpu_i64 w_stride[5];              /* k, c, depth, height, width */
    xpu_i64 bias_stride;
    post_ops_params end; /* `other` has the strides of the output */
    xpu_i32 in[3], out[3], taps[3], stride[3], padding[3], dilation[3];
} conv_params;
#endif

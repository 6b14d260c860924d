/* Parameters of conv_few_channels.cl. Dimensions are height and width; strides of y count elements within an
 * image. */
#ifndef XPU_KERNELS_CONV_FEW_CHANNELS_H
#define XPU_KERNELS_CONV_FEW_CHANNELS_H
#include "matrix/epilogue.h"
#include "shared.h"

typedef struct conv_few_channels_params {
    post_ops_params end;              /* `other` lies as x does */
    xpu_addr x, w, y, bias;           /* bias is added to each channel of x; 0 for none */
    xpu_i64 x_stride[4], w_stride[4]; /* n, channel, height, width; w: k, c, height, width */
    xpu_i64 y_image, bias_stride;     /* from image to image */
    xpu_i32 y_channel, y_pitch[2];
    xpu_i32 in[2], out[2]; /* sizes of x and y */
    xpu_i32 least[2];      /* the first pixel of y that tile 0 reads */
    xpu_u32 k, groups;     /* channels of y in a group */
    xpu_u32 tiles[2];
} conv_few_channels_params;
#endif

/* Parameters of conv_winograd.cl: a tensor of n images, split into windows, and the 16 planes of the windows'
 * transforms, [plane][window][channel] with their own strides. */
#ifndef XPU_KERNELS_CONV_WINOGRAD_H
#define XPU_KERNELS_CONV_WINOGRAD_H
#include "shared.h"

typedef struct conv_winograd_params {
    xpu_addr data, planes, bias; /* bias: of each channel of what leaves, or 0 */
    xpu_i64 stride[4];           /* n, channel, height, width; elements */
    xpu_i64 bias_stride;
    xpu_i64 plane, window, channel; /* from one of the planes' to the next one's; elements */
    xpu_u32 windows, channels;
    xpu_u32 across[2];  /* windows per image, vertically and horizontally */
    xpu_i32 size[2];    /* size of the image */
    xpu_i32 padding[2]; /* window w starts at pixel 2 w - padding */
} conv_winograd_params;
#endif

/* Parameters of conv_matrix.cl (a convolution y = x * w as a matrix product, in any of the three directions),
 * of conv_depthwise.cl, and of packing. */
#ifndef XPU_KERNELS_CONV_MATRIX_H
#define XPU_KERNELS_CONV_MATRIX_H
#include "matrix/epilogue.h"
#include "shared.h"

/* n / value for n below 2^31, and value: a fast_divisor (ops/iter.h), whose multiplier is `factor`. */
typedef struct conv_divisor {
    xpu_u32 value, factor, shift;
} conv_divisor;

/* The pixels of the result that lie `pixel` beyond a multiple of the step between two of them, along one
 * dimension: the taps that reach them from somewhere are `tap`, tap + tap_step, …; the first finds its source
 * for the first of the pixels at `first`. */
typedef struct conv_phase {
    xpu_i32 pixel, first, tap;
    conv_divisor taps; /* how many */
} conv_phase;
#define CONV_PHASES 16 /* along a dimension */

/* y of bytes: what becomes of the sums. `other` lies as the result does. */
typedef struct conv_int8_params {
    post_ops_params end;
    output_quant_params leave;
    xpu_addr x_scale, x_zero; /* x's, float32 and int32; 0 where the host knows them */
    xpu_addr w_scale,
        w_sums; /* of channels of y, float32 and int32: the scale, and the sum of w; 0 for none */
    xpu_i64 w_scale_stride;
    xpu_addr blank; /* XMX with 8 lanes: a vector of x's padding value if it isn't zero */
    float factor;   /* of all sums */
    xpu_i32 less;   /* x's zero point, or what is added to it, as its numbers are taken */
} conv_int8_params;

/* Dimensions are depth, height, width. A vector is 16 bytes (XMX with 8 lanes: 32; multiply-adds: four
 * channels). Forward and gradient of x: rows of the product are pixels of the result, columns its channels,
 * and the im2col operand is x or y. Gradient of w: rows are its channels k, columns pairs of a tap and a
 * channel c, and the im2col operand is x. */
typedef struct conv_matrix_params {
    xpu_addr im2col, other, result;
    xpu_addr bias;    /* added to each channel; 0 for none */
    xpu_addr partial; /* sums of slices: [slice][phase][group][row][column], accumulators, `pitch` a row, a
                         multiple of 4 */
    xpu_i64 result_stride[5], bias_stride; /* n (k for w), channel, dimensions; elements */
    xpu_i64 pitch, slices;
    xpu_u32 groups, rows, columns; /* of the product, in one group and phase */
    xpu_u32 depth;           /* w: pixels of y. Others: elements of k in a tap, without what pads them */
    xpu_u32 slice;           /* steps along k */
    xpu_u32 channels;        /* w: columns of a tap that there are, the others being padding */
    xpu_u32 result_channels; /* from group to group, of the result (w: rows) */
    xpu_i32 result_pitch[4]; /* where the result's channels are innermost: vectors from n to n, … */
    xpu_i32 im2col_pitch[4], im2col_group; /* vectors from n to n and along the dimensions; group to group */
    xpu_i32 dense_width;                   /* XMX: bytes of w's columns */
    xpu_i32 dense_pitch, dense_group; /* vectors from line to line: channel k of w, pixel of y, or, by lines
                                         of pixels, channel of y; … */
    xpu_i32 dense_image;              /* … and, beyond its pixels, from image to image then */
    xpu_i32 dense_tap[3];             /* of w, vectors from tap to tap of a phase, … */
    xpu_i32 dense_tap_first[3];       /* … and from tap 0 to tap 1 */
    xpu_i32 source[3];                /* size of the im2col operand's tensor */
    xpu_i32 step[3], tap_step[3];     /* of the source, from pixel to pixel and from tap to tap */
    xpu_i32 pixel_step[3], size[3];   /* of the result: from pixel to pixel of a phase; its size */
    conv_divisor extent[3];           /* pixels of the product's rows (w: of its depth) */
    conv_divisor per_tap;             /* vectors of a tap along k (w: columns) */
    xpu_u32 phases[3];
    conv_phase phase[3][CONV_PHASES];
    conv_int8_params bytes;
} conv_matrix_params;

/* Parameters of conv_depthwise.cl. `extent` counts strips of STRIP pixels, not pixels, along the width. */
typedef struct conv_depthwise_params {
    post_ops_params end;         /* `other` lies as the result does */
    conv_matrix_params geometry; /* result, im2col operand, partial sums, slices, and their strides */
    xpu_addr w, y;               /* y: where w is sought; w is the result then */
    xpu_i64 w_stride[5];
    xpu_i32 y_pitch[4];        /* vectors */
    xpu_u32 channels, vectors; /* of 16 bytes each */
    xpu_u32 strips, blocks;    /* of all pixels in a phase; work-groups for these */
    xpu_u32 chunks;            /* of the vectors, one a work-group */
    xpu_u32 runs, turns;       /* w: of taps, and work-groups for these */
    xpu_u32 slice;             /* w: strips */
    xpu_i32 apart[3];          /* from tap to tap of a phase */
} conv_depthwise_params;

/* Packs any tensor to [n][pixels][groups][padded]; each group's channels are padded with zeros. */
typedef struct conv_pack_params {
    xpu_addr from, to;
    xpu_i64 stride[5]; /* elements */
    xpu_i64 pixels;    /* of all n */
    xpu_u32 groups, channels, padded;
    xpu_u32 tiles; /* of pixels in one n, where pixels are packed by tiles */
    conv_divisor size[3];
} conv_pack_params;
#endif

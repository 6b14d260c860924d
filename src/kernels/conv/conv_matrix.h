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

/* A phase along one dimension: the pixels of the result at `pixel` plus multiples of the pixel step. The same
 * taps reach them: `tap`, tap + tap_step, …; the first tap reads source pixel `first` for the first pixel. */
typedef struct conv_phase {
    xpu_i32 pixel, first, tap;
    conv_divisor taps; /* their number */
} conv_phase;
#define CONV_PHASES 16 /* per dimension */

/* Quantized convolution (forward): processing of the sums. The post-op's operand has the strides of the
 * result. */
typedef struct conv_int8_params {
    post_ops_params end;
    output_quant_params leave;
    xpu_addr x_scale, x_zero; /* float32 and int32, of x; 0 if the host knows the values */
    xpu_addr w_scale, w_sums; /* per channel of y: float32 scale, and int32 sum of w; 0 if absent */
    xpu_i64 w_scale_stride;
    xpu_addr blank; /* XMX with 8 lanes: a vector of x's padding value if it isn't zero */
    float factor;   /* multiplies all sums */
    xpu_i32 less;   /* x's zero point, or what is added to it if elements are biased */
} conv_int8_params;

/* Dimensions are depth, height, width. A vector has 16 bytes (XMX with SIMD8: 32; without a matrix engine:
 * four channels). Forward and gradient of x: rows of the product are pixels of the result, columns its
 * channels, and the im2col operand is x or y. Gradient of w: rows are channels k, columns are pairs of a tap
 * and a channel c, and the im2col operand is x. */
typedef struct conv_matrix_params {
    xpu_addr im2col, other, result;
    xpu_addr bias;    /* added to each channel; 0 for none */
    xpu_addr partial; /* partial sums of split-K: [slice][phase][group][row][column] with `pitch` per row, a
                         multiple of 4 */
    xpu_i64 result_stride[5], bias_stride; /* strides of n (k for w), channel, and dimensions, in elements */
    xpu_i64 pitch, slices;
    xpu_u32 groups, rows, columns; /* rows and columns of the product in one group and phase */
    xpu_u32 depth;                 /* gradient of w: pixels of y. Others: unpadded elements of K per tap */
    xpu_u32 slice;                 /* steps of K per slice */
    xpu_u32 channels;              /* gradient of w: unpadded columns per tap */
    xpu_u32 result_channels;       /* per group of the result (w: rows) */
    xpu_i32 result_pitch[4]; /* if the result's channels are contiguous: strides of n and of the dimensions,
                                in vectors */
    xpu_i32 im2col_pitch[4],
        im2col_group;                 /* strides of n and of the dimensions, and between groups, in vectors */
    xpu_i32 dense_width;              /* XMX: bytes of the dense operand's columns */
    xpu_i32 dense_pitch, dense_group; /* stride between rows, in vectors: channel k of w; pixel of y or, with
                                         contiguous pixels, channel of y */
    xpu_i32 dense_image;              /* with contiguous pixels: gap between images, in vectors */
    xpu_i32 dense_tap[3];             /* w: stride between the taps of a phase, in vectors, … */
    xpu_i32 dense_tap_first[3];       /* … and between taps 0 and 1 */
    xpu_i32 source[3];                /* size of the im2col operand's tensor */
    xpu_i32 step[3],
        tap_step[3]; /* distance in the source between adjacent pixels, and between adjacent taps */
    xpu_i32 pixel_step[3], size[3]; /* of the result: distance between the pixels of a phase; its size */
    conv_divisor extent[3];         /* pixels of the product's rows (gradient of w: of K) */
    conv_divisor per_tap;           /* vectors per tap along K (gradient of w: columns) */
    xpu_u32 phases[3];
    conv_phase phase[3][CONV_PHASES];
    conv_int8_params bytes;
} conv_matrix_params;

/* Parameters of conv_depthwise.cl. `extent` counts strips of STRIP pixels, not pixels, along the width. */
typedef struct conv_depthwise_params {
    post_ops_params end;         /* the post-op's operand has the strides of the result */
    conv_matrix_params geometry; /* result, im2col operand, partial sums, slices, and their strides */
    xpu_addr w, y;               /* y: for the gradient of w, when w is the result */
    xpu_i64 w_stride[5];
    xpu_i32 y_pitch[4];        /* in vectors */
    xpu_u32 channels, vectors; /* of 16 bytes each */
    xpu_u32 strips, blocks;    /* strips of all pixels in a phase; work-groups for these */
    xpu_u32 chunks;            /* chunks of the vectors, one per work-group */
    xpu_u32 runs, turns;       /* gradient of w: runs of taps, and work-groups for these */
    xpu_u32 slice;             /* gradient of w: strips per slice */
    xpu_i32 apart[3];          /* distance between the taps of a phase */
} conv_depthwise_params;

/* Packs any tensor to [n][pixels][groups][padded]; each group's channels are padded with zeros. */
typedef struct conv_pack_params {
    xpu_addr from, to;
    xpu_i64 stride[5]; /* in elements */
    xpu_i64 pixels;    /* pixels of all n */
    xpu_u32 groups, channels, padded;
    xpu_u32 tiles; /* tiles of pixels per n, if pixels are contiguous */
    conv_divisor size[3];
} conv_pack_params;
#endif

/* Channels-last convolutions: layouts of their tensors, and the relation of pixels and taps. */
#ifndef XPU_OPS_CONV_GEOMETRY_H
#define XPU_OPS_CONV_GEOMETRY_H

#include "kernels/conv/conv.h"
#include "kernels/conv/conv_matrix.h"
#include "ops/gemm/product.h"
#include "xpu/ops/conv.h"

/* The output of the convolution y = x * w: forward, or the gradient of x or w. */
typedef enum conv_direction { CONV_FORWARD, CONV_BACKWARD_DATA, CONV_BACKWARD_WEIGHT } conv_direction;

static inline int64_t conv_volume(const xpu_i32 size[3]) { return (int64_t)size[0] * size[1] * size[2]; }
/* Do sizes, strides, padding and dilation fit the kernels' 32-bit parameters? */
bool conv_sizes_fit_32bit(const xpu_conv *conv, const xpu_tensor *x, const xpu_tensor *w,
                          const xpu_tensor *y);
/* The convolution y = x * w; x and y change roles where it is transposed. */
conv_params conv_params_of(const xpu_conv *conv, const xpu_tensor *x, const xpu_tensor *w,
                           const xpu_tensor *y);
conv_divisor conv_divisor_of(int64_t value);
int64_t conv_common_divisor(int64_t a, int64_t b);

/* A tensor of n x (groups x channels) x size; for w, n is all of its channels k, and there is one group.
 * Strides count elements and are 0 where there is one element. */
typedef struct conv_operand {
    xpu_addr data;
    xpu_i64 stride[5]; /* n, channel, depth, height, width */
    int64_t n, groups, channels;
    int64_t vec; /* elements in 16 bytes; by multiply-adds four, whose addresses are multiples of 16, too */
    int64_t
        whole; /* required alignment of channels, strides and address, in elements: a multiple of a vector */
    const xpu_i32 *size;
    void *workspace; /* of the packed copy, or NULL */
} conv_operand;

conv_operand conv_operand_of(xpu_dtype dtype, xpu_addr data, const xpu_i64 stride[5], int64_t n,
                             int64_t groups, int64_t channels, const xpu_i32 *size);
static inline int64_t conv_padded_channels(const conv_operand *o) { return align_up(o->channels, o->whole); }
/* Are all channels of a group aligned without packing? */
bool conv_is_vector_aligned(const conv_operand *o);
/* The layout of the packed copy; each group's channels are padded with zeros. */
conv_operand conv_packed(const conv_operand *o);
/* The common stride of consecutive pixels over the dimensions from `first` on (0: n, 2, 3, 4), or -1 if there
 * is none; 0 for a single pixel. */
int64_t conv_pixel_pitch(const conv_operand *o, int first);

/* Sets the fields of `m` that describe dimensions. False if they can't be represented. */
bool conv_describe_dimensions(const conv_params *p, conv_direction direction, conv_matrix_params *m);
/* The smallest and the largest source coordinate that is accessed along a dimension. */
void conv_source_range(const conv_matrix_params *m, int d, int64_t *least, int64_t *most);
/* Do all offsets in the operand, in vectors, fit 32 bits? For the im2col operand, including those of its
 * padding. */
bool conv_offsets_fit_32bit(const conv_operand *o, const conv_matrix_params *m);
/* Are there three spatial dimensions? */
bool conv_is_3d(const conv_params *p);

#endif

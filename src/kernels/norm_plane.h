/* Parameters of norm_plane.cl.
 *
 * The tensor is seen as planes of `length` contiguous elements or, channels last, as a matrix [positions,
 * channels]. A set is what shares one mean: the planes first, first + step, … of one channel (batch norm) or
 * one group (group norm). */
#ifndef XPU_KERNELS_NORM_PLANE_H
#define XPU_KERNELS_NORM_PLANE_H
#include "shared.h"

typedef struct norm_plane_params {
    xpu_addr result;       /* y or dx */
    xpu_addr input;        /* x */
    xpu_addr grad;         /* dy */
    xpu_addr mean, rstd;   /* SAVE: of each set; those of evaluation are mean and variance, RUNNING */
    xpu_addr weight, bias; /* W [channels] or 0 */
    xpu_addr running_mean, running_var; /* RUNNING [channels] or 0 */
    xpu_addr grad_weight, grad_bias;    /* W [channels] or 0 */
    xpu_addr partial;                   /* ACC [slices, sets, 3]: count, mean, sum of squared deviations;
                                           backward ACC [slices, sets, 2]: sum of dy, of dy (x - mean) */
    xpu_addr coefficients;              /* ACC [4, channels or planes]: y = c0 dy + c1 (x - c2) + c3 */
    xpu_i64 batch, channels, groups;
    xpu_i64 sets, slices;
    xpu_i64 planes;              /* in the whole tensor */
    xpu_i64 planes_per_slice;    /* of one set */
    xpu_i64 length;              /* of a plane; channels last: positions */
    xpu_i64 positions_per_slice; /* channels last */
    xpu_i64 channel_elements;    /* of the whole batch */
    float eps, eps_rest, momentum, momentum_rest;
    xpu_u32 planes_per_row_group;
    xpu_u32 evaluate; /* statistics are given, not the batch's own */
} norm_plane_params;
#endif

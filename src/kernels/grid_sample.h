/* Parameters of grid_sample.cl. Arrays are in the order depth, height, width. */
#ifndef XPU_KERNELS_GRID_SAMPLE_H
#define XPU_KERNELS_GRID_SAMPLE_H
#include "shared.h"

typedef struct grid_sample_params {
    xpu_addr input, grid, output; /* T; backward: output is its gradient */
    xpu_addr grad_input;          /* ACC, or 0 */
    xpu_addr grad_grid;           /* T */
    xpu_i64 channels, positions;  /* of the output, in all batches */
    xpu_i32 in[3], out[3];
    xpu_i32 align_corners, unused;
} grid_sample_params;
#endif

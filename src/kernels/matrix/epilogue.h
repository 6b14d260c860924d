/* What kernels of products and convolutions are told of the way out (xpu/ops/epilogue.h). */
#ifndef XPU_KERNELS_EPILOGUE_H
#define XPU_KERNELS_EPILOGUE_H
#include "shared.h"

typedef struct ending_params {
    xpu_addr other;            /* what each number is combined with */
    xpu_u64 scalar[2];         /* the bits of the sums' type */
    xpu_u32 combine, epilogue; /* xpu_combine and xpu_epilogue, which the kernel is built for */
} ending_params;

/* How bytes leave, and what is combined with them comes in (xpu_way_out): the result's scale is one over
 * that. */
typedef struct leaving_params {
    float out_scale, other_scale;
    xpu_i32 out_zero, other_zero;
} leaving_params;
#endif

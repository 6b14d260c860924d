/* Parameters of post-ops and output quantization (xpu/ops/epilogue.h) in matrix product and convolution
 * kernels. */
#ifndef XPU_KERNELS_EPILOGUE_H
#define XPU_KERNELS_EPILOGUE_H
#include "shared.h"

typedef struct post_ops_params {
    xpu_addr other;            /* operand of the binary post-op */
    xpu_u64 scalar[2];         /* scalars of the epilogue: bits of the accumulator's type */
    xpu_u32 combine, epilogue; /* xpu_combine and xpu_epilogue; build options of the kernel */
} post_ops_params;

/* Quantization of an 8-bit output and of the binary post-op's operand (xpu_output_quant); out_scale is the
 * inverse of the output's scale. */
typedef struct output_quant_params {
    float out_scale, other_scale;
    xpu_i32 out_zero, other_zero;
} output_quant_params;
#endif

/* Convolutions as implicit GEMM on matrix engines, or by multiply-adds on GPUs. */
#ifndef XPU_OPS_CONV_MATRIX_H
#define XPU_OPS_CONV_MATRIX_H

#include "ops/conv/conv_geometry.h"
#include "ops/kernel.h"
#include "xpu/ops/gemm.h"

/* Supports devices whose matrix engine can compute this convolution, and GPUs on which multiply-adds are
 * expected to be faster than the direct kernel. *done tells whether it was launched. `p` has the parameters
 * that don't depend on the kernel. */
xpu_status conv_by_matrix(xpu_stream *stream, xpu_dtype dtype, conv_direction direction, const conv_params *p,
                          bool *done);

/* A quantized convolution. */
typedef struct conv_int8 {
    conv_int8_params params; /* but `blank`; `less` is x's zero point */
    bool x_unsigned;
    uint8_t blank; /* value of x in its padding, if params.x_zero is 0 */
    const xpu_output_quant *way;
} conv_int8;
/* Likewise for int8 w; p->bias is float32. */
xpu_status conv_int8_by_matrix(xpu_stream *stream, const conv_int8 *bytes, const conv_params *p, bool *done);

#endif

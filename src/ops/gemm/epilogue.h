/* Post-ops and output quantization of products and convolutions (xpu/ops/epilogue.h): checks, kernel
 * parameters and build options. */
#ifndef XPU_OPS_EPILOGUE_IMPL_H
#define XPU_OPS_EPILOGUE_IMPL_H

#include "kernels/matrix/epilogue.h"
#include "ops/kernel.h"
#include "xpu/ops/gemm.h"

/* Are the post-ops supported for the dtype? `what` starts the error message. */
xpu_status post_ops_check(const char *what, xpu_dtype dtype, const xpu_post_ops *ending, const void *other);
/* `other`: operand of the binary post-op, or NULL. */
post_ops_params post_ops_params_of(xpu_dtype dtype, const xpu_post_ops *ending, const void *other);
/* Is the dtype supported as output, or as operand of the binary post-op, of float32 results? Has it a scale
 * and a zero point? */
bool output_quant_supports(xpu_dtype dtype);
bool output_quant_is_8bit(xpu_dtype dtype);
/* Kernel parameters of the output quantization; `way` may be NULL. */
output_quant_params output_quant_params_of(const xpu_output_quant *way);
/* Adds the options of kernels/matrix/quantize_output.h. */
void output_quant_spec(kernel_spec *spec, const xpu_output_quant *way);
/* Adds the options of kernels/matrix/epilogue_math.h. */
void post_ops_spec(kernel_spec *spec, const post_ops_params *params);

static inline bool post_ops_is_none(const xpu_post_ops *ending) {
    return ending->combine == XPU_COMBINE_NONE && ending->epilogue == XPU_EPILOGUE_NONE;
}

#endif

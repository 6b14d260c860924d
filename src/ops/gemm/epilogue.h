/* Post-ops and output quantization of products and convolutions (xpu/ops/epilogue.h): checks, kernel
 * parameters and build options. */
#ifndef XPU_OPS_EPILOGUE_IMPL_H
#define XPU_OPS_EPILOGUE_IMPL_H

#include "kernels/matrix/epilogue.h"
#include "ops/kernel.h"
#include "xpu/ops/gemm.h"

/* Are the post-ops supported for the dtype? `what` starts the error message. */
xpu_status ending_check(const char *what, xpu_dtype dtype, const xpu_ending *ending, const void *other);
/* `other`: operand of the binary post-op, or NULL. */
ending_params ending_params_of(xpu_dtype dtype, const xpu_ending *ending, const void *other);
/* Is the dtype supported as output, or as operand of the binary post-op, of float32 results? Has it a scale
 * and a zero point? */
bool leaving_takes(xpu_dtype dtype);
bool leaving_is_byte(xpu_dtype dtype);
/* Kernel parameters of the output quantization; `way` may be NULL. */
leaving_params leaving_params_of(const xpu_way_out *way);
/* Adds the options of kernels/matrix/quantize_output.h. */
void leaving_spec(kernel_spec *spec, const xpu_way_out *way);
/* Adds the options of kernels/matrix/epilogue_math.h. */
void ending_spec(kernel_spec *spec, const ending_params *params);

static inline bool ending_is_none(const xpu_ending *ending) {
    return ending->combine == XPU_COMBINE_NONE && ending->epilogue == XPU_EPILOGUE_NONE;
}

#endif

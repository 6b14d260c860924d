/* The ending of products and convolutions (xpu/ops/epilogue.h), as their kernels are built for it and told.
 */
#ifndef XPU_OPS_EPILOGUE_IMPL_H
#define XPU_OPS_EPILOGUE_IMPL_H

#include "kernels/matrix/epilogue.h"
#include "ops/kernel.h"
#include "xpu/ops/gemm.h"

/* Is there such an ending for the dtype? `what` begins the error's text. */
xpu_status ending_check(const char *what, xpu_dtype dtype, const xpu_ending *ending, const void *other);
/* `other`: the memory that it combines with, or NULL. */
ending_params ending_params_of(xpu_dtype dtype, const xpu_ending *ending, const void *other);
/* The dtypes that numbers of float32 leave as, or that what is added to them has; those of them with a scale
 * and a zero point. */
bool leaving_takes(xpu_dtype dtype);
bool leaving_is_byte(xpu_dtype dtype);
/* How numbers of float32 leave; `way` may be NULL. */
leaving_params leaving_params_of(const xpu_way_out *way);
/* Adds the facts that kernels/matrix/leaving.h wants. */
void leaving_spec(kernel_spec *spec, const xpu_way_out *way);
/* Adds the facts that kernels/matrix/epilogue_math.h wants. */
void ending_spec(kernel_spec *spec, const ending_params *params);

static inline bool ending_is_none(const xpu_ending *ending) {
    return ending->combine == XPU_COMBINE_NONE && ending->epilogue == XPU_EPILOGUE_NONE;
}

#endif

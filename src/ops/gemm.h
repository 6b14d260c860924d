/* What products of plain operands and of quantised ones share. */
#ifndef OPS_GEMM_H
#define OPS_GEMM_H

#include "kernel.h"
#include "kernels/gemm.h"
#include "xpu/ops/gemm.h"

/* XPU_ERROR_INVALID_ARGUMENT or XPU_ERROR_NOT_SUPPORTED, with a text. */
xpu_status gemm_check(const xpu_gemm_args *args, const xpu_device_properties *properties);
/* All but how k is cut. */
gemm_params gemm_params_of(const xpu_gemm_args *args);

#endif

/* What products of plain operands and of quantised ones share. */
#ifndef OPS_GEMM_H
#define OPS_GEMM_H

#include "kernel.h"
#include "kernels/gemm.h"
#include "quantised.h"
#include "xpu/ops/gemm.h"

/* XPU_ERROR_INVALID_ARGUMENT or XPU_ERROR_NOT_SUPPORTED, with a text. */
xpu_status gemm_check(const xpu_gemm_args *args, const xpu_device_properties *properties);
/* All but how k is cut. */
gemm_params gemm_params_of(const xpu_gemm_args *args);

/* to = from, of batch x rows x columns. */
xpu_status gemm_copy(xpu_stream *stream, const xpu_matrix *to, xpu_dtype to_dtype, const xpu_matrix *from,
                     xpu_dtype from_dtype, int64_t batch, int64_t rows, int64_t columns);

/* Both operands int8 without zero points, with scales by lines where results are floating and the device has
 * instructions for it, or without, where they are int32: sums in int32. */
bool gemm_takes_int8(const xpu_device_properties *properties, const xpu_gemm_args *args,
                     const xpu_quantised *a, const xpu_quantised *b);
xpu_status gemm_int8(xpu_stream *stream, const xpu_device_properties *properties, const xpu_gemm_args *args,
                     const xpu_quantised *a, const xpu_quantised *b);

/* Lines of B along k, in octets, which a device's units multiply as they are read; A isn't quantised. */
bool gemm_takes_lines(const xpu_device_properties *properties, const xpu_gemm_args *args,
                      const quantised_operand *b);
xpu_status gemm_of_lines(xpu_stream *stream, const xpu_device_properties *properties,
                         const xpu_gemm_args *args, const quantised_operand *b);

#endif

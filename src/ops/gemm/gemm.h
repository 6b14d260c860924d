/* Shared by products of unquantized and of quantized operands. */
#ifndef OPS_GEMM_H
#define OPS_GEMM_H

#include "kernels/gemm/gemm.h"
#include "ops/gemm/quantized.h"
#include "ops/kernel.h"
#include "xpu/ops/gemm.h"

/* Returns XPU_ERROR_INVALID_ARGUMENT or XPU_ERROR_NOT_SUPPORTED with a message. */
xpu_status gemm_check(const xpu_gemm_args *args, const xpu_device_properties *properties);
/* Scales that multiply the fp32 sums: one per row of A or column of B, or one for all. */
typedef struct vector_scale {
    const void *data; /* NULL: 1 */
    xpu_dtype dtype;  /* float32, bfloat16 or float16 */
    int64_t batch, line;
} vector_scale;
/* Integers for zero-point compensation: one per row of A or column of B, plus a common one. */
typedef struct vector_zero_point {
    const int32_t *data; /* NULL: 0 */
    int64_t line;
    int32_t plus;
} vector_zero_point;
/* Processing of the sums in addition to xpu_gemm_args: zero-point compensation (compensation the product of
 * integers of A's rows and B's columns), scales, and output quantization `way` (may be NULL). */
typedef struct gemm_post_process {
    vector_scale a, b;
    vector_zero_point compensation_a, compensation_b;
    bool is_compensated;
    const xpu_output_quant *way;
} gemm_post_process;
/* Are an operand's scales constant along k, so that they can be applied to sums? A is the left operand. */
bool gemm_vector_scale_of(const xpu_quant_params *q, bool is_left, int64_t k, vector_scale *scale);
/* Adds their build options. */
void gemm_post_process_spec(kernel_spec *spec, const gemm_post_process *after);

/* All parameters except the split of k. */
gemm_params gemm_params_of(const xpu_gemm_args *args, const gemm_post_process *after);

/* to = from, of batch x rows x columns. */
xpu_status gemm_copy(xpu_stream *stream, const xpu_matrix *to, xpu_dtype to_dtype, const xpu_matrix *from,
                     xpu_dtype from_dtype, int64_t batch, int64_t rows, int64_t columns);

/* A product of unquantized operands of dtype `operand` (float32 or the result's), with processing of the
 * sums. */
xpu_status gemm_scaled(xpu_stream *stream, const xpu_device_properties *properties, const xpu_gemm_args *args,
                       xpu_dtype operand, const gemm_post_process *after);

/* Grouped products (xpu_gemm_grouped): argument check; `args` with batch strides of 0 for operands that are
 * not batched; and the product by libxpu's own kernels. `after` may be NULL. */
xpu_status gemm_grouped_check(const xpu_gemm_args *args, const xpu_device_properties *properties,
                              xpu_grouped grouped, const int32_t *ends);
xpu_gemm_args gemm_grouped_args(const xpu_gemm_args *args, xpu_grouped grouped);
xpu_status gemm_grouped(xpu_stream *stream, const xpu_device_properties *properties,
                        const xpu_gemm_args *args, xpu_grouped grouped, const int32_t *ends,
                        const gemm_post_process *after);

/* int8 products with int32 sums: both operands are int8 without zero points. Floating results: scales are
 * constant along k and the device has int8 instructions; int32 results: no scales. */
bool gemm_supports_int8(const xpu_device_properties *properties, const xpu_gemm_args *args,
                        const xpu_quant_params *a, const xpu_quant_params *b, gemm_post_process *after);
xpu_status gemm_int8(xpu_stream *stream, const xpu_device_properties *properties, const xpu_gemm_args *args,
                     const gemm_post_process *after);

/* The same for int8 or uint8 A with any processing of the sums. Zero-point compensation: A's zero points
 * (compensation_a) times the sums of B's columns (compensation_b, whose data is NULL if they are unknown).
 * False, without effect, if no matrix engine supports it. */
bool gemm_try_int8(xpu_stream *stream, const xpu_device_properties *properties, const xpu_gemm_args *args,
                   bool a_unsigned, const gemm_post_process *after, xpu_status *status);

/* Products with quantized K-major B that the matrix engine's kernel dequantizes on the fly; A is unquantized.
 * `ends`: ends of groups of rows, or NULL. False, without effect, if it is not supported. */
bool gemm_try_dequant_on_the_fly(xpu_stream *stream, const xpu_device_properties *properties,
                                 const xpu_gemm_args *args, const int32_t *ends, const quantized_operand *b,
                                 const gemm_post_process *after, xpu_status *status);

#endif

/* What products of plain operands and of quantised ones share. */
#ifndef OPS_GEMM_H
#define OPS_GEMM_H

#include "kernels/gemm/gemm.h"
#include "ops/gemm/quantised.h"
#include "ops/kernel.h"
#include "xpu/ops/gemm.h"

/* XPU_ERROR_INVALID_ARGUMENT or XPU_ERROR_NOT_SUPPORTED, with a text. */
xpu_status gemm_check(const xpu_gemm_args *args, const xpu_device_properties *properties);
/* A scale for each line along k (a row of A, a column of B), or for all of them: of sums, in fp32. */
typedef struct line_scale {
    const void *data; /* NULL: 1 */
    xpu_dtype dtype;  /* float32, bfloat16 or float16 */
    int64_t batch, line;
} line_scale;
/* … and a whole number: each line's, and one that is added to it. */
typedef struct line_number {
    const int32_t *data; /* NULL: 0 */
    int64_t line;
    int32_t plus;
} line_number;
/* What becomes of sums besides xpu_gemm_args: they are lessened by products of numbers of A's rows and B's
 * columns, are multiplied by scales, and leave as `way` says, if it isn't NULL. */
typedef struct gemm_after {
    line_scale a, b;
    line_number less_a, less_b;
    bool is_lessened;
    const xpu_way_out *way;
} gemm_after;
/* Are an operand's scales such? A's is the left one. */
bool gemm_scale_of_lines(const xpu_quantised *q, bool is_left, int64_t k, line_scale *scale);
/* What kernels are told of them. */
void gemm_after_spec(kernel_spec *spec, const gemm_after *after);

/* All but how k is cut. */
gemm_params gemm_params_of(const xpu_gemm_args *args, const gemm_after *after);

/* to = from, of batch x rows x columns. */
xpu_status gemm_copy(xpu_stream *stream, const xpu_matrix *to, xpu_dtype to_dtype, const xpu_matrix *from,
                     xpu_dtype from_dtype, int64_t batch, int64_t rows, int64_t columns);

/* A product of plain numbers of dtype `operand`, float32 or that of the result, whose sums have scales. */
xpu_status gemm_scaled(xpu_stream *stream, const xpu_device_properties *properties, const xpu_gemm_args *args,
                       xpu_dtype operand, const gemm_after *after);

/* Of xpu_gemm_grouped: what is refused; `args` with batch strides of 0 where it isn't a batch; and the
 * product of such, by libxpu's own kernels. `after` may be NULL. */
xpu_status gemm_grouped_check(const xpu_gemm_args *args, const xpu_device_properties *properties,
                              xpu_grouped grouped, const int32_t *ends);
xpu_gemm_args gemm_grouped_args(const xpu_gemm_args *args, xpu_grouped grouped);
xpu_status gemm_grouped(xpu_stream *stream, const xpu_device_properties *properties,
                        const xpu_gemm_args *args, xpu_grouped grouped, const int32_t *ends,
                        const gemm_after *after);

/* Both operands int8 without zero points, with scales by lines where results are floating and the device has
 * instructions for it, or without, where they are int32: sums in int32. */
bool gemm_takes_int8(const xpu_device_properties *properties, const xpu_gemm_args *args,
                     const xpu_quantised *a, const xpu_quantised *b, gemm_after *after);
xpu_status gemm_int8(xpu_stream *stream, const xpu_device_properties *properties, const xpu_gemm_args *args,
                     const gemm_after *after);

/* The same of an A that may be uint8, with whatever is to become of the sums, which are lessened by A's zero
 * points (less_a) times the sums of B's columns (less_b, whose data is NULL where nobody knows them): false
 * where no unit does it, and nothing is done. */
bool gemm_try_bytes(xpu_stream *stream, const xpu_device_properties *properties, const xpu_gemm_args *args,
                    bool a_unsigned, const gemm_after *after, xpu_status *status);

/* Lines of B along k, in octets, which a device's units multiply as they are read, A not being quantised:
 * false where they don't, and nothing is done. With `ends`, NULL otherwise, of groups of rows. */
bool gemm_try_lines(xpu_stream *stream, const xpu_device_properties *properties, const xpu_gemm_args *args,
                    const int32_t *ends, const quantised_operand *b, const gemm_after *after,
                    xpu_status *status);

#endif

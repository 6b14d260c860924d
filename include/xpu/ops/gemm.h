/* xpu/ops/gemm.h: matrix multiplication.
 *
 *     out[b] = epilogue(combine(alpha * op(A[b]) op(B[b]) + beta * C[b], other[b]))
 *
 * Shapes: A is m x k, B is k x n; C, other and out are m x n, for each b of `batch`.
 * Transposes are expressed by strides; op() is the identity, or the complex conjugate.
 * Dtypes: one for all matrices, any but bool. fp16 and bf16 accumulate in fp32; integers wrap around. */
#ifndef XPU_OPS_GEMM_H
#define XPU_OPS_GEMM_H

#include "xpu/fault.h"
#include "xpu/ops/epilogue.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A matrix or a batch of matrices. Strides count elements. Inputs may have strides of 0 (broadcast). The
 * stride of a dimension of size 1 is ignored. */
typedef struct xpu_matrix {
    void *data;
    int64_t batch_stride, row_stride, column_stride;
} xpu_matrix;

/* One product.
 *
 * c: optional. With c.data NULL, beta is taken as 0. `c` may be `out`. C is not read when beta is 0.
 * a, b: not read when k is 0.
 * alpha, beta: integers for integer dtypes, real or complex for complex dtypes, else floating.
 * combine, other, epilogue, epilogue_scalar: see xpu/ops/epilogue.h; floating dtypes only. `other` may be
 *     `out`. */
typedef struct xpu_gemm_args {
    xpu_dtype dtype;
    xpu_epilogue epilogue;
    bool conjugate_a, conjugate_b; /* complex dtypes */
    int64_t batch, m, n, k;
    xpu_matrix a, b, c, out;
    xpu_scalar alpha, beta;
    xpu_combine combine;
    xpu_matrix other;
    double epilogue_scalar[2];
} xpu_gemm_args;

XPU_API xpu_status xpu_gemm(xpu_stream *stream, const xpu_gemm_args *args);

/* xpu_gemm that may multiply fp32 as tf32 (11 significant bits) and accumulate in fp32.
 *
 * NVIDIA, compute capability 8.0 and later: inputs are rounded to tf32.
 * Intel XMX with 16 lanes and tf32: inputs are truncated to tf32.
 * Other devices and other dtypes: identical to xpu_gemm. */
XPU_API xpu_status xpu_gemm_tf32(xpu_stream *stream, const xpu_gemm_args *args);

/* Which dimension of a grouped product is split into groups. */
typedef enum xpu_grouped { XPU_GROUPED_ROWS = 1, XPU_GROUPED_COLUMNS, XPU_GROUPED_K } xpu_grouped;

/* `args->batch` products of different sizes, with sizes known to the device only. Never waits for the device.
 *
 * ends: `batch` int32 in device memory. Group g covers indices ends[g - 1] (0 for the first group) up to, not
 *     including, ends[g]. They index rows (of args->m in all), columns (args->n) or k (args->k); ends
 *     that decrease or exceed the size are a fault (xpu/fault.h).
 * XPU_GROUPED_ROWS: A and `out` hold the groups' rows one after another; B is a batch.
 * XPU_GROUPED_COLUMNS: B and `out` hold the groups' columns one after another; A is a batch.
 * XPU_GROUPED_K: A and B hold the groups along k; `out` is a batch, and zero where a group is empty.
 *
 * Rows and columns behind the last end are not written. The batch stride of an operand that is not a batch is
 * ignored. A batch of 0 is valid.
 *
 * Restrictions: floating dtypes; no C; alpha is 1; no post-ops. Else XPU_ERROR_NOT_SUPPORTED. */
XPU_API xpu_status xpu_gemm_grouped(xpu_stream *stream, const xpu_gemm_args *args, xpu_grouped grouped,
                                    const int32_t *ends);

/* Names the instructions that large, aligned products of a dtype use on a device, as text for people:
 * "NVIDIA tensor cores", "Intel XMX", "multiply-add instructions", "portable kernels", ….
 *
 * tf32: report what xpu_gemm_tf32 uses.
 * Products with unsuitable alignment use the next slower kind. On CPU devices "the host's libraries" may
 * take all of them first. The text is static.
 *
 * Errors: XPU_ERROR_INVALID_ARGUMENT for an unknown dtype, XPU_ERROR_NOT_SUPPORTED for a dtype that cannot be
 * multiplied. */
XPU_API xpu_status xpu_gemm_engine(int device, xpu_dtype dtype, bool tf32, const char **engine);

/* Quantization parameters of an operand. The value at row r and column c is
 *
 *     (element[r][c] - zero_offset - zero[R][C]) * scale[R][C],   R = r / group_rows, C = c / group_columns
 *     (element[r][c] - zero_offset) * scale[R][C] + zero[R][C]    if zero_is_added
 *
 * Rows and columns are those of the operand in the product: groups along K span columns of A and rows of B.
 * The xpu_matrix describes the elements. Its strides count elements, packed ones too: of two 4-bit elements
 * in a byte, the first is in the lower bits.
 *
 * scale_is_swizzled: scales have NVIDIA's swizzled layout (blocked scales, as cuBLAS takes them).
 *     Applies to scales of A's rows or B's columns, each shared by several elements along K.
 *     Scale s of row (column) l is at [l % 32][l / 32 % 4][s % 4] of a block of 512 scales, which covers 128
 *     rows (columns) by 4 scales. Blocks are padded to that size and follow each other along K.
 *     The batch stride is the only stride used. There are no zero points.
 * global_scale: one more scale per matrix, applied to the sums. */
typedef struct xpu_quant_params {
    xpu_dtype dtype; /* of the elements: float8 but XPU_FLOAT8_E8M0FNU, float4, int8, uint8, int4, uint4 */
    xpu_dtype scale_dtype; /* float16, bfloat16, float32, float8 */
    xpu_dtype zero_dtype;  /* the same, or an integer of 8 to 32 bits */
    int32_t zero_offset;   /* constant zero point, integers only: 8 for signed 4-bit stored as unsigned */
    bool zero_is_added, scale_is_swizzled;
    const void *scale, *zero;          /* NULL: 1, and 0 */
    int64_t group_rows, group_columns; /* that share a scale and a zero point; 0: all of them */
    int64_t scale_batch_stride, scale_row_stride, scale_column_stride; /* count scales; 0 to broadcast */
    int64_t zero_batch_stride, zero_row_stride, zero_column_stride;
    int64_t scale_count;       /* scales in the groups' swizzled blocks (xpu_gemm_grouped_quantized) */
    const float *global_scale; /* one for each matrix of a batch, or for each group; stride 1. NULL: none */
    int64_t global_scale_stride;
} xpu_quant_params;

/* A product with A, B or both quantized; NULL for an operand that is not.
 *
 * args->dtype: that of all other matrices: float16, bfloat16 or float32.
 * int8 x int8: accumulates in int32 if the device has such instructions, there are no zero points, and the
 *     scales are fp32 per row and per column, or per tensor.
 *     With args->dtype XPU_INT32 and no scales it always does. int32 sums wrap around.
 * m <= 16 with K-major B: B is dequantized on the fly, in registers.
 * Otherwise, scales that are constant along K are applied to the sums.
 *     Anything else is first dequantized to args->dtype.
 *     If both operands have scales that vary and args->dtype is float16, they are dequantized to float32:
 *     float16 has too small a range.
 *
 * Errors: XPU_ERROR_NOT_SUPPORTED for post-ops in that last case. */
XPU_API xpu_status xpu_gemm_quantized(xpu_stream *stream, const xpu_gemm_args *args,
                                      const xpu_quant_params *a, const xpu_quant_params *b);

/* xpu_gemm_grouped with A, B or both quantized; NULL for an operand that is not.
 *
 * args->dtype: float16, bfloat16 or float32.
 * Scales and zero points: indexed by rows and columns of the whole operand. Batch strides apply to an operand
 *     that is a batch and, with XPU_GROUPED_K, to each group's scales if these are constant along K.
 * Swizzled scales: each group of a split operand has its own blocks, group after group.
 *     XPU_GROUPED_ROWS: A's next group starts in a new row of blocks.
 *     XPU_GROUPED_K: each group's scales along K start with its first element, and its blocks are adjacent.
 *     scale_count is the number of scales of all groups; elements with a scale beyond it are NaN.
 * A is dequantized to args->dtype first. B is dequantized on the fly with XPU_GROUPED_ROWS if the device can,
 * else first, except the elements of empty groups.
 *
 * Errors: XPU_ERROR_NOT_SUPPORTED if both operands have scales that vary along K, or zero points, and
 * args->dtype is float16. */
XPU_API xpu_status xpu_gemm_grouped_quantized(xpu_stream *stream, const xpu_gemm_args *args,
                                              xpu_grouped grouped, const int32_t *ends,
                                              const xpu_quant_params *a, const xpu_quant_params *b);

/* Dtype and quantization of a result, and of the operand of the binary post-op.
 *
 * Dtypes: float32, float16, bfloat16, int8, uint8. int8 and uint8 stand for (integer - zero) * scale.
 * Results are rounded to nearest, ties to even, and saturated. */
typedef struct xpu_output_quant {
    xpu_dtype dtype, other_dtype; /* of args->out and args->other */
    double scale, other_scale;
    int32_t zero, other_zero;
} xpu_output_quant;

/* xpu_gemm_quantized with a requantized result, in one pass.
 *
 * args->dtype: XPU_FLOAT32, the dtype of C. The batch is 1. `combine` is none or XPU_COMBINE_ADD.
 * b_sums: the sum of each column of B (n int32 in device memory), or NULL. Required for int32 accumulation if
 *     A has zero points.
 * int8 or uint8 A with scales and zero points per row, times int8 B with scales per column, accumulates in
 * int32 on devices with such instructions. */
XPU_API xpu_status xpu_gemm_requantized(xpu_stream *stream, const xpu_gemm_args *args,
                                        const xpu_quant_params *a, const xpu_quant_params *b,
                                        const int32_t *b_sums, const xpu_output_quant *output_quant);

/* One of several right operands, k x n, that share the left one. */
typedef struct xpu_gemm_part {
    xpu_matrix b;
    const xpu_quant_params *quantized; /* NULL: elements of args->dtype */
    const void *c; /* n contiguous elements, added to each row; NULL in all parts: no bias */
    int64_t n;
} xpu_gemm_part;

/* 1 to 4 parts. `norm` may be NULL. */
typedef struct xpu_gemm_fusion {
    int count;
    const xpu_gemm_part *part;
    bool gated;
    const void *norm;
    double eps;
    bool norm_plus_one; /* the weights of all norms, head norms too, are 1 + the stored ones */
} xpu_gemm_fusion;

/* Horizontally fused products with few rows (decoding), in one launch:
 *
 *     out = epilogue(combine([A B_0 + c_0 | A B_1 + c_1 | …], other))    concatenated: args->n columns in all
 *     out = epilogue(A B_0) * (A B_1)    if `gated`: two parts of args->n columns, no bias, no `combine`
 *
 * norm: k elements of args->dtype, or NULL. Applies RMS norm to A first: each row is divided by the root of
 *     (its mean square + eps) and multiplied by `norm`.
 * Parts: all have the same kind of quantization and the same strides of B, scales and zero points, except
 *     from group to group along K.
 * args->batch is 1. args->b, c, alpha and beta are ignored.
 *
 * Errors: XPU_ERROR_INVALID_ARGUMENT for inconsistent sizes.
 * XPU_ERROR_NOT_SUPPORTED, with nothing done, if the device has no kernel for the whole: on CPUs; for more
 * than 16 rows (unquantized: more than 1); for operands that are not K-major and 16-byte aligned. */
XPU_API xpu_status xpu_gemm_fused(xpu_stream *stream, const xpu_gemm_args *args,
                                  const xpu_gemm_fusion *fusion);

/* A key or value cache of args->dtype. Strides count elements: between rows (sequences), heads and positions.
 * The elements of a head are contiguous. */
typedef struct xpu_kv_cache {
    void *data;
    int64_t row_stride, head_stride, position_stride;
} xpu_kv_cache;

/* RoPE and KV-cache write for queries, keys and values, one token per row. With `cos` and `sin` NULL there is
 * no RoPE. */
typedef struct xpu_qkv_rope {
    int64_t depth;           /* elements of a head, even */
    const void *cos, *sin;   /* `depth` elements of args->dtype each */
    int64_t angle_stride;    /* elements between the angles of two rows; 0: the same for all */
    double first_sign;       /* 1 or -1 */
    const int64_t *position; /* device memory: position in both caches; negative ones count from the end */
    int64_t length;          /* positions in each cache */
    xpu_kv_cache keys, values;
    const void *query_norm, *key_norm; /* `depth` elements of args->dtype each, or both NULL */
    double head_eps;
} xpu_qkv_rope;

/* Fused QKV projection with RoPE and KV-cache write.
 *
 * Three parts: queries, keys and values. Not gated, no post-ops.
 * out: the queries, args->n columns. Keys and values are written to the caches.
 * RoPE: for the halves a and b of a head of queries or keys, with cos = [c | d] and sin = [s | t],
 *
 *     a' = a c + first_sign b s,    b' = b d + a t
 *
 * query_norm, key_norm: RMS norm of each head before RoPE, with `head_eps`.
 *
 * A position out of range is reported to `fault` (xpu/fault.h; may be NULL), and nothing is written to the
 * caches. Other errors: as xpu_gemm_fused. */
XPU_API xpu_status xpu_gemm_qkv_rope(xpu_stream *stream, const xpu_gemm_args *args,
                                     const xpu_gemm_fusion *fusion, const xpu_qkv_rope *qkv,
                                     xpu_fault *fault);

/* out[b][r][c] = the value of element [r][c] of `matrix`. `dtype`, of `out`: float16, bfloat16 or float32. */
XPU_API xpu_status xpu_dequantize(xpu_stream *stream, const xpu_matrix *matrix, const xpu_quant_params *q,
                                  int64_t batch, int64_t rows, int64_t columns, xpu_dtype dtype,
                                  const xpu_matrix *out);

/* The host's BLAS. On CPU devices with XPU_MEMORY_HOST, products are offered to the provider first.
 *
 * A provider's function is called when the stream's earlier work is done, and must finish its own before it
 * returns. It gets no post-ops. It may be NULL, and may decline with XPU_ERROR_NOT_SUPPORTED: libxpu's
 * kernels then do the work.
 *
 * The table is copied; NULL removes it. Set it before other threads compute. OPENXPU_HOST_PROVIDER=0 in the
 * environment disables it. */
typedef struct xpu_host_provider {
    xpu_status (*gemm)(xpu_stream *stream, const xpu_gemm_args *args);
    /* bfloat16 operands, float32 result that is not rounded to bfloat16; alpha is 1. */
    xpu_status (*gemm_f32_output)(xpu_stream *stream, const xpu_gemm_args *args);
} xpu_host_provider;
XPU_API xpu_status xpu_set_host_provider(const xpu_host_provider *provider);

/* True when operations on this device go to the provider first. */
XPU_API bool xpu_host_provider_active(int device);

#ifdef __cplusplus
}
#endif
#endif

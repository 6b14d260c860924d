/* xpu/ops/gemm.h: matrix products.
 *
 *     out[b] = epilogue(combine(alpha * op(A[b]) op(B[b]) + beta * C[b], other[b]))
 *
 * A is m x k, B is k x n, C, other and out are m x n, for each b of `batch`. Transposes are strides.
 * All matrices have one dtype: any but bool. Halves are summed in fp32, integers wrap around. */
#ifndef XPU_OPS_GEMM_H
#define XPU_OPS_GEMM_H

#include "xpu/fault.h"
#include "xpu/ops/epilogue.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A matrix, or a batch of them. Strides count elements, may be 0 in what is read (broadcast), and needn't
 * be set where the size is 1. */
typedef struct xpu_matrix {
    void *data;
    int64_t batch_stride, row_stride, column_stride;
} xpu_matrix;

/* One product. `c.data` may be NULL: beta is then taken as 0; `c` may be `out`. C is not read when beta
 * is 0, nor are A and B when k is 0. alpha and beta are integers for integer dtypes, may be complex for
 * complex ones, and are floating otherwise. `combine`, `other` (which
 * may be `out`), `epilogue` and its scalars (xpu/ops/epilogue.h) are for floating dtypes. */
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

/* The same where fp32 may be multiplied as tf32, its numbers cut to 11 bits and the sums in fp32: on NVIDIA's
 * GPUs from compute capability 8.0 on, which round, and on Intel's with such units of 16 lanes, which don't.
 * Elsewhere, and for other dtypes, it is xpu_gemm. */
XPU_API xpu_status xpu_gemm_tf32(xpu_stream *stream, const xpu_gemm_args *args);

/* Which dimension of a product is cut into groups. */
typedef enum xpu_grouped { XPU_GROUPED_ROWS = 1, XPU_GROUPED_COLUMNS, XPU_GROUPED_K } xpu_grouped;

/* `args->batch` products of different sizes, whose sizes the device knows: group g has the rows (columns, k)
 * from where the group before ends, the first one's from 0, to before ends[g], of args->m (n, k) in all.
 * `ends` is `batch` int32 in device memory. With XPU_GROUPED_ROWS A and `out` hold the groups' rows one after
 * the other and B is a batch; with _COLUMNS B and `out` do, and A is a batch; with _K A and B do along k, and
 * `out` is a batch, zeros where a group is empty. The batch strides of what isn't a batch aren't used. Ends
 * that go back, or beyond the size, make empty groups; rows and columns behind the last end stay as they are.
 *
 * Nothing waits for the device. Floating dtypes; C is NULL, alpha 1, and nothing is combined. A group without
 * elements is fine, and so is a batch of 0. */
XPU_API xpu_status xpu_gemm_grouped(xpu_stream *stream, const xpu_gemm_args *args, xpu_grouped grouped,
                                    const int32_t *ends);

/* By what the device multiplies numbers of a dtype in large products whose operands suit it, as text for
 * people: "NVIDIA's matrix units", "multiply-adds of GPUs", "plain kernels", …; with `tf32` as xpu_gemm_tf32
 * would. Products that don't suit it take the next one of these. On host devices "the host's libraries" may
 * take them all first. The text is static. XPU_ERROR_INVALID_ARGUMENT where there is no such dtype,
 * XPU_ERROR_NOT_SUPPORTED where products refuse it. */
XPU_API xpu_status xpu_gemm_unit(int device, xpu_dtype dtype, bool tf32, const char **unit);

/* What an operand that is stored in fewer bits carries beside its matrix. The number at row r and column c is
 *
 *     (element[r][c] - middle - zero[R][C]) * scale[R][C],   R = r / group_rows, C = c / group_columns
 *     (element[r][c] - middle) * scale[R][C] + zero[R][C]    where zero_is_added
 *
 * with the rows and columns of the operand as the product takes it, so that groups along K are of columns in
 * A and of rows in B. The matrix's data and strides are those of the elements; strides count elements, also
 * of dtypes that have several to a byte: of two 4-bit elements the first lies in the lower bits.
 *
 * Scales of A's rows and B's columns, each of several elements along k, may lie in tiles, one behind the
 * other, as other makers' units read them: scale_is_tiled. The lines, rows of A and columns of B, are taken
 * by 128, the scales along each by 4, what is missing in the last ones being there, and 512 scales are a
 * tile: [l % 32][l / 32 % 4][s % 4] for scale s of line l. Tiles follow each other along k. Of the strides
 * the batch's alone counts then, and there is no zero.
 *
 * What a matrix is multiplied by as a whole, whole_scale, is multiplied with sums. */
typedef struct xpu_quantised {
    xpu_dtype dtype; /* of the elements: float8 but XPU_FLOAT8_E8M0FNU, float4, int8, uint8, int4, uint4 */
    xpu_dtype scale_dtype; /* float16, bfloat16, float32, float8 */
    xpu_dtype zero_dtype;  /* the same, or an integer of 8 to 32 bits */
    int32_t middle;        /* of integers: 8 for signed 4-bit ones that are stored from 0 on */
    bool zero_is_added, scale_is_tiled;
    const void *scale, *zero;          /* NULL: 1, and 0 */
    int64_t group_rows, group_columns; /* that share a scale and a zero; 0: all of them */
    int64_t scale_batch_stride, scale_row_stride, scale_column_stride; /* count scales; 0 to broadcast */
    int64_t zero_batch_stride, zero_row_stride, zero_column_stride;
    int64_t scale_count; /* of groups' tiles (xpu_gemm_grouped_quantised) */
    /* One more, of all elements of a matrix: of each of a batch, or of each group, with a stride of 1. */
    const float *whole_scale;
    int64_t whole_scale_stride;
} xpu_quantised;

/* The product with A, B or both stored as `a` and `b` say, NULL for one that isn't quantised; args->dtype,
 * float16, bfloat16 or float32, is that of the other matrices. Up to 16 rows of A are multiplied with a B
 * whose lines lie along k as it is read. int8 times int8 without zero points, with fp32 scales that are the
 * same along k, each a line's or all lines', is summed in int32 where the device has instructions for that,
 * and with XPU_INT32 for args->dtype and no scales everywhere; such sums wrap around. Otherwise scales that
 * are the same along k are multiplied with the sums, and what else is quantised is written down as numbers of
 * args->dtype first, or of float32 where both operands have scales that vary and that is float16, which has
 * few powers of two; nothing can be combined with the result then (XPU_ERROR_NOT_SUPPORTED). */
XPU_API xpu_status xpu_gemm_quantised(xpu_stream *stream, const xpu_gemm_args *args, const xpu_quantised *a,
                                      const xpu_quantised *b);

/* xpu_gemm_grouped with A, B or both quantised (NULL: not). Scales and zeros are of rows and columns as they
 * are counted in the whole operand: batch strides count for what is a batch, and with XPU_GROUPED_K, of
 * scales that are the same along k, for each group's. Scales in tiles are each group's own where an operand
 * is cut, group behind group: with XPU_GROUPED_ROWS A's next group begins in a new row of tiles, and with
 * XPU_GROUPED_K each group's scales along k begin with its first element, and its tiles lie together; of
 * these there are scale_count in all, and elements whose scale would lie behind them are NaN. All of A is
 * written down as args->dtype, float16, bfloat16 or float32, first; B's elements are read where they lie by
 * units that can, with XPU_GROUPED_ROWS, and written down likewise otherwise, but those of empty groups.
 * XPU_ERROR_NOT_SUPPORTED where both have scales that vary along k, or zeros, and args->dtype is float16. */
XPU_API xpu_status xpu_gemm_grouped_quantised(xpu_stream *stream, const xpu_gemm_args *args,
                                              xpu_grouped grouped, const int32_t *ends,
                                              const xpu_quantised *a, const xpu_quantised *b);

/* How numbers leave, and what they are combined with comes in: float32, float16, bfloat16, or int8 and uint8,
 * which stand for (integer - zero) * scale, and are rounded to the nearest, ties to even, and cut off. */
typedef struct xpu_way_out {
    xpu_dtype dtype, other_dtype; /* of args->out and args->other */
    double scale, other_scale;
    int32_t zero, other_zero;
} xpu_way_out;

/* xpu_gemm_quantised with such a way out, in one pass; args->dtype is XPU_FLOAT32, that of C, the batch is 1
 * and the combination none or XPU_COMBINE_ADD. int8 or uint8 with scales and zero points by rows times int8
 * with scales by columns is summed in int32 on devices that have instructions for it. Zero points of A need
 * `b_sums` for that: the sum of each column of B, n of them; NULL where they aren't known. */
XPU_API xpu_status xpu_gemm_requantised(xpu_stream *stream, const xpu_gemm_args *args, const xpu_quantised *a,
                                        const xpu_quantised *b, const int32_t *b_sums,
                                        const xpu_way_out *way);

/* A right operand, k x n, of several that share the left one. */
typedef struct xpu_gemm_part {
    xpu_matrix b;
    const xpu_quantised *quantised; /* NULL: numbers of args->dtype */
    const void *c; /* n neighbours that are added to each row, or NULL: the same in all parts */
    int64_t n;
} xpu_gemm_part;

/* `count` parts, 1 to 4. `norm` may be NULL. */
typedef struct xpu_joined {
    int count;
    const xpu_gemm_part *part;
    bool gated;
    const void *norm;
    double eps;
    bool norm_plus_one; /* norms' weights, also of heads, are one more than what lies there */
} xpu_joined;

/* Products of a few rows, as a step of decoding has them, in one launch:
 *
 *     out = epilogue(combine([A B_0 + c_0 | A B_1 + c_1 | …], other))    beside each other, args->n columns
 * in all out = epilogue(A B_0) * (A B_1)    where `gated`: two parts of args->n columns; nothing is combined
 * or added
 *
 * With `norm`, k numbers of args->dtype, each row of A is divided by the root of its mean square and `eps`,
 * and multiplied by these, first. All parts are quantised alike, and their b, scales and zero points have the
 * same strides but for those from group to group along k. args->batch is 1; b, c, alpha and beta of args
 * aren't used.
 *
 * XPU_ERROR_NOT_SUPPORTED, with nothing done, where the device has no kernel that does all this at once: on
 * processors, in more than 16 rows (numbers: one), for operands that don't lie along k at multiples of 16
 * bytes. XPU_ERROR_INVALID_ARGUMENT for sizes that don't fit. */
XPU_API xpu_status xpu_gemm_joined(xpu_stream *stream, const xpu_gemm_args *args, const xpu_joined *joined);

/* Where a cache of args->dtype begins, and the elements from one row's (a sequence's), head's and place's to
 * the next one's; a head's elements lie beside each other. */
typedef struct xpu_kv_cache {
    void *data;
    int64_t row_stride, head_stride, place_stride;
} xpu_kv_cache;

/* What becomes of queries, keys and values of one token a row. `cos` and `sin` may be NULL: nothing is
 * turned. */
typedef struct xpu_cached {
    int64_t depth;           /* elements of a head, even */
    const void *cos, *sin;   /* `depth` numbers of args->dtype each */
    int64_t angle_stride;    /* elements from a row's angles to the next one's; 0: the same for all */
    double first_sign;       /* 1 or -1 */
    const int64_t *position; /* on the device: the place in both caches; negative ones count from their end */
    int64_t length;          /* places of both */
    xpu_kv_cache keys, values;
    const void *query_norm, *key_norm; /* `depth` numbers of args->dtype each, or both NULL */
    double head_eps;
} xpu_cached;

/* xpu_gemm_joined of three parts, queries, keys and values, that doesn't gate, combine or end otherwise: out
 * = the queries, args->n columns, and the other two go to their places in the caches. Queries and keys are
 * turned first (rotary embedding): of a head's first and second half, a and b, with cos = c d and sin = s t,
 *
 *     a' = a c + first_sign b s,    b' = b d + a t
 *
 * and before that, with `query_norm` and `key_norm`, divided by the root of its head's mean square and
 * `head_eps`, and multiplied by these.
 *
 * A position that isn't there is a fault (xpu/fault.h), and nothing is written to the caches. `fault` may be
 * NULL. */
XPU_API xpu_status xpu_gemm_cached(xpu_stream *stream, const xpu_gemm_args *args, const xpu_joined *joined,
                                   const xpu_cached *cached, xpu_fault *fault);

/* out[b][r][c] = the number of element [r][c] of `matrix`; `dtype`: float16, bfloat16 or float32. */
XPU_API xpu_status xpu_dequantise(xpu_stream *stream, const xpu_matrix *matrix, const xpu_quantised *q,
                                  int64_t batch, int64_t rows, int64_t columns, xpu_dtype dtype,
                                  const xpu_matrix *out);

/* The host's own libraries. On host devices, whose memory the host can address, operations are handed to
 * the provider once one is set; the stream's work is done when it is called, and its own must be done when
 * it returns. A function may be NULL, and may decline with XPU_ERROR_NOT_SUPPORTED: libxpu's kernels then
 * do the work. What it is handed has no epilogue and combines nothing. The table is copied; NULL takes it
 * away. Set it before other threads compute. OPENXPU_HOST_PROVIDER=0 in the environment keeps it from being
 * used. */
typedef struct xpu_host_provider {
    xpu_status (*gemm)(xpu_stream *stream, const xpu_gemm_args *args);
    /* Of bfloat16 with a result of float32, sums that aren't rounded; alpha is 1. */
    xpu_status (*gemm_wide)(xpu_stream *stream, const xpu_gemm_args *args);
} xpu_host_provider;
XPU_API xpu_status xpu_set_host_provider(const xpu_host_provider *provider);

/* True when operations on this device go to the provider first. */
XPU_API bool xpu_host_provider_active(int device);

#ifdef __cplusplus
}
#endif
#endif

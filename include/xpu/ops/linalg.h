/* xpu/ops/linalg.h: LU and Cholesky factorization, and triangular solves.
 *
 * Dtypes: fp32, fp64, complex64, complex128.
 * Matrices: batches, in place, with arbitrary strides that are not 0 where written. Swapping column_stride
 *     and row_stride transposes.
 * Errors of a matrix are in `info`, int32 [batch] on the device. Nothing here waits for the device. */
#ifndef XPU_OPS_LINALG_H
#define XPU_OPS_LINALG_H

#include "gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xpu_factor_args {
    xpu_dtype dtype;
    int64_t batch, m, n; /* m x n; xpu_cholesky: m x m, ignores n */
    xpu_matrix a;
    int32_t *info;
} xpu_factor_args;

/* A = P L U. `a` becomes U and, below its diagonal, L without its unit diagonal.
 *
 * pivots: int32 [batch, min(m, n)]. Step i exchanged row i with row pivots[i] - 1.
 * pivot: true selects the largest element by |re| + |im|, the first of equals, like LAPACK's getrf; false
 *     selects the diagonal.
 * info: i > 0 if the i-th diagonal element of U, counted from 1, is the first zero; else 0. */
XPU_API xpu_status xpu_lu_factor(xpu_stream *stream, const xpu_factor_args *args, bool pivot,
                                 int32_t *pivots);

/* Converts pivots to a permutation.
 *
 * permutation: int64 [batch, rows]. Row i of P^T A (of P A with `inverse`) is row permutation[i] of A.
 * pivots: int32 [batch, count], as above. One outside of 1 … rows exchanges nothing and is reported to
 *     `fault` (xpu/fault.h), which may be NULL. */
XPU_API xpu_status xpu_lu_permutation(xpu_stream *stream, const int32_t *pivots, int64_t batch, int64_t count,
                                      int64_t rows, bool inverse, int64_t *permutation, xpu_fault *fault);

/* A X = B, or conj(A) X = B. A is n x n. Only one triangle is read, with `unit` without its diagonal, which
 * is taken as ones. A's batch_stride may be 0. */
typedef struct xpu_triangular_args {
    xpu_dtype dtype;
    bool upper, unit, conjugate;
    int64_t batch, n, columns;
    xpu_matrix a;
    xpu_matrix x; /* n x columns: input B, output X */
} xpu_triangular_args;

XPU_API xpu_status xpu_triangular_solve(xpu_stream *stream, const xpu_triangular_args *args);

/* A = L L^H of a Hermitian matrix. The lower triangle is read and becomes L; the part above is undefined
 * afterwards.
 * For A = U^H U swap the strides.
 *
 * info: order of the first leading minor that is not positive, in which case L is undefined; else 0. */
XPU_API xpu_status xpu_cholesky(xpu_stream *stream, const xpu_factor_args *args);

#ifdef __cplusplus
}
#endif
#endif

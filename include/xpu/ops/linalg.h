/* xpu/ops/linalg.h: triangular factors of matrices, and systems that have them.
 *
 * Dtypes are fp32, fp64, complex64 and complex128. Matrices are batches with any strides that are not 0 where
 * they are written; column_stride and row_stride swapped are the transpose. Work is done in place. Nothing
 * here waits for the device: what went wrong with a matrix is in `info`, int32 [batch] on the device. */
#ifndef XPU_OPS_LINALG_H
#define XPU_OPS_LINALG_H

#include "gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xpu_factor_args {
    xpu_dtype dtype;
    int64_t batch, m, n; /* m x n; m x m for xpu_cholesky, which doesn't read n */
    xpu_matrix a;
    int32_t *info;
} xpu_factor_args;

/* A = P L U: `a` becomes U with, below its diagonal, L without its diagonal of ones. Row i was exchanged with
 * row pivots[i] - 1 at step i; `pivots` is int32 [batch, min(m, n)]. With `pivot` the largest number by
 * |re| + |im| is taken, the first of several, as LAPACK's getrf does; without it the one on the diagonal.
 * info: i > 0 says that the i-th number of U's diagonal, from 1 on, is 0, the first of several; else 0. */
XPU_API xpu_status xpu_lu_factor(xpu_stream *stream, const xpu_factor_args *args, bool pivot,
                                 int32_t *pivots);

/* Where rows come from, `permutation`, int64 [batch, rows]: row i of P^T A is row permutation[i] of A, or
 * with `inverse` that of P A. `pivots`, int32 [batch, count], are such as above. One outside of 1 … rows is a
 * fault (xpu/fault.h) and exchanges nothing. `fault` may be NULL. */
XPU_API xpu_status xpu_lu_permutation(xpu_stream *stream, const int32_t *pivots, int64_t batch, int64_t count,
                                      int64_t rows, bool inverse, int64_t *permutation, xpu_fault *fault);

/* A X = B, or conj(A) X = B. A is n x n and read in one triangle only, with `unit` but for its diagonal,
 * which is taken for ones; its batch_stride may be 0. */
typedef struct xpu_triangular_args {
    xpu_dtype dtype;
    bool upper, unit, conjugate;
    int64_t batch, n, columns;
    xpu_matrix a;
    xpu_matrix x; /* n x columns: B before, X after */
} xpu_triangular_args;

XPU_API xpu_status xpu_triangular_solve(xpu_stream *stream, const xpu_triangular_args *args);

/* A = L L^H of a Hermitian matrix, of which the lower triangle is read and becomes L; what lies above it is
 * undefined then. For A = U^H U swap the strides. info: the order of the first leading minor that is not
 * positive, where L is undefined; else 0. */
XPU_API xpu_status xpu_cholesky(xpu_stream *stream, const xpu_factor_args *args);

#ifdef __cplusplus
}
#endif
#endif

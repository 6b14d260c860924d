/* xpu/ops/gemm.h: matrix products.
 *
 *     out[b] = epilogue(alpha * op(A[b]) op(B[b]) + beta * C[b])
 *
 * A is m x k, B is k x n, C and out are m x n, for each b of `batch`. Transposes are strides. All four
 * matrices have one dtype: any but bool. Halves are summed in fp32, integers wrap around. */
#ifndef XPU_OPS_GEMM_H
#define XPU_OPS_GEMM_H

#include "xpu/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A matrix, or a batch of them. Strides count elements, may be 0 in what is read (broadcast), and needn't
 * be set where the size is 1. */
typedef struct xpu_matrix {
    void *data;
    int64_t batch_stride, row_stride, column_stride;
} xpu_matrix;

typedef enum xpu_epilogue {
    XPU_EPILOGUE_NONE,
    XPU_EPILOGUE_RELU, /* NaN stays NaN */
    XPU_EPILOGUE_GELU, /* with erf */
    XPU_EPILOGUE_GELU_TANH
} xpu_epilogue;

/* One product. `c.data` may be NULL: beta is then taken as 0; `c` may be `out`. C is not read when beta
 * is 0, nor are A and B when k is 0. alpha and beta are integers for integer dtypes, may be complex for
 * complex ones, and are floating otherwise. Epilogues are for floating dtypes. */
typedef struct xpu_gemm_args {
    xpu_dtype dtype;
    xpu_epilogue epilogue;
    bool conjugate_a, conjugate_b; /* complex dtypes */
    int64_t batch, m, n, k;
    xpu_matrix a, b, c, out;
    xpu_scalar alpha, beta;
} xpu_gemm_args;

XPU_API xpu_status xpu_gemm(xpu_stream *stream, const xpu_gemm_args *args);

/* The host's own libraries. On host devices, whose memory the host can address, operations are handed to
 * the provider once one is set; the stream's work is done when it is called, and its own must be done when
 * it returns. A function may be NULL, and may decline with XPU_ERROR_NOT_SUPPORTED: libxpu's kernels then
 * do the work. The table is copied; NULL takes it away. Set it before other threads compute.
 * OPENXPU_HOST_PROVIDER=0 in the environment keeps it from being used. */
typedef struct xpu_host_provider {
    xpu_status (*gemm)(xpu_stream *stream, const xpu_gemm_args *args);
} xpu_host_provider;
XPU_API xpu_status xpu_set_host_provider(const xpu_host_provider *provider);

/* True when operations on this device go to the provider first. */
XPU_API bool xpu_host_provider_active(int device);

#ifdef __cplusplus
}
#endif
#endif

/* xpu/ops/fft.h: discrete Fourier transforms.
 *
 * Forward: out[k] = scale Σ in[j] exp(-2πi jk / n), over one or several dimensions. Inverse: with +2πi.
 *     There is no normalization besides `scale`.
 *
 * Algorithms:
 * - Lengths with prime factors up to 13: Stockham with radices 2 to 13 (Govindaraju et al., "High
 *   performance discrete Fourier transforms on graphics processors", 2008).
 * - If a row fits into local memory (at most 4,096 complex fp32), it takes one pass over memory. Otherwise
 *   several of up to 1,024 each (Bailey, "FFTs in external or hierarchical memory", 1990).
 * - Other lengths: convolution of a power of 2 of at least 2n - 1 (Bluestein, "A linear filtering approach
 *   to the computation of discrete Fourier transform", 1970).
 *
 * Accuracy: twiddle factors are accurate to rounding. The fp32 error relative to the result's norm is about
 *     1.3e-7 for 4,096 elements and 1.7e-7 for 2^20; twice that with Bluestein. */
#ifndef XPU_OPS_FFT_H
#define XPU_OPS_FFT_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum xpu_fft_kind {
    XPU_FFT_C2C, /* complex to complex, equal shapes */
    XPU_FFT_R2C, /* real to complex: all n along the last of `dim`, or the first n / 2 + 1 */
    XPU_FFT_C2R  /* complex to real: reads n / 2 + 1 elements along the last of `dim`; the others are their
                        conjugates. The imaginary part of the first, and of the middle one if n is even, is
                        taken as 0. */
} xpu_fft_kind;

/* in, out: one dtype, fp16, fp32 or fp64: that of real elements and of the parts of complex ones.
 * Strides count elements, real or complex. They are arbitrary, but elements of `out` must not overlap.
 * Aliasing: `out` is `in` with equal strides, or does not overlap it.
 * Alignment: complex elements are aligned to their size.
 * fp16 is computed in fp32 throughout. */
typedef struct xpu_fft_args {
    xpu_tensor in, out;
    const int *dim; /* distinct dimensions, `count` of them */
    int count;      /* 1 or more */
    xpu_fft_kind kind;
    bool inverse;
    double scale;
} xpu_fft_args;

/* Transforms.
 *
 * Workspace: at most 32 MiB, or what one row needs: up to twice its n complex elements, twelve times with
 *     Bluestein. Several dimensions of fp16, or to real, also need the complex elements of all rows.
 * Errors: XPU_ERROR_INVALID_ARGUMENT for shapes that don't fit.
 * XPU_ERROR_NOT_SUPPORTED for other dtypes, and for lengths above 2^30 (above 2^29 with a prime factor above
 * 13). */
XPU_API xpu_status xpu_fft(xpu_stream *stream, const xpu_fft_args *args);

#ifdef __cplusplus
}
#endif
#endif

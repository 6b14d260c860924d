/* xpu/ops/fft.h: discrete Fourier transforms.
 *
 * Forward, out[k] = scale Σ in[j] exp(-2πi jk / n), over one dimension or several; inverse with +2πi. Nothing
 * is divided by but what `scale` says: 1 / n makes the inverse of a transform with 1.
 *
 * Lengths whose prime factors are at most 13 go by Stockham's algorithm with radices from 2 to 13
 * (Govindaraju et al., "High performance discrete Fourier transforms on graphics processors", 2008), in one
 * pass over memory where a row fits into local memory, 4,096 complex numbers of fp32 at the most, and in
 * several of up to 1,024 each else (Bailey, "FFTs in external or hierarchical memory", 1990). Other lengths
 * are convolutions of a power of 2 of at least 2n - 1 (Bluestein, "A linear filtering approach to the
 * computation of discrete Fourier transform", 1970). Factors are computed to a rounding; the error of fp32,
 * relative to the whole result, is some 1.3e-7 for 4,096 numbers, 1.7e-7 for 2^20 and twice that with
 * Bluestein's. */
#ifndef XPU_OPS_FFT_H
#define XPU_OPS_FFT_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum xpu_fft_kind {
    XPU_FFT_COMPLEX,   /* complex to complex numbers of one shape */
    XPU_FFT_FROM_REAL, /* real to complex ones: all n along the last of `dim`, or the first n / 2 + 1 */
    XPU_FFT_TO_REAL /* n / 2 + 1 complex numbers or more along the last of `dim`, of which no more are read,
                       to n real ones; the others are their conjugates. The imaginary part of the first, and
                       of the middle one where n is even, counts as 0. */
} xpu_fft_kind;

/* `in` and `out` have one dtype, fp16, fp32 or fp64: that of real numbers and of the parts of complex ones,
 * which are pairs. Strides count numbers, be they real or complex, and are any, but that elements of `out`
 * don't overlap. `out` may be `in` with the same strides and be apart from it, nothing in between. Complex
 * numbers are aligned to their size. fp16 is computed in fp32 from the first to the last dimension. */
typedef struct xpu_fft_args {
    xpu_tensor in, out;
    const int *dim; /* different dimensions, `count` of them */
    int count;      /* 1 or more */
    xpu_fft_kind kind;
    bool inverse;
    double scale;
} xpu_fft_args;

/* Rows are done some at a time where they need memory, so that it is no more than 32 MiB or what one row
 * takes: up to twice its n complex numbers, twelve times with Bluestein's. Several dimensions of fp16, or to
 * real numbers, take the complex numbers of all rows in addition. XPU_ERROR_INVALID_ARGUMENT where shapes
 * don't fit, XPU_ERROR_NOT_SUPPORTED for other dtypes and for lengths of more than 2^30, or 2^29 where a
 * prime factor is greater than 13. */
XPU_API xpu_status xpu_fft(xpu_stream *stream, const xpu_fft_args *args);

#ifdef __cplusplus
}
#endif
#endif

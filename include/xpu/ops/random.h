/* xpu/ops/random.h: tensors of random numbers, and dropout.
 *
 * Each function advances the generator's offset (xpu/random.h) by
 *     4     by default
 *     8     for elements of fp64
 *     12    for integers
 *     1024  for xpu_random_from, in which each element has its own subsequence
 * Streams: element e of the iteration uses lane (e mod 1024) / 256 of Philox subsequence e / 1024 * 256 + e
 *     mod 256. The same seed, offset and shape give the same numbers on every device, up to the rounding of
 *     its logarithms and sines.
 * Dtypes: values are computed in fp32 (fp64 for an fp64 output) and rounded to the output's dtype. */
#ifndef XPU_OPS_RANDOM_H
#define XPU_OPS_RANDOM_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum xpu_distribution {
    XPU_UNIFORM,     /* first ≤ x < second */
    XPU_NORMAL,      /* mean first, standard deviation second */
    XPU_LOG_NORMAL,  /* exp of that */
    XPU_EXPONENTIAL, /* rate first; never 0 */
    XPU_CAUCHY,      /* median first, scale second */
    XPU_GEOMETRIC,   /* probability of success first: number of trials, 1, 2, … */
    XPU_BERNOULLI    /* 1 with probability first, else 0 */
} xpu_distribution;

/* Fills the only output (no inputs).
 *
 * Dtypes: XPU_GEOMETRIC and XPU_BERNOULLI: any real one; others: floating. Else XPU_ERROR_NOT_SUPPORTED. */
XPU_API xpu_status xpu_random(xpu_stream *stream, xpu_generator *generator, const xpu_iter *iter,
                              xpu_distribution distribution, double first, double second);

/* Each element of the output is 1 with the probability given by the only input (floating), else 0.
 *
 * A value that is no probability is reported like a failed xpu_assert: XPU_ERROR_ASSERTION, possibly
 * deferred (xpu/fault.h). */
XPU_API xpu_status xpu_random_bernoulli(xpu_stream *stream, xpu_generator *generator, const xpu_iter *iter);

/* Distributions whose parameters are tensors. Inputs and output have one floating dtype. */
typedef enum xpu_parametrized {
    XPU_GAMMA,   /* shape (input 0), scale 1; never below the dtype's smallest normal number */
    XPU_POISSON, /* mean (input 0); negative or NaN: XPU_ERROR_ASSERTION, possibly deferred */
    XPU_BINOMIAL /* successes in (input 0) trials of probability (input 1) */
} xpu_parametrized;

/* Each element of the output has its own parameters. */
XPU_API xpu_status xpu_random_from(xpu_stream *stream, xpu_generator *generator, const xpu_iter *iter,
                                   xpu_parametrized distribution);

/* Integers from `from` to from + range - 1; a range of 0 means all 2^64. Their probabilities differ by less
 * than one part in 2^32. */
XPU_API xpu_status xpu_random_integers(xpu_stream *stream, xpu_generator *generator, const xpu_iter *iter,
                                       int64_t from, uint64_t range);

/* Dropout: one input, two outputs.
 *
 * Output 1 (bool): true with probability 1 - p.
 * Output 0: input / (1 - p) where output 1 is true, else 0. With p = 1 it is all 0.
 * Backward is XPU_POINTWISE_MASKED_SCALE. */
XPU_API xpu_status xpu_dropout(xpu_stream *stream, xpu_generator *generator, const xpu_iter *iter, double p);

#ifdef __cplusplus
}
#endif
#endif

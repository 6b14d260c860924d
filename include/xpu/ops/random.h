/* xpu/ops/random.h: tensors of random numbers, and dropout.
 *
 * Every function draws from `generator` (xpu/random.h) and moves its offset on by 4, by 8 where an
 * element is of fp64, by 12 for integers, by 1,024 for xpu_random_from, where an element has a subsequence to
 * itself. Element number e of the iteration takes lane (e mod 1024) / 256 of Philox on subsequence e / 1024 *
 * 256 + e mod 256: the same seed, offset and shape give the same numbers on every device, up to the rounding
 * of its logarithms and sines. Values are computed in fp32 (fp64 for an fp64 output) and rounded to the
 * output's dtype. */
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
    XPU_GEOMETRIC,   /* probability of success first: the number of trials, 1, 2, … */
    XPU_BERNOULLI    /* 1 with probability first, else 0 */
} xpu_distribution;

/* Fills the one output (no inputs). Outputs of XPU_GEOMETRIC and XPU_BERNOULLI may have any real dtype,
 * others a floating one: else XPU_ERROR_NOT_SUPPORTED. */
XPU_API xpu_status xpu_random(xpu_stream *stream, xpu_generator *generator, const xpu_iter *iter,
                              xpu_distribution distribution, double first, double second);

/* The one output becomes 1 with the probability that the one input (floating) holds, else 0. One that is none
 * is reported as xpu_assert's flags are: XPU_ERROR_ASSERTION, here or later. */
XPU_API xpu_status xpu_random_bernoulli(xpu_stream *stream, xpu_generator *generator, const xpu_iter *iter);

/* Distributions whose parameters are tensors. The output and the inputs have one floating dtype. */
typedef enum xpu_parametrised {
    XPU_GAMMA,   /* of shape (input 0) and scale 1; never below the dtype's smallest normal number */
    XPU_POISSON, /* of mean (input 0); one below 0 or NaN: XPU_ERROR_ASSERTION, here or later */
    XPU_BINOMIAL /* successes among trials (input 0), each with probability (input 1) */
} xpu_parametrised;

/* Each element of the output is drawn by its own parameters. */
XPU_API xpu_status xpu_random_from(xpu_stream *stream, xpu_generator *generator, const xpu_iter *iter,
                                   xpu_parametrised distribution);

/* Whole numbers from … from + range - 1, range 0 means all 2^64. Their probabilities differ by less
 * than one in 2^32. */
XPU_API xpu_status xpu_random_integers(xpu_stream *stream, xpu_generator *generator, const xpu_iter *iter,
                                       int64_t from, uint64_t range);

/* Two outputs, one input: output 0 is input / (1 - p) where output 1 (bool) is true, else 0; an element is
 * kept with probability 1 - p. With p = 1 all is 0. The backward pass is XPU_POINTWISE_MASKED_SCALE. */
XPU_API xpu_status xpu_dropout(xpu_stream *stream, xpu_generator *generator, const xpu_iter *iter, double p);

#ifdef __cplusplus
}
#endif
#endif

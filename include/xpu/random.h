/* xpu/random.h: the counter-based random generator, Philox 4x32-10 (Salmon et al., "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011).
 *
 * A generator is a seed and an offset. A launch that draws random numbers reserves a range of offsets;
 * work-item i of it runs Philox on counter (offset / 4 + round, i) with the seed as key. The same seed,
 * offset and shape give the same numbers on every device. */
#ifndef XPU_RANDOM_H
#define XPU_RANDOM_H

#include <stdint.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xpu_generator xpu_generator;

/* A new generator with the default seed (67280421310721), destroyed by its owner. */
XPU_API xpu_status xpu_generator_create(xpu_generator **generator);
XPU_API xpu_status xpu_generator_destroy(xpu_generator *generator);

/* Setting the seed sets the offset to 0. */
XPU_API xpu_status xpu_generator_set_seed(xpu_generator *generator, uint64_t seed);
XPU_API xpu_status xpu_generator_get_seed(const xpu_generator *generator, uint64_t *seed);
/* The offset is a multiple of 4: else XPU_ERROR_INVALID_ARGUMENT. */
XPU_API xpu_status xpu_generator_set_offset(xpu_generator *generator, uint64_t offset);
XPU_API xpu_status xpu_generator_get_offset(const xpu_generator *generator, uint64_t *offset);

/* Reserves `count` 32-bit numbers for each work-item (rounded up to a multiple of 4): gives the seed and
 * the offset to start from, and moves the offset on. */
XPU_API xpu_status xpu_generator_reserve(xpu_generator *generator, uint64_t count, uint64_t *seed,
                                         uint64_t *offset);

#ifdef __cplusplus
}
#endif
#endif

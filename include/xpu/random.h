/* xpu/random.h: counter-based random generator, Philox 4x32-10 (Salmon et al., "Parallel random numbers: as
 * easy as 1, 2, 3", SC 2011).
 *
 * A generator is a seed and an offset. A launch that draws random numbers reserves a range of offsets. Its
 * work-item i runs Philox with the seed as key on the counters (offset / 4 + round, i). The same seed,
 * offset and shape give the same numbers on every device. */
#ifndef XPU_RANDOM_H
#define XPU_RANDOM_H

#include <stdint.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xpu_generator xpu_generator;

/* A new generator with the default seed (67280421310721), owned by the caller. */
XPU_API xpu_status xpu_generator_create(xpu_generator **generator);
XPU_API xpu_status xpu_generator_destroy(xpu_generator *generator);

/* Setting the seed resets the offset to 0. */
XPU_API xpu_status xpu_generator_set_seed(xpu_generator *generator, uint64_t seed);
XPU_API xpu_status xpu_generator_get_seed(const xpu_generator *generator, uint64_t *seed);
/* Errors: XPU_ERROR_INVALID_ARGUMENT for an offset that is not a multiple of 4. */
XPU_API xpu_status xpu_generator_set_offset(xpu_generator *generator, uint64_t offset);
XPU_API xpu_status xpu_generator_get_offset(const xpu_generator *generator, uint64_t *offset);

/* Reserves `count` 32-bit numbers per work-item, rounded up to a multiple of 4. Gives the seed and the first
 * offset, and advances the generator. */
XPU_API xpu_status xpu_generator_reserve(xpu_generator *generator, uint64_t count, uint64_t *seed,
                                         uint64_t *offset);

#ifdef __cplusplus
}
#endif
#endif

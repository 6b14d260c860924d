/* Parameters of random.cl. Strides are in bytes; n / size[d] = (mul_hi(n, multiplier[d]) + n) >> shift[d]. */
#ifndef XPU_KERNELS_RANDOM_H
#define XPU_KERNELS_RANDOM_H
#include "fault.h"
#include "shared.h"

#define RANDOM_OPERANDS 3
#define RANDOM_DIMS 16
#define RANDOM_GROUP 256 /* work-items; each makes four elements, this far apart */

typedef struct random_params {
    xpu_addr pointer[RANDOM_OPERANDS];
    xpu_u64 seed, counter;    /* counter: the generator's offset / 4 */
    xpu_u64 count;            /* elements */
    xpu_u64 a, b;             /* the distribution's parameters: bits of fp32 or fp64, or integers */
    struct fault_watch watch; /* reports invalid probabilities and rates */
    xpu_u32 dims, padding;
    xpu_u32 size[RANDOM_DIMS], multiplier[RANDOM_DIMS], shift[RANDOM_DIMS];
    xpu_i32 stride[RANDOM_DIMS][RANDOM_OPERANDS];
} random_params;

#ifdef __OPENCL_VERSION__
/* The 32 bits that random.cl draws for element n. */
static inline uint random_word(ulong seed, ulong n, ulong counter) {
    const ulong block = n / (4 * RANDOM_GROUP), within = n % (4 * RANDOM_GROUP), k = within / RANDOM_GROUP;
    const uint4 r = xpu_philox(seed, block * RANDOM_GROUP + within % RANDOM_GROUP, counter);
    return k == 0 ? r.x : k == 1 ? r.y : k == 2 ? r.z : r.w;
}
#endif
#endif

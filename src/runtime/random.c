/* Random generators: a seed and an offset into the stream of random numbers that kernels compute from it
 * (counter-based). Generators are reference-counted (graph.h) and guarded by their own lock, so any thread
 * may call. While a capture draws from a generator, seed and offset cannot be set:
 * XPU_ERROR_INVALID_ARGUMENT. */
#include "core/memory.h"
#include "core/os.h"
#include "runtime/graph.h"

#define DEFAULT_SEED UINT64_C(67280421310721)

struct xpu_generator {
    os_mutex lock; /* guards all fields; seed and offset change together */
    uint64_t seed, offset;
    int holders;  /* references: the owner, and graphs that draw from it */
    int captures; /* active captures that draw from it */
};

static void lock(const xpu_generator *g) { os_mutex_lock(&((xpu_generator *)g)->lock); }
static void unlock(const xpu_generator *g) { os_mutex_unlock(&((xpu_generator *)g)->lock); }

void generator_hold(xpu_generator *generator) {
    lock(generator);
    generator->holders++;
    unlock(generator);
}

void generator_capture(xpu_generator *generator, bool begins) {
    lock(generator);
    generator->captures += begins ? 1 : -1;
    unlock(generator);
}

/* Sets seed (unless NULL) and offset. Refused during a capture, which counts how much the generator draws. */
static xpu_status change(xpu_generator *g, const uint64_t *seed, uint64_t offset) {
    lock(g);
    const bool is_free = g->captures == 0;
    if (is_free && seed) g->seed = *seed;
    if (is_free) g->offset = offset;
    unlock(g);
    if (is_free) return XPU_SUCCESS;
    return xpu_fail(
        XPU_ERROR_INVALID_ARGUMENT,
        "operation not permitted while a graph that uses the generator is capturing: setting its %s",
        seed ? "seed" : "offset");
}

xpu_status xpu_generator_create(xpu_generator **generator) {
    XPU_REJECT_IF(!generator, "generator is NULL");
    xpu_generator *g = core_calloc(1, sizeof *g);
    if (!g) return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for a generator");
    os_mutex_init(&g->lock);
    g->seed = DEFAULT_SEED;
    g->holders = 1;
    *generator = g;
    return XPU_SUCCESS;
}

xpu_status xpu_generator_destroy(xpu_generator *generator) {
    if (!generator) return XPU_SUCCESS;
    lock(generator);
    const bool is_held = --generator->holders > 0;
    unlock(generator);
    if (is_held) return XPU_SUCCESS;
    os_mutex_destroy(&generator->lock);
    core_free(generator);
    return XPU_SUCCESS;
}

xpu_status xpu_generator_set_seed(xpu_generator *generator, uint64_t seed) {
    XPU_REJECT_IF(!generator, "generator is NULL");
    return change(generator, &seed, 0);
}

xpu_status xpu_generator_get_seed(const xpu_generator *generator, uint64_t *seed) {
    XPU_REJECT_IF(!generator || !seed, "generator or seed is NULL");
    lock(generator);
    *seed = generator->seed;
    unlock(generator);
    return XPU_SUCCESS;
}

xpu_status xpu_generator_set_offset(xpu_generator *generator, uint64_t offset) {
    XPU_REJECT_IF(!generator, "generator is NULL");
    XPU_REJECT_IF(offset % 4 != 0, "offset must be a multiple of 4");
    return change(generator, NULL, offset);
}

xpu_status xpu_generator_get_offset(const xpu_generator *generator, uint64_t *offset) {
    XPU_REJECT_IF(!generator || !offset, "generator or offset is NULL");
    lock(generator);
    *offset = generator->offset;
    unlock(generator);
    return XPU_SUCCESS;
}

xpu_status xpu_generator_reserve(xpu_generator *generator, uint64_t count, uint64_t *seed, uint64_t *offset) {
    XPU_REJECT_IF(!generator || !seed || !offset, "generator, seed or offset is NULL");
    XPU_REJECT_IF(count > UINT64_MAX - 3, "count is too large");
    lock(generator);
    *seed = generator->seed;
    *offset = generator->offset;
    generator->offset += (count + 3) / 4 * 4; /* wraps around after 2^64 numbers, as the counter does */
    unlock(generator);
    return XPU_SUCCESS;
}

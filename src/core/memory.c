/* The fault-testing build's allocators, which count steps and fail the chosen one; otherwise memory.h maps
 * the names to the C library's. Any thread may call: the counters are atomic. */
#include "core/memory.h"

#ifdef OPENXPU_FAULTS
#include <stdatomic.h>

static atomic_ulong steps, fail_at;

unsigned long xpu_fault_arm(unsigned long n) {
    atomic_store(&fail_at, n);
    return atomic_exchange(&steps, 0);
}

int core_fault(void) {
    unsigned long at = atomic_load(&fail_at);
    return atomic_fetch_add(&steps, 1) + 1 == at;
}

void *core_malloc(size_t size) { return core_fault() ? NULL : malloc(size); }
void *core_calloc(size_t count, size_t size) { return core_fault() ? NULL : calloc(count, size); }
void *core_realloc(void *old, size_t size) { return core_fault() ? NULL : realloc(old, size); }
char *core_strdup(const char *text) { return core_fault() ? NULL : strdup(text); }
#else
typedef int core_memory_is_malloc;
#endif

#include "host_provider.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "kernel.h"

static xpu_host_provider table;
static atomic_bool table_set;

/* May the environment's user have it at all? */
static bool allowed(void) {
    static atomic_int answer; /* 0 not asked yet, 1 no, 2 yes */
    int known = atomic_load_explicit(&answer, memory_order_relaxed);
    if (known == 0) {
        const char *value = getenv("OPENXPU_HOST_PROVIDER");
        known = value && strcmp(value, "0") == 0 ? 1 : 2;
        atomic_store_explicit(&answer, known, memory_order_relaxed);
    }
    return known == 2;
}

xpu_status xpu_set_host_provider(const xpu_host_provider *provider) {
    atomic_store_explicit(&table_set, false, memory_order_release);
    if (provider) {
        table = *provider;
        atomic_store_explicit(&table_set, true, memory_order_release);
    }
    return XPU_SUCCESS;
}

bool xpu_host_provider_active(int device) {
    const xpu_device_properties *properties;
    if (!atomic_load_explicit(&table_set, memory_order_acquire) || !allowed()) return false;
    if (xpu_device_get_properties(device, &properties) != XPU_SUCCESS) return false;
    return properties->type == XPU_DEVICE_CPU && properties->host_unified_memory;
}

const xpu_host_provider *host_provider(xpu_stream *stream) {
    if (!xpu_host_provider_active(xpu_stream_device(stream))) return NULL;
    const xpu_device_properties *properties;
    if (xpu_device_get_properties(xpu_stream_device(stream), &properties) != XPU_SUCCESS) return NULL;
    if (!properties->has_local_exec && xpu_stream_synchronize(stream) != XPU_SUCCESS) return NULL;
    return &table;
}

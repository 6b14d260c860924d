/* Memory capacity of devices, and OPENXPU_HOST_MEMORY (capacity.h). */
#include "cl/capacity.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const double host_share = 0.75;

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* The power of two of a unit: "", "B", "k", "MB", "GiB", …; -1 for anything else. */
static int unit_bits(const char *unit) {
    static const char letters[] = "kmgt";
    int bits = 0;
    const char *letter = *unit ? strchr(letters, tolower((unsigned char)*unit)) : NULL;
    if (letter) {
        bits = 10 * (int)(letter - letters + 1);
        unit++;
        if (*unit == 'i') unit++;
    }
    if (*unit == 'B' || *unit == 'b') unit++;
    return *unit ? -1 : bits;
}

xpu_status capacity_of_host(const os_memory *memory, const char *setting, uint64_t *bytes) {
    const uint64_t most = least(memory->total, memory->limit);
    double share = host_share;
    if (setting && *setting) {
        char *unit;
        const double number = strtod(setting, &unit);
        const bool is_share = !strcmp(unit, "%") || (!*unit && number <= 1);
        const int bits = is_share ? 0 : unit_bits(unit);
        share =
            is_share ? number / (*unit ? 100 : 1) : number * (double)(UINT64_C(1) << (bits < 0 ? 0 : bits));
        if (unit == setting || bits < 0 || !(share > 0) || (is_share && share > 1))
            return xpu_fail(XPU_ERROR_INVALID_ARGUMENT,
                            "OPENXPU_HOST_MEMORY=%s: must be a fraction of host memory (above 0, at most 1 "
                            "or 100%%) or a size such as 12GiB",
                            setting);
        if (!is_share) {
            *bytes = share < (double)most ? (uint64_t)share : most;
            return XPU_SUCCESS;
        }
    }
    *bytes = share < 1 ? (uint64_t)(share * (double)most) : most;
    return XPU_SUCCESS;
}

uint64_t capacity_left(const os_memory *memory) { return least(memory->available, memory->limit_left); }

/* All CPU devices share the host's memory, in equal parts. */
xpu_status cl_divide_host_memory(void) {
    os_memory memory;
    int hosts = 0;
    for (int i = 0; i < cl_count(); i++) hosts += cl_devices[i].properties.built_for_cpu;
    for (int i = 0; i < cl_count(); i++) {
        xpu_device_properties *p = &cl_devices[i].properties;
        if (!p->built_for_cpu) continue;
        if (!os_memory_read("", &memory))
            memory = (os_memory){.total = p->total_memory, .limit = OS_UNLIMITED};
        uint64_t all;
        XPU_TRY(capacity_of_host(&memory, getenv("OPENXPU_HOST_MEMORY"), &all));
        p->total_memory = least(p->total_memory, all / (uint64_t)hosts);
        p->max_allocation = least(p->max_allocation, p->total_memory);
    }
    return XPU_SUCCESS;
}

uint64_t cl_memory_left(int index, bool swapping) {
    const xpu_device_properties *p = &cl_devices[index].properties;
    os_memory memory;
    if (p->built_for_cpu || p->is_integrated) {
        if (!os_memory_read("", &memory)) return OS_UNLIMITED;
        if (swapping) memory.available += memory.swap;
        return capacity_left(&memory);
    }
    uint64_t used;
    if (!os_gpu_memory_used("", p->pci_address, &used)) return OS_UNLIMITED;
    return used < p->total_memory ? p->total_memory - used : 0;
}

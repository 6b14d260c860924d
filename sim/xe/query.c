/* DRM_IOCTL_XE_DEVICE_QUERY: what the device is. */
#include <errno.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <time.h>

#include "xe/xe.h"

/* Copies an answer out, or its size if the program asks for that. */
static int answer(struct xe_device_query *query, const void *data, size_t size) {
    if (!query->size) {
        query->size = (uint32_t)size;
        return 0;
    }
    if (query->size != size) return -EINVAL;
    memcpy((void *)(uintptr_t)query->data, data, size);
    return 0;
}

static int engines(struct xe_device_query *query) {
    struct {
        uint32_t count, pad;
        struct xe_engine engines[3];
    } reply = {.count = 3};
    reply.engines[0].id.class = XE_CLASS_RENDER;
    reply.engines[1].id.class = XE_CLASS_COPY;
    reply.engines[2].id.class = XE_CLASS_COMPUTE;
    return answer(query, &reply, sizeof reply);
}

static uint64_t host_memory(void) {
    struct sysinfo host;
    uint64_t bytes = sysinfo(&host) ? 1ull << 30 : (uint64_t)host.totalram * host.mem_unit;
    return bytes / SIM_PAGE * SIM_PAGE;
}

static uint32_t page_size(const struct sim_product *product) {
    return product->large_pages ? 65536 : SIM_PAGE;
}

static int memory_regions(const struct xe_file *file, struct xe_device_query *query) {
    struct {
        uint32_t count, pad;
        struct xe_memory_region regions[2];
    } reply = {.count = 1};
    reply.regions[0].page_size = SIM_PAGE;
    reply.regions[0].size = host_memory();
    uint64_t video = file->product->video_memory;
    if (!video) return answer(query, &reply, sizeof reply - sizeof reply.regions[1]);
    reply.count = 2;
    reply.regions[1] = (struct xe_memory_region){.class = 1,
                                                 .instance = 1,
                                                 .page_size = page_size(file->product),
                                                 .size = video,
                                                 .used = file->video_used,
                                                 .visible_size = video};
    return answer(query, &reply, sizeof reply);
}

static int config(const struct sim_product *product, struct xe_device_query *query) {
    bool video = product->video_memory != 0;
    struct {
        uint32_t count, pad;
        uint64_t values[5]; /* id and revision, flags, alignment, bits of addresses, highest priority */
    } reply = {5,
               0,
               {product->device_id | (uint64_t)product->revision << 16, video, page_size(product),
                (uint64_t)product->address_bits, 2}};
    return answer(query, &reply, sizeof reply);
}

static int gts(const struct sim_product *product, struct xe_device_query *query) {
    bool video = product->video_memory != 0;
    struct {
        uint32_t count, pad;
        struct xe_gt gt;
    } reply = {.count = 1};
    reply.gt.clock_hz = SIM_TIMESTAMP_HZ;
    reply.gt.near_regions = video ? 2 : 1;
    reply.gt.far_regions = video ? 1 : 0;
    memcpy(reply.gt.ip, product->ip, sizeof product->ip);
    return answer(query, &reply, sizeof reply);
}

/* The table that the firmware gives: entries of key, number of values, value. Keys: those that Intel's
 * compute runtime reads (DeviceBlobConstants). */
static int hwconfig(const struct sim_product *product, struct xe_device_query *query) {
    const uint32_t slices = (uint32_t)product->slices, cores = slices * (uint32_t)product->cores_per_slice;
    const uint32_t units = (uint32_t)product->units_per_core;
    const uint32_t table[] = {
        1,  1, slices,
        2,  1, cores, /* dual subslices */
        3,  1, units, /* of a dual subslice */
        10, 1, 2,     /* memory channels */
        11, 1, 4,     /* memory type: GDDR6 */
        15, 1, (uint32_t)product->threads_per_unit,
        23, 1, 1,                 /* render engines */
        24, 1, 1,                 /* compute engines */
        62, 1, 16,                /* MiB for saved contexts */
        64, 1, 512,               /* KiB of an L3 bank */
        65, 1, product->local_kb, /* of a dual subslice */
        70, 1, cores,             /* subslices */
        71, 1, units,             /* of a subslice */
        73, 1, product->local_kb, /* of a subslice */
        83, 1, 1,                 /* regions */
    };
    return answer(query, table, sizeof table);
}

static int topology(const struct sim_product *product, struct xe_device_query *query) {
    /* Products with 8 vector engines in a core have engines of 16 lanes, reported under another type. */
    uint16_t units = product->units_per_core == 16 ? XE_TOPOLOGY_UNITS : XE_TOPOLOGY_UNITS_SIMD16;
    struct xe_topology reply[] = {
        {0, XE_TOPOLOGY_GEOMETRY, 8, {0}}, {0, XE_TOPOLOGY_COMPUTE, 8, {0}}, {0, units, 8, {0}}};
    for (int i = 0; i < product->slices * product->cores_per_slice; i++) {
        reply[0].mask[i / 8] |= (uint8_t)(1 << i % 8);
        reply[1].mask[i / 8] |= (uint8_t)(1 << i % 8);
    }
    for (int i = 0; i < product->units_per_core; i++) reply[2].mask[i / 8] |= (uint8_t)(1 << i % 8);
    return answer(query, reply, sizeof reply);
}

static int engine_cycles(struct xe_device_query *query) {
    struct xe_engine_cycles reply = {.width = 36, .cpu_delta = 100};
    if (!query->size) return answer(query, &reply, sizeof reply);
    if (query->size != sizeof reply) return -EINVAL;
    const struct xe_engine_cycles *asked = (const void *)(uintptr_t)query->data;
    reply.engine = asked->engine;
    reply.clock = asked->clock;
    struct timespec now;
    if (clock_gettime(asked->clock, &now)) return -EINVAL;
    reply.cpu_time = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    reply.cycles = sim_timestamp() & ((1ull << reply.width) - 1);
    return answer(query, &reply, sizeof reply);
}

static int firmware(struct xe_device_query *query) {
    struct xe_firmware reply = {.major = 70, .minor = 36};
    if (query->size == sizeof reply) {
        reply.type = ((const struct xe_firmware *)(uintptr_t)query->data)->type;
        if (reply.type > 1) return -EINVAL;
    }
    return answer(query, &reply, sizeof reply);
}

int xe_query(struct xe_file *file, struct xe_device_query *query) {
    if (query->extensions || query->reserved[0] || query->reserved[1]) return -EINVAL;
    switch (query->query) {
    case XE_QUERY_ENGINES: return engines(query);
    case XE_QUERY_MEMORY_REGIONS: return memory_regions(file, query);
    case XE_QUERY_CONFIG: return config(file->product, query);
    case XE_QUERY_GTS: return gts(file->product, query);
    case XE_QUERY_HWCONFIG: return hwconfig(file->product, query);
    case XE_QUERY_TOPOLOGY: return topology(file->product, query);
    case XE_QUERY_ENGINE_CYCLES: return engine_cycles(query);
    case XE_QUERY_FIRMWARE: return firmware(query);
    case XE_QUERY_OA_UNITS:
    case XE_QUERY_EU_STALL:
    case XE_QUERY_PXP_STATUS: return -ENODEV;
    default: return -EINVAL;
    }
}

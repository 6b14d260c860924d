/* The xe driver's interface to programs, as far as it is served here: structs and numbers of Linux'
 * include/uapi/drm/xe_drm.h and drm.h under shorter names. Fields called `reserved` must be zero. */
#ifndef SIM_XE_UAPI_H
#define SIM_XE_UAPI_H

#include <stddef.h>
#include <stdint.h>

/* Numbers of ioctls, of type 'd'. */
enum {
    DRM_VERSION = 0x00,
    DRM_GEM_CLOSE = 0x09,
    DRM_PRIME_HANDLE_TO_FD = 0x2d,
    DRM_PRIME_FD_TO_HANDLE = 0x2e,
    XE_DEVICE_QUERY = 0x40,
    XE_GEM_CREATE,
    XE_GEM_MMAP_OFFSET,
    XE_VM_CREATE,
    XE_VM_DESTROY,
    XE_VM_BIND,
    XE_EXEC_QUEUE_CREATE,
    XE_EXEC_QUEUE_DESTROY,
    XE_EXEC_QUEUE_GET_PROPERTY,
    XE_EXEC,
    XE_WAIT_USER_FENCE,
    XE_OBSERVATION, /* from here on: not served, as by kernels without it */
    XE_MADVISE,
    XE_VM_QUERY_MEM_RANGE_ATTRS,
    XE_EXEC_QUEUE_SET_PROPERTY,
    XE_VM_GET_PROPERTY,
    DRM_SYNCOBJ_CREATE = 0xbf,
    DRM_SYNCOBJ_DESTROY,
    DRM_SYNCOBJ_WAIT = 0xc3,
    DRM_SYNCOBJ_RESET,
    DRM_SYNCOBJ_SIGNAL,
};

struct drm_version {
    int32_t major, minor, patch;
    size_t name_size;
    char *name;
    size_t date_size;
    char *date;
    size_t description_size;
    char *description;
};
struct drm_gem_close {
    uint32_t handle, pad;
};

struct xe_extension {
    uint64_t next;
    uint32_t name, pad;
};
struct xe_set_property { /* an extension of name 0 */
    struct xe_extension base;
    uint32_t property, pad;
    uint64_t value, reserved[2];
};

/* ---- queries ---- */
enum {
    XE_QUERY_ENGINES,
    XE_QUERY_MEMORY_REGIONS,
    XE_QUERY_CONFIG,
    XE_QUERY_GTS,
    XE_QUERY_HWCONFIG,
    XE_QUERY_TOPOLOGY,
    XE_QUERY_ENGINE_CYCLES,
    XE_QUERY_FIRMWARE,
    XE_QUERY_OA_UNITS,
    XE_QUERY_PXP_STATUS,
    XE_QUERY_EU_STALL,
};
struct xe_device_query {
    uint64_t extensions;
    uint32_t query, size;
    uint64_t data, reserved[2];
};
enum xe_class {
    XE_CLASS_RENDER,
    XE_CLASS_COPY,
    XE_CLASS_VIDEO_DECODE,
    XE_CLASS_VIDEO_ENHANCE,
    XE_CLASS_COMPUTE,
    XE_CLASS_VM_BIND
};
struct xe_engine_id {
    uint16_t class, instance, gt, pad;
};
struct xe_engine {
    struct xe_engine_id id;
    uint64_t reserved[3];
};
struct xe_memory_region {
    uint16_t class, instance; /* class 0: the host's memory, 1: video memory */
    uint32_t page_size;
    uint64_t size, used, visible_size, visible_used, reserved[6];
};
struct xe_gt {
    uint16_t type, tile, id, pad[3];
    uint32_t clock_hz;
    uint64_t near_regions, far_regions;
    uint16_t ip[3], pad2;
    uint64_t reserved[7];
};
enum {
    XE_TOPOLOGY_GEOMETRY = 1,
    XE_TOPOLOGY_COMPUTE = 2,
    XE_TOPOLOGY_UNITS = 4,
    XE_TOPOLOGY_UNITS_SIMD16 = 5
};
struct xe_topology {
    uint16_t gt, type;
    uint32_t bytes;
    uint8_t mask[8];
};
struct xe_engine_cycles {
    struct xe_engine_id engine;
    int32_t clock;
    uint32_t width;
    uint64_t cycles, cpu_time, cpu_delta;
};
struct xe_firmware {
    uint16_t type, pad;
    uint32_t branch, major, minor, patch, pad2;
    uint64_t reserved;
};

/* ---- buffer objects ---- */
#define XE_GEM_DEFER_BACKING (1u << 0)
#define XE_GEM_SCANOUT (1u << 1)
#define XE_GEM_NEEDS_VISIBLE_VRAM (1u << 2)
struct xe_gem_create {
    uint64_t extensions, size;
    uint32_t placement, flags, vm, handle;
    uint16_t cpu_caching, pad[3];
    uint64_t reserved[2];
};
#define XE_MMAP_PCI_BARRIER (1u << 0)
struct xe_gem_mmap_offset {
    uint64_t extensions;
    uint32_t handle, flags;
    uint64_t offset, reserved[2];
};

/* ---- address spaces ---- */
#define XE_VM_SCRATCH_PAGE (1u << 0)
#define XE_VM_LONG_RUNNING (1u << 1)
#define XE_VM_FAULT_MODE (1u << 2)
struct xe_vm_create {
    uint64_t extensions;
    uint32_t flags, vm;
    uint64_t reserved[2];
};
struct xe_vm_destroy {
    uint32_t vm, pad;
    uint64_t reserved[2];
};
enum { XE_BIND_MAP, XE_BIND_UNMAP, XE_BIND_MAP_USERPTR, XE_BIND_UNMAP_ALL, XE_BIND_PREFETCH };
#define XE_BIND_READONLY (1u << 0)
#define XE_BIND_IMMEDIATE (1u << 1)
#define XE_BIND_NULL (1u << 2)
#define XE_BIND_DUMPABLE (1u << 3)
#define XE_BIND_CHECK_PXP (1u << 4)
struct xe_bind_op {
    uint64_t extensions;
    uint32_t object;
    uint16_t pat_index, pad;
    uint64_t offset; /* in the object, or a pointer of the process */
    uint64_t range, address;
    uint32_t op, flags, prefetch_region, pad2;
    uint64_t reserved[3];
};
struct xe_vm_bind {
    uint64_t extensions;
    uint32_t vm, queue, pad, count;
    union {
        struct xe_bind_op op; /* if count is 1 */
        uint64_t ops;         /* else an array */
    };
    uint32_t pad2, sync_count;
    uint64_t syncs, reserved[2];
};

/* ---- exec queues ---- */
enum { XE_QUEUE_PRIORITY, XE_QUEUE_TIMESLICE, XE_QUEUE_PXP_TYPE };
#define XE_QUEUE_LOW_LATENCY (1u << 0)
struct xe_queue_create {
    uint64_t extensions;
    uint16_t width, placements;
    uint32_t vm, flags, queue;
    uint64_t instances, reserved[2];
};
struct xe_queue_destroy {
    uint32_t queue, pad;
    uint64_t reserved[2];
};
enum { XE_QUEUE_BANNED };
struct xe_queue_property {
    uint64_t extensions;
    uint32_t queue, property;
    uint64_t value, reserved[2];
};
struct xe_exec {
    uint64_t extensions;
    uint32_t queue, sync_count;
    uint64_t syncs, address;
    uint16_t batches, pad[3];
    uint64_t reserved[2];
};

/* ---- syncs ---- */
enum { XE_SYNC_SYNCOBJ, XE_SYNC_TIMELINE, XE_SYNC_USER_FENCE };
#define XE_SYNC_SIGNAL (1u << 0) /* else the job waits */
struct xe_sync {
    uint64_t extensions;
    uint32_t type, flags;
    union {
        uint32_t handle;
        uint64_t address; /* of an exec: in the address space; of a bind: the process' own */
    };
    uint64_t value, reserved[2];
};
enum { XE_WAIT_EQ, XE_WAIT_NEQ, XE_WAIT_GT, XE_WAIT_GTE, XE_WAIT_LT, XE_WAIT_LTE };
#define XE_WAIT_ABSOLUTE (1u << 0)
struct xe_wait_user_fence {
    uint64_t extensions, address;
    uint16_t op, flags;
    uint32_t pad;
    uint64_t value, mask;
    int64_t timeout;
    uint32_t queue, pad2;
    uint64_t reserved[2];
};
#define DRM_SYNCOBJ_CREATE_SIGNALED (1u << 0)
struct drm_syncobj_create {
    uint32_t handle, flags;
};
#define DRM_SYNCOBJ_WAIT_ALL (1u << 0)
struct drm_syncobj_wait {
    uint64_t handles;
    int64_t timeout; /* an absolute time of CLOCK_MONOTONIC */
    uint32_t count, flags, first_signaled, pad;
    uint64_t deadline;
};
struct drm_syncobj_array {
    uint64_t handles;
    uint32_t count, pad;
};

#endif

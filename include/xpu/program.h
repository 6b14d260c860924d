/* xpu/program.h: kernels from OpenCL C source, cached on disk, and their launch.
 *
 * The argument convention. Every kernel of this library takes ONE argument: a struct by value, whose
 * pointers are 64-bit addresses (xpu_addr; the kernel casts them to __global pointers). One call sets
 * all arguments, a struct can be declared once in a header that host and kernel share, and pointer
 * tables in memory work the same way. It needs what all our memory kinds give: host and device agree on
 * addresses. Launches through xpu_launch_args serve other kernels.
 *
 * Sharing out. A launch on a host device may be cut into several ND-ranges with global offsets, run by
 * different threads. So a kernel takes its group's number from XPU_GROUP(d), not get_group_id(d), and
 * never asks get_num_groups or get_global_size: what it needs of those comes in its struct. */
#ifndef XPU_PROGRAM_H
#define XPU_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

#include "stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xpu_kernel xpu_kernel;

/* Builds `source` for `device`, or loads it from the cache on disk (key: source, options, device, driver
 * version), and finds `name` in it. Kernels live as long as the process; the same source, options and
 * name give the same kernel. On XPU_ERROR_BUILD_FAILED xpu_last_error() holds the driver's log.
 * `label` names the kernel in errors and profiles ("add f32,f32->f32"); NULL means `name`. */
XPU_API xpu_status xpu_kernel_create(int device, const char *source, const char *options, const char *name,
                                     const char *label, xpu_kernel **kernel);
XPU_API const char *xpu_kernel_label(const xpu_kernel *kernel);

/* What the driver says of a built kernel. */
typedef struct xpu_kernel_info {
    size_t max_work_group_size, preferred_multiple, local_mem_size, private_mem_size, spill_size;
} xpu_kernel_info;
XPU_API xpu_status xpu_kernel_get_info(xpu_kernel *kernel, xpu_kernel_info *info);

/* An ND-range: `dims` 1 … 3; `groups` work-groups of `local` work-items in each dimension.
 * `work` estimates the whole launch in simple operations (elements times their cost); a host device
 * shares out launches that are worth it. 0 means unknown, taken as large. */
typedef struct xpu_range {
    int dims;
    size_t groups[3], local[3];
    uint64_t work;
} xpu_range;

/* Launches with the struct at `params`. No lock is taken and nothing is allocated once the thread has
 * launched this kernel before. A range with 0 groups is success. */
XPU_API xpu_status xpu_launch(xpu_stream *stream, xpu_kernel *kernel, const xpu_range *range,
                              const void *params, size_t params_size);

/* Launches with separate arguments. XPU_ARG_POINTER: `value` points at a device address (8 bytes). */
typedef enum xpu_arg_kind { XPU_ARG_VALUE, XPU_ARG_POINTER, XPU_ARG_LOCAL } xpu_arg_kind;
typedef struct xpu_arg {
    xpu_arg_kind kind;
    size_t size;
    const void *value;
} xpu_arg;
XPU_API xpu_status xpu_launch_args(xpu_stream *stream, xpu_kernel *kernel, const xpu_range *range,
                                   const xpu_arg *args, int count);

/* What has been built and loaded by this process, all devices. */
typedef struct xpu_program_stats {
    uint64_t built, loaded; /* programs compiled; programs taken from the cache on disk */
    double build_seconds, load_seconds;
} xpu_program_stats;
XPU_API xpu_status xpu_program_get_stats(xpu_program_stats *stats);

/* The cache's folder: $OPENXPU_CACHE_DIR, else $XDG_CACHE_HOME/openxpu, else ~/.cache/openxpu.
 * OPENXPU_CACHE=0 switches it off. */
XPU_API const char *xpu_cache_dir(void);

/* Profiling: between start and stop each launch, copy and fill leaves a record. `drain` hands the finished
 * ones over, oldest first, and forgets them; it waits for the device. Times are nanoseconds of
 * CLOCK_REALTIME. */
typedef struct xpu_profile_record {
    const char *name; /* lives as long as the process */
    int device;
    int64_t stream_id;
    uint64_t correlation; /* counts launches; same order as submission */
    uint64_t submitted, started, ended;
    uint64_t bytes;   /* of copies and fills; else 0 */
    uint64_t context; /* what the submitting thread had set */
} xpu_profile_record;
typedef void (*xpu_profile_visitor)(const xpu_profile_record *record, void *user);
XPU_API xpu_status xpu_profile_start(void);
XPU_API xpu_status xpu_profile_stop(void);
/* A number that the calling thread's records carry from now on, to tell what they belong to; 0 at first. */
XPU_API xpu_status xpu_profile_set_context(uint64_t context);
XPU_API xpu_status xpu_profile_drain(xpu_profile_visitor visit, void *user);

#ifdef __cplusplus
}
#endif
#endif

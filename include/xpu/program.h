/* xpu/program.h: kernels from OpenCL C source, with a disk cache, and their launch.
 *
 * Argument convention: every kernel of this library takes ONE argument, a struct by value. Its pointers are
 *     64-bit addresses (xpu_addr), which the kernel casts to __global pointers. One call sets all arguments,
 *     host and kernel can share the struct's declaration, and tables of pointers need no special case. It
 *     requires that host and device agree on addresses, as all memory kinds here do. Other kernels are
 *     launched with xpu_launch_args.
 *
 * Work sharing: a launch on a CPU device may be split into several ND-ranges with global offsets, run by
 *     different threads. A kernel therefore uses XPU_GROUP(d), not get_group_id(d). It must not call
 *     get_num_groups or get_global_size; such values come in its struct. */
#ifndef XPU_PROGRAM_H
#define XPU_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

#include "stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xpu_kernel xpu_kernel;

/* Builds `source` for `device`, or loads it from the disk cache, and finds the kernel `name` in it.
 *
 * Cache key: source, options, device, driver version.
 * label: name in errors and profiles ("add f32,f32->f32"); NULL means `name`.
 * Lifetime: kernels live as long as the process. The same source, options and name give the same kernel.
 * Errors: XPU_ERROR_BUILD_FAILED; xpu_last_error() then holds the driver's log. */
XPU_API xpu_status xpu_kernel_create(int device, const char *source, const char *options, const char *name,
                                     const char *label, xpu_kernel **kernel);
XPU_API const char *xpu_kernel_label(const xpu_kernel *kernel);

/* Properties of a built kernel, as the driver reports them. */
typedef struct xpu_kernel_info {
    size_t max_work_group_size, preferred_multiple, local_mem_size, private_mem_size, spill_size;
} xpu_kernel_info;
XPU_API xpu_status xpu_kernel_get_info(xpu_kernel *kernel, xpu_kernel_info *info);

/* An ND-range of 1 to 3 dimensions: `groups` work-groups of `local` work-items in each.
 *
 * work: estimated simple operations of the whole launch (elements times their cost). CPU devices run large
 *     launches on several threads. 0 means unknown, and counts as large. */
typedef struct xpu_range {
    int dims;
    size_t groups[3], local[3];
    uint64_t work;
} xpu_range;

/* Launches with the parameter struct at `params`. A range with 0 groups is valid and does nothing.
 * Cost: after the thread's first launch of this kernel, it takes no lock and allocates nothing. */
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

/* Programs built and loaded by this process, on all devices. */
typedef struct xpu_program_stats {
    uint64_t built, loaded; /* programs compiled; programs loaded from the disk cache */
    double build_seconds, load_seconds;
} xpu_program_stats;
XPU_API xpu_status xpu_program_get_stats(xpu_program_stats *stats);

/* The cache folder: $OPENXPU_CACHE_DIR, else $XDG_CACHE_HOME/openxpu, else ~/.cache/openxpu. OPENXPU_CACHE=0
 *     disables the cache. */
XPU_API const char *xpu_cache_dir(void);

/* Profiling. Between start and stop each launch, copy and fill makes a record. `drain` waits for the device,
 * passes the finished records on, oldest first, and removes them. Times are nanoseconds of CLOCK_REALTIME. */
typedef struct xpu_profile_record {
    const char *name; /* lives as long as the process */
    int device;
    int64_t stream_id;
    uint64_t correlation; /* launch counter, in order of submission */
    uint64_t submitted, started, ended;
    uint64_t bytes;   /* of copies and fills; else 0 */
    uint64_t context; /* set by the submitting thread */
} xpu_profile_record;
typedef void (*xpu_profile_visitor)(const xpu_profile_record *record, void *user);
XPU_API xpu_status xpu_profile_start(void);
XPU_API xpu_status xpu_profile_stop(void);
/* Sets the context that later records of the calling thread carry; initially 0. */
XPU_API xpu_status xpu_profile_set_context(uint64_t context);
XPU_API xpu_status xpu_profile_drain(xpu_profile_visitor visit, void *user);

#ifdef __cplusplus
}
#endif
#endif

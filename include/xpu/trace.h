/* xpu/trace.h: everything that a stream is given to do, seen as it is given.
 *
 * Kernels, copies, fills and calls of the host's own libraries pass one place in libxpu, whoever submits
 * them. A callback there hears of each before it is submitted and after; while there is none the place costs
 * a look at one variable.
 *
 *     static void say(const xpu_work *work, xpu_trace_point point, xpu_status status, void *user) {
 *         if (point == XPU_TRACE_BEGIN) printf("%s\n", work->name);
 *     }
 *     xpu_trace_subscribe(say, NULL, &subscription);
 */
#ifndef XPU_TRACE_H
#define XPU_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "program.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum xpu_work_kind {
    XPU_WORK_KERNEL, /* one launch, also where a team of threads shares it */
    XPU_WORK_COPY,
    XPU_WORK_FILL,
    XPU_WORK_HOST /* a function that works on a host device's memory */
} xpu_work_kind;

/* Memory that a piece of work reads, or reads and writes. */
typedef struct xpu_access {
    const void *address; /* the lowest */
    size_t size;         /* bytes from there on, gaps included; 0: not known */
    bool is_written;
} xpu_access;

enum { XPU_ACCESSES_MAX = 64 };

/* Lists what is accessed into room for XPU_ACCESSES_MAX, and gives their number; called only when somebody
 * wants to know. */
typedef int (*xpu_access_lister)(const void *of, xpu_access *accesses);

/* One piece of work. With what is here it can be submitted again: kernel, range and a copy of the parameters;
 * addresses and sizes; function and a copy of its context. All of it is only for as long as the call lasts.
 */
typedef struct xpu_work {
    xpu_work_kind kind;
    xpu_stream *stream;
    /* the kernel's label, "copy", "fill", or the function's name; lives as long as the process */
    const char *name;
    uint64_t bytes; /* of copies and fills; else 0 */
    /* kernels: the struct at `params`, or separate arguments */
    xpu_kernel *kernel;
    const xpu_range *range;
    const void *params;
    size_t params_size;
    const xpu_arg *args;
    int arg_count;
    /* copies, and fills with a pattern; addresses of the host or the device */
    void *to;
    const void *from, *pattern;
    size_t pattern_size;
    /* host functions */
    xpu_status (*function)(xpu_stream *stream, const void *context);
    const void *context;
    size_t context_size;
    /* What it reads and writes, as far as it is known: of a kernel whose submitter doesn't tell only the
     * parameters are. */
    const xpu_access *accesses;
    int access_count;
    bool accesses_known; /* there are no others */
} xpu_work;

typedef enum xpu_trace_point {
    XPU_TRACE_BEGIN, /* about to be submitted by this thread */
    XPU_TRACE_END    /* submitted, with this status; done, where the stream is one of a host device */
} xpu_trace_point;

/* Called by the submitting thread. Work that the callback itself submits isn't told to callbacks. */
typedef void (*xpu_trace_callback)(const xpu_work *work, xpu_trace_point point, xpu_status status,
                                   void *user);

/* From now on the callback hears of all work, of all threads; an end comes only after its beginning.
 * XPU_ERROR_NOT_SUPPORTED when there are XPU_TRACE_MAX already. After unsubscribing it isn't called any more,
 * and no other thread is inside it. */
enum { XPU_TRACE_MAX = 8 };
typedef struct xpu_trace xpu_trace;
XPU_API xpu_status xpu_trace_subscribe(xpu_trace_callback callback, void *user, xpu_trace **subscription);
XPU_API xpu_status xpu_trace_unsubscribe(xpu_trace *subscription);

/* xpu_launch, with what the kernel reads and writes: all that `list` lists of `of`. */
XPU_API xpu_status xpu_launch_listed(xpu_stream *stream, xpu_kernel *kernel, const xpu_range *range,
                                     const void *params, size_t params_size, xpu_access_lister list,
                                     const void *of);

/* Calls a function that works on the memory of a host device; what the stream was given before is done then,
 * and the function's own work is done when it returns. Its status is given back. `context_size` bytes at
 * `context` are all that it needs to do the same again; `list` (may be NULL) lists what it accesses. */
XPU_API xpu_status xpu_host_call(xpu_stream *stream, const char *name,
                                 xpu_status (*function)(xpu_stream *stream, const void *context),
                                 const void *context, size_t context_size, xpu_access_lister list);

/* Where the operations of the calling thread take the memory that they need for themselves, and give it back
 * when its last use is submitted; NULL: the caching allocator. Such memory is used on `stream` only. What is
 * set here outlives the operations. */
typedef struct xpu_workspace_source {
    xpu_status (*take)(xpu_stream *stream, size_t size, void **memory, void *user);
    xpu_status (*give_back)(void *memory, void *user);
    void *user;
} xpu_workspace_source;
XPU_API xpu_status xpu_workspace_set_source(const xpu_workspace_source *source);
/* For operations: never NULL for a size above 0. Giving NULL back does nothing. */
XPU_API xpu_status xpu_workspace_take(xpu_stream *stream, size_t size, void **memory);
XPU_API xpu_status xpu_workspace_give_back(void *memory);

/* So many 32-bit counters in device memory, all 0, for work-groups of one launch to agree by, as on which of
 * them comes last. The launch has to leave them 0. They belong to the stream, or to the graph that it is
 * being captured for, on a host device to the calling thread; the next launch there gets the same ones. */
enum { XPU_WORKSPACE_COUNTERS = 1024 };
XPU_API xpu_status xpu_workspace_counters(xpu_stream *stream, uint32_t **counters);

#ifdef __cplusplus
}
#endif
#endif

/* xpu/trace.h: observes all work submitted to streams.
 *
 * Kernels, copies, fills and calls of host libraries pass one point in libxpu, whoever submits them.
 * Subscribed callbacks are called there before and after each submission. Without subscribers the cost is
 * one variable read.
 *
 *     static void say(const xpu_work *work, xpu_trace_point point, xpu_status status, void *user) {
 *         if (point == XPU_TRACE_BEGIN) printf("%s\n", work->name);
 *     }
 *     xpu_trace_subscribe(say, NULL, &subscription); */
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
    XPU_WORK_KERNEL, /* one launch, even if a thread pool shares it */
    XPU_WORK_COPY,
    XPU_WORK_FILL,
    XPU_WORK_HOST /* a function that works on a CPU device's memory */
} xpu_work_kind;

/* Memory that one piece of work reads, or reads and writes. */
typedef struct xpu_access {
    const void *address; /* lowest address */
    size_t size;         /* bytes from there, gaps included; 0: unknown */
    bool is_written;
} xpu_access;

enum { XPU_ACCESSES_MAX = 64 };

/* Stores the accesses of `of`, at most XPU_ACCESSES_MAX, and returns their number. Called only if there are
 * observers. */
typedef int (*xpu_access_callback)(const void *of, xpu_access *accesses);

/* One submission. It holds what is needed to submit it again: kernel, range and parameters; addresses and
 * sizes; function and context. Valid only during the callback. */
typedef struct xpu_work {
    xpu_work_kind kind;
    xpu_stream *stream;
    /* kernel label, "copy", "fill", or function name; lives as long as the process */
    const char *name;
    uint64_t bytes; /* of copies and fills; else 0 */
    /* kernels: parameter struct at `params`, or separate arguments */
    xpu_kernel *kernel;
    const xpu_range *range;
    const void *params;
    size_t params_size;
    const xpu_arg *args;
    int arg_count;
    /* copies, and fills with a pattern; host or device addresses */
    void *to;
    const void *from, *pattern;
    size_t pattern_size;
    /* host functions */
    xpu_status (*function)(xpu_stream *stream, const void *context);
    const void *context;
    size_t context_size;
    /* Accesses, as far as known. For kernels whose submitter doesn't list accesses, only the parameters are.
     */
    const xpu_access *accesses;
    int access_count;
    bool accesses_known; /* the list is complete */
} xpu_work;

typedef enum xpu_trace_point {
    XPU_TRACE_BEGIN, /* about to be submitted by this thread */
    XPU_TRACE_END    /* submitted, with this status; on CPU devices also finished */
} xpu_trace_point;

/* Called by the submitting thread. Work that a callback itself submits is not traced. */
typedef void (*xpu_trace_callback)(const xpu_work *work, xpu_trace_point point, xpu_status status,
                                   void *user);

/* Subscribes a callback to all work of all threads. An end is reported only after its beginning. After
 * xpu_trace_unsubscribe returns, the callback is not called again and no thread is inside it.
 *
 * Errors: XPU_ERROR_NOT_SUPPORTED for more than XPU_TRACE_MAX subscriptions. */
enum { XPU_TRACE_MAX = 8 };
typedef struct xpu_trace xpu_trace;
XPU_API xpu_status xpu_trace_subscribe(xpu_trace_callback callback, void *user, xpu_trace **subscription);
XPU_API xpu_status xpu_trace_unsubscribe(xpu_trace *subscription);

/* xpu_launch that also reports the kernel's accesses: those that `list` gives for `of`. */
XPU_API xpu_status xpu_launch_with_accesses(xpu_stream *stream, xpu_kernel *kernel, const xpu_range *range,
                                            const void *params, size_t params_size, xpu_access_callback list,
                                            const void *of);

/* Calls a function that works on the memory of a CPU device, and returns its status.
 *
 * Order: the stream's earlier work is done when it is called; its own must be done when it returns.
 * context: `context_size` bytes, everything that is needed to repeat the call.
 * list: gives its accesses; may be NULL. */
XPU_API xpu_status xpu_host_call(xpu_stream *stream, const char *name,
                                 xpu_status (*function)(xpu_stream *stream, const void *context),
                                 const void *context, size_t context_size, xpu_access_callback list);

/* Allocator for the workspaces of the calling thread's operations; NULL: the caching allocator.
 *
 * Memory is released when its last use has been submitted, and is used on `stream` only. The struct must
 * outlive the operations. */
typedef struct xpu_workspace_source {
    xpu_status (*take)(xpu_stream *stream, size_t size, void **memory, void *user);
    xpu_status (*give_back)(void *memory, void *user);
    void *user;
} xpu_workspace_source;
XPU_API xpu_status xpu_workspace_set_source(const xpu_workspace_source *source);
/* For operations: never NULL for a size above 0. Releasing NULL does nothing. */
XPU_API xpu_status xpu_workspace_take(xpu_stream *stream, size_t size, void **memory);
XPU_API xpu_status xpu_workspace_give_back(void *memory);

/* XPU_WORKSPACE_COUNTERS 32-bit counters in device memory, all 0, with which the work-groups of one launch
 * coordinate, for example to find the last one.
 *
 * The launch must leave them 0. They belong to the stream; to the graph during a capture; to the calling
 * thread on a CPU device. The next launch there uses the same ones. */
enum { XPU_WORKSPACE_COUNTERS = 1024 };
XPU_API xpu_status xpu_workspace_counters(xpu_stream *stream, uint32_t **counters);

#ifdef __cplusplus
}
#endif
#endif

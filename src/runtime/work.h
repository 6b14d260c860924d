/* Work submission. Every kernel, copy, fill and host function reaches its stream through work_submit, which
 * also records it if the stream is captured. Observers (the profiler, trace callbacks) attach there and in
 * command_end, and nowhere else. Any thread may submit. The caller owns `work` and everything it points at;
 * both need to live only until the call returns. */
#ifndef RUNTIME_WORK_H
#define RUNTIME_WORK_H

#include "runtime/runtime.h"
#include "xpu/trace.h"

typedef struct work {
    xpu_work seen; /* the part that observers see */
    xpu_status (*run)(struct work *w);
    xpu_access_callback list;       /* lists the memory accesses; NULL: unknown */
    const void *of;                 /* argument of `list` */
    bool blocking, waited;          /* copies: the call must wait for the stream; it has waited */
    bool wants_times;               /* add a profiler record with device times for each command */
    uint64_t begun;                 /* submission time while profiling */
    uint64_t started;               /* … start time of a host function, which first waits for the stream */
    void (*release)(void *context); /* set if the work owns its context; NULL: a capture copies it */
} work;

xpu_status work_submit_observed(work *w);

/* Number of observers, plus active captures. */
extern atomic_int work_observers;

/* Runs `w` and notifies observers, if there are any. */
static inline xpu_status work_submit(work *w) {
    if (__builtin_expect(atomic_load_explicit(&work_observers, memory_order_relaxed) != 0, 0))
        return work_submit_observed(w);
    return w->run(w);
}

/* Launches a kernel as part of other work; profiler records carry the name and bytes of `whole`. */
xpu_status launch_for(const work *whole, xpu_kernel *kernel, const xpu_range *range, const void *params,
                      size_t params_size);

/* Sets the launch's arguments on an OpenCL kernel object. */
xpu_status launch_set_arguments(const work *w, cl_kernel instance);

/* Enqueues one OpenCL command: call command_begin, enqueue into `queue` with `wanted` as the event pointer,
 * then call command_end with the result. On success command_end counts the command and adds its profiler
 * record; it returns `status`. */
typedef struct command {
    cl_command_queue queue;
    cl_event event, *wanted; /* NULL: no times are needed */
} command;
xpu_status command_begin(const work *w, command *c);
xpu_status command_end(const work *w, command *c, xpu_status status, uint64_t bytes);

/* Implemented in copy_buffer.c: copies on devices with XPU_MEMORY_BUFFER, fills on all but CPU devices. */
xpu_status buffer_copy(work *w);
xpu_status fill_by_kernel(work *w);

#endif

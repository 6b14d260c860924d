/* The one way by which anything reaches a stream: work_submit. Observers (profiler, trace callbacks) are
 * called there and in command_end, and nowhere else. */
#ifndef RUNTIME_WORK_H
#define RUNTIME_WORK_H

#include "runtime/runtime.h"
#include "xpu/trace.h"

typedef struct work {
    xpu_work seen; /* what is told of it */
    xpu_status (*run)(struct work *w);
    xpu_access_callback list; /* of what it accesses; NULL: not known */
    const void *of;
    bool blocking, waited;          /* of copies: asked to wait for the stream; it has been waited for */
    bool wants_times;               /* its commands leave records with the device's times */
    uint64_t begun;                 /* while records are kept */
    uint64_t started;               /* … of a host function, which first waits for the stream */
    void (*release)(void *context); /* of a context that is handed over; NULL: it is copied */
} work;

xpu_status work_submit_observed(work *w);

/* How many look on. */
extern atomic_int work_observers;

/* Runs `w`, and tells of it. */
static inline xpu_status work_submit(work *w) {
    if (__builtin_expect(atomic_load_explicit(&work_observers, memory_order_relaxed) != 0, 0))
        return work_submit_observed(w);
    return w->run(w);
}

/* A kernel as a part of other work, on record as that. */
xpu_status launch_for(const work *whole, xpu_kernel *kernel, const xpu_range *range, const void *params,
                      size_t params_size);

/* Gives the driver's kernel object the launch's arguments. */
xpu_status launch_set_arguments(const work *w, cl_kernel instance);

/* A command on its way into a stream's queue: between command_begin and command_end it is put in, with
 * `wanted` for its event. The end counts and records it where `status` is success, and gives `status` back.
 */
typedef struct command {
    cl_command_queue queue;
    cl_event event, *wanted; /* NULL: nobody wants to know its times */
} command;
xpu_status command_begin(const work *w, command *c);
xpu_status command_end(const work *w, command *c, xpu_status status, uint64_t bytes);

/* Copies of devices with memory of kind XPU_MEMORY_BUFFER, fills of all but host devices (copy_buffer.c). */
xpu_status buffer_copy(work *w);
xpu_status fill_by_kernel(work *w);

#endif

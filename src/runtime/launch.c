/* Kernel launches. Most devices get the launch through the stream's queue. A CPU device with has_local_exec
 * runs a small launch on the calling thread; a large launch is divided among the host thread pool, where each
 * thread enqueues its part of the work-groups, by global offset, to a queue that runs on that thread.
 *
 * Any thread may launch; one with a slot takes no lock (runtime.h). Nothing is allocated after a thread's
 * first launch of a kernel. The caller's parameters are copied before the call returns. */
#include "core/tuning.h"
#include "runtime/kernel.h"
#include "runtime/work.h"

xpu_status launch_set_arguments(const work *w, cl_kernel instance) {
    const xpu_kernel *kernel = w->seen.kernel;
    const cl_device *device = &cl_devices[kernel->device];
    const cl_api *api = device->api;
    xpu_status status = XPU_SUCCESS;
    if (w->seen.params) {
        status = cl_check(api->clSetKernelArg(instance, 0, w->seen.params_size, w->seen.params),
                          "->clSetKernelArg", device);
    } else {
        for (cl_uint i = 0; i < (cl_uint)w->seen.arg_count && status == XPU_SUCCESS; i++) {
            const xpu_arg *arg = &w->seen.args[i];
            cl_int error;
            if (arg->kind == XPU_ARG_VALUE)
                error = api->clSetKernelArg(instance, i, arg->size, arg->value);
            else if (arg->kind == XPU_ARG_LOCAL)
                error = api->clSetKernelArg(instance, i, arg->size, NULL);
            else if (api->clSetKernelArgMemPointerINTEL)
                error = api->clSetKernelArgMemPointerINTEL(instance, i, *(void *const *)arg->value);
            else
                error = api->clSetKernelArgSVMPointer(instance, i, *(void *const *)arg->value);
            status = cl_check(error, "->clSetKernelArg", device);
        }
    }
    if (status != XPU_SUCCESS) xpu_fail_add(", kernel %s", kernel->label);
    return status;
}

static xpu_status enqueue(const cl_device *device, cl_command_queue queue, const xpu_kernel *kernel,
                          cl_kernel instance, const xpu_range *range, const size_t *first,
                          const size_t *groups, cl_event *event) {
    size_t offset[3], global[3];
    bool moved = false;
    for (int d = 0; d < range->dims; d++) {
        global[d] = groups[d] * range->local[d];
        offset[d] = first ? first[d] * range->local[d] : 0;
        moved |= offset[d] != 0;
    }
    cl_int error = device->api->clEnqueueNDRangeKernel(
        queue, instance, (cl_uint)range->dims, moved ? offset : NULL, global, range->local, 0, NULL, event);
    xpu_status status = cl_check(error, "->clEnqueueNDRangeKernel", device);
    if (status != XPU_SUCCESS)
        xpu_fail_add(", kernel %s, %zu x %zu x %zu groups of %zu x %zu x %zu", kernel->label, groups[0],
                     range->dims > 1 ? groups[1] : 1, range->dims > 2 ? groups[2] : 1, range->local[0],
                     range->dims > 1 ? range->local[1] : 1, range->dims > 2 ? range->local[2] : 1);
    return status;
}

/* The slot's own kernel object, created on first use. */
static inline xpu_status own_instance(xpu_kernel *kernel, int slot, cl_kernel *instance) {
    *instance = atomic_load_explicit(&kernel->instance[slot], memory_order_acquire);
    if (*instance) return XPU_SUCCESS;
    XPU_TRY(kernel_instance(kernel, instance));
    atomic_store_explicit(&kernel->instance[slot], *instance, memory_order_release);
    return XPU_SUCCESS;
}

/* Runs some of the work-groups on the calling thread. */
static xpu_status run_here(const work *w, int slot, const size_t *first, const size_t *groups) {
    xpu_kernel *kernel = w->seen.kernel;
    const cl_device *device = &cl_devices[kernel->device];
    cl_command_queue queue;
    cl_kernel instance;
    XPU_TRY(slot_queue(slot, kernel->device, &queue));
    XPU_TRY(own_instance(kernel, slot, &instance));
    XPU_TRY(launch_set_arguments(w, instance));
    return enqueue(device, queue, kernel, instance, w->seen.range, first, groups, NULL);
}

/* Submits to the stream's queue; on a CPU device without local execution, waits for it too. */
static xpu_status submit_instance(const work *w, cl_kernel instance) {
    const xpu_stream *stream = w->seen.stream;
    const xpu_kernel *kernel = w->seen.kernel;
    const cl_device *device = &cl_devices[stream->device];
    XPU_TRY(launch_set_arguments(w, instance));
    command c;
    XPU_TRY(command_begin(w, &c));
    const xpu_range *range = w->seen.range;
    xpu_status status = enqueue(device, c.queue, kernel, instance, range, NULL, range->groups, c.wanted);
    XPU_TRY(command_end(w, &c, status, w->seen.bytes));
    if (stream->host) CL_TRY(device, device->api->clFinish(stream->queue));
    return XPU_SUCCESS;
}

static xpu_status submit(const work *w, int slot) {
    xpu_kernel *kernel = w->seen.kernel;
    if (slot >= 0) {
        cl_kernel instance;
        XPU_TRY(own_instance(kernel, slot, &instance));
        return submit_instance(w, instance);
    }
    os_mutex_lock(&kernel->spare_lock);
    xpu_status status = submit_instance(w, kernel->spare);
    os_mutex_unlock(&kernel->spare_lock);
    return status;
}

/* --- division among the thread pool --- */

/* If more threads are runnable than there are cores, a pool thread may start milliseconds late, and the
 * launch waits for it. Launches that one thread finishes sooner then skip the pool for a while; the pause
 * doubles each time a thread is late again. */
enum { LATE = 300000, FIRST_PAUSE = 20000000, LONGEST_PAUSE = 1000000000 }; /* ns */
enum { SHORT_LAUNCHES = 128 };                  /* in units of PARALLEL_FROM: a few milliseconds */
static _Atomic uint64_t alone_until, alone_for; /* 0: no thread was late */

static bool goes_alone(uint64_t amount) {
    const uint64_t until = atomic_load_explicit(&alone_until, memory_order_relaxed);
    if (!until || !amount || amount / SHORT_LAUNCHES > (uint64_t)TUNED(true, PARALLEL_FROM)) return false;
    return os_clock() < until;
}

/* Called after a divided launch whose last part began `late` ns after the launch. */
static void learn_of_delay(uint64_t late) {
    uint64_t pause = atomic_load_explicit(&alone_for, memory_order_relaxed);
    if (late <= LATE && !pause) return;
    pause = late <= LATE ? 0 : !pause ? FIRST_PAUSE : pause >= LONGEST_PAUSE / 2 ? LONGEST_PAUSE : 2 * pause;
    atomic_store_explicit(&alone_for, pause, memory_order_relaxed);
    atomic_store_explicit(&alone_until, pause ? os_clock() + pause : 0, memory_order_relaxed);
}

/* Runs a part on a thread that has no slot, through the stream's own queue. */
static xpu_status run_without_slot(const work *w, const size_t *first, const size_t *groups) {
    const xpu_stream *stream = w->seen.stream;
    xpu_kernel *kernel = w->seen.kernel;
    const cl_device *device = &cl_devices[stream->device];
    os_mutex_lock(&kernel->spare_lock);
    xpu_status status = launch_set_arguments(w, kernel->spare);
    if (status == XPU_SUCCESS)
        status = enqueue(device, stream->queue, kernel, kernel->spare, w->seen.range, first, groups, NULL);
    os_mutex_unlock(&kernel->spare_lock);
    XPU_TRY(status);
    CL_TRY(device, device->api->clFinish(stream->queue));
    return XPU_SUCCESS;
}

typedef struct share {
    const work *w;
    int parts, dimension;
    uint64_t begun;
    _Atomic uint64_t late; /* the longest delay before a part began, in ns */
    atomic_int status;
    char text[512]; /* error text of the first part that failed */
} share;

static void run_part(int part, void *context) {
    share *s = context;
    const uint64_t late = os_clock() - s->begun;
    uint64_t latest = atomic_load_explicit(&s->late, memory_order_relaxed);
    while (late > latest && !atomic_compare_exchange_weak(&s->late, &latest, late)) {}
    const xpu_range *range = s->w->seen.range;
    size_t all = range->groups[s->dimension];
    size_t begin = all * (size_t)part / (size_t)s->parts, end = all * ((size_t)part + 1) / (size_t)s->parts;
    if (begin == end) return;
    size_t first[3] = {0}, groups[3];
    for (int d = 0; d < range->dims; d++) groups[d] = range->groups[d];
    first[s->dimension] = begin;
    groups[s->dimension] = end - begin;
    int slot = slot_get();
    xpu_status status =
        slot >= 0 ? run_here(s->w, slot, first, groups) : run_without_slot(s->w, first, groups);
    int none = XPU_SUCCESS;
    if (status != XPU_SUCCESS && atomic_compare_exchange_strong(&s->status, &none, (int)status)) {
        strncpy(s->text, xpu_last_error(), sizeof s->text - 1);
    }
}

static xpu_status run_on_team(const work *w, const xpu_host_thread_pool *team, int threads) {
    const xpu_range *range = w->seen.range;
    share s = {.w = w, .begun = os_clock()};
    /* Divide the outermost dimension that is long enough, so that each part is contiguous. */
    for (int d = 1; d < range->dims; d++)
        if (range->groups[d] >= range->groups[s.dimension] || range->groups[d] >= 8 * (size_t)threads)
            s.dimension = d;
    s.parts = (size_t)threads < range->groups[s.dimension] ? threads : (int)range->groups[s.dimension];
    team->run(s.parts, run_part, &s);
    learn_of_delay(atomic_load_explicit(&s.late, memory_order_relaxed));
    xpu_status status = (xpu_status)atomic_load(&s.status);
    return status == XPU_SUCCESS ? status : xpu_fail(status, "%s", s.text);
}

static xpu_status run(work *w) {
    const int slot = slot_get();
    const xpu_range *range = w->seen.range;
    if (slot < 0 || !cl_devices[w->seen.stream->device].properties.has_local_exec) return submit(w, slot);
    if (!range->work || range->work > (uint64_t)TUNED(true, PARALLEL_FROM)) {
        const xpu_host_thread_pool *team = xpu_get_host_thread_pool();
        int threads = team ? team->threads() : 0;
        if (!team) return submit(w, slot);
        if (threads > 1 && !goes_alone(range->work)) return run_on_team(w, team, threads);
    }
    return run_here(w, slot, NULL, range->groups);
}

static inline xpu_status launch(work *w) {
    const xpu_stream *stream = w->seen.stream;
    const xpu_kernel *kernel = w->seen.kernel;
    const xpu_range *range = w->seen.range;
    if (xpu_in_bad_fork()) return cl_init();
    XPU_REJECT_IF(stream->device != kernel->device,
                  "kernel %s was built for device %d, but launched on a stream of device %d", kernel->label,
                  kernel->device, stream->device);
    XPU_REJECT_IF(range->dims < 1 || range->dims > 3, "kernel %s: launch with %d dimensions", kernel->label,
                  range->dims);
    for (int d = 0; d < range->dims; d++)
        if (!range->groups[d]) return XPU_SUCCESS;
    return work_submit(w);
}

#define KERNEL_WORK(on, which, where, ...)                                                                   \
    {.seen = {.kind = XPU_WORK_KERNEL,                                                                       \
              .stream = (on),                                                                                \
              .name = (which)->label,                                                                        \
              .kernel = (which),                                                                             \
              .range = (where),                                                                              \
              __VA_ARGS__},                                                                                  \
     .run = run}

xpu_status xpu_launch(xpu_stream *stream, xpu_kernel *kernel, const xpu_range *range, const void *params,
                      size_t params_size) {
    work w = KERNEL_WORK(stream, kernel, range, .params = params, .params_size = params_size);
    return launch(&w);
}

xpu_status xpu_launch_with_accesses(xpu_stream *stream, xpu_kernel *kernel, const xpu_range *range,
                                    const void *params, size_t params_size, xpu_access_callback list,
                                    const void *of) {
    work w = KERNEL_WORK(stream, kernel, range, .params = params, .params_size = params_size);
    w.list = list;
    w.of = of;
    return launch(&w);
}

xpu_status launch_for(const work *whole, xpu_kernel *kernel, const xpu_range *range, const void *params,
                      size_t params_size) {
    work part = KERNEL_WORK(whole->seen.stream, kernel, range, .params = params, .params_size = params_size);
    part.seen.name = whole->seen.name;
    part.seen.bytes = whole->seen.bytes;
    part.wants_times = whole->wants_times;
    part.begun = whole->begun;
    return run(&part);
}

xpu_status xpu_launch_args(xpu_stream *stream, xpu_kernel *kernel, const xpu_range *range,
                           const xpu_arg *args, int count) {
    work w = KERNEL_WORK(stream, kernel, range, .args = args, .arg_count = count);
    return launch(&w);
}

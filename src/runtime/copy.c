/* xpu_memcpy and xpu_memset. CPU devices copy and fill on the calling thread and its thread pool; other
 * devices enqueue commands (USM, SVM) or use copy_buffer.c. Any thread may call. A non-blocking copy may
 * return before the device has accessed the memory, which the caller must keep alive until then. */
#include "runtime/work.h"

/* Below this size one thread copies as fast as several. */
#define MIN_SHARED_BYTES ((size_t)1 << 18)

/* --- CPU devices: memory operations, divided among the thread pool --- */

typedef struct bytes_job {
    char *to;
    const char *from; /* NULL: fill with the pattern */
    const char *pattern;
    size_t pattern_size, size;
    int parts;
} bytes_job;

static void fill(char *to, const char *pattern, size_t pattern_size, size_t size) {
    bool same = true;
    for (size_t i = 1; i < pattern_size; i++) same &= pattern[i] == pattern[0];
    if (same) {
        memset(to, pattern[0], size);
        return;
    }
    size_t done = size < pattern_size ? size : pattern_size;
    memcpy(to, pattern, done);
    while (done < size) { /* double the filled prefix, but read no more than fits the L1 cache */
        size_t step = done < 16384 ? done : 16384;
        if (step > size - done) step = size - done;
        memcpy(to + done, to, step);
        done += step;
    }
}

static void run_part(int part, void *context) {
    const bytes_job *job = context;
    /* Parts begin at multiples of 64, which every pattern size divides. */
    size_t begin = job->size / 64 * (size_t)part / (size_t)job->parts * 64;
    size_t end =
        part + 1 == job->parts ? job->size : job->size / 64 * ((size_t)part + 1) / (size_t)job->parts * 64;
    if (job->from)
        memcpy(job->to + begin, job->from + begin, end - begin);
    else
        fill(job->to + begin, job->pattern, job->pattern_size, end - begin);
}

static xpu_status run_on_host(const xpu_work *seen) {
    bytes_job job = {.to = seen->to,
                     .from = seen->from,
                     .pattern = seen->pattern,
                     .pattern_size = seen->pattern_size,
                     .size = (size_t)seen->bytes};
    const xpu_host_thread_pool *team = job.size >= MIN_SHARED_BYTES ? xpu_get_host_thread_pool() : NULL;
    job.parts = team ? team->threads() : 1;
    if (job.parts > 1)
        team->run(job.parts, run_part, &job);
    else {
        job.parts = 1;
        run_part(0, &job);
    }
    return XPU_SUCCESS;
}

/* --- other devices --- */

/* Copies are divided into commands of 1 GiB, because one driver takes a command's size modulo 4 GiB. */
#define PIECE ((size_t)1 << 30)

static xpu_status copy_piece(const work *w, char *to, const char *from, size_t size, bool blocking) {
    const cl_device *device = &cl_devices[w->seen.stream->device];
    const cl_api *api = device->api;
    const cl_bool block = blocking ? CL_TRUE : CL_FALSE;
    command c;
    XPU_TRY(command_begin(w, &c));
    const cl_int error = device->properties.memory == XPU_MEMORY_USM
                             ? api->clEnqueueMemcpyINTEL(c.queue, block, to, from, size, 0, NULL, c.wanted)
                             : api->clEnqueueSVMMemcpy(c.queue, block, to, from, size, 0, NULL, c.wanted);
    return command_end(w, &c, cl_check(error, "->clEnqueueMemcpy", device), size);
}

static xpu_status copy_pieces(const work *w) {
    const size_t size = (size_t)w->seen.bytes;
    char *to = w->seen.to;
    const char *from = w->seen.from;
    size_t done = 0;
    for (; size - done > PIECE; done += PIECE) XPU_TRY(copy_piece(w, to + done, from + done, PIECE, false));
    return copy_piece(w, to + done, from + done, size - done, w->blocking);
}

static xpu_status run_copy(work *w) {
    const xpu_stream *stream = w->seen.stream;
    if (stream->host) return run_on_host(&w->seen);
    if (cl_devices[stream->device].properties.memory == XPU_MEMORY_BUFFER) return buffer_copy(w);
    return copy_pieces(w);
}

static xpu_status run_fill(work *w) {
    return w->seen.stream->host ? run_on_host(&w->seen) : fill_by_kernel(w);
}

xpu_status stream_copy(xpu_stream *stream, void *to, const void *from, size_t size, bool blocking,
                       bool *waited) {
    if (waited) *waited = blocking && size;
    if (!size) return XPU_SUCCESS;
    XPU_REJECT_IF(!to || !from, "NULL memory");
    if (xpu_in_bad_fork()) return cl_init();
    work w = {
        .seen =
            {.kind = XPU_WORK_COPY, .stream = stream, .name = "copy", .bytes = size, .to = to, .from = from},
        .run = run_copy,
        .blocking = blocking,
        .waited = blocking};
    const xpu_status status = work_submit(&w);
    if (waited) *waited = w.waited;
    return status;
}

xpu_status xpu_memcpy(xpu_stream *stream, void *to, const void *from, size_t size, bool blocking) {
    const bool watched = blocking && atomic_exchange(&stream->watched, false);
    bool waited;
    const xpu_status status = stream_copy(stream, to, from, size, blocking, &waited);
    if (status == XPU_SUCCESS && waited) return fault_check(stream->device, watched);
    if (watched) atomic_store(&stream->watched, true); /* the next call that waits checks for faults */
    return status;
}

xpu_status xpu_memset(xpu_stream *stream, void *to, const void *pattern, size_t pattern_size, size_t size) {
    if (!size) return XPU_SUCCESS;
    XPU_REJECT_IF(!to || !pattern, "NULL memory");
    XPU_REJECT_IF(pattern_size == 0 || pattern_size > 16 || (pattern_size & (pattern_size - 1)),
                  "a pattern has %zu bytes: must be 1, 2, 4, 8 or 16", pattern_size);
    XPU_REJECT_IF(size % pattern_size, "%zu bytes are not a multiple of the pattern's %zu bytes", size,
                  pattern_size);
    if (xpu_in_bad_fork()) return cl_init();
    work w = {.seen = {.kind = XPU_WORK_FILL,
                       .stream = stream,
                       .name = "fill",
                       .bytes = size,
                       .to = to,
                       .pattern = pattern,
                       .pattern_size = pattern_size},
              .run = run_fill};
    return work_submit(&w);
}

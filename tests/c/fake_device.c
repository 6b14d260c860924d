#define _GNU_SOURCE
#include "fake_device.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/poison.h"

fake_device fakes[FAKE_DEVICES];
atomic_int fake_events, fake_events_made, fake_host_blocks;
bool fake_bad_fork, fake_no_reuse;
xpu_status fake_event_failure, fake_alloc_failure;

/* No memory of a fake device is poisoned. */
int poison_byte(void) { return -1; }
xpu_status poison_fill(xpu_stream *stream, void *memory, size_t size) { return XPU_SUCCESS; }

/* --- raw memory: from one stretch of address space, so that segments of both devices meet anywhere in a
 * granule; freed addresses are given again for the same size --- */
#define SPACE ((size_t)512 << 30)
static pthread_mutex_t space_lock = PTHREAD_MUTEX_INITIALIZER;
static char *space;
static size_t cursor;
enum { KNOWN = 1 << 16 };
static struct {
    char *address;
    size_t size;
    int device;
    bool live;
} pieces[KNOWN];
static int piece_count;
static uint64_t gaps;

void fake_reset(void) {
    for (int d = 0; d < FAKE_DEVICES; d++) {
        fake_device *f = &fakes[d];
        f->properties = (xpu_device_properties){
            .type = XPU_DEVICE_GPU, .total_memory = 1024 * MIB, .max_allocation = 1024 * MIB};
        f->limit = 1024 * MIB;
        f->left = UINT64_MAX;
        for (int s = 0; s < FAKE_STREAMS; s++) {
            f->streams[s].device = d;
            f->streams[s].id = s;
            fake_finish(&f->streams[s]);
        }
    }
    bool any = false;
    for (int i = 0; i < piece_count; i++) any |= pieces[i].live;
    if (!any) piece_count = 0;
    if (!any) cursor = 0; /* addresses start over */
    fake_event_failure = fake_alloc_failure = XPU_SUCCESS;
    fake_bad_fork = fake_no_reuse = false;
}

xpu_status cl_memory_alloc(int device, size_t size, void **pointer) {
    fake_device *f = &fakes[device];
    if (fake_alloc_failure != XPU_SUCCESS) return xpu_fail(fake_alloc_failure, "told to fail");
    pthread_mutex_lock(&space_lock);
    xpu_status status = XPU_SUCCESS;
    if (f->used + size > f->limit) {
        status = xpu_fail(XPU_ERROR_OUT_OF_MEMORY, "the fake driver has no more");
    } else {
        if (!space) {
            space =
                mmap(NULL, SPACE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (space == MAP_FAILED) abort();
        }
        int i = 0;
        while (i < piece_count && (pieces[i].live || pieces[i].size != size || fake_no_reuse)) i++;
        if (i == piece_count) {
            if (piece_count == KNOWN) abort();
            cursor += 64 * (random_below(&gaps, 3) == 0 ? 0 : random_below(&gaps, 40000));
            pieces[piece_count++].address = space + cursor;
            pieces[i].size = size;
            cursor += size;
            if (cursor > SPACE) abort();
        }
        pieces[i].device = device;
        pieces[i].live = true;
        f->used += size;
        f->allocs++;
        *pointer = f->last = pieces[i].address;
    }
    pthread_mutex_unlock(&space_lock);
    return status;
}

xpu_status cl_memory_free(int device, void *pointer) {
    pthread_mutex_lock(&space_lock);
    int i = 0;
    while (i < piece_count && (pieces[i].address != pointer || !pieces[i].live)) i++;
    if (i == piece_count || pieces[i].device != device) abort(); /* freed twice, or never given */
    pieces[i].live = false;
    fakes[device].used -= pieces[i].size;
    fakes[device].frees++;
    madvise((void *)(((uintptr_t)pointer + 4095) & ~(uintptr_t)4095), (pieces[i].size - 4096) & ~(size_t)4095,
            MADV_DONTNEED);
    pthread_mutex_unlock(&space_lock);
    return XPU_SUCCESS;
}

xpu_status cl_host_alloc(size_t size, void **pointer) {
    if (fake_alloc_failure != XPU_SUCCESS) return xpu_fail(fake_alloc_failure, "told to fail");
    if (posix_memalign(pointer, 64, size)) return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "no memory");
    fake_host_blocks++;
    return XPU_SUCCESS;
}

xpu_status cl_host_free(void *pointer) {
    free(pointer);
    fake_host_blocks--;
    return XPU_SUCCESS;
}

uint64_t cl_memory_left(int device, bool swapping) { return fakes[device].left; }

const xpu_device_properties *cl_device_properties(int device) { return &fakes[device].properties; }

/* --- devices, streams, events --- */
xpu_status cl_init(void) { return fake_bad_fork ? xpu_fail(XPU_ERROR_BAD_FORK, "forked") : XPU_SUCCESS; }
bool xpu_in_bad_fork(void) { return fake_bad_fork; }

xpu_status xpu_device_get_properties(int device, const xpu_device_properties **properties) {
    if (fake_bad_fork) return xpu_fail(XPU_ERROR_BAD_FORK, "forked");
    XPU_REJECT_IF(device < 0 || device >= FAKE_DEVICES, "no device %d", device);
    *properties = &fakes[device].properties;
    return XPU_SUCCESS;
}

xpu_status device_finish(int device) {
    for (int s = 0; s < FAKE_STREAMS; s++) fake_finish(&fakes[device].streams[s]);
    return XPU_SUCCESS;
}

int xpu_stream_device(const xpu_stream *stream) { return stream->device; }
int64_t xpu_stream_id(const xpu_stream *stream) { return stream->id; }
xpu_status xpu_stream_native(xpu_stream *stream, void **queue) {
    *queue = stream;
    return XPU_SUCCESS;
}

xpu_status xpu_stream_query(xpu_stream *stream) {
    return stream->finished >= stream->submitted ? XPU_SUCCESS : XPU_NOT_READY;
}

xpu_status stream_finish(xpu_stream *stream) {
    fake_finish(stream);
    return XPU_SUCCESS;
}

struct xpu_event {
    int device;
    xpu_stream *stream;
    unsigned long mark;
};

xpu_status xpu_event_create(int device, bool timing, xpu_event **event) {
    if (fake_event_failure != XPU_SUCCESS) return xpu_fail(fake_event_failure, "told to fail");
    *event = calloc(1, sizeof **event);
    if (!*event) return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "no memory");
    (*event)->device = device;
    fake_events++;
    fake_events_made++;
    return XPU_SUCCESS;
}

xpu_status xpu_event_destroy(xpu_event *event) {
    if (event) fake_events--;
    free(event);
    return XPU_SUCCESS;
}

int xpu_event_device(const xpu_event *event) { return event->device; }

xpu_status xpu_event_record(xpu_event *event, xpu_stream *stream) {
    if (fake_event_failure != XPU_SUCCESS) return xpu_fail(fake_event_failure, "told to fail");
    if (event->device != stream->device) abort();
    event->stream = stream;
    event->mark = stream->submitted;
    return XPU_SUCCESS;
}

xpu_status xpu_event_query(xpu_event *event) {
    if (fake_event_failure != XPU_SUCCESS) return xpu_fail(fake_event_failure, "told to fail");
    return !event->stream || event->stream->finished >= event->mark ? XPU_SUCCESS : XPU_NOT_READY;
}

xpu_status event_finish(xpu_event *event) {
    if (fake_event_failure != XPU_SUCCESS) return xpu_fail(fake_event_failure, "told to fail");
    if (event->stream && event->stream->finished < event->mark) event->stream->finished = event->mark;
    return XPU_SUCCESS;
}

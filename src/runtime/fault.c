/* Fault reports of kernels (bounds checks, assertions). Each device has one report buffer. On CPU devices,
 * where the kernel has finished when the launch returns, each thread has its own, and the fault is raised at
 * the launch. Elsewhere, in captures, and with OPENXPU_DEFERRED_ERRORS=1, it is raised as a deferred error at
 * the next synchronization (fault_check). Any thread may call. Errors: XPU_ERROR_INDEX, XPU_ERROR_ASSERTION.
 */
#include "runtime/fault.h"

#include <stdlib.h>

#include "kernels/fault.h"
#include "runtime/graph.h"

static struct {
    _Atomic(xpu_fault *) place; /* NULL before the first watched launch */
    bool direct;                /* the host can read it in place */
} reports[CL_MAX_DEVICES];
static os_mutex fault_lock = OS_MUTEX_INIT; /* guards creating a report buffer and taking a report */
static _Thread_local xpu_fault of_thread;

static bool is_late(const xpu_stream *stream) {
    static atomic_int asked; /* 0 not read yet, 1 CPU devices raise at the launch, 2 deferred as well */
    if (!stream->host || stream_capture(stream)) return true;
    int answer = atomic_load_explicit(&asked, memory_order_relaxed);
    if (!answer) {
        const char *text = getenv("OPENXPU_DEFERRED_ERRORS");
        answer = text && *text == '1' ? 2 : 1;
        atomic_store(&asked, answer);
    }
    return answer == 2;
}

/* Reads the report into *fault; with `fault` NULL, clears it. */
static xpu_status transfer(int device, xpu_fault *place, xpu_fault *fault) {
    static const char empty = 0;
    xpu_stream *stream;
    if (reports[device].direct) {
        if (fault)
            *fault = *place;
        else
            *place = (xpu_fault){0};
        return XPU_SUCCESS;
    }
    XPU_TRY(xpu_stream_default(device, &stream));
    if (fault) return stream_copy(stream, fault, place, sizeof *place, true, NULL);
    XPU_TRY(xpu_memset(stream, place, &empty, 1, sizeof *place));
    return stream_finish(stream);
}

static xpu_status make_place(int device) {
    xpu_status status = XPU_SUCCESS;
    os_mutex_lock(&fault_lock);
    if (!atomic_load(&reports[device].place)) {
        void *place;
        status = cl_report_alloc(device, sizeof(xpu_fault), &place, &reports[device].direct);
        if (status == XPU_SUCCESS) {
            status = transfer(device, place, NULL);
            if (status == XPU_SUCCESS)
                atomic_store_explicit(&reports[device].place, place, memory_order_release);
            else
                cl_memory_free(device, place);
        }
    }
    os_mutex_unlock(&fault_lock);
    return status;
}

xpu_status xpu_fault_watch(xpu_stream *stream, xpu_fault **place) {
    if (!is_late(stream)) {
        of_thread.state = 0;
        *place = &of_thread;
        return XPU_SUCCESS;
    }
    if (xpu_in_bad_fork()) return cl_init();
    if (!atomic_load_explicit(&reports[stream->device].place, memory_order_acquire))
        XPU_TRY(make_place(stream->device));
    *place = atomic_load_explicit(&reports[stream->device].place, memory_order_relaxed);
    xpu_graph *capture = stream_capture(stream);
    if (capture)
        graph_note_watched(capture);
    else
        atomic_store_explicit(&stream->watched, true, memory_order_release);
    return XPU_SUCCESS;
}

void xpu_fault_take(xpu_stream *stream, const xpu_fault *place, xpu_fault *fault) {
    if (is_late(stream) || place->state != 2)
        fault->state = 0;
    else
        *fault = *place;
}

/* Fails with the report. `late`: the error is deferred, so the text says that an earlier call caused it. */
static xpu_status fail_with(const xpu_fault *fault, int device, bool late) {
    xpu_status status;
    if (fault->which == FAULT_TEXT) {
        status = xpu_fail(XPU_ERROR_ASSERTION, "%s", fault->op);
    } else if (fault->which < 0) {
        const char *const *texts = (const char *const *)(const void *)fault->op;
        status =
            xpu_fail(XPU_ERROR_ASSERTION, "%s, in program (%lld, %d, %d)", texts[~fault->which],
                     (long long)fault->index, (int)(fault->extent & INT32_MAX), (int)(fault->extent >> 32));
    } else {
        status = xpu_fail(XPU_ERROR_INDEX, "%s: index %lld is out of bounds for a dimension of size %lld",
                          fault->op, (long long)fault->index, (long long)fault->extent);
    }
    if (late)
        xpu_fail_add(". An earlier call caused this: %s runs asynchronously",
                     cl_devices[device].properties.name);
    return status;
}

xpu_status xpu_fault_raise(xpu_stream *stream, const xpu_fault *place) {
    xpu_fault fault;
    xpu_fault_take(stream, place, &fault);
    return fault.state ? fail_with(&fault, stream->device, false) : XPU_SUCCESS;
}

xpu_status fault_check(int device, bool look) {
    xpu_fault *place = atomic_load_explicit(&reports[device].place, memory_order_acquire);
    if (!place) return XPU_SUCCESS;
    if (reports[device].direct ? __atomic_load_n(&place->state, __ATOMIC_ACQUIRE) != 2 : !look)
        return XPU_SUCCESS;
    xpu_fault fault;
    os_mutex_lock(&fault_lock);
    xpu_status status = transfer(device, place, &fault);
    if (status == XPU_SUCCESS && fault.state == 2) status = transfer(device, place, NULL);
    os_mutex_unlock(&fault_lock);
    if (status != XPU_SUCCESS || fault.state != 2) return status;
    return fail_with(&fault, device, true);
}

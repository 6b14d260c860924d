/* Fills on all devices but the host's, and copies of XPU_MEMORY_BUFFER memory (addresses to kernels, cl_mem
 * buffers to the driver). Copies within the device and fills run as kernels: the driver's commands take
 * longer to submit and fill byte by byte. Copies between host and device use the driver's commands, except
 * small uploads from pageable memory, which would block the host.
 *
 * Any thread may call. Kernels are created on first use and kept until the process ends. */
#include "core/embedded.h"
#include "kernels/bytes.h"
#include "runtime/kernel.h"
#include "runtime/work.h"
#include "xpu/request.h"

/* Transfers are divided into commands of 1 GiB, because one driver takes a command's size modulo 4 GiB. */
#define PIECE ((size_t)1 << 30)

/* Uploads from pageable memory up to this size are staged in pinned memory, so the host does not wait for the
 * stream to reach them. */
#define STAGED ((size_t)1 << 20)

typedef enum bytes_kernel { COPY, FILL, UPLOAD_64, UPLOAD_256, UPLOAD_896, BYTES_KERNELS } bytes_kernel;

static _Atomic(xpu_kernel *) kernels[CL_MAX_DEVICES][BYTES_KERNELS];

static xpu_status get_kernel(int device, bytes_kernel which, xpu_kernel **kernel) {
    static const struct {
        const char *name, *label;
    } names[BYTES_KERNELS] = {{"copy_bytes", "copy"},
                              {"fill_bytes", "fill"},
                              {"upload_64", "copy"},
                              {"upload_256", "copy"},
                              {"upload_896", "copy"}};
    *kernel = atomic_load_explicit(&kernels[device][which], memory_order_acquire);
    if (*kernel) return XPU_SUCCESS;
    char request[64];
    snprintf(request, sizeof request, BYTES_FILE "|%s||%s|", names[which].name, names[which].label);
    xpu_request_record(device, request);
    text_buffer source = {0};
    xpu_status status = embedded_source(&source, BYTES_FILE);
    if (status == XPU_SUCCESS)
        status = xpu_kernel_create(device, source.data, NULL, names[which].name, names[which].label, kernel);
    text_free(&source);
    XPU_TRY(status);
    atomic_store_explicit(&kernels[device][which], *kernel, memory_order_release);
    return XPU_SUCCESS;
}

static xpu_status launch(const work *w, bytes_kernel which, size_t items, size_t local, const void *params,
                         size_t params_size) {
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(w->seen.stream->device, which, &kernel));
    const xpu_range range = {.dims = 1, .groups = {(items + local - 1) / local}, .local = {local}};
    return launch_for(w, kernel, &range, params, params_size);
}

/* --- within the device --- */

static xpu_status copy_within(const work *w) {
    const size_t size = (size_t)w->seen.bytes;
    copy_bytes_params p = {XPU_ADDR(w->seen.to), XPU_ADDR(w->seen.from), size, BYTES_PER_ITEM, 0};
    while ((p.to | p.from) % (unsigned)p.unit) p.unit /= 2;
    return launch(w, COPY, (size + BYTES_PER_ITEM - 1) / BYTES_PER_ITEM, BYTES_LOCAL, &p, sizeof p);
}

xpu_status fill_by_kernel(work *w) {
    const unsigned char *pattern = w->seen.pattern;
    fill_bytes_params p = {.begin = XPU_ADDR(w->seen.to), .end = XPU_ADDR(w->seen.to) + w->seen.bytes};
    unsigned char bytes[BYTES_PER_ITEM];
    for (size_t k = 0; k < BYTES_PER_ITEM; k++)
        bytes[(p.begin + k) % BYTES_PER_ITEM] = pattern[k % w->seen.pattern_size];
    memcpy(p.pattern, bytes, sizeof bytes);
    const size_t items = (size_t)((p.end + BYTES_PER_ITEM - 1) / BYTES_PER_ITEM - p.begin / BYTES_PER_ITEM);
    return launch(w, FILL, items, BYTES_LOCAL, &p, sizeof p);
}

/* --- between host and device --- */

/* Enqueues one command: a write to `buffer` if `from` is not NULL, otherwise a read. */
static xpu_status transfer(const work *w, cl_mem buffer, size_t offset, void *to, const void *from,
                           size_t size, bool blocking) {
    const cl_device *device = &cl_devices[w->seen.stream->device];
    const cl_api *api = device->api;
    const cl_bool block = blocking ? CL_TRUE : CL_FALSE;
    command c;
    XPU_TRY(command_begin(w, &c));
    const cl_int error =
        from ? api->clEnqueueWriteBuffer(c.queue, buffer, block, offset, size, from, 0, NULL, c.wanted)
             : api->clEnqueueReadBuffer(c.queue, buffer, block, offset, size, to, 0, NULL, c.wanted);
    xpu_status status = cl_check(error, from ? "->clEnqueueWriteBuffer" : "->clEnqueueReadBuffer", device);
    return command_end(w, &c, status, size);
}

static xpu_status transfer_all(const work *w, cl_mem buffer, size_t offset, char *to, const char *from,
                               bool blocking) {
    const size_t size = (size_t)w->seen.bytes;
    size_t done = 0;
    for (; size - done > PIECE; done += PIECE)
        XPU_TRY(transfer(w, buffer, offset + done, to ? to + done : NULL, from ? from + done : NULL, PIECE,
                         false));
    return transfer(w, buffer, offset + done, to ? to + done : NULL, from ? from + done : NULL, size - done,
                    blocking);
}

#define UPLOAD(capacity)                                                                                     \
    {                                                                                                        \
        upload_##capacity##_params p = {.to = XPU_ADDR(w->seen.to), .size = size};                           \
        memcpy(p.words, w->seen.from, size);                                                                 \
        return launch(w, UPLOAD_##capacity, items, (capacity) / 8, &p, sizeof p);                            \
    }

/* Passes the data as a kernel argument, which the driver copies before this returns. */
static xpu_status upload_as_argument(const work *w) {
    const size_t size = (size_t)w->seen.bytes;
    const size_t items = (size + 7) / 8;
    if (size <= 64) UPLOAD(64)
    if (size <= 256) UPLOAD(256)
    UPLOAD(896)
}

/* Copies the data to pinned memory before this returns, and uploads it from there. */
static xpu_status upload_staged(const work *w, cl_mem buffer, size_t offset) {
    const size_t size = (size_t)w->seen.bytes;
    void *staged;
    XPU_TRY(xpu_host_malloc(size, &staged));
    memcpy(staged, w->seen.from, size);
    xpu_status status = transfer(w, buffer, offset, NULL, staged, size, false);
    if (status == XPU_SUCCESS) status = xpu_host_record_stream(staged, w->seen.stream);
    if (status != XPU_SUCCESS) stream_finish(w->seen.stream);
    xpu_host_free(staged);
    return status;
}

xpu_status buffer_copy(work *w) {
    xpu_stream *stream = w->seen.stream;
    void *to = w->seen.to;
    const void *from = w->seen.from;
    const size_t size = (size_t)w->seen.bytes;
    const bool blocking = w->blocking;
    size_t to_offset = 0, from_offset = 0;
    cl_mem target = cl_memory_buffer(stream->device, to, &to_offset);
    cl_mem source = cl_memory_buffer(stream->device, from, &from_offset);
    if (target && source) {
        XPU_TRY(copy_within(w));
        return blocking ? stream_finish(stream) : XPU_SUCCESS;
    }
    if (source) return transfer_all(w, source, from_offset, to, NULL, blocking);
    if (!target) { /* host to host */
        XPU_TRY(stream_finish(stream));
        memmove(to, from, size);
        w->waited = true;
        return XPU_SUCCESS;
    }
    /* After a blocking call the host may overwrite the source immediately, so its contents are copied now.
     * That is not possible for pinned memory: an earlier copy in the stream may still write to it. */
    const bool pinned = xpu_host_is_pinned(from);
    if (blocking && size <= STAGED && !pinned) {
        w->waited = false;
        if (size <= sizeof((upload_896_params *)0)->words) return upload_as_argument(w);
        if (upload_staged(w, target, to_offset) == XPU_SUCCESS) return XPU_SUCCESS;
        w->waited = true; /* no pinned memory left: transfer it as larger uploads are */
    }
    /* Intel's CPU driver reads the source of a blocking write before the stream reaches the command. */
    XPU_TRY(transfer_all(w, target, to_offset, NULL, from, blocking && !pinned));
    return blocking && pinned ? stream_finish(stream) : XPU_SUCCESS;
}

/* Fuzzes opening, planning and running packages: no crash, no sanitizer finding, and every error has a text.
 * The device is malloc, so that accesses out of bounds are found; operators access the first and last bytes
 * of their tensors. tests/tile/fuzz.sh builds this with libFuzzer and lists the wrapped functions.
 *
 * An input has a header of four words. Its first byte selects: a package file, which is also tried with
 * corrected hashes; or a program, images and weights, from which a file is written. Mutations change words.
 */
#include <math.h>
#include <stdio.h>

#include "package/format.h"
#include "xpu/device.h"
#include "xpu/memory.h"
#include "xpu/ops/attention.h"
#include "xpu/ops/conv.h"
#include "xpu/ops/copy.h"
#include "xpu/ops/gemm.h"
#include "xpu/ops/histogram.h"
#include "xpu/ops/index.h"
#include "xpu/ops/sort.h"
#include "xpu/tile.h"

typedef struct head {
    uint8_t is_file, is_host, given, host_data;
    uint32_t program, images, sizes; /* bytes, bytes, a seed */
} head;
enum { HEAD = sizeof(head), MOST = 1 << 24 };

static void wrong(const char *what) {
    fprintf(stderr, "%s\n", what);
    abort();
}

/* --- a device of malloc --- */

static bool is_host;
static int blocks;
static char stream_here;
#define STREAM ((xpu_stream *)&stream_here)

xpu_status xpu_stream_default(int device, xpu_stream **stream) {
    *stream = STREAM;
    return XPU_SUCCESS;
}
int xpu_stream_device(const xpu_stream *stream) { return 0; }
xpu_status xpu_stream_synchronize(xpu_stream *stream) { return XPU_SUCCESS; }
xpu_status xpu_device_synchronize(int device) { return XPU_SUCCESS; }
xpu_status xpu_device_trim(int device) { return XPU_SUCCESS; }
xpu_status xpu_device_get_properties(int device, const xpu_device_properties **properties) {
    static xpu_device_properties these;
    these.type = is_host ? XPU_DEVICE_CPU : XPU_DEVICE_GPU;
    these.host_unified_memory = is_host;
    *properties = &these;
    return XPU_SUCCESS;
}
xpu_status xpu_tile_target_check(const char *text, int device) {
    return strstr(text, "is_cpu=0") ? xpu_fail(XPU_ERROR_NOT_SUPPORTED, "another target") : XPU_SUCCESS;
}
xpu_status xpu_image_kernel(const xpu_image *image, int device, xpu_kernel **kernel) {
    if (image->kind == XPU_IMAGE_BINARY && !is_host) return xpu_fail(XPU_ERROR_BUILD_FAILED, "a binary");
    *kernel = (xpu_kernel *)STREAM;
    return XPU_SUCCESS;
}
xpu_status xpu_image_kernels(const xpu_image *const *images, int count, int device, xpu_kernel **kernels) {
    for (int i = 0; i < count; i++) XPU_TRY(xpu_image_kernel(images[i], device, &kernels[i]));
    return XPU_SUCCESS;
}
xpu_status xpu_malloc(xpu_stream *stream, size_t size, void **pointer) {
    if (!size) wrong("an empty block is asked for");
    if (size > MOST) return xpu_fail(XPU_ERROR_OUT_OF_MEMORY, "%zu bytes", size);
    *pointer = malloc(size);
    if (!*pointer) return xpu_fail(XPU_ERROR_OUT_OF_MEMORY, "%zu bytes", size);
    blocks++;
    return XPU_SUCCESS;
}
xpu_status xpu_free(void *pointer) {
    if (pointer) blocks--;
    free(pointer);
    return XPU_SUCCESS;
}
xpu_status xpu_memcpy(xpu_stream *stream, void *to, const void *from, size_t size, bool blocking) {
    memcpy(to, from, size);
    return XPU_SUCCESS;
}

/* --- operators: the first and the last byte of what they are handed --- */

static volatile char sink;
static void touch_bytes(char *data, int64_t last, bool is_written) {
    sink = data[0];
    sink = data[last];
    if (is_written) data[0] = data[last] = 0;
}
static void touch_strided(void *data, uint64_t element, int dims, const int64_t *size, const int64_t *stride,
                          bool is_written) {
    int64_t last = (int64_t)element - 1;
    for (int d = 0; d < dims; d++)
        if (size[d] <= 0) return;
    for (int d = 0; d < dims; d++) last += (size[d] - 1) * stride[d];
    touch_bytes(data, last, is_written);
}
static void touch(const xpu_tensor *t, bool is_written) {
    int64_t bytes[XPU_MAX_DIMS] = {0}, element = (int64_t)xpu_dtype_size(t->dtype);
    for (int d = 0; d < t->dims; d++) {
        if (t->size[d] == 0) return;
        if (t->size[d] > 1) bytes[d] = t->stride[d] * element;
    }
    touch_strided(t->data, (uint64_t)element, t->dims, t->size, bytes, is_written);
}
static void touch_matrix(const xpu_matrix *m, xpu_dtype dtype, int64_t batch, int64_t rows, int64_t columns,
                         bool is_written) {
    const int64_t size[] = {batch, rows, columns};
    const int64_t stride[] = {batch > 1 ? m->batch_stride : 0, rows > 1 ? m->row_stride : 0,
                              columns > 1 ? m->column_stride : 0};
    const xpu_tensor t = {m->data, dtype, 3, size, stride};
    touch(&t, is_written);
}

xpu_status xpu_copy(xpu_stream *stream, const xpu_iter *iter) {
    for (int i = 1; i >= 0; i--)
        touch_strided(iter->operand[i].data, xpu_dtype_size(iter->operand[i].dtype), iter->dims, iter->size,
                      iter->operand[i].stride, i == 0);
    return XPU_SUCCESS;
}
xpu_status xpu_fill(xpu_stream *stream, const xpu_iter *iter, const xpu_scalar *value) {
    touch_strided(iter->operand[0].data, xpu_dtype_size(iter->operand[0].dtype), iter->dims, iter->size,
                  iter->operand[0].stride, true);
    return XPU_SUCCESS;
}
xpu_status xpu_gemm(xpu_stream *stream, const xpu_gemm_args *args) {
    touch_matrix(&args->a, args->dtype, args->batch, args->m, args->k, false);
    touch_matrix(&args->b, args->dtype, args->batch, args->k, args->n, false);
    if (args->c.data) touch_matrix(&args->c, args->dtype, args->batch, args->m, args->n, false);
    touch_matrix(&args->out, args->dtype, args->batch, args->m, args->n, true);
    return XPU_SUCCESS;
}
xpu_status xpu_gemm_grouped(xpu_stream *stream, const xpu_gemm_args *args, xpu_grouped grouped,
                            const int32_t *ends) {
    const int64_t batch = args->batch, of_a = grouped == XPU_GROUPED_COLUMNS ? batch : 1;
    if (grouped < XPU_GROUPED_ROWS || grouped > XPU_GROUPED_K) wrong("what is grouped");
    if (!batch || !args->m || !args->n) return XPU_SUCCESS;
    touch_bytes((char *)(uintptr_t)ends, batch * (int64_t)sizeof *ends - 1, false);
    touch_matrix(&args->a, args->dtype, of_a, args->m, args->k, false);
    touch_matrix(&args->b, args->dtype, grouped == XPU_GROUPED_ROWS ? batch : 1, args->k, args->n, false);
    touch_matrix(&args->out, args->dtype, grouped == XPU_GROUPED_K ? batch : 1, args->m, args->n, true);
    return XPU_SUCCESS;
}
xpu_status xpu_histogram(xpu_stream *stream, xpu_dtype dtype, const void *in, int64_t numel, int64_t bins,
                         const xpu_scalar *low, const xpu_scalar *high, const void *weights,
                         xpu_dtype weights_dtype, void *counts) {
    if (!low || !high || bins <= 0) wrong("a histogram's bins");
    if (numel) touch_bytes((char *)(uintptr_t)in, numel * (int64_t)xpu_dtype_size(dtype) - 1, false);
    touch_bytes(counts, bins * (int64_t)sizeof(int32_t) - 1, true);
    return XPU_SUCCESS;
}
xpu_status xpu_conv_forward(xpu_stream *stream, const xpu_conv *conv, const xpu_tensor *input,
                            const xpu_tensor *weight, const xpu_tensor *bias, const xpu_tensor *output) {
    if (conv->dims < 1 || conv->dims > XPU_CONV_MAX_DIMS) wrong("a convolution's dimensions");
    touch(input, false), touch(weight, false);
    if (bias) touch(bias, false);
    touch(output, true);
    return XPU_SUCCESS;
}
xpu_status xpu_attention_forward(xpu_stream *stream, const xpu_attention *args) {
    touch(args->query, false), touch(args->key, false), touch(args->value, false);
    if (args->bias) touch(args->bias, false);
    touch(args->out, true);
    return XPU_SUCCESS;
}
xpu_status xpu_sort(xpu_stream *stream, const xpu_tensor *values, const xpu_tensor *indices,
                    const xpu_tensor *in, int dim, bool descending, int64_t first) {
    touch(in, false), touch(values, true), touch(indices, true);
    return XPU_SUCCESS;
}
static void touch_scattered(const xpu_tensor *out, int dim, const xpu_tensor *index, const xpu_tensor *in,
                            xpu_scatter_op op) {
    if (dim < 0 || dim >= out->dims || op < XPU_SCATTER_SET || op > XPU_SCATTER_MAX) wrong("a scatter");
    touch(index, false), touch(in, false), touch(out, true);
}
xpu_status xpu_scatter(xpu_stream *stream, const xpu_tensor *out, int dim, const xpu_tensor *index,
                       const xpu_tensor *in, xpu_scatter_op op, xpu_scatter_order order, xpu_fault *fault) {
    touch_scattered(out, dim, index, in, op);
    for (int d = 0; d < index->dims; d++)
        if (index->size[d] > in->size[d] || (d != dim && index->size[d] > out->size[d]))
            wrong("a scatter's index");
    return XPU_SUCCESS;
}
xpu_status xpu_index_scatter(xpu_stream *stream, const xpu_tensor *out, int dim, const xpu_tensor *index,
                             const xpu_tensor *in, xpu_scatter_op op, xpu_scatter_order order,
                             xpu_fault *fault) {
    touch_scattered(out, dim, index, in, op);
    return XPU_SUCCESS;
}
xpu_status xpu_image_submit(xpu_stream *stream, const xpu_image *image, xpu_kernel *kernel,
                            const uint32_t grid[3], void *params) {
    for (int i = 0; i < image->param_count; i++) {
        if (image->params[i].offset + image->params[i].size > image->params_size)
            wrong("a parameter's place");
        for (uint32_t b = 0; b < image->params[i].size; b++)
            sink = ((char *)params)[image->params[i].offset + b];
    }
    return XPU_SUCCESS;
}

/* --- files in memory --- */

static os_bytes file; /* what the next one to be mapped holds */
bool __wrap_os_file_map(const char *path, os_map *map) {
    unsigned char *copy = malloc(file.size);
    if (!copy || !file.size) return free(copy), false;
    memcpy(copy, file.data, file.size);
    *map = (os_map){copy, file.size};
    return true;
}
void __wrap_os_file_unmap(os_map *map) {
    if (map->data && memcmp(map->data, file.data, file.size)) wrong("the file is written to");
    free((void *)(uintptr_t)map->data);
}
static char *written;
bool __wrap_os_file_write(const char *path, const os_bytes *pieces, int count) {
    size_t size = 0, at = 0;
    for (int i = 0; i < count; i++) size += pieces[i].size;
    free(written);
    if (!(written = malloc(size ? size : 1))) abort();
    for (int i = 0; i < count; at += pieces[i++].size) memcpy(written + at, pieces[i].data, pieces[i].size);
    file = (os_bytes){written, size};
    return true;
}

/* --- a package --- */

/* Those that live at the same time have no byte in common. */
static void check_plan(const xpu_package *p) {
    const pack_plan *plan = p->plans[0];
    for (int i = 0; i < p->tensor_count; i++)
        for (int j = 0; j < i; j++) {
            const pack_tensor *a = &p->tensors[i], *b = &p->tensors[j];
            const plan_tensor *at = &plan->tensors[i], *bt = &plan->tensors[j];
            if (a->kind != TENSOR_NEW || b->kind != TENSOR_NEW || !at->bytes || !bt->bytes) continue;
            if (a->first > a->last || b->first > b->last || a->first > b->last || b->first > a->last)
                continue;
            if (a->last >= p->step_count || b->last >= p->step_count) continue;
            if (at->start + at->bytes > plan->arena || bt->start + bt->bytes > plan->arena)
                wrong("a tensor lies beyond the arena");
            if (at->start < bt->start + bt->bytes && bt->start < at->start + at->bytes)
                wrong("two tensors in one place");
        }
}

static uint64_t extent_of(const xpu_package_tensor *t) {
    uint64_t last = 1;
    for (int d = 0; d < t->dims; d++) {
        uint64_t step;
        if (!t->size[d]) return 0;
        if (__builtin_mul_overflow((uint64_t)t->size[d] - 1, (uint64_t)t->stride[d], &step) || step > MOST ||
            (last += step) > MOST)
            return UINT64_MAX;
    }
    return last * xpu_dtype_size(t->dtype);
}

static void run_package(xpu_package *p, const head *h) {
    const xpu_package_port *in, *out;
    int ins, outs;
    xpu_package_memory memory;
    if (xpu_package_inputs(p, &in, &ins) || xpu_package_outputs(p, &out, &outs)) wrong("no ports");
    xpu_package_memory_of(p, &memory);
    xpu_package_tensor *x = calloc((size_t)ins + 1, sizeof *x), *y = calloc((size_t)outs + 1, sizeof *y);
    if (!x || !y) abort();
    bool good = true;
    uint32_t seed = h->sizes;
    for (int i = 0; i < ins; i++) {
        int64_t stride = 1;
        x[i] = (xpu_package_tensor){.is_host = h->host_data & 1, .dtype = in[i].dtype, .dims = in[i].dims};
        for (int d = in[i].dims - 1; d >= 0; d--) {
            seed = seed * 1664525 + 1013904223;
            x[i].size[d] = in[i].size[d] >= 0 ? in[i].size[d] : h->sizes ? seed >> 28 : 3;
            x[i].stride[d] = stride;
            if (x[i].size[d] > MOST ||
                __builtin_mul_overflow(stride, x[i].size[d] + (h->given >> 4 & 1), &stride))
                good = false, stride = 0;
        }
        const uint64_t bytes = good ? extent_of(&x[i]) : UINT64_MAX;
        good = bytes <= MOST;
        if (good && bytes) x[i].data = calloc(1, bytes);
    }
    if (good && xpu_package_shapes(p, x, ins, y, outs) == XPU_SUCCESS) {
        check_plan(p);
        for (int i = 0; i < outs; i++) {
            const uint64_t bytes = extent_of(&y[i]);
            if ((h->given & 1) && bytes <= MOST)
                y[i].data = calloc(1, bytes + 1), y[i].is_host = h->host_data & 2;
        }
        for (int again = 0; again < 2; again++) {
            const int before = blocks;
            xpu_package_tensor *z = calloc((size_t)outs + 1, sizeof *z);
            if (!z) abort();
            memcpy(z, y, (size_t)outs * sizeof *z);
            if (xpu_package_run(p, STREAM, x, ins, z, outs) != XPU_SUCCESS && !xpu_last_error()[0])
                wrong("a run fails without a reason");
            for (int i = 0; i < outs; i++)
                if (!y[i].data) xpu_free(z[i].data);
            free(z);
            if (again && blocks != before) wrong("a run keeps memory");
        }
    } else if (good && !xpu_last_error()[0]) {
        wrong("no shapes, without a reason");
    }
    for (int i = 0; i < ins; i++) free(x[i].data);
    for (int i = 0; i < outs; i++) free(y[i].data);
    free(x), free(y);
}

static void open_file(const head *h) {
    xpu_package *p = NULL;
    if (xpu_package_open("a file", 0, &p) == XPU_SUCCESS)
        run_package(p, h);
    else if (p || !xpu_last_error()[0])
        wrong("a package is refused without a reason");
    xpu_package_close(p);
    if (blocks) wrong("memory is left");
}

/* The hashes that the sections and the head should have. */
static void mend(char *bytes, size_t size) {
    file_head head;
    if (size < sizeof head) return;
    memcpy(&head, bytes, sizeof head);
    memcpy(head.magic, MAGIC, sizeof head.magic);
    head.version = VERSION, head.sections = SECTIONS, head.size = size;
    for (int s = 0; s < SECTIONS; s++) {
        file_section *section = &head.section[s];
        if (section->offset > size || section->size > size - section->offset) continue;
        section->hash = hash128_end(hash128_add(HASH128_START, bytes + section->offset, section->size));
    }
    head.hash = head_hash(&head);
    memcpy(bytes, &head, sizeof head);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    head h;
    if (size < HEAD) return 0;
    memcpy(&h, data, HEAD);
    data += HEAD, size -= HEAD;
    is_host = h.is_host & 1;
    if (h.is_file & 1) {
        char *bytes = malloc(size + 1);
        if (!bytes) abort();
        memcpy(bytes, data, size);
        file = (os_bytes){bytes, size};
        open_file(&h);
        mend(bytes, size);
        open_file(&h);
        free(bytes);
        return 0;
    }
    const size_t program = (h.program < size ? h.program : size) / 8 * 8;
    const size_t images = h.images < size - program ? h.images : size - program;
    int64_t *words = malloc(program + 8);
    if (!words) abort();
    memcpy(words, data, program);
    const xpu_package_chunk image = {data + program, images},
                            weights = {data + program + images, size - program - images};
    if (xpu_package_write("a file", "fuzz", words, program / 8, &image, 1, &weights, 1)) wrong("not written");
    free(words);
    open_file(&h);
    return 0;
}

/* --- mutations: words of the program become others --- */

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
    static const int64_t odd[] = {
        -1, 0, 1, 2, 3, 4, 5, 7, 8, 16, 64, 77, 1 << 20, INT32_MAX, INT64_MAX, INT64_MIN, INT64_MAX / 2};
    head h = {0};
    if (size >= HEAD) memcpy(&h, data, HEAD);
    if (size < HEAD + 64 || (h.is_file & 1) || h.program > size - HEAD || h.program < 16 || seed % 4 == 0)
        return LLVMFuzzerMutate(data, size, most);
    uint64_t state = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    const size_t words = h.program / 8;
    uint8_t *const first = data + HEAD;
    for (int change = 0; change < 1 + (int)(seed >> 8) % 4; change++) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
        const size_t at = (size_t)(state >> 33) % words, from = (size_t)(state >> 13) % words;
        int64_t word;
        memcpy(&word, first + at * 8, 8);
        switch (state >> 60) {
        case 0:
        case 1:
        case 2: word = odd[(state >> 20) % (sizeof odd / sizeof *odd)]; break;
        case 3:
        case 4: word ^= (int64_t)(UINT64_C(1) << (state >> 50 & 63)); break;
        case 5:
        case 6: word = (int64_t)((uint64_t)word + (state >> 50 & 7) - 3); break;
        case 7: { /* some words are put in again */
            const size_t count = 1 + (state >> 40) % 12;
            if (from + count > words || size + count * 8 > most) break;
            uint8_t copy[12 * 8];
            memcpy(copy, first + from * 8, count * 8);
            memmove(first + at * 8 + count * 8, first + at * 8, size - HEAD - at * 8);
            memcpy(first + at * 8, copy, count * 8);
            h.program += (uint32_t)count * 8;
            memcpy(data, &h, HEAD);
            return size + count * 8;
        }
        case 8: { /* and some left out */
            const size_t count = 1 + (state >> 40) % 6;
            if (at + count > words) break;
            memmove(first + at * 8, first + (at + count) * 8, size - HEAD - (at + count) * 8);
            h.program -= (uint32_t)count * 8;
            memcpy(data, &h, HEAD);
            return size - count * 8;
        }
        case 9:
            h.sizes = (uint32_t)(state >> 20), h.is_host ^= state >> 40 & 1;
            h.given = (uint8_t)(state >> 41), h.host_data = (uint8_t)(state >> 50);
            memcpy(data, &h, HEAD);
            break;
        default: memcpy(&word, first + from * 8, 8);
        }
        memcpy(first + at * 8, &word, 8);
    }
    return size;
}

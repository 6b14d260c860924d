/* cat: chooses tile and element sizes, and splits the inputs into portions that fit into a kernel's
 * parameters. */
#include "xpu/ops/cat.h"

#include <stddef.h>
#include <string.h>

#include "core/tuning.h"
#include "kernels/cat.h"
#include "ops/host_bytes.h"
#include "ops/kernel.h"
#include "xpu/device.h"
#include "xpu/graph.h"
#include "xpu/trace.h"

#define BLOCK_BYTES 16384 /* CPU: bytes of one input that a work-group copies, */
#define BAND_BYTES                                                                                           \
    32768 /* or of all, if none has more than a block in a row: the output is written in order */

typedef struct tiling {
    int element; /* bytes */
    int x, y;    /* the group's size */
    int block;   /* CPU: elements per work-group of one work-item; 0 for larger groups */
    int band;    /* rows of the output that it copies, and no blocks; 0: none */
    bool tall, in_params;
} tiling;

/* The largest element size that divides all sizes and addresses. */
static int element_of(uint64_t bits, int widest) {
    int element = widest;
    while (bits % (uint64_t)element) element /= 2;
    return element;
}

static tiling tiling_of(const xpu_device_properties *properties, int64_t rows, int64_t row_size,
                        int64_t longest, int element) {
    bool cpu = properties->type == XPU_DEVICE_CPU;
    size_t group = cpu ? 1024 : 256;
    if (group > properties->max_work_group_size) group = properties->max_work_group_size;
    tiling t = {.element = element, .in_params = !cpu};
    if (cpu) {
        t.x = t.y = 1, t.block = BLOCK_BYTES / element;
        if (longest <= BLOCK_BYTES) t.band = (int)(row_size < BAND_BYTES ? BAND_BYTES / row_size : 1);
        return t;
    }
    size_t columns = (size_t)(longest / element);
    t.tall = columns < 16 && rows > 16;
    if (t.tall) {
        t.x = (int)group, t.y = 1;
        return t;
    }
    /* powers of two keep the number of kernels small */
    size_t x = 16;
    while (x < columns && x < group) x *= 2;
    size_t y = 1;
    while (x * y < group && y < (size_t)rows) y *= 2;
    t.x = (int)x, t.y = (int)y;
    return t;
}

static xpu_status kernel_for(int device, const tiling *t, xpu_kernel **kernel) {
    kernel_spec spec;
    spec_begin(&spec, FAMILY_CAT);
    spec_int(&spec, "E", t->element, 16);
    spec_int(&spec, "TX", t->x, 32);
    spec_int(&spec, "TY", t->y, 32);
    spec_bool(&spec, "TALL", t->tall);
    spec_int(&spec, "BLOCK", t->block, 32);
    spec_flag(&spec, "BANDS", t->band > 0);
    spec_bool(&spec, "INLINE", t->in_params);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(device, &spec, "cat.cl", "cat", kernel, "cat %d bytes", t->element);
}

static int64_t groups_for(const tiling *t, int64_t rows, int64_t columns) {
    if (t->tall) return (rows + t->x - 1) / t->x;
    if (t->block) {
        int64_t down = columns < t->block ? t->block / columns : 1;
        return (columns + t->block - 1) / t->block * ((rows + down - 1) / down);
    }
    int64_t across = (columns + t->x - 1) / t->x;
    return across * ((rows + t->y - 1) / t->y);
}

/* --- on host threads --- */

#define LONG_PIECE 16384 /* bytes */

typedef struct joined {
    char *out;
    int64_t rows, row_size, bytes; /* bytes: of all inputs' rows together */
    int count;
    xpu_cat_input input[CAT_INPUTS];
} joined;

/* Copies a range of the output's bytes, counted row after row. */
static void join_bytes(const void *of, int64_t begin, int64_t left) {
    const joined *j = of;
    int64_t row = begin / j->bytes, at = begin % j->bytes;
    int i = 0;
    for (; at >= j->input[i].row_size; i++) at -= j->input[i].row_size;
    while (left > 0) {
        const xpu_cat_input *in = &j->input[i];
        const int64_t size = in->row_size - at < left ? in->row_size - at : left;
        memcpy(j->out + row * j->row_size + in->offset + at, (const char *)in->data + row * in->row_size + at,
               (size_t)size);
        left -= size;
        at = 0;
        if (++i == j->count) i = 0, row++;
    }
}

static xpu_status join(xpu_stream *stream, const void *context) {
    (void)stream;
    const joined *j = context;
    host_move_shared(j->rows * j->bytes, join_bytes, j);
    return XPU_SUCCESS;
}

static int join_accesses(const void *of, xpu_access *accesses) {
    const joined *j = of;
    accesses[0] = (xpu_access){j->out, (size_t)(j->rows * j->row_size), true};
    for (int i = 0; i < j->count; i++)
        accesses[1 + i] = (xpu_access){j->input[i].data, (size_t)(j->rows * j->input[i].row_size), false};
    return 1 + j->count;
}

/* Without a host thread pool a kernel is better: it has the driver's threads. */
static bool is_merged_in_kernel(const xpu_device_properties *properties, int64_t rows, int64_t bytes,
                                int count) {
    if (properties->memory != XPU_MEMORY_HOST) return false;
    const bool is_short = rows * count <= TUNED(true, CAT_ON_CALLER) && rows * bytes < MIN_SHARED_BYTES;
    return is_short || (bytes >= count * (int64_t)LONG_PIECE && xpu_get_host_thread_pool());
}

static xpu_status merge_in_kernel(xpu_stream *stream, void *out, int64_t rows, int64_t row_size,
                                  int64_t bytes, const xpu_cat_input *inputs, int count) {
    joined j = {.out = out, .rows = rows, .row_size = row_size, .bytes = bytes, .count = count};
    memcpy(j.input, inputs, (size_t)count * sizeof *inputs);
    return xpu_host_call(stream, "cat", join, &j, offsetof(joined, input) + (size_t)count * sizeof *inputs,
                         join_accesses);
}

/* --- kernels --- */

static xpu_status portion(xpu_stream *stream, void *out, int64_t rows, int64_t row_size,
                          const xpu_cat_input *inputs, int count) {
    const xpu_device_properties *properties;
    int device = xpu_stream_device(stream);
    XPU_TRY(xpu_device_get_properties(device, &properties));
    uint64_t bits = (uint64_t)(uintptr_t)out | (uint64_t)row_size;
    int64_t longest = 0, bytes = 0;
    for (int i = 0; i < count; i++) {
        bits |=
            (uint64_t)(uintptr_t)inputs[i].data | (uint64_t)inputs[i].offset | (uint64_t)inputs[i].row_size;
        bytes += inputs[i].row_size;
        if (inputs[i].row_size > longest) longest = inputs[i].row_size;
    }
    if (is_merged_in_kernel(properties, rows, bytes, count))
        return merge_in_kernel(stream, out, rows, row_size, bytes, inputs, count);
    tiling t = tiling_of(properties, rows, row_size, longest,
                         element_of(bits, properties->type == XPU_DEVICE_CPU ? 8 : 16));
    xpu_kernel *kernel;
    XPU_TRY(kernel_for(device, &t, &kernel));

    struct cat_params params = {
        .out = XPU_ADDR(out), .rows = rows, .row_size = row_size / t.element, .count = count};
    for (int i = 0; i < count; i++) {
        int64_t columns = inputs[i].row_size / t.element;
        params.input[i] = (struct cat_input){XPU_ADDR(inputs[i].data), columns, inputs[i].offset / t.element,
                                             params.groups};
        params.groups += groups_for(&t, rows, columns);
    }
    if (t.band) params.band = t.band, params.groups = (rows + t.band - 1) / t.band;
    const void *table = params.input; /* has been read when the launch returns */
    if (!t.in_params) XPU_TRY(xpu_graph_keep(stream, table, (size_t)count * sizeof *params.input, &table));
    params.table = XPU_ADDR(table);
    xpu_range range = {
        2, {1, (size_t)params.groups}, {(size_t)t.x, (size_t)t.y}, (uint64_t)(rows * bytes) / 8};
    return xpu_launch(stream, kernel, &range, &params, sizeof params);
}

xpu_status xpu_cat(xpu_stream *stream, void *out, int64_t rows, int64_t row_size, const xpu_cat_input *inputs,
                   int count) {
    xpu_cat_input some[CAT_INPUTS];
    int n = 0;
    if (rows <= 0) return XPU_SUCCESS;
    for (int i = 0; i < count; i++) {
        if (inputs[i].row_size == 0) continue;
        some[n++] = inputs[i];
        if (n == CAT_INPUTS) {
            XPU_TRY(portion(stream, out, rows, row_size, some, n));
            n = 0;
        }
    }
    return n ? portion(stream, out, rows, row_size, some, n) : XPU_SUCCESS;
}

/* cat: sizes of tiles and elements, and the inputs in portions that fit into a kernel's parameters. */
#include "xpu/ops/cat.h"

#include "kernels/cat.h"
#include "ops/kernel.h"
#include "xpu/graph.h"

#define BLOCK_BYTES 16384

typedef struct tiling {
    int element; /* bytes */
    int x, y;    /* the group's size */
    int block;   /* elements that a processor's group of one copies; 0 with groups of many */
    bool tall, in_params;
} tiling;

/* The widest element that divides every size and address. */
static int element_of(uint64_t bits, int widest) {
    int element = widest;
    while (bits % (uint64_t)element) element /= 2;
    return element;
}

static tiling tiling_of(const xpu_device_properties *properties, int64_t rows, int64_t longest, int element) {
    bool cpu = properties->type == XPU_DEVICE_CPU;
    size_t group = cpu ? 1024 : 256;
    if (group > properties->max_work_group_size) group = properties->max_work_group_size;
    tiling t = {.element = element, .in_params = !cpu};
    size_t columns = (size_t)(longest / element);
    t.tall = columns < 16 && rows > 16;
    if (t.tall) {
        t.x = (int)group, t.y = 1;
        return t;
    }
    if (cpu) {
        t.x = t.y = 1, t.block = BLOCK_BYTES / element;
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
    spec_number(&spec, "E", t->element, 16);
    spec_number(&spec, "TX", t->x, 32);
    spec_number(&spec, "TY", t->y, 32);
    spec_bool(&spec, "TALL", t->tall);
    spec_number(&spec, "BLOCK", t->block, 32);
    spec_bool(&spec, "INLINE", t->in_params);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_of_file(device, &spec, "cat.cl", "cat", kernel, "cat %d bytes", t->element);
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
    tiling t =
        tiling_of(properties, rows, longest, element_of(bits, properties->type == XPU_DEVICE_CPU ? 8 : 16));
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
    const void *table = params.input; /* read when the launch returns, where it is used */
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

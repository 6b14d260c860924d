/* Elements combined at places that index tensors say. */
#include <stdlib.h>

#include "ops/gemm/product.h"
#include "ops/index_walk.h"
#include "ops/iter.h"
#include "ops/team.h"
#include "xpu/trace.h"
#include "xpu/ops/index.h"
#include "xpu/ops/sort.h"

typedef struct accumulation {
    xpu_scatter_op op;
    xpu_dtype dtype;
    bool atomic;
} accumulation;

/* How a processor goes about it: work-items a block, 0 when it isn't cut into blocks; what is walked first.
 */
typedef struct blocks {
    int lanes;
    bool serial_first, serial_flat; /* the latter: the former, over values and indices without gaps */
} blocks;

#define ROW_LANES 16 /* that share a block of a row */

static int64_t others_of(const index_walk *walk) {
    int64_t others = 1;
    for (int d = 1; d < walk->parallel; d++) others *= walk->params.size[d];
    return others;
}

/* Of rows: twice as many as places, for the places are gone through, too; places enough for the processors,
 * and apart from each other, for several work-groups write them; no batches, which work-groups share by
 * themselves; and 32-bit numbers of both. */
static bool is_ordered(const index_walk *walk) {
    const struct index_params *p = &walk->params;
    return walk->indices == 1 && p->serial / 2 >= p->extent[0] && p->serial <= INT32_MAX &&
           p->extent[0] >= 2 * (int64_t)walk->properties->max_compute_units && others_of(walk) == 1 &&
           llabs(p->step[0]) >= p->size[0] * (int64_t)walk->element;
}

static blocks plan_blocks(index_walk *walk, bool atomic) {
    struct index_params *p = &walk->params;
    if (atomic || walk->properties->type != XPU_DEVICE_CPU || walk->parallel + 1 != walk->dims)
        return (blocks){0};
    bool rows = walk->row && walk->flat_out && walk->flat_in && p->size[0] >= 2 * ROW_LANES &&
                walk->properties->has_subgroup_size;
    blocks plan = {.lanes = rows ? ROW_LANES : 1};
    int64_t others = others_of(walk), wanted = (int64_t)walk->properties->max_compute_units;
    int64_t parts = others < wanted ? (wanted + others - 1) / others : 1;
    p->block = (int32_t)((p->size[0] + parts - 1) / parts);
    if (p->size[0] / parts > 1 << 20) p->block = 1 << 20;
    if (plan.lanes > 1)
        p->block = (p->block + plan.lanes - 1) / plan.lanes * plan.lanes;
    else
        plan.serial_first = llabs(p->index_stride[0][walk->parallel]) < llabs(p->index_stride[0][0]);
    plan.serial_flat = plan.serial_first && p->in_stride[walk->parallel] == (int64_t)walk->element &&
                       p->index_stride[0][walk->parallel] == (int64_t)xpu_dtype_size(walk->index_dtype);
    return plan;
}

typedef enum entry {
    ENTRY_FIXED,
    ENTRY_BLOCKS,
    ENTRY_ATOMIC,
    ENTRY_KEYS,
    ENTRY_RUNS,
    ENTRY_PLACES,
    ENTRY_ORDERED
} entry;
typedef struct variant {
    entry entry;
    blocks plan; /* of ENTRY_BLOCKS, ENTRY_PLACES and ENTRY_ORDERED */
} variant;

/* The kernel of scatter.cl. */
static xpu_status find_kernel(const index_walk *walk, const accumulation *a, variant v, xpu_kernel **kernel) {
    static const char *const names[] = {"set", "add", "mul", "min", "max"};
    static const char *const entries[] = {"scatter_fixed", "scatter_blocks", "scatter_atomic", "scatter_keys",
                                          "scatter_runs",  "scatter_places", "scatter_ordered"};
    static const char *const classes[] = {['b'] = "b", ['c'] = "c", ['f'] = "f", ['i'] = "i", ['u'] = "u"};
    const char *token = dtype_token(a->dtype);
    kernel_spec spec;
    spec_begin(&spec, FAMILY_SCATTER);
    index_spec(&spec, walk);
    spec_dtype(&spec, "T", a->dtype);
    spec_follows(&spec, "T_", token);
    spec_follows(&spec, "KIND_", classes[(int)dtype_class(a->dtype)]);
    spec_follows_number(&spec, "SIZE", (int64_t)xpu_dtype_size(a->dtype));
    spec_number(&spec, "OP", a->op, 8);
    spec_bool(&spec, "ATOMIC", a->atomic);
    spec_pack(&spec, "entry", v.entry, 4);
    if (v.entry == ENTRY_KEYS || v.entry == ENTRY_RUNS) spec_follows_number(&spec, "SORTED", 1);
    if (v.entry == ENTRY_PLACES || v.entry == ENTRY_ORDERED) spec_follows_number(&spec, "ORDERED", 1);
    const blocks plan = v.plan;
    spec_number_if(&spec, plan.lanes, "ROW_LANES", plan.lanes, 16);
    spec_number_if(&spec, plan.lanes, "SERIAL_FIRST", plan.serial_first, 1);
    const bool lines = plan.lanes == 1 && walk->indices == 1;
    spec_number_if(&spec, lines, "SERIAL_FLAT", lines && plan.serial_flat, 1);
    spec_number_if(&spec, lines, "UNIT_STEP", lines && walk->params.step[0] == (int64_t)walk->element, 1);
    spec_number_if(&spec, lines, "WRAPS", lines && walk->params.wrap, 1);
    *kernel = kernel_find(walk->device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_of_file(walk->device, &spec, "scatter.cl", entries[v.entry], kernel, "scatter_%s %s",
                          names[a->op], token);
}

/* --- in order, on GPUs --- */

/* Few work-items that walk far are slower than a sort, which takes 48 bytes an element. */
enum { SORT_MOST = 1 << 27 };

/* Rows of the serial dimensions' elements that are sorted by themselves: one, where all work-items go the
 * same way. */
static int64_t key_rows(const index_walk *walk) {
    const struct index_params *p = &walk->params;
    int64_t rows = 1;
    bool moves = false;
    for (int d = 0; d < walk->parallel; d++) {
        rows *= p->size[d];
        for (int k = 0; k < walk->indices; k++) moves |= p->size[d] > 1 && p->index_stride[k][d] != 0;
    }
    return moves ? rows : 1;
}

static bool is_sorted(const index_walk *walk) {
    const struct index_params *p = &walk->params;
    if (plans_for_processor(walk->properties)) return false;
    int64_t items = 1;
    for (int d = 0; d < walk->parallel; d++) items *= p->size[d];
    return p->serial >= TUNED(false, SORTED_FROM) && items < TUNED(false, SORTED_BELOW) &&
           p->serial < INT32_MAX - 4096 && p->serial <= SORT_MOST / key_rows(walk);
}

static xpu_range over(size_t x, size_t y, size_t z, const xpu_device_properties *properties) {
    size_t group = properties->max_work_group_size < 256 ? properties->max_work_group_size : 256;
    size_t columns = 1;
    while (columns < x && columns < group) columns *= 2;
    return (xpu_range){
        .dims = 3,
        .groups = {(x + columns - 1) / columns, (y + group / columns - 1) / (group / columns), z},
        .local = {columns, group / columns, 1},
        .work = (uint64_t)x * y * z * 8};
}

static xpu_status combine_sorted(xpu_stream *stream, index_walk *walk, const accumulation *a) {
    struct index_params *p = &walk->params;
    xpu_kernel *write_keys, *combine_runs;
    XPU_TRY(find_kernel(walk, a, (variant){.entry = ENTRY_KEYS}, &write_keys));
    XPU_TRY(find_kernel(walk, a, (variant){.entry = ENTRY_RUNS}, &combine_runs));
    p->rows = key_rows(walk);
    int64_t size[2] = {p->rows, p->serial}, stride[2] = {p->serial, 1};
    size_t bytes = (size_t)(size[0] * size[1]) * sizeof(int64_t);
    char *memory;
    XPU_TRY(xpu_workspace_take(stream, 3 * bytes, (void **)&memory));
    xpu_tensor keys = {.data = memory, .dtype = XPU_INT64, .dims = 2, .size = size, .stride = stride};
    xpu_tensor sorted = keys, order = keys;
    sorted.data = memory + bytes;
    order.data = memory + 2 * bytes;

    const size_t others = (size_t)others_of(walk);
    xpu_range range = over((size_t)p->serial, (size_t)p->rows, 1, walk->properties);
    p->keys = XPU_ADDR(keys.data);
    xpu_status status = xpu_launch(stream, write_keys, &range, p, sizeof *p);
    if (status == XPU_SUCCESS) status = xpu_sort(stream, &sorted, &order, &keys, 1, false, 0);
    if (status == XPU_SUCCESS) {
        p->keys = XPU_ADDR(sorted.data);
        p->order = XPU_ADDR(order.data);
        range = over((size_t)p->size[0], (size_t)p->serial, others, walk->properties);
        status = xpu_launch(stream, combine_runs, &range, p, sizeof *p);
    }
    return workspace_done(memory, status);
}

/* --- in order, place by place, on processors --- */

enum { WHOLE_COLUMNS = 1024 }; /* of a work-group, or more */

static xpu_status combine_ordered(xpu_stream *stream, index_walk *walk, const accumulation *a, blocks plan) {
    struct index_params *p = &walk->params;
    xpu_kernel *find_places, *go_through;
    XPU_TRY(find_kernel(walk, a, (variant){ENTRY_PLACES, plan}, &find_places));
    XPU_TRY(find_kernel(walk, a, (variant){ENTRY_ORDERED, plan}, &go_through));
    const size_t ends = (size_t)p->extent[0] + 1, rows = (size_t)p->serial;
    int32_t *memory;
    XPU_TRY(xpu_workspace_take(stream, (ends + rows) * sizeof *memory, (void **)&memory));
    p->keys = XPU_ADDR(memory);
    p->order = XPU_ADDR(memory + ends);
    const xpu_range one = {.dims = 1, .groups = {1}, .local = {1}, .work = 4 * (uint64_t)(ends + rows)};
    /* Work-groups have rows of their own: whose columns they shared would pass lines of the cache to and fro.
     */
    const int64_t cut = p->size[0] / WHOLE_COLUMNS;
    p->block = (int32_t)(cut < 2 ? p->size[0] : rounded_up(divided_up(p->size[0], cut), plan.lanes));
    const int64_t parts = divided_up(p->size[0], p->block);
    const int64_t wanted = divided_up(4 * (int64_t)walk->properties->max_compute_units, parts);
    p->rows = wanted < p->extent[0] ? wanted : p->extent[0];
    xpu_range range = index_blocks(walk, p->block, (size_t)plan.lanes);
    range.groups[0] *= (size_t)p->rows;
    xpu_status status = xpu_launch(stream, find_places, &one, p, sizeof *p);
    if (status == XPU_SUCCESS) status = xpu_launch(stream, go_through, &range, p, sizeof *p);
    return workspace_done(memory, status);
}

static xpu_status combine(xpu_stream *stream, index_walk *walk, void *context) {
    const accumulation *a = context;
    if (!a->atomic && is_sorted(walk)) return combine_sorted(stream, walk, a);
    blocks plan = plan_blocks(walk, a->atomic);
    if (plan.lanes > 1 && is_ordered(walk)) return combine_ordered(stream, walk, a, plan);
    const variant v = {.entry = a->atomic    ? ENTRY_ATOMIC
                                : plan.lanes ? ENTRY_BLOCKS
                                             : ENTRY_FIXED,
                       .plan = plan};
    xpu_kernel *kernel;
    XPU_TRY(find_kernel(walk, a, v, &kernel));
    xpu_range range =
        plan.lanes ? index_blocks(walk, walk->params.block, (size_t)plan.lanes) : index_range(walk, 8);
    return xpu_launch(stream, kernel, &range, &walk->params, sizeof walk->params);
}

static bool has_atomic(const xpu_device_properties *properties, xpu_dtype dtype, xpu_scatter_op op) {
    switch (dtype) {
    case XPU_COMPLEX128: return false;
    case XPU_COMPLEX64: return op == XPU_SCATTER_ADD;
    case XPU_INT64:
    case XPU_UINT64:
    case XPU_FLOAT64: return properties->has_atomic64;
    default: return true;
    }
}

/* Do work-items that go in order walk no farther than this? Then there is nothing that atomic updates save.
 */
static bool is_short(const xpu_iter *iter) {
    int64_t serial = 1;
    for (int d = 0; d < iter->dims; d++)
        if (iter->operand[0].stride[d] == 0) serial *= iter->size[d];
    return serial <= TUNED(false, WALKED);
}

static xpu_status accumulate(xpu_stream *stream, const char *name, const xpu_iter *iter,
                             const xpu_indexed *indexed, xpu_scatter_op op, xpu_scatter_order order,
                             xpu_fault *fault) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &properties));
    accumulation a = {op, iter->operand[0].dtype, false};
    if (dtype_needs_fp64(a.dtype) && !properties->has_fp64) return op_lacks(name, a.dtype, properties);
    if (dtype_is_complex(a.dtype) ? op == XPU_SCATTER_MIN || op == XPU_SCATTER_MAX
                                  : !dtype_is_ordered(a.dtype)) {
        if (op != XPU_SCATTER_SET || xpu_dtype_size(a.dtype) != 1) return op_lacks(name, a.dtype, NULL);
        a.dtype = XPU_UINT8; /* float8 and pairs of float4 are only moved */
    }
    bool can = has_atomic(properties, a.dtype, op), host = plans_for_processor(properties);
    if (order == XPU_ORDER_ATOMIC && !can)
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "scatter: no atomic update of %s", dtype_token(a.dtype));
    /* A host has few threads: the loop over one place's elements beats contended updates. */
    a.atomic = order == XPU_ORDER_ATOMIC || (order == XPU_ORDER_ANY && can && !host && !is_short(iter));
    return index_run(stream, name, iter, indexed, !a.atomic, fault, combine, &a);
}

xpu_status xpu_index_accumulate(xpu_stream *stream, const xpu_iter *iter, const xpu_indexed *indexed,
                                xpu_scatter_op op, xpu_scatter_order order, xpu_fault *fault) {
    return accumulate(stream, "index_put", iter, indexed, op, order, fault);
}

static xpu_status scatter(const char *what, xpu_stream *stream, const xpu_tensor *out, int dim,
                          const xpu_tensor *index, bool index_all, const xpu_tensor *in, xpu_scatter_op op,
                          xpu_scatter_order order, xpu_fault *fault) {
    xpu_iter iter;
    xpu_indexed indexed;
    XPU_TRY(index_iter(what, out, in, index, dim, index_all, 0, &iter, &indexed));
    if (op == XPU_SCATTER_SET && order == XPU_ORDER_ANY)
        return index_put(stream, what, &iter, &indexed, fault);
    return accumulate(stream, what, &iter, &indexed, op, order, fault);
}

xpu_status xpu_scatter(xpu_stream *stream, const xpu_tensor *out, int dim, const xpu_tensor *index,
                       const xpu_tensor *in, xpu_scatter_op op, xpu_scatter_order order, xpu_fault *fault) {
    return scatter("scatter", stream, out, dim, index, true, in, op, order, fault);
}

xpu_status xpu_index_scatter(xpu_stream *stream, const xpu_tensor *out, int dim, const xpu_tensor *index,
                             const xpu_tensor *in, xpu_scatter_op op, xpu_scatter_order order,
                             xpu_fault *fault) {
    return scatter("index_scatter", stream, out, dim, index, false, in, op, order, fault);
}

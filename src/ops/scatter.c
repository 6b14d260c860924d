/* Scatter with combination (set, add, multiply, min, max). */
#include <stdlib.h>

#include "ops/gemm/product.h"
#include "ops/index_walk.h"
#include "ops/iter.h"
#include "ops/row_group.h"
#include "xpu/memory.h"
#include "xpu/trace.h"
#include "xpu/ops/index.h"
#include "xpu/ops/scan.h"
#include "xpu/ops/sort.h"

typedef struct accumulation {
    xpu_scatter_op op;
    xpu_dtype dtype, source; /* of the destinations, and of the values combined with them */
    bool atomic;
    bool sorted;  /* in any order mode: for sums that are rounded once */
    bool any;     /* elements of a destination may be combined in any order */
    bool ordered; /* row by row, destination by destination (is_ordered) */
} accumulation;

/* How a CPU device divides the work: work-items per block, 0 without blocks; which dimension is innermost. */
typedef struct blocks {
    int lanes;
    bool serial_first, serial_flat; /* flat: serial_first, and values and indices have no gaps */
    bool partitioned;               /* one line, by parts of its destinations (combine_partitioned) */
} blocks;

enum { PARTITIONED_FROM = 1 << 16 }; /* least length of a line that is partitioned */

#define ROW_LANES 16 /* work-items that share a block of a row */

static int64_t others_of(const index_walk *walk) {
    int64_t others = 1;
    for (int d = 1; d < walk->parallel; d++) others *= walk->params.size[d];
    return others;
}

/* Are contiguous rows with one index each combined destination by destination? Destinations, all of which are
 * visited, must not be many more than rows, and must not overlap: several work-groups write them. */
static bool is_ordered(const xpu_device_properties *properties, const xpu_iter *iter,
                       const xpu_indexed *indexed) {
    const xpu_dtype dtype = iter->operand[0].dtype;
    const int64_t element = (int64_t)xpu_dtype_size(dtype);
    if (!uses_cpu_policy(properties) || indexed->count != 1 || iter->dims != 2 || dtype == XPU_BOOL ||
        dtype_is_complex(dtype))
        return false;
    const int row = iter->operand[0].stride[0] == 0; /* the dimension of a row; the other one is serial */
    const int64_t columns = iter->size[row], rows = iter->size[1 - row];
    return iter->operand[0].stride[1 - row] == 0 && iter->operand[0].stride[row] == element &&
           iter->operand[1].stride[row] == element && iter->operand[2].stride[row] == 0 &&
           columns >= 2 * ROW_LANES && rows > 1 && rows <= INT32_MAX && indexed->extent[0] > 0 &&
           indexed->extent[0] / 2 <= rows && llabs(indexed->stride[0]) >= columns * element;
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
        plan.serial_first =
            p->block == 1 || llabs(p->index_stride[0][walk->parallel]) < llabs(p->index_stride[0][0]);
    plan.serial_flat = plan.serial_first && p->in_stride[walk->parallel] == (int64_t)walk->element_in;
    for (int k = 0; k < walk->indices; k++)
        plan.serial_flat &= p->index_stride[k][walk->parallel] == (int64_t)xpu_dtype_size(walk->index_dtype);
    plan.partitioned =
        others * p->size[0] == 1 && p->serial >= PARTITIONED_FROM && wanted >= TUNED(true, SCATTER_PARTITION);
    return plan;
}

typedef enum entry {
    ENTRY_DETERMINISTIC,
    ENTRY_BLOCKS,
    ENTRY_ATOMIC,
    ENTRY_KEYS,
    ENTRY_RUNS,
    ENTRY_MERGE_RUNS,
    ENTRY_COUNT,
    ENTRY_DISTRIBUTE,
    ENTRY_DESTINATIONS,
    ENTRY_ORDERED,
    ENTRY_EVEN,
    ENTRY_COUNT_PARTS,
    ENTRY_PARTITION,
    ENTRY_COMBINE_PARTS
} entry;
typedef struct variant {
    entry entry;
    blocks plan; /* of ENTRY_BLOCKS and the entries for parts */
} variant;

static void combination_spec(kernel_spec *spec, const accumulation *a) {
    static const char *const classes[] = {['b'] = "b", ['c'] = "c", ['f'] = "f", ['i'] = "i", ['u'] = "u"};
    spec_dtype(spec, "T", a->dtype);
    spec_dtype(spec, "S", a->source);
    spec_option(spec, "T_", dtype_token(a->dtype));
    spec_option(spec, "KIND_", classes[(int)dtype_class(a->dtype)]);
    spec_option_int(spec, "SIZE", (int64_t)xpu_dtype_size(a->dtype));
    spec_int(spec, "OP", a->op, 8);
}

/* The kernel of scatter.cl. */
static xpu_status find_kernel(const index_walk *walk, const accumulation *a, variant v, xpu_kernel **kernel) {
    static const char *const names[] = {"set", "add", "mul", "min", "max"};
    static const char *const entries[] = {
        "scatter_deterministic", "scatter_blocks",       "scatter_atomic",
        "scatter_keys",          "scatter_runs",         "scatter_merge_runs",
        "scatter_count",         "scatter_spread",       "scatter_find_destinations",
        "scatter_ordered",       "scatter_even",         "scatter_count_parts",
        "scatter_partition",     "scatter_combine_parts"};
    const char *token = dtype_token(a->dtype);
    kernel_spec spec;
    spec_begin(&spec, FAMILY_SCATTER);
    index_spec(&spec, walk);
    combination_spec(&spec, a);
    spec_bool(&spec, "ATOMIC", a->atomic || v.entry == ENTRY_EVEN);
    spec_key_only(&spec, "entry", v.entry, 4);
    if (v.entry == ENTRY_EVEN) spec_option_int(&spec, "IF_EVEN", 1);
    if (v.entry >= ENTRY_KEYS && v.entry <= ENTRY_DISTRIBUTE) spec_option_int(&spec, "SORTED", 1);
    if (v.entry == ENTRY_DESTINATIONS || v.entry == ENTRY_ORDERED) spec_option_int(&spec, "ORDERED", 1);
    const blocks plan = v.plan;
    spec_int_if(&spec, plan.lanes, "ROW_LANES", plan.lanes, 16);
    spec_int_if(&spec, plan.lanes, "SERIAL_FIRST", plan.serial_first, 1);
    const bool lines = plan.lanes == 1;
    spec_int_if(&spec, lines, "SERIAL_FLAT", lines && plan.serial_flat, 1);
    spec_int_if(&spec, lines, "IS_CONTIGUOUS_DIM",
                lines && walk->params.step[walk->indices - 1] == (int64_t)walk->element, 1);
    spec_int_if(&spec, lines, "WRAPS", lines && walk->params.wrap, 1);
    spec_int_if(&spec, lines, "PARTITIONED", plan.partitioned, 1);
    *kernel = kernel_find(walk->device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(walk->device, &spec, "scatter.cl", entries[v.entry], kernel, "scatter_%s %s",
                            names[a->op], token);
}

/* --- in order, on GPUs --- */

/* If there are few work-items with many elements each, sorting is faster; it takes 48 bytes per element. */
enum { SORT_MOST = 1 << 27, SHORTEST_CHUNK = 32, COUNTED_PLACES = 4, RUN_ITEMS = 1 << 16 };

/* The number of rows of the serial dimensions that are sorted separately: one if all work-items use the same
 * indices. */
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

static bool is_sorted(const index_walk *walk, bool wanted) {
    const struct index_params *p = &walk->params;
    if (p->serial >= INT32_MAX - 4096 || p->serial > SORT_MOST / key_rows(walk)) return false;
    if (wanted) return p->serial > 1;
    if (uses_cpu_policy(walk->properties)) return false;
    const int64_t items = p->size[0] * others_of(walk);
    return p->serial >= TUNED(false, SORTED_FROM) && items < TUNED(false, SORTED_BELOW);
}

/* Elements of the sorted order per work-item: few, but the longest run is not divided more than necessary. */
static int64_t chunk_of(const index_walk *walk) {
    const struct index_params *p = &walk->params;
    const int64_t wanted = p->serial * p->size[0] * others_of(walk) / RUN_ITEMS;
    int64_t chunk = SHORTEST_CHUNK;
    while (chunk < wanted && chunk * chunk < p->serial) chunk *= 2;
    return chunk;
}

static xpu_range over(size_t x, size_t y, size_t z, const xpu_device_properties *properties) {
    size_t group = properties->max_work_group_size < 256 ? properties->max_work_group_size : 256;
    size_t columns = 1;
    while (columns < x && columns < group) columns *= 2;
    const size_t most = group / columns, rows = y > most ? most : y > 0 ? y : 1;
    return (xpu_range){.dims = 3,
                       .groups = {(x + columns - 1) / columns, (y + rows - 1) / rows, z},
                       .local = {columns, rows, 1},
                       .work = (uint64_t)x * y * z * 8};
}

/* The number of destinations for a counting sort, or 0: they must be contiguous in memory, in order of their
 * numbers. */
static int64_t counted_places(const index_walk *walk, const accumulation *a) {
    const struct index_params *p = &walk->params;
    int64_t places = 1, end = 1;
    for (int k = walk->indices - 1; k >= 0; k--) {
        if (p->step[k] < end) return 0;
        places *= p->extent[k];
        end = p->step[k] * p->extent[k];
    }
    return a->any && key_rows(walk) == 1 && places <= COUNTED_PLACES * p->serial ? places : 0;
}

/* May destinations with few elements be updated by compare and swap? Other types have an atomic instruction,
 * or no compare and swap of that size. */
static bool has_atomic(const xpu_device_properties *properties, xpu_dtype dtype, xpu_scatter_op op);
static bool may_swap(const index_walk *walk, const accumulation *a) {
    return a->op != XPU_SCATTER_SET && !dtype_is_complex(a->dtype) && xpu_dtype_size(a->dtype) >= 4 &&
           has_atomic(walk->properties, a->dtype, a->op);
}

/* Combines the elements directly if all destinations have few of them; the device tests `crowded`. */
static xpu_status combine_even(xpu_stream *stream, index_walk *walk, const accumulation *a) {
    struct index_params *p = &walk->params;
    xpu_kernel *kernel;
    XPU_TRY(find_kernel(walk, a, (variant){.entry = ENTRY_EVEN}, &kernel));
    const xpu_range range = over((size_t)(p->items * p->serial), 1, 1, walk->properties);
    return xpu_launch(stream, kernel, &range, p, sizeof *p);
}

/* Counting sort: writes sorted keys and the order, uses places + 1 counts at `counts`, and determines whether
 * a destination is crowded. */
static xpu_status spread(xpu_stream *stream, index_walk *walk, const accumulation *a, int64_t places,
                         void *counts) {
    struct index_params *p = &walk->params;
    xpu_kernel *count, *write;
    XPU_TRY(find_kernel(walk, a, (variant){.entry = ENTRY_COUNT}, &count));
    XPU_TRY(find_kernel(walk, a, (variant){.entry = ENTRY_DISTRIBUTE}, &write));
    const int64_t size = places + 1, stride = 1;
    const xpu_tensor ends = {.data = counts, .dtype = XPU_INT32, .dims = 1, .size = &size, .stride = &stride};
    const xpu_range range = over((size_t)p->serial, 1, 1, walk->properties);
    p->heads = XPU_ADDR(counts);
    p->crowded = may_swap(walk, a) ? XPU_ADDR((int32_t *)counts + size) : 0;
    const int32_t none = 0;
    XPU_TRY(xpu_memset(stream, counts, &none, sizeof none, (size_t)(size + 1) * sizeof none));
    XPU_TRY(xpu_launch(stream, count, &range, p, sizeof *p));
    if (p->crowded) XPU_TRY(combine_even(stream, walk, a));
    XPU_TRY(xpu_scan(stream, XPU_SCAN_SUM, &ends, NULL, &ends, 0));
    return xpu_launch(stream, write, &range, p, sizeof *p);
}

/* Bytes of a number while it is computed with. */
static size_t computed_size(xpu_dtype dtype) { return dtype_is_narrow(dtype) ? 4 : xpu_dtype_size(dtype); }

static xpu_status combine_sorted(xpu_stream *stream, index_walk *walk, const accumulation *a) {
    struct index_params *p = &walk->params;
    xpu_kernel *write_keys = NULL, *combine_runs, *join;
    const int64_t counted = counted_places(walk, a);
    if (!counted) XPU_TRY(find_kernel(walk, a, (variant){.entry = ENTRY_KEYS}, &write_keys));
    XPU_TRY(find_kernel(walk, a, (variant){.entry = ENTRY_RUNS}, &combine_runs));
    XPU_TRY(find_kernel(walk, a, (variant){.entry = ENTRY_MERGE_RUNS}, &join));
    p->rows = key_rows(walk);
    int64_t size[2] = {p->rows, p->serial}, stride[2] = {p->serial, 1};
    size_t bytes = (size_t)(size[0] * size[1]) * sizeof(int64_t);
    const size_t others = (size_t)others_of(walk);
    p->block = (int32_t)chunk_of(walk);
    const size_t chunks = (size_t)div_up(p->serial, p->block);
    p->items = p->size[0] * (int64_t)others;
    p->crowded = 0;
    const size_t parts = chunks > 1 ? chunks * (size_t)p->items * computed_size(a->dtype) : 0;
    char *memory;
    XPU_TRY(xpu_workspace_take(stream, 3 * bytes + 2 * parts + (size_t)(counted + 2) * sizeof(int32_t),
                               (void **)&memory));
    xpu_tensor keys = {.data = memory, .dtype = XPU_INT64, .dims = 2, .size = size, .stride = stride};
    xpu_tensor sorted = keys, order = keys;
    sorted.data = memory + bytes;
    order.data = memory + 2 * bytes;

    xpu_range range = over((size_t)p->serial, (size_t)p->rows, 1, walk->properties);
    xpu_status status;
    p->order = XPU_ADDR(order.data);
    if (counted) {
        p->keys = XPU_ADDR(sorted.data);
        status = spread(stream, walk, a, counted, memory + 3 * bytes + 2 * parts);
    } else {
        p->keys = XPU_ADDR(keys.data);
        status = xpu_launch(stream, write_keys, &range, p, sizeof *p);
        if (status == XPU_SUCCESS) status = xpu_sort(stream, &sorted, &order, &keys, 1, false, 0);
    }
    if (status == XPU_SUCCESS) {
        p->keys = XPU_ADDR(sorted.data);
        p->heads = XPU_ADDR(memory + 3 * bytes);
        p->tails = XPU_ADDR(memory + 3 * bytes + parts);
        range = over((size_t)p->size[0], chunks, others, walk->properties);
        range.work *= (uint64_t)p->block;
        status = xpu_launch(stream, combine_runs, &range, p, sizeof *p);
        if (status == XPU_SUCCESS && chunks > 1) status = xpu_launch(stream, join, &range, p, sizeof *p);
    }
    return workspace_release(memory, status);
}

/* --- in order, destination by destination, on CPUs --- */

enum { WHOLE_COLUMNS = 1024 }; /* columns of a work-group, at least */

static xpu_status combine_ordered(xpu_stream *stream, index_walk *walk, const accumulation *a) {
    struct index_params *p = &walk->params;
    xpu_kernel *find_rows, *combine_rows;
    XPU_TRY(find_kernel(walk, a, (variant){.entry = ENTRY_DESTINATIONS}, &find_rows));
    XPU_TRY(find_kernel(walk, a, (variant){.entry = ENTRY_ORDERED}, &combine_rows));
    const size_t ends = (size_t)p->extent[0] + 1, rows = (size_t)p->serial;
    int32_t *memory;
    XPU_TRY(xpu_workspace_take(stream, (ends + rows) * sizeof *memory, (void **)&memory));
    p->keys = XPU_ADDR(memory);
    p->order = XPU_ADDR(memory + ends);
    const xpu_range one = {.dims = 1, .groups = {1}, .local = {1}, .work = 4 * (uint64_t)(ends + rows)};
    /* Divide rows among work-groups rather than columns if there are enough destinations: groups that shared
     * rows would compete for cache lines. */
    const int64_t groups = 4 * (int64_t)walk->properties->max_compute_units;
    int64_t cut = p->size[0] / WHOLE_COLUMNS;
    if (cut * p->extent[0] < groups / 2) cut = div_up(groups / 2, p->extent[0]);
    p->block = (int32_t)(cut < 2 ? p->size[0] : align_up(div_up(p->size[0], cut), ROW_LANES));
    const int64_t parts = div_up(p->size[0], p->block), wanted = div_up(groups, parts);
    p->rows = wanted < p->extent[0] ? wanted : p->extent[0];
    xpu_range range = index_blocks(walk, p->block, 1);
    range.groups[0] *= (size_t)p->rows;
    xpu_status status = xpu_launch(stream, find_rows, &one, p, sizeof *p);
    if (status == XPU_SUCCESS) status = xpu_launch(stream, combine_rows, &range, p, sizeof *p);
    return workspace_release(memory, status);
}

/* --- one line, by parts of its destinations, on CPUs --- */

/* A work-group's elements, at least; elements that are partitioned at a time; parts per thread, so that the
 * threads finish together if the parts have different numbers of elements. */
enum { PARTITION_BLOCK = 1 << 12, PARTITION_MOST = 1 << 22, PARTS_EACH = 4 };

static xpu_status combine_partitioned(xpu_stream *stream, index_walk *walk, const accumulation *a,
                                      blocks plan) {
    static const entry entries[] = {ENTRY_COUNT_PARTS, ENTRY_PARTITION, ENTRY_COMBINE_PARTS};
    enum { STEPS = sizeof entries / sizeof *entries };
    xpu_kernel *kernels[STEPS];
    for (int i = 0; i < STEPS; i++)
        XPU_TRY(find_kernel(walk, a, (variant){.entry = entries[i], .plan = plan}, &kernels[i]));
    struct index_params *p = &walk->params;
    const int64_t all = p->serial, most = all < PARTITION_MOST ? all : PARTITION_MOST;
    int64_t threads = (int64_t)walk->properties->max_compute_units;
    if (threads > most / PARTITION_BLOCK) threads = most / PARTITION_BLOCK;
    p->items = PARTS_EACH * threads;
    p->block = (int32_t)div_up(most, threads);
    const int64_t offset_bytes = align_up(most * (int64_t)sizeof(int64_t), 64);
    const int64_t value_bytes = align_up(most * (int64_t)walk->element_in, 64);
    const int64_t count_bytes = threads * p->items * (int64_t)sizeof(int32_t);
    const int64_t next_bytes = count_bytes + p->items * (int64_t)sizeof(int32_t);
    char *memory;
    XPU_TRY(xpu_workspace_take(stream, (size_t)(offset_bytes + value_bytes + count_bytes + next_bytes),
                               (void **)&memory));
    p->keys = XPU_ADDR(memory);
    p->order = XPU_ADDR(memory + offset_bytes);
    p->heads = XPU_ADDR(memory + offset_bytes + value_bytes);
    p->tails = XPU_ADDR(memory + offset_bytes + value_bytes + count_bytes);
    xpu_status status = XPU_SUCCESS;
    for (int64_t begin = 0; begin < all && status == XPU_SUCCESS; begin += most) {
        p->serial = all - begin < most ? all - begin : most;
        p->rows = div_up(p->serial, p->block);
        for (int i = 0; i < STEPS && status == XPU_SUCCESS; i++) {
            const size_t groups = (size_t)(entries[i] == ENTRY_COMBINE_PARTS ? p->items : p->rows);
            const xpu_range range = {
                .dims = 1, .groups = {groups}, .local = {1}, .work = 4 * (uint64_t)p->serial};
            status = xpu_launch(stream, kernels[i], &range, p, sizeof *p);
        }
        p->in += (xpu_addr)(most * p->in_stride[walk->parallel]);
        for (int k = 0; k < walk->indices; k++)
            p->index[k] += (xpu_addr)(most * p->index_stride[k][walk->parallel]);
    }
    return workspace_release(memory, status);
}

static xpu_status combine(xpu_stream *stream, index_walk *walk, void *context) {
    const accumulation *a = context;
    if (a->ordered) return combine_ordered(stream, walk, a);
    if (!a->atomic && is_sorted(walk, a->sorted)) return combine_sorted(stream, walk, a);
    blocks plan = plan_blocks(walk, a->atomic);
    if (plan.partitioned) return combine_partitioned(stream, walk, a, plan);
    const variant v = {.entry = a->atomic    ? ENTRY_ATOMIC
                                : plan.lanes ? ENTRY_BLOCKS
                                             : ENTRY_DETERMINISTIC,
                       .plan = plan};
    xpu_kernel *kernel;
    XPU_TRY(find_kernel(walk, a, v, &kernel));
    xpu_range range =
        plan.lanes ? index_blocks(walk, walk->params.block, (size_t)plan.lanes) : index_range(walk, 8);
    return xpu_launch(stream, kernel, &range, &walk->params, sizeof walk->params);
}

static bool has_atomic(const xpu_device_properties *properties, xpu_dtype dtype, xpu_scatter_op op) {
    switch (dtype) {
    case XPU_COMPLEX128: return op == XPU_SCATTER_ADD && properties->has_atomic64;
    case XPU_COMPLEX64: return op == XPU_SCATTER_ADD;
    case XPU_INT64:
    case XPU_UINT64:
    case XPU_FLOAT64: return properties->has_atomic64;
    default: return true;
    }
}

/* The same without contention or by one instruction, not a compare-and-swap loop? Minima and maxima rarely
 * change a destination, so their loops rarely repeat. */
static bool has_instruction(const xpu_device_properties *properties, xpu_dtype dtype, xpu_scatter_op op) {
    if (!has_atomic(properties, dtype, op) || op == XPU_SCATTER_MUL || op == XPU_SCATTER_SET) return false;
    if (xpu_dtype_size(dtype) < 4) return false;
    if (op != XPU_SCATTER_ADD || TUNED(false, ATOMIC_SUMS)) return true;
    switch (dtype) {
    case XPU_FLOAT32:
    case XPU_COMPLEX64: return properties->has_inline_ptx || properties->has_float_atomics;
    case XPU_FLOAT64:
    case XPU_COMPLEX128: return properties->has_inline_ptx && properties->architecture >= 60;
    default: return true;
    }
}

/* --- several accumulators per destination (copies): wider types, less contention --- */

/* `atomic` or in order; the elements of a destination are divided among the copies. */
typedef struct copying {
    xpu_dtype dtype;
    xpu_scatter_op op;
    int64_t copies;
    bool atomic, any; /* any: their order within a copy does not matter */
} copying;

enum {
    COPIED_FROM = 1 << 15, /* minimum number of elements for more than one copy */
    MOST_COPIES = 4096,    /* if each copy belongs to one work-item */
    ATOMIC_COPIES = 32,    /* adjacent work-items of a warp use different copies */
    WALK_MOST = 4096,      /* maximum number of elements per work-item */
    CONTENDED = 16,        /* with so few destinations even atomic instructions wait for each other */
    COPIED_PLACES = 4,     /* per element: with more destinations sorting is faster */
    CACHE_LINES = 128      /* bytes: processors fetch two lines at a time */
};

/* The sizes of a scatter's iteration. */
typedef struct extent {
    int64_t elements, places, serial;
    bool apart; /* destinations do not overlap, and have few enough dimensions */
} extent;

static extent measure(const xpu_iter *iter, const xpu_indexed *indexed) {
    extent e = {.elements = xpu_iter_numel(iter), .places = 1, .serial = 1};
    int64_t size[XPU_MAX_DIMS + XPU_MAX_INDICES], stride[XPU_MAX_DIMS + XPU_MAX_INDICES];
    int dims = 0;
    for (int k = 0; k < indexed->count; k++, dims++)
        size[dims] = indexed->extent[k], stride[dims] = llabs(indexed->stride[k]);
    for (int d = 0; d < iter->dims; d++) {
        if (iter->operand[0].stride[d] == 0)
            e.serial *= iter->size[d];
        else
            size[dims] = iter->size[d], stride[dims++] = llabs(iter->operand[0].stride[d]);
    }
    for (int d = 0; d < dims; d++) e.places *= size[d];
    e.apart = dims <= INDEX_DIMS && iter->dims < XPU_MAX_DIMS;
    int64_t end =
        (int64_t)xpu_dtype_size(iter->operand[0].dtype); /* of the destinations within the smaller strides */
    for (int left = dims; left > 0; left--) {
        int least = 0;
        for (int d = 1; d < left; d++)
            if (stride[d] < stride[least]) least = d;
        if (size[least] > 1) {
            e.apart &= stride[least] >= end;
            end += (size[least] - 1) * stride[least];
        }
        size[least] = size[left - 1], stride[least] = stride[left - 1];
    }
    return e;
}

static bool sums_round(xpu_dtype dtype, xpu_scatter_op op) {
    return dtype_is_narrow(dtype) && (op == XPU_SCATTER_ADD || op == XPU_SCATTER_MUL);
}

/* Returns a plan; its number of copies is 0 if copies are not worthwhile. */
static copying plan_copies(const xpu_device_properties *properties, const extent *e, xpu_dtype dtype,
                           xpu_scatter_op op, xpu_scatter_order order) {
    copying plan = {.dtype = dtype, .op = op, .any = order == XPU_ORDER_ANY};
    if (op == XPU_SCATTER_SET || order == XPU_ORDER_ATOMIC || !e->apart || e->elements == 0 || e->places == 0)
        return plan;
    if (e->places > COPIED_PLACES * e->elements) return plan;
    if (sums_round(dtype, op)) {
        plan.dtype = XPU_FLOAT32;
        plan.copies = e->serial > 1;
    }
    if (!plan.any) return plan;
    if (uses_cpu_policy(properties)) {
        const int64_t threads = (int64_t)properties->max_compute_units;
        if (threads > 1 && e->elements >= COPIED_FROM && e->serial >= 16 * threads &&
            e->elements / e->serial < threads && e->places <= e->elements / (4 * threads))
            plan.copies = threads;
        return plan;
    }
    if (e->serial <= TUNED(false, SCATTER_WALK)) return plan;
    if (xpu_dtype_size(dtype) < 4) { /* atomic operations have 4 or 8 bytes */
        plan.dtype = dtype_is_narrow(dtype) ? XPU_FLOAT32 : XPU_INT32;
        if (dtype == XPU_BOOL && op == XPU_SCATTER_ADD) plan.op = XPU_SCATTER_MAX;
        if (dtype == XPU_BOOL && op == XPU_SCATTER_MUL) plan.op = XPU_SCATTER_MIN;
    }
    plan.atomic = has_instruction(properties, plan.dtype, plan.op);
    int64_t own = e->elements / 4 / e->places;
    if (own > MOST_COPIES) own = MOST_COPIES;
    if (own > e->serial / 16) own = e->serial / 16;
    const bool enough = e->elements >= COPIED_FROM && own > 1 && e->serial / own <= WALK_MOST;
    if (plan.atomic && enough && e->places <= CONTENDED) plan.atomic = false;
    if (plan.atomic) {
        const bool several = e->elements >= COPIED_FROM && e->places <= e->elements / (4 * ATOMIC_COPIES);
        plan.copies = several ? ATOMIC_COPIES : plan.dtype != dtype;
        return plan;
    }
    if (enough)
        plan.copies = own;
    else if (!sums_round(dtype, op))
        plan = (copying){.dtype = dtype, .op = op, .any = true};
    return plan;
}

/* scatter_init_copies, or scatter_merge_copies over the dimensions of `places`. */
static xpu_status run_merge_copies(xpu_stream *stream, const accumulation *a, const xpu_iter *places,
                                   bool begin, struct index_params *p) {
    const int device = xpu_stream_device(stream);
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    kernel_spec spec;
    spec_begin(&spec, FAMILY_SCATTER_MERGE);
    combination_spec(&spec, a);
    spec_int(&spec, "DIMS", places->dims, 8);
    spec_int(&spec, "MERGE_COPIES", 1, 1);
    const bool flat = !begin && properties->type == XPU_DEVICE_CPU && dtype_class(a->dtype) == 'f' &&
                      places->dims == 1 && p->out_stride[0] == (int64_t)xpu_dtype_size(a->source) &&
                      p->in_stride[0] == (int64_t)xpu_dtype_size(a->dtype);
    spec_bool(&spec, "IS_FLAT", flat);
    spec_key_only(&spec, "begin", begin, 1);
    const char *name = begin ? "scatter_init_copies" : "scatter_merge_copies";
    xpu_kernel *kernel = kernel_find(device, &spec);
    if (!kernel)
        XPU_TRY(kernel_from_file(device, &spec, "scatter.cl", name, &kernel, "%s %s", name,
                                 dtype_token(a->dtype)));
    size_t group = uses_cpu_policy(properties) ? 1024 : 256;
    if (group > properties->max_work_group_size) group = properties->max_work_group_size;
    p->block = flat ? (int32_t)group : 1;
    if (flat) group = 1;
    const xpu_range range = {.dims = 1,
                             .groups = {(size_t)div_up(div_up(p->rows, p->block), (int64_t)group)},
                             .local = {group},
                             .work = (uint64_t)p->rows * (begin ? 1 : 2 + (uint64_t)p->serial)};
    return xpu_launch(stream, kernel, &range, p, sizeof *p);
}

/* Divides the longest serial dimension of `iter` among the copies, which are `by_copy` bytes apart: with
 * `mixed`, adjacent elements go to different copies, else each copy has a contiguous part. `rest` is the
 * remainder. */
static void cut(xpu_iter *iter, xpu_iter *rest, int64_t copies, int64_t by_copy, bool mixed) {
    int longest = -1;
    for (int d = 0; d < iter->dims; d++)
        if (iter->operand[0].stride[d] == 0 && (longest < 0 || iter->size[d] > iter->size[longest]))
            longest = d;
    rest->dims = 0;
    if (copies == 1 || longest < 0) return;
    const int64_t whole = iter->size[longest], each = whole / copies, left = whole - each * copies;
    const int added = iter->dims++;
    *rest = *iter;
    iter->size[longest] = each;
    iter->size[added] = copies;
    rest->size[longest] = 1;
    rest->size[added] = left;
    if (left == 0) rest->dims = 0;
    for (int i = 0; i < iter->outputs + iter->inputs; i++) {
        xpu_operand *o = &iter->operand[i], *r = &rest->operand[i];
        const int64_t stride = o->stride[longest];
        r->data = (char *)r->data + each * copies * stride;
        r->stride[added] = i == 0 ? by_copy : stride;
        o->stride[added] = i == 0 ? by_copy : mixed ? stride : each * stride;
        if (mixed && i > 0) o->stride[longest] = stride * copies;
    }
}

static xpu_status add_up(xpu_stream *stream, const char *name, const xpu_iter *iter,
                         const xpu_indexed *indexed, xpu_fault *fault, accumulation *a) {
    return index_run(stream, name, iter, indexed, !a->atomic, fault, combine, a);
}

/* Packs the destinations of `iter` and `indexed`: the smallest stride becomes `unit` bytes, and the order of
 * strides stays. `join` then walks over all destinations (operand 0) and their packed copies (operand 1).
 * Returns the number of destinations. */
static int64_t pack_places(xpu_iter *iter, xpu_indexed *indexed, int64_t unit, xpu_iter *join) {
    int64_t *strides[XPU_MAX_DIMS + XPU_MAX_INDICES], sizes[XPU_MAX_DIMS + XPU_MAX_INDICES], places = 1;
    int dims = 0;
    for (int d = 0; d < iter->dims; d++)
        if (iter->operand[0].stride[d] != 0)
            sizes[dims] = iter->size[d], strides[dims++] = &iter->operand[0].stride[d];
    for (int k = 0; k < indexed->count; k++)
        sizes[dims] = indexed->extent[k], strides[dims++] = &indexed->stride[k];
    for (int left = dims; left > 0; left--) {
        int least = 0;
        for (int d = 1; d < left; d++)
            if (llabs(*strides[d]) < llabs(*strides[least])) least = d;
        join->size[join->dims] = sizes[least];
        join->operand[0].stride[join->dims] = *strides[least];
        *strides[least] = join->operand[1].stride[join->dims++] = unit * places;
        places *= sizes[least];
        strides[least] = strides[left - 1], sizes[least] = sizes[left - 1];
    }
    xpu_iter_coalesce(join);
    return places;
}

/* Combines elements into copies of the destinations, and these into the destinations. */
static xpu_status combine_copies(xpu_stream *stream, const char *name, const xpu_iter *given,
                                 const xpu_indexed *given_indexed, const copying *plan, xpu_fault *fault) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &properties));
    const bool mixed = !uses_cpu_policy(properties);
    const int64_t unit = (int64_t)xpu_dtype_size(plan->dtype);
    accumulation sums = {.op = plan->op,
                         .dtype = plan->dtype,
                         .source = given->operand[1].dtype,
                         .atomic = plan->atomic,
                         .any = plan->any};
    accumulation last = sums;
    last.source = given->operand[0].dtype;

    xpu_iter iter = *given, rest, join = {.outputs = 1, .inputs = 1};
    xpu_indexed indexed = *given_indexed;
    iter.operand[0].dtype = plan->dtype;
    join.operand[0].data = given->operand[0].data;
    const int64_t places = pack_places(&iter, &indexed, mixed ? unit * plan->copies : unit, &join);
    /* Threads that update copies in one cache line would wait for each other. */
    const int64_t by_copy = mixed ? unit : align_up(unit * places, CACHE_LINES);
    const int64_t bytes = mixed ? unit * places * plan->copies : by_copy * plan->copies;
    char *memory;
    XPU_TRY(xpu_workspace_take(stream, (size_t)bytes, (void **)&memory));
    iter.operand[0].data = memory;
    cut(&iter, &rest, plan->copies, by_copy, mixed);

    struct index_params p = {.in = XPU_ADDR(memory), .rows = bytes / unit};
    const xpu_iter none = {.dims = 0};
    xpu_status status = run_merge_copies(stream, &sums, &none, true, &p);
    if (status == XPU_SUCCESS) status = add_up(stream, name, &iter, &indexed, fault, &sums);
    if (status == XPU_SUCCESS && rest.dims && !(fault && fault->state))
        status = add_up(stream, name, &rest, &indexed, fault, &sums);
    if (status == XPU_SUCCESS && !(fault && fault->state)) {
        p.out = XPU_ADDR(given->operand[0].data);
        p.rows = places;
        p.serial = plan->copies;
        p.step[0] = by_copy;
        for (int d = 0; d < join.dims; d++) {
            p.size[d] = join.size[d];
            p.out_stride[d] = join.operand[0].stride[d];
            p.in_stride[d] = join.operand[1].stride[d];
        }
        status = run_merge_copies(stream, &last, &join, false, &p);
    }
    return workspace_release(memory, status);
}

static xpu_status accumulate(xpu_stream *stream, const char *name, const xpu_iter *iter,
                             const xpu_indexed *indexed, xpu_scatter_op op, xpu_scatter_order order,
                             xpu_fault *fault) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &properties));
    accumulation a = {.op = op,
                      .dtype = iter->operand[0].dtype,
                      .source = iter->operand[0].dtype,
                      .any = order != XPU_ORDER_FIXED};
    if (dtype_needs_fp64(a.dtype) && !properties->has_fp64)
        return op_unsupported_dtype(name, a.dtype, properties);
    if (dtype_is_complex(a.dtype) ? op == XPU_SCATTER_MIN || op == XPU_SCATTER_MAX
                                  : !dtype_is_ordered(a.dtype)) {
        if (op != XPU_SCATTER_SET || xpu_dtype_size(a.dtype) != 1)
            return op_unsupported_dtype(name, a.dtype, NULL);
        a.dtype = a.source = XPU_UINT8; /* float8 and pairs of float4 are only moved */
    }
    if (order == XPU_ORDER_ATOMIC && !has_atomic(properties, a.dtype, op))
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "scatter: this device has no atomic update of %s",
                       dtype_token(a.dtype));
    a.ordered = order != XPU_ORDER_ATOMIC && is_ordered(properties, iter, indexed);
    if (a.ordered) return add_up(stream, name, iter, indexed, fault, &a);
    const extent e = measure(iter, indexed);
    const copying plan = plan_copies(properties, &e, a.dtype, op, order);
    if (plan.copies > 0) return combine_copies(stream, name, iter, indexed, &plan, fault);
    a.sorted = order != XPU_ORDER_ATOMIC && e.serial > 1 && sums_round(a.dtype, op);
    /* A host has few threads: a loop over the elements of a destination is faster than contended updates.
     * Atomic updates also gain nothing if work-items have no more than this number of elements. */
    a.atomic = order == XPU_ORDER_ATOMIC ||
               (order == XPU_ORDER_ANY && !a.sorted && has_instruction(properties, a.dtype, op) &&
                !uses_cpu_policy(properties) && e.serial > TUNED(false, SCATTER_WALK));
    return add_up(stream, name, iter, indexed, fault, &a);
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

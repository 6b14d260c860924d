/* Reductions: brings the iteration into a canonical form (output dimensions, reduced dimensions), chooses a
 * launch shape, and assembles the kernel from the table's formulas. */
#include "xpu/ops/reduce.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/reduce/reduce.h"
#include "ops/iter.h"
#include "ops/kernel.h"
#include "xpu/trace.h"

typedef enum acc_kind { KIND_one, KIND_pair, KIND_twice, KIND_indexed, KIND_welford } acc_kind;
typedef enum acc_type { TYPE_out, TYPE_in, TYPE_int, TYPE_long } acc_type;

static const struct row {
    const char *name, *inputs, *identity, *step, *combine, *finish, *second;
    acc_kind kind;
    acc_type type;
} table[] = {
#define X(name, overloads, inputs, type, accumulator, identity, step, combine, finish, second)               \
    {#name, inputs, #identity, #step, #combine, #finish, #second, KIND_##accumulator, TYPE_##type},
#include "tables/reduce.def"
#undef X
};

const char *xpu_reduction_name(xpu_reduction reduction) {
    static const char *const names[] = {
#define X(name, overloads, inputs, type, accumulator, identity, step, combine, finish, second) #name,
#include "tables/reduce.def"
#undef X
    };
    return (unsigned)reduction < XPU_REDUCE_COUNT ? names[reduction] : "unknown";
}

/* --- dtypes --- */

/* The dtype that accumulators have: `*wide` if it has twice the digits of the result. */
static xpu_dtype computed_in(const struct row *row, xpu_dtype in, xpu_dtype out,
                             const xpu_device_properties *device, bool *wide) {
    *wide = (row->kind == KIND_twice || row->kind == KIND_welford) && device->type == XPU_DEVICE_CPU &&
            device->has_fp64 && dtype_class(out) == 'f' && !dtype_needs_fp64(in) && !dtype_needs_fp64(out);
    if (*wide) return XPU_FLOAT64;
    switch (row->type) {
    case TYPE_int: return XPU_INT32;
    case TYPE_long: return XPU_INT64;
    case TYPE_in: return in;
    default: return out;
    }
}

/* --- the canonical form --- */

typedef struct dim {
    int64_t size, in, out[2];
} dim;

typedef struct shape {
    dim kept[XPU_MAX_DIMS], reduced[XPU_MAX_DIMS];
    int kept_dims, reduced_dims;
    int64_t outputs, total;
} shape;

static void sort_by_input(dim *dims, int count) {
    for (int i = 1; i < count; i++)
        for (int j = i; j > 0 && llabs(dims[j].in) < llabs(dims[j - 1].in); j--) {
            dim t = dims[j];
            dims[j] = dims[j - 1];
            dims[j - 1] = t;
        }
}

static int coalesce(dim *dims, int count) {
    int n = 0;
    for (int i = 0; i < count; i++) {
        dim *last = &dims[n - 1];
        if (n > 0 && dims[i].in == last->in * last->size && dims[i].out[0] == last->out[0] * last->size &&
            dims[i].out[1] == last->out[1] * last->size)
            last->size *= dims[i].size;
        else
            dims[n++] = dims[i];
    }
    return n;
}

static xpu_status canonical(const xpu_iter *iter, bool indexed, shape *s) {
    s->kept_dims = s->reduced_dims = 0;
    s->outputs = s->total = 1;
    for (int d = 0; d < iter->dims; d++) {
        dim e = {iter->size[d], iter->operand[iter->outputs].stride[d], {0, 0}};
        for (int i = 0; i < iter->outputs; i++) e.out[i] = iter->operand[i].stride[d];
        if (e.size == 1) continue;
        if (iter->outputs == 2 && (e.out[0] == 0) != (e.out[1] == 0))
            return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                           "reduce: both outputs must be reduced along the same dimensions");
        if (e.out[0] == 0) {
            s->reduced[s->reduced_dims++] = e;
            s->total *= e.size;
        } else {
            s->kept[s->kept_dims++] = e;
            s->outputs *= e.size;
        }
    }
    if (!indexed) sort_by_input(s->reduced, s->reduced_dims); /* else their order counts */
    sort_by_input(s->kept, s->kept_dims);
    s->reduced_dims = coalesce(s->reduced, s->reduced_dims);
    s->kept_dims = coalesce(s->kept, s->kept_dims);
    if (s->reduced_dims == 0) s->reduced[s->reduced_dims++] = (dim){1, 0, {0, 0}};
    return XPU_SUCCESS;
}

/* Puts the dimension first that the kernels' inner loop runs along: one without gaps if it is long enough for
 * the lanes, else the longest. */
static void choose_inner(shape *s, int64_t element) {
    int inner = 0;
    if (s->reduced[0].in != element || s->reduced[0].size < 16)
        for (int d = 1; d < s->reduced_dims; d++)
            if (s->reduced[d].size > s->reduced[inner].size) inner = d;
    dim chosen = s->reduced[inner];
    for (int d = inner; d > 0; d--) s->reduced[d] = s->reduced[d - 1];
    s->reduced[0] = chosen;
}

/* Do the outputs lie in memory in the order of the kept dimensions, without gaps? */
static bool is_dense(const shape *s, const xpu_iter *iter) {
    int64_t step = 1;
    for (int d = 0; d < s->kept_dims; d++) {
        for (int i = 0; i < iter->outputs; i++)
            if (s->kept[d].out[i] != step * (int64_t)xpu_dtype_size(iter->operand[i].dtype)) return false;
        step *= s->kept[d].size;
    }
    return true;
}

/* --- the launch --- */

typedef enum reduce_entry {
    ENTRY_ROWS,
    ENTRY_SHORT_ROWS,
    ENTRY_COLUMNS,
    ENTRY_SINGLE,
    ENTRY_PARTIALS
} reduce_entry;
static const char *const entries[] = {"reduce_rows", "reduce_short_rows", "reduce_columns", "reduce_single",
                                      "reduce_partials"};

#define SUBGROUP_SIZE 16
#define MAX_LOCAL 256
#define LONGEST_CHUNK 65536 /* elements; keeps fp32 sums exact: 1,024 a lane and accumulator */

typedef struct reduce_plan {
    reduce_entry entry;
    xpu_dtype computed; /* what accumulators have */
    bool subgroups, contiguous, wide, dense;
    bool doubled; /* they have twice the digits of the result */
    int columns, local, kept, outer, pack;
    int length; /* the rows' length if the kernel is for that alone, else 0 */
    int64_t groups;
} reduce_plan;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

static int power_of_two_from(int64_t n, int most) {
    int p = 1;
    while (p < n && p < most) p *= 2;
    return p;
}

/* How many chunks of at least `shortest` elements make `tasks` outputs enough work for `wanted` workers. */
static void cut(reduce_params *p, int64_t wanted, int64_t shortest, int64_t longest) {
    int64_t chunks = p->outputs < wanted ? wanted / p->outputs : 1;
    chunks = most(least(chunks, p->total / shortest), ceil_div(p->total, longest));
    p->chunk = ceil_div(ceil_div(p->total, most(chunks, 1)), 256) * 256;
    p->chunks = most(ceil_div(p->total, most(p->chunk, 1)), 1);
    p->tasks = p->outputs * p->chunks;
}

static bool subgroup_variant(const xpu_device_properties *device) {
    return device->has_subgroups && device->has_subgroup_size && device->has_subgroup_shuffle;
}

/* One work-item an output, or some outputs side by side. */
static void plan_columns(const shape *s, const xpu_device_properties *device, acc_kind kind,
                         bool side_by_side, int64_t workers, reduce_plan *plan, reduce_params *p) {
    bool cpu = device->type == XPU_DEVICE_CPU;
    plan->contiguous = plan->subgroups = false;
    plan->local = cpu ? SUBGROUP_SIZE : 64;
    p->chunk = p->total;
    p->chunks = 1;
    p->tasks = p->outputs;
    if (!side_by_side) {
        plan->entry = ENTRY_SINGLE;
        if (cpu) plan->local = 4 * SUBGROUP_SIZE;
        plan->groups = ceil_div(p->outputs, plan->local);
        return;
    }
    plan->entry = ENTRY_COLUMNS;
    int64_t side = s->kept[0].size, others = p->outputs / side;
    plan->columns = 1;
    if (cpu && side >= 8 * plan->local)
        plan->columns = 8;
    else if (side >= 4 * plan->local && (cpu || p->outputs >= 4 * workers * plan->local))
        plan->columns = 4;
    if (plan->doubled && plan->columns > 1) plan->columns /= kind == KIND_welford ? 4 : 2; /* registers */
    int64_t across = ceil_div(side, plan->local * plan->columns) * others;
    if (across < workers && p->total * p->outputs >= LONGEST_CHUNK) {
        p->chunk = ceil_div(p->total, most(least(workers / across, p->total / 128), 1));
        p->chunks = ceil_div(p->total, p->chunk);
        p->tasks = p->outputs * p->chunks;
    }
    plan->groups = across * p->chunks;
}

/* How many neighboring elements a GPU reads at once: 16 bytes, if all rows are aligned to that. */
static int pack_of(const shape *s, const reduce_params *p, int64_t element, bool row) {
    if (!row || s->reduced_dims > 1 || element >= 16 || p->in % 16) return 1;
    for (int d = 0; d < s->kept_dims; d++)
        if (s->kept[d].in % 16) return 1;
    return (int)(16 / element);
}

static void make_plan(const shape *s, const xpu_device_properties *device, acc_kind kind, int64_t element,
                      reduce_plan *plan, reduce_params *p) {
    bool cpu = device->type == XPU_DEVICE_CPU;
    int64_t units = (int64_t)device->max_compute_units;
    int64_t lanes = cpu ? units * 4 * SUBGROUP_SIZE
                    : device->vendor_id == XPU_VENDOR_INTEL
                        ? (int64_t)device->gpu_eu_count * 8 * SUBGROUP_SIZE
                        : units * 1024;
    bool row = s->reduced[0].in == element || s->total == 1;
    bool side_by_side = s->kept_dims > 0 && s->kept[0].in == element;

    plan->columns = plan->length = 0;
    plan->pack = 1;
    plan->wide = s->total > INT32_MAX / 2;
    plan->kept = s->kept_dims;
    plan->outer = s->reduced_dims - 1;
    plan->subgroups = subgroup_variant(device);
    plan->contiguous = row;
    p->batch = 1;
    p->width = 1;
    if (!row && side_by_side && s->kept[0].size >= SUBGROUP_SIZE) {
        plan_columns(s, device, kind, true, lanes / (cpu ? SUBGROUP_SIZE : 64), plan, p);
    } else if (s->outputs >= 64 && (s->total < SUBGROUP_SIZE || (!row && s->outputs >= lanes))) {
        plan_columns(s, device, kind, false, 0, plan, p);
    } else if (plan->subgroups && (kind == KIND_one || kind == KIND_twice || plan->doubled) && row &&
               plan->outer == 0 && s->total <= TUNED(cpu, SHORT_ROW) && s->outputs >= 4 * SUBGROUP_SIZE) {
        plan->entry = ENTRY_SHORT_ROWS;
        if (s->total <= TUNED(cpu, WRITTEN_OUT) && s->total % SUBGROUP_SIZE == 0)
            plan->length = (int)s->total;
        plan->local = cpu ? SUBGROUP_SIZE : 4 * SUBGROUP_SIZE;
        p->chunk = p->total;
        p->chunks = 1;
        p->tasks = p->outputs;
        if (cpu)
            p->batch = most(least(TUNED(cpu, REDUCE_BATCH) / SUBGROUP_SIZE / p->total,
                                  p->tasks / (2 * units * SUBGROUP_SIZE)),
                            1);
        plan->groups = ceil_div(p->tasks, p->batch * plan->local);
    } else if (plan->subgroups) {
        plan->entry = ENTRY_ROWS;
        cut(p, lanes / SUBGROUP_SIZE, TUNED(cpu, REDUCE_CHUNK), LONGEST_CHUNK);
        plan->local = cpu ? SUBGROUP_SIZE : 4 * SUBGROUP_SIZE;
        if (cpu)
            p->batch = most(least(TUNED(cpu, REDUCE_BATCH) / most(p->chunk, 1), p->tasks / (2 * units)), 1);
        plan->groups = ceil_div(p->tasks, p->batch * (plan->local / SUBGROUP_SIZE));
    } else {
        plan->entry = ENTRY_ROWS;
        plan->local = cpu ? 64 : MAX_LOCAL;
        cut(p, lanes / plan->local, 16 * plan->local, cpu ? LONGEST_CHUNK : LONGEST_CHUNK * 16);
        plan->pack = cpu ? 1 : pack_of(s, p, element, row);
        /* Where outputs are many, a warp each: it needs no barrier. */
        int most_lanes = !cpu && p->tasks >= 64 * units ? 32 : plan->local;
        p->width = power_of_two_from(ceil_div(least(p->chunk, p->total), plan->pack > 1 ? 2 * plan->pack : 4),
                                     most_lanes);
        plan->groups = ceil_div(p->tasks, plan->local / p->width);
    }
}

static const char formulas[] =
    "static inline acc reduce_identity(void) { return %s; }\n"
    "#ifdef NAN_APART\n"
    "#define MAX(a, b) ((a) > (b) ? (a) : (b))\n"
    "#define MIN(a, b) ((a) < (b) ? (a) : (b))\n"
    "#endif\n"
    "static inline acc reduce_step(acc a, in_t x, idx i, real p) { return %s; }\n"
    "#ifdef NAN_APART\n"
    "#undef MAX\n"
    "#undef MIN\n"
    "#endif\n"
    "static inline acc reduce_combine(acc a, acc b) { return %s; }\n"
    "static inline COMPUTED(OUT0) reduce_first(acc a, real n, real p) { return %s; }\n"
    "#ifdef SECOND\n"
    "static inline COMPUTED(OUT1) reduce_second(acc a, real n, real p) { return %s; }\n"
    "#endif\n";

/* Is the result NaN exactly when an element is, and `step` made of MAX or MIN? */
static bool is_extreme(xpu_reduction reduction) {
    return reduction == XPU_REDUCE_AMAX || reduction == XPU_REDUCE_AMIN || reduction == XPU_REDUCE_NORM_MAX ||
           reduction == XPU_REDUCE_NORM_MIN;
}

static void emit_formulas(text_buffer *t, const struct row *row) {
    text_addf(t, formulas, row->identity, row->step, row->combine, row->finish, row->second);
}

bool reduce_read(text_buffer *out, const char *written) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcasecmp(table[i].name, written)) return emit_formulas(out, &table[i]), true;
    return false;
}

static void describe(kernel_spec *spec, xpu_reduction reduction, const xpu_iter *iter, reduce_entry entry,
                     const reduce_plan *plan) {
    static const char *const kinds[] = {"one", "pair", "twice", "indexed", "welford"};
    const struct row *row = &table[reduction];
    const xpu_dtype in = iter->operand[iter->outputs].dtype, out = iter->operand[0].dtype;
    const xpu_dtype a = plan->computed;
    spec_begin(spec, FAMILY_REDUCE);
    spec_key_only(spec, "reduction", reduction, 8);
    spec_dtype(spec, "IN", in);
    spec_dtype(spec, "OUT0", out);
    spec_dtype(spec, "OUT1", iter->outputs == 2 ? iter->operand[1].dtype : XPU_BOOL);
    spec_option(spec, "A=", dtype_computed(a));
    spec_option(spec, "KIND_", kinds[row->kind]);
    spec_key_only(spec, "IDX", plan->wide, 1);
    spec_option(spec, "IDX=", plan->wide ? "long" : "int");
    spec_int(spec, "LOCAL", plan->local, 16);
    spec_option_int(spec, "LANES", SUBGROUP_SIZE);
    spec_int(spec, "KEPT", plan->kept, 8);
    spec_int(spec, "OUTER", plan->outer, 8);
    spec_enum(spec, "BUILD_", entries, entry, 4);
    spec_option_flag(spec, "A_FLOAT", dtype_class(a) == 'f');
    spec_option_flag(spec, "A_COMPLEX", dtype_class(a) == 'c');
    spec_option_flag(spec, "A_SIGNED", dtype_class(a) == 'i');
    spec_option_flag(spec, "A_DOUBLE", dtype_needs_fp64(a));
    spec_option_flag(spec, "WIDE", plan->doubled);
    spec_option_flag(spec, "IN_FLOAT", dtype_is_floating(in));
    spec_option_flag(spec, "IN_DOUBLE", dtype_needs_fp64(in));
    spec_option_flag(spec, "IN_COMPLEX", dtype_class(in) == 'c');
    spec_flag(spec, "SECOND", iter->outputs == 2);
    spec_flag(spec, "CONTIGUOUS", plan->contiguous);
    spec_flag(spec, "DENSE", plan->dense);
    spec_int_if(spec, entry == ENTRY_COLUMNS, "COLUMNS", plan->columns, 8);
    spec_int_if(spec, plan->pack > 1, "VECTOR_SIZE", plan->pack, 8);
    spec_option(spec, "VECTOR_BITS=", plan->pack > 1 ? "uint4" : NULL);
    spec_option_flag(spec, "POINTS", entry == ENTRY_SINGLE);
    spec_key_only(spec, "subgroups", plan->subgroups, 1); /* another file */
    spec_option_flag(spec, "NAN_APART", plan->subgroups && is_extreme(reduction) && dtype_class(in) == 'f');
    spec_int_if(spec, plan->length, "LENGTH", plan->length, 16);
}

static xpu_status find_kernel(int device, xpu_reduction reduction, const xpu_iter *iter, reduce_entry entry,
                              const reduce_plan *plan, xpu_kernel **kernel) {
    kernel_spec spec;
    describe(&spec, reduction, iter, entry, plan);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;

    const struct row *row = &table[reduction];
    char written[64], label[96];
    text_buffer source = {0};
    emit_formulas(&source, row);
    snprintf(written, sizeof written, "reduce %s", row->name);
    snprintf(label, sizeof label, "%s %s->%s", row->name, dtype_token(iter->operand[iter->outputs].dtype),
             dtype_token(iter->operand[0].dtype));
    for (char *c = label; *c; c++) *c = (char)tolower(*c);
    kernel_build_spec build_spec = {.file = plan->subgroups ? "reduce_subgroup.cl" : "reduce_reference.cl",
                                    .text = source.data,
                                    .written = written,
                                    .name = entries[entry],
                                    .label = label};
    xpu_status status = source.failed ? op_fail(XPU_ERROR_OUT_OF_HOST_MEMORY,
                                                "out of host memory for the source of kernel %s", label)
                                      : kernel_build(device, &spec, &build_spec, kernel);
    text_free(&source);
    return status;
}

static uint64_t bits_of(double value, bool as_double) {
    uint64_t bits = 0;
    if (as_double) {
        memcpy(&bits, &value, sizeof value);
    } else {
        float f = (float)value;
        memcpy(&bits, &f, sizeof f);
    }
    return bits;
}

static void fill_params(const shape *s, const xpu_iter *iter, bool as_double, double parameter,
                        reduce_params *p) {
    p->in = XPU_ADDR(iter->operand[iter->outputs].data);
    for (int i = 0; i < 2; i++) p->out[i] = i < iter->outputs ? XPU_ADDR(iter->operand[i].data) : 0;
    p->partial = 0;
    p->outputs = s->outputs;
    p->total = s->total;
    p->length = s->reduced[0].size;
    p->stride = s->reduced[0].in;
    p->count = bits_of((double)s->total, as_double);
    p->parameter = bits_of(parameter, as_double);
    p->pad = 0;
    for (int d = 0; d < s->kept_dims + s->reduced_dims - 1; d++) {
        const dim *e = d < s->kept_dims ? &s->kept[d] : &s->reduced[d - s->kept_dims + 1];
        p->size[d] = e->size;
        p->in_stride[d] = e->in;
        p->out_stride[0][d] = e->out[0];
        p->out_stride[1][d] = e->out[1];
    }
}

static xpu_status check(xpu_reduction reduction, const xpu_iter *iter, const xpu_device_properties *device) {
    if ((unsigned)reduction >= XPU_REDUCE_COUNT)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "reduce: unknown reduction %d", (int)reduction);
    const struct row *row = &table[reduction];
    int outputs = strcmp(row->second, "0") ? 2 : 1;
    if (iter->outputs != outputs || iter->inputs != 1)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "%s: got %d outputs and %d inputs; takes %d outputs and 1 input", row->name,
                       iter->outputs, iter->inputs, outputs);
    xpu_dtype in = iter->operand[outputs].dtype;
    bool complex_in = dtype_class(in) == 'c';
    bool complex_out = dtype_class(iter->operand[0].dtype) == 'c';
    const char class_out = dtype_class(iter->operand[0].dtype);
    if (!strchr(row->inputs, dtype_class(in)) || class_out == DTYPE_CLASS_NARROW ||
        class_out == DTYPE_CLASS_PACKED ||
        (row->type == TYPE_out && complex_out && in != iter->operand[0].dtype) ||
        (complex_in && !complex_out &&
         (reduction == XPU_REDUCE_SUM || reduction == XPU_REDUCE_NANSUM || reduction == XPU_REDUCE_MEAN ||
          reduction == XPU_REDUCE_PROD)))
        return op_unsupported_dtype(row->name, in, NULL);
    for (int i = 0; i < outputs + 1; i++)
        if (dtype_needs_fp64(iter->operand[i].dtype) && !device->has_fp64)
            return op_unsupported_dtype(row->name, iter->operand[i].dtype, device);
    return XPU_SUCCESS;
}

/* The group that combines an output's partial accumulators. */
static int last_local(const xpu_device_properties *device) {
    return subgroup_variant(device) ? SUBGROUP_SIZE : device->type == XPU_DEVICE_CPU ? 64 : MAX_LOCAL;
}

/* Bytes of one accumulator in memory, at most. */
#define ACC_BYTES 32

xpu_status xpu_reduce(xpu_stream *stream, xpu_reduction reduction, const xpu_iter *iter, double parameter) {
    int device = xpu_stream_device(stream);
    const xpu_device_properties *properties;
    shape s;
    reduce_params p;
    reduce_plan plan;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    XPU_TRY(check(reduction, iter, properties));
    const struct row *row = &table[reduction];
    xpu_dtype in = iter->operand[iter->outputs].dtype;
    int64_t element = (int64_t)xpu_dtype_size(in);
    XPU_TRY(canonical(iter, row->kind == KIND_indexed, &s));
    if (s.outputs == 0) return XPU_SUCCESS;
    if (row->kind != KIND_indexed) choose_inner(&s, element);
    plan.computed = computed_in(row, in, iter->operand[0].dtype, properties, &plan.doubled);
    fill_params(&s, iter, dtype_needs_fp64(plan.computed), parameter, &p);
    plan.dense = is_dense(&s, iter);
    make_plan(&s, properties, row->kind, element, &plan, &p);

    xpu_kernel *kernel, *final = NULL;
    XPU_TRY(find_kernel(device, reduction, iter, plan.entry, &plan, &kernel));
    void *partial = NULL;
    if (p.chunks > 1) {
        struct reduce_plan last = plan;
        last.columns = last.length = 0;
        last.pack = 1;
        last.subgroups = subgroup_variant(properties);
        last.contiguous = false;
        last.outer = 0;
        last.local = last_local(properties);
        XPU_TRY(find_kernel(device, reduction, iter, ENTRY_PARTIALS, &last, &final));
        XPU_TRY(xpu_workspace_take(stream, (size_t)p.tasks * ACC_BYTES, &partial));
        p.partial = XPU_ADDR(partial);
    }
    xpu_range range = {1, {(size_t)plan.groups}, {(size_t)plan.local}, (uint64_t)(s.outputs * s.total)};
    xpu_status status =
        final ? xpu_launch(stream, kernel, &range, &p, sizeof p)
              : xpu_launch_with_accesses(stream, kernel, &range, &p, sizeof p, iter_accesses, iter);
    if (final && status == XPU_SUCCESS) {
        xpu_range second = {1, {(size_t)s.outputs}, {(size_t)last_local(properties)}, (uint64_t)p.tasks};
        status = xpu_launch(stream, final, &second, &p, sizeof p);
    }
    return workspace_release(partial, status);
}

/* Attention: chooses kernels (matrix engine, portable, CPU), tiles and split-KV slices, and launches them. */
#include "xpu/ops/attention.h"

#include <string.h>

#include "kernels/attention/attention.h"
#include "kernels/matrix/local_tile.h"
#include "ops/gemm/matrix.h"
#include "ops/gemm/product.h"
#include "ops/kernel.h"
#include "ops/row_group.h"
#include "xpu/fault.h"
#include "xpu/ops/reduce.h"
#include "xpu/trace.h"

#define TILE 64

typedef enum attention_kernel {
    KERNEL_FORWARD,
    KERNEL_DELTA,
    KERNEL_GRAD_QUERY,
    KERNEL_GRAD_KEY_VALUE,
    KERNEL_FINISH,
    KERNEL_GRAD_BIAS,
    KERNEL_HOST
} attention_kernel;

/* Plan for a matrix engine (attention_ptx.cl, attention_xmx.cl, attention_xmx8.cl). Without one attention.cl
 * is used, which always computes some of the gradients. */
typedef struct matrix_plan {
    matrix_unit unit;
    bool emulated, shared; /* `shared`: the subgroups of a work-group have the same rows and different keys */
    bool direct;           /* CPU: few rows read keys and values in place */
    int sliced;            /* 1: another launch merges the KV splits; 2: the last work-group does */
    int subgroups, rows; /* subgroups per work-group, and rows per subgroup (or its share of rows that several
                            subgroups have) */
    int step;            /* rows of the other side per step */
    /* tensor cores: */
    int stages;
    int aligned; /* bytes; alignment of all rows that are read */
    bool out_pairs;
    /* XMX: */
    int together; /* subgroups that have the same rows (SIMD8) */
    int grads;    /* gradients of the launch: 0 the queries', 1 the values', 2 the keys' */
} matrix_plan;
static const matrix_plan plain = {.unit = MATRIX_UNIT_NONE};
enum { LOCAL_BYTES = 48 * 1024, SLICES_MOST = 1024, PART = 256 };
/* One work-group merges this many slices in less time than a launch takes. */
enum { MAX_FUSED = MAX_MERGED_SPLITS };

static int round_up(int64_t depth, int unit) { return (int)align_up(depth, unit); }
/* attention.cl: heads are split into parts of at most PART elements; number and size of the parts. */
static int64_t parts_of(int64_t depth) { return depth > PART ? div_up(depth, PART) : 1; }
static int part_of(int64_t depth) { return round_up(div_up(depth, parts_of(depth)), 16); }

static int tile_of(const matrix_plan *plan) {
    return plan->shared ? plan->rows : plan->subgroups * plan->rows;
}
/* Keys per step of a work-group. */
static int group_step(const matrix_plan *plan) {
    return plan->shared ? plan->subgroups * plan->step : plan->step;
}

/* Sliding windows (beyond args->causal), or packed sequences? */
static bool is_banded(const xpu_attention *args) { return args->sequences > 0 || args->window; }

static xpu_status get_kernel(int device, const xpu_attention *args, attention_kernel which,
                             const matrix_plan *plan, xpu_kernel **kernel) {
    static const char *const names[][7] = {
        {"attention_forward", "attention_delta", "attention_grad_query", "attention_grad_key_value", NULL,
         "attention_grad_bias", "attention_host"},
        {"attention_matrix_forward", "attention_delta", "attention_matrix_grad_query",
         "attention_matrix_grad_key_value", "attention_matrix_merge"}};
    static const char *const parts[] = {"FORWARD", "BACKWARD",  "BACKWARD", "BACKWARD",
                                        "FINISH",  "GRAD_BIAS", NULL};
    static const char *const files[] = {[MATRIX_UNIT_NONE] = "attention.cl",
                                        [MATRIX_UNIT_PTX] = "attention_ptx.cl",
                                        [MATRIX_UNIT_XMX] = "attention_xmx.cl",
                                        [MATRIX_UNIT_XMX8] = "attention_xmx8.cl"};
    const matrix_unit unit = plan->unit;
    const bool on_host = which == KERNEL_HOST;
    const bool units = unit != MATRIX_UNIT_NONE, ptx = unit == MATRIX_UNIT_PTX, xmx = unit == MATRIX_UNIT_XMX;
    const bool squares = unit == MATRIX_UNIT_XMX8, intel = xmx || squares;
    const int64_t depth = args->query->size[3], value_depth = args->value->size[3];
    const int depthwise_vector = xmx ? 32 : 16;
    const xpu_dtype dtype = args->query->dtype;
    kernel_spec spec;
    spec_begin(&spec, FAMILY_ATTENTION);
    spec_dtype(&spec, "T", dtype);
    spec_key_only(&spec, "biased", args->bias != NULL, 1);
    spec_key_only(&spec, "BIAS_T", args->bias ? args->bias->dtype : 0, 8);
    if (args->bias) {
        spec_option(&spec, "BIAS_T=", xpu_dtype_name(args->bias->dtype));
        spec_option_int(&spec, "BIAS_IS_MASK", args->bias->dtype == XPU_BOOL);
    }
    spec_bool(&spec, "DROPOUT", args->dropout > 0);
    spec_bool(&spec, "BANDED", is_banded(args));
    spec_int(&spec, "DEPTH", units ? round_up(depth, depthwise_vector) : part_of(depth), 16);
    spec_int(&spec, "VALUE_DEPTH", units ? round_up(value_depth, depthwise_vector) : part_of(value_depth),
             16);
    spec_key_only(&spec, "which", which, 4);
    if (!on_host) spec_option(&spec, parts[which], "");
    spec_int_if(&spec, on_host, "ROWS", on_host ? plan->rows : 0, 4);
    spec_int_if(&spec, on_host, "DIRECT", on_host && plan->direct, 1);
    matrix_unit_spec(&spec, unit, units && plan->emulated, intel && !plan->emulated, dtype);
    spec_int_if(&spec, units, "SUBGROUPS", units ? plan->subgroups : 0, 6);
    spec_int_if(&spec, ptx, "BLOCKS", ptx ? plan->rows / 16 : 0, 4);
    spec_int_if(&spec, units, "STEP", units ? plan->step : 0, 8);
    spec_int_if(&spec, ptx, "STAGES", ptx ? plan->stages : 0, 4);
    spec_int_if(&spec, ptx, "ALIGNED", ptx ? plan->aligned : 0, 8);
    spec_int_if(&spec, ptx, "SHARED", plan->shared, 1);
    spec_int_if(&spec, ptx, "OUT_PAIRS", ptx && plan->out_pairs, 1);
    spec_int_if(&spec, squares, "SUMS_M", squares ? plan->together > 1 ? 2 : plan->rows / 8 : 0, 2);
    spec_int_if(&spec, squares, "SUBGROUPS_PER_ROWS", squares ? plan->together : 0, 3);
    spec_int_if(&spec, intel, "GRADS", intel ? plan->grads : 0, 2);
    spec_int_if(&spec, units, "IS_SPLIT", units ? plan->sliced : 0, 2);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(device, &spec, on_host ? "attention_host.cl" : files[unit], names[units][which],
                            kernel, "%s %s", names[units][which], xpu_dtype_name(dtype));
}

static xpu_status check(const xpu_attention *args) {
    const xpu_tensor *q = args->query, *k = args->key, *v = args->value;
    if (q->dtype != XPU_FLOAT16 && q->dtype != XPU_BFLOAT16 && q->dtype != XPU_FLOAT32)
        return op_unsupported_dtype("attention", q->dtype, NULL);
    if (k->dtype != q->dtype || v->dtype != q->dtype || k->size[1] != v->size[1] ||
        k->size[2] != v->size[2] || k->size[3] != q->size[3] || k->size[1] == 0 || q->size[1] % k->size[1])
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "attention: query, key and value have incompatible shapes or dtypes");
    if (is_banded(args) && args->bias)
        return op_fail(XPU_ERROR_NOT_SUPPORTED,
                       "attention: a bias can't be combined with a window or with packed sequences");
    if (args->sequences > 0 &&
        (q->size[0] != 1 || k->size[0] != 1 || !args->query_starts || !args->key_starts))
        return op_fail(
            XPU_ERROR_INVALID_ARGUMENT,
            "attention: packed sequences need a batch size of 1 and the starts of queries and keys");
    return XPU_SUCCESS;
}

static attention_matrix matrix_of(const xpu_tensor *tensor) {
    attention_matrix m = {0};
    if (!tensor) return m;
    m.data = XPU_ADDR(tensor->data);
    for (int i = 0; i < tensor->dims && i < 4; i++) m.stride[i] = tensor->stride[i];
    return m;
}

static attention_params describe(const xpu_attention *args) {
    const int64_t heads = args->query->size[1], rows = args->query->size[2];
    attention_params p = {.query = matrix_of(args->query),
                          .key = matrix_of(args->key),
                          .value = matrix_of(args->value),
                          .bias = matrix_of(args->bias),
                          .out = matrix_of(args->out),
                          .logsumexp = matrix_of(args->logsumexp),
                          .delta_stride = {heads * rows, rows},
                          .batch = args->query->size[0],
                          .heads = heads,
                          .key_heads = args->key->size[1],
                          .queries = rows,
                          .keys = args->key->size[2],
                          .seed = args->seed,
                          .counter = args->offset / 4,
                          .depth = (xpu_i32)args->query->size[3],
                          .value_depth = (xpu_i32)args->value->size[3],
                          .causal = args->causal,
                          .scale = (float)args->scale,
                          .keep = (float)(1 - args->dropout),
                          .keep_scale = args->dropout < 1 ? (float)(1 / (1 - args->dropout)) : 0,
                          .slices = 1,
                          .slice = args->key->size[2],
                          .packed = 1};
    if (args->sequences > 0) {
        p.batch = args->sequences, p.queries = args->max_queries, p.keys = args->max_keys;
        p.query_starts = XPU_ADDR(args->query_starts), p.key_starts = XPU_ADDR(args->key_starts);
        p.all_queries = rows, p.all_keys = args->key->size[2];
        p.query.stride[0] = p.key.stride[0] = p.value.stride[0] = p.out.stride[0] = 0;
        p.logsumexp.stride[0] = p.delta_stride[0] = 0;
    }
    p.row_queries = p.queries, p.row_keys = p.keys;
    const int64_t unlimited = (int64_t)1 << 40;
    p.left = args->window && args->left >= 0 && args->left < unlimited ? args->left : unlimited;
    p.right = args->window && args->right >= 0 && args->right < unlimited ? args->right : unlimited;
    if (args->causal) p.right = 0;
    return p;
}

/* Alignment of the rows of a matrix in bytes, at most 16; 0 if rows aren't contiguous. */
static int alignment_of(const xpu_tensor *t) {
    if (t->size[3] > 1 && t->stride[3] != 1) return 0;
    const int64_t s[3] = {t->size[0] > 1 ? t->stride[0] : 0, t->size[1] > 1 ? t->stride[1] : 0,
                          t->size[2] > 1 ? t->stride[2] : 0};
    const strided_view rows = {t->data, 1, s[2], s[1]}, items = {t->data, 1, s[0], 0};
    const int aligned = matrix_alignment(&rows, t->dtype), also = matrix_alignment(&items, t->dtype);
    return aligned < also ? aligned : also;
}

/* Do all rows satisfy the rules of Intel's 2D block reads? */
static bool reads_blocks(const xpu_tensor *t) {
    const strided_view heads = {t->data, 1, t->stride[2], t->size[1] > 1 ? t->stride[1] : 0};
    const strided_view items = {t->data, 1, t->stride[2], t->size[0] > 1 ? t->stride[0] : 0};
    return t->stride[3] == 1 && matrix_reads_blocks(&heads, t->size[3], t->size[2], t->dtype) &&
           matrix_reads_blocks(&items, t->size[3], t->size[2], t->dtype);
}

/* Bytes of a row of a local-memory tile. */
static int local_tile_row_bytes(int64_t depth, int element) {
    const int pieces = round_up(depth, 16) * element / 16;
    return LOCAL_TILE_PITCH(pieces) * 16;
}

/* Plans for tensor cores; `read` and `written` end with NULL. */
static bool plan_ptx(const xpu_device_properties *properties, bool banded, attention_params *p,
                     const xpu_tensor *const *read, const xpu_tensor *const *written, bool forward,
                     matrix_plan *plan) {
    const int element = (int)xpu_dtype_size(read[0]->dtype); /* 2, or 4 for fp32 */
    plan->aligned = 16, plan->out_pairs = true, plan->stages = forward ? 1 : 2;
    for (; *read; read++) {
        const int aligned = alignment_of(*read);
        if (aligned < plan->aligned) plan->aligned = aligned;
    }
    for (; *written; written++) plan->out_pairs = plan->out_pairs && alignment_of(*written) >= 2 * element;
    const int depth = p->depth > p->value_depth ? p->depth : p->value_depth;
    if (plan->aligned == 0 || depth * element > (forward ? 512 : 256)) return false;
    if (forward && p->queries <= 32 && !banded) p->packed = p->heads / p->key_heads;
    const int64_t rows = p->queries * p->packed, sets = p->heads / p->packed * p->batch;
    const int64_t units = (int64_t)properties->gpu_subslice_count;
    plan->subgroups = 4, plan->rows = 16;
    const int both = local_tile_row_bytes(p->depth, element) + local_tile_row_bytes(p->value_depth, element);
    if (forward && rows <= 16) { /* the rows of one subgroup; bound by memory */
        const int room = LOCAL_BYTES - 1024 - plan->rows * local_tile_row_bytes(p->depth, element);
        plan->shared = true, plan->stages = 2, plan->step = 16;
        while (plan->subgroups > 1 && group_step(plan) * both * plan->stages > room) plan->subgroups /= 2;
        if (group_step(plan) * both * plan->stages > room) plan->stages = 1;
        return true;
    }
    plan->step = plan->subgroups > 1 && element == 2 && depth <= (forward ? 128 : 64) ? 64 : 32;
    while (plan->step > 16 && plan->step * both * plan->stages > LOCAL_BYTES - 1024) plan->step /= 2;
    if (forward && plan->subgroups > 1 && element == 2 && depth <= 64 &&
        tiles(rows, 2 * tile_of(plan)) * sets >= 2 * units)
        plan->rows = 32;
    return true;
}

/* Plans for XMX with SIMD16. */
static bool plan_xmx(bool banded, attention_params *p, const xpu_tensor *const *read, bool forward,
                     matrix_plan *plan) {
    const xpu_tensor *const query = read[0];
    for (; *read; read++)
        if (!reads_blocks(*read)) return false;
    const int depth = p->depth > p->value_depth ? p->depth : p->value_depth;
    if (depth > 128 || !(p->scale > 0))
        return false; /* otherwise the largest product would not have the largest score */
    const strided_view heads = {query->data, 1, query->stride[1], 0};
    if (forward && !banded && p->queries == 1 &&
        matrix_reads_blocks(&heads, p->depth, p->heads, query->dtype))
        p->packed = p->heads / p->key_heads;
    plan->subgroups = forward && p->queries * p->packed <= 16 ? 1 : 8, plan->rows = 16;
    plan->step = forward && depth <= 64 ? 64 : 32;
    return true;
}

/* Plans for XMX with SIMD8. */
static bool plan_xmx8(const xpu_device_properties *properties, bool banded, attention_params *p,
                      const xpu_tensor *const *read, bool forward, matrix_plan *plan) {
    enum { MOST_PITCH = 1 << 26 }; /* byte offsets of a step's rows have 32 bits */
    for (; *read; read++)
        if (alignment_of(*read) < 16 || (*read)->stride[2] < 0 || (*read)->stride[2] >= MOST_PITCH)
            return false;
    const int depth = p->depth > p->value_depth ? p->depth : p->value_depth;
    if (depth > 128 || p->depth % 16 != 0 || p->value_depth % 16 != 0) return false;
    if (!p->bias.data && !(p->scale > 0))
        return false; /* otherwise the largest product would not have the largest score */
    if (forward && !banded && p->queries == 1) p->packed = p->heads / p->key_heads;
    /* Forward: 16 rows per subgroup halve the local-memory reads, if registers suffice and enough work-groups
     * remain; for longer heads, four subgroups have 32 rows. Backward: two subgroups have 16 rows, or four
     * do. */
    plan->subgroups = 16, plan->together = 1, plan->rows = 8, plan->step = depth <= 64 ? 32 : 16;
    if (!forward) {
        plan->together = depth <= 64 ? 2 : 4, plan->rows = 16 / plan->together;
        plan->step = 8 * plan->together;
        return true;
    }
    const int64_t rows = p->queries * p->packed, sets = p->heads / p->packed * p->batch;
    if (depth <= 64 && !p->bias.data && rows > tile_of(plan) &&
        tiles(rows, 2 * tile_of(plan)) * sets >= 2 * (int64_t)properties->gpu_subslice_count)
        plan->rows = 16, plan->step = 16;
    if (p->depth > 64 && !p->bias.data && p->keep >= 1 && 2 * rows > tile_of(plan))
        plan->together = 4, plan->step = 32;
    return true;
}

static matrix_plan plan_for(const xpu_device_properties *properties, bool banded, attention_params *p,
                            const xpu_tensor *const *read, const xpu_tensor *const *written, bool forward) {
    matrix_plan found = plain;
    /* Only tensor cores compute fp32 from sums of tf32 products. */
    const xpu_dtype dtype = read[0]->dtype;
    found.unit = matrix_unit_of(properties, dtype == XPU_FLOAT32 ? XPU_BFLOAT16 : dtype, &found.emulated);
    if (dtype == XPU_FLOAT32 && found.unit != MATRIX_UNIT_PTX) return plain;
    const bool fits =
        found.unit == MATRIX_UNIT_PTX    ? plan_ptx(properties, banded, p, read, written, forward, &found)
        : found.unit == MATRIX_UNIT_XMX  ? plan_xmx(banded, p, read, forward, &found)
        : found.unit == MATRIX_UNIT_XMX8 ? plan_xmx8(properties, banded, p, read, forward, &found)
                                         : false;
    return fits ? found : plain;
}

/* Tiles of a gradient of a bias. */
static int64_t bias_tiles(const attention_params *p) {
    return p->bias_size[0] * p->bias_size[1] * tiles(p->bias_size[2], TILE) * tiles(p->bias_size[3], TILE);
}

static xpu_status launch(xpu_stream *stream, const xpu_attention *args, attention_kernel which,
                         const matrix_plan *plan, const attention_params *p) {
    const bool units = plan->unit != MATRIX_UNIT_NONE;
    const int tile = units ? tile_of(plan) : TILE;
    const int64_t rows = p->batch * p->heads * p->queries;
    const int64_t parts = units ? 1 : parts_of(p->depth), value_parts = units ? 1 : parts_of(p->value_depth);
    const int64_t query_blocks =
        div_up(p->queries * p->packed, tile) * (p->heads / p->packed) * p->batch * p->slices;
    const int64_t key_blocks = div_up(p->keys, tile) * p->key_heads * p->batch;
    const int64_t groups[] = {[KERNEL_FORWARD] = query_blocks * value_parts,
                              [KERNEL_DELTA] = rows,
                              [KERNEL_GRAD_QUERY] = query_blocks * parts,
                              [KERNEL_GRAD_KEY_VALUE] =
                                  key_blocks * (parts > value_parts ? parts : value_parts),
                              [KERNEL_FINISH] = rows,
                              [KERNEL_GRAD_BIAS] = bias_tiles(p) * p->slices};
    const bool by_rows = which == KERNEL_DELTA || which == KERNEL_FINISH;
    xpu_range range = {.dims = 2,
                       .groups = {(size_t)groups[which], 1},
                       .local = {16, 16},
                       .work = (uint64_t)rows * (uint64_t)(by_rows ? 1 : p->keys) *
                               (uint64_t)(p->depth + p->value_depth)};
    if (by_rows || units)
        range.local[0] = by_rows ? 64 : (size_t)(plan->subgroups * matrix_subgroup_size(plan->unit)),
        range.local[1] = 1;
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(xpu_stream_device(stream), args, which, plan, &kernel));
    return xpu_launch(stream, kernel, &range, p, sizeof *p);
}

/* Few queries (decoding): the queries of heads that share keys become rows of one matrix, and keys are split
 * so that all compute units are busy. */
static void split_keys(const xpu_device_properties *properties, attention_params *p,
                       const matrix_plan *plan) {
    const int64_t units = (int64_t)properties->gpu_subslice_count;
    const int64_t pinned = TUNED(properties->type == XPU_DEVICE_CPU, ATTENTION_SPLIT_KV);
    const int64_t groups = div_up(p->queries * p->packed, tile_of(plan)) * (p->heads / p->packed) * p->batch;
    const int64_t most = div_up(p->keys, plan->shared ? group_step(plan) : 4 * plan->step),
                  wanted = (plan->shared           ? 4
                            : plan->subgroups == 1 ? 8
                                                   : 2) *
                           units;
    /* The work-groups of a shared tile all run at once, the same number on each compute unit. */
    int64_t slices = plan->shared && groups <= wanted ? wanted / groups : div_up(wanted, groups);
    if ((plan->subgroups > 1 || plan->shared) && groups >= units)
        slices = 1; /* writing and merging partial sums would cost more */
    if (plan->shared && slices > MAX_FUSED && div_up(units, groups) <= MAX_FUSED) slices = MAX_FUSED;
    if (slices > most) slices = most;
    if (pinned < SLICES_MOST) slices = pinned;
    if (slices <= 1) return;
    p->slice = align_up(div_up(p->keys, slices), group_step(plan));
    p->slices = div_up(p->keys, p->slice);
}

/* Can a kernel read a row 16 elements at a time without reading past its end? */
static bool reads_vector16(const xpu_tensor *t) { return t->stride[3] == 1 && t->size[3] % 16 == 0; }

/* attention_host.cl: CPUs without a host library for attention. */
enum {
    HOST_BAND = 48,
    HOST_DEPTH = 256,
    HOST_LOCAL = 176 << 10
}; /* as in kernels/attention/attention_host.cl */
static bool suits_host_kernel(const xpu_device_properties *properties, const xpu_attention *args) {
    const xpu_dtype bias = args->bias ? args->bias->dtype : XPU_FLOAT32;
    const int64_t depth = args->query->size[3], value_depth = args->value->size[3];
    return properties->type == XPU_DEVICE_CPU && uses_cpu_policy(properties) &&
           properties->local_mem_size >= HOST_LOCAL && !is_banded(args) && args->dropout <= 0 && depth > 0 &&
           depth <= HOST_DEPTH && value_depth > 0 && value_depth <= HOST_DEPTH &&
           (bias == XPU_BOOL || bias == XPU_FLOAT32 || bias == XPU_FLOAT16 || bias == XPU_BFLOAT16);
}

static xpu_status attention_on_host(xpu_stream *stream, const xpu_device_properties *properties,
                                    const xpu_attention *args, attention_params *p) {
    if (p->queries < HOST_ROWS) p->packed = p->heads / p->key_heads;
    const int64_t rows = p->queries * p->packed, sets = p->heads / p->packed * p->batch;
    matrix_plan plan = plain;
    plan.rows = host_rows_of(rows);
    /* For few rows, packing a key costs more than its products. */
    plan.direct = rows < HOST_ROWS && reads_vector16(args->key) && reads_vector16(args->value);
    /* Several groups per core, but every group packs all keys. */
    const int64_t wanted = div_up(4 * (int64_t)properties->max_compute_units, sets);
    const int64_t most = div_up(rows, 2 * HOST_ROWS), bands = wanted < most ? wanted : most;
    int64_t band = align_up(div_up(rows, bands), plan.rows);
    if (band > HOST_BAND) band = HOST_BAND / plan.rows * plan.rows;
    p->slice = band;
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(xpu_stream_device(stream), args, KERNEL_HOST, &plan, &kernel));
    const xpu_range range = {
        .dims = 1,
        .groups = {(size_t)(div_up(rows, band) * sets)},
        .local = {1},
        .work = (uint64_t)(rows * sets) * (uint64_t)p->keys * (uint64_t)(p->depth + p->value_depth) / 8 + 1};
    return xpu_launch(stream, kernel, &range, p, sizeof *p);
}

/* Starts of packed sequences that are out of range are reported to *place, or NULL. */
static xpu_status watch_starts(xpu_stream *stream, const xpu_attention *args, attention_params *p,
                               xpu_fault **place) {
    *place = NULL;
    if (args->sequences <= 0) return XPU_SUCCESS;
    XPU_TRY(xpu_fault_watch(stream, place));
    p->bad_starts =
        (struct fault_watch){XPU_ADDR(*place), XPU_ADDR("attention: the starts of packed sequences don't "
                                                        "ascend, or are out of range")};
    return XPU_SUCCESS;
}

static xpu_status forward(xpu_stream *stream, const xpu_attention *args, attention_params p) {
    if (p.batch == 0 || p.heads == 0 || p.queries == 0) return XPU_SUCCESS;
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &properties));
    const xpu_tensor *const read[] = {args->query, args->key, args->value, NULL};
    const xpu_tensor *const written[] = {args->out, NULL};
    matrix_plan plan = plan_for(properties, is_banded(args), &p, read, written, true);
    if (plan.unit == MATRIX_UNIT_NONE && suits_host_kernel(properties, args))
        return attention_on_host(stream, properties, args, &p);
    if (plan.unit == MATRIX_UNIT_NONE) return launch(stream, args, KERNEL_FORWARD, &plan, &p);
    if (!is_banded(args)) split_keys(properties, &p, &plan);
    if (p.slices == 1) return launch(stream, args, KERNEL_FORWARD, &plan, &p);

    void *partial = NULL;
    const size_t sums = (size_t)(p.slices * p.batch * p.heads * p.queries);
    const size_t elements = sums * (size_t)PARTIAL_PITCH(p.value_depth);
    const int64_t each = div_up(p.queries * p.packed, tile_of(&plan)) * (p.heads / p.packed) *
                         p.batch; /* work-groups per split */
    plan.sliced = 1;
    if (plan.unit == MATRIX_UNIT_PTX && p.slices <= MAX_FUSED && each <= XPU_WORKSPACE_COUNTERS) {
        uint32_t *counters;
        XPU_TRY(xpu_workspace_counters(stream, &counters));
        p.counters = XPU_ADDR(counters);
        plan.sliced = 2;
    }
    XPU_TRY(xpu_workspace_take(stream, (elements + sums) * sizeof(float), &partial));
    p.partial = XPU_ADDR(partial);
    p.partial_sums = p.partial + elements * sizeof(float);
    xpu_status status = launch(stream, args, KERNEL_FORWARD, &plan, &p);
    if (status == XPU_SUCCESS && plan.sliced == 1) status = launch(stream, args, KERNEL_FINISH, &plan, &p);
    return workspace_release(partial, status);
}

/* bias = sum of the contiguous partial results of all slices. */
static xpu_status sum_partials(xpu_stream *stream, const void *partial, int64_t slices,
                               const xpu_tensor *bias) {
    xpu_iter iter = {.outputs = 1, .inputs = 1, .dims = 5};
    iter.operand[0] = (xpu_operand){.data = bias->data, .dtype = bias->dtype};
    iter.operand[1] = (xpu_operand){.data = (void *)partial, .dtype = XPU_FLOAT32};
    int64_t stride = sizeof(float);
    for (int i = 0; i < 5; i++) {
        iter.size[i] = i < 4 ? bias->size[3 - i] : slices;
        iter.operand[0].stride[i] = i < 4 ? bias->stride[3 - i] * (int64_t)xpu_dtype_size(bias->dtype) : 0;
        iter.operand[1].stride[i] = stride;
        stride *= iter.size[i];
    }
    xpu_iter_coalesce(&iter);
    return xpu_reduce(stream, XPU_REDUCE_SUM, &iter, 0);
}

/* Gradient of the bias. If there are too few tiles for all compute units, the sum of each tile is split into
 * slices. */
static xpu_status grad_bias(xpu_stream *stream, const xpu_device_properties *properties,
                            const xpu_attention *args, const attention_params *given,
                            const xpu_tensor *bias) {
    attention_params p = *given;
    p.grad_bias = matrix_of(bias);
    int64_t results = 1;
    for (int i = 0; i < 4; i++) results *= p.bias_size[i] = bias->size[i];
    if (results == 0) return XPU_SUCCESS;
    const int64_t sets = p.batch / bias->size[0] * (p.heads / bias->size[1]);
    const int64_t all = sets * (bias->size[2] < p.queries ? tiles(p.queries, TILE) : 1) *
                        (bias->size[3] < p.keys ? tiles(p.keys, TILE) : 1);
    p.slice = div_up(all, product_split_count(properties, bias_tiles(&p), all * TILE, results));
    p.slices = all > 0 ? div_up(all, p.slice) : 1;
    if (p.slices == 1) return launch(stream, args, KERNEL_GRAD_BIAS, &plain, &p);

    void *partial = NULL;
    XPU_TRY(xpu_workspace_take(stream, (size_t)(p.slices * results) * sizeof(float), &partial));
    p.partial = XPU_ADDR(partial);
    xpu_status status = launch(stream, args, KERNEL_GRAD_BIAS, &plain, &p);
    if (status == XPU_SUCCESS) status = sum_partials(stream, partial, p.slices, bias);
    return workspace_release(partial, status);
}

/* Gradients of the queries, and of the keys and values. */
static xpu_status grad_operands(xpu_stream *stream, const xpu_device_properties *properties,
                                const xpu_attention *args, const xpu_attention_grad *grad,
                                attention_params *p) {
    const xpu_tensor *const read[] = {args->query, args->key, args->value, grad->out, NULL};
    const xpu_tensor *written[4] = {NULL};
    int count = 0;
    if (grad->query) written[count++] = grad->query;
    if (grad->key) written[count++] = grad->key, written[count++] = grad->value;
    matrix_plan plan = plan_for(properties, is_banded(args), p, read, written, false);
    xpu_status status = XPU_SUCCESS;
    if (grad->query && p->queries > 0) status = launch(stream, args, KERNEL_GRAD_QUERY, &plan, p);
    if (!grad->key || p->keys == 0) return status;
    const bool apart = plan.unit == MATRIX_UNIT_XMX || plan.unit == MATRIX_UNIT_XMX8;
    if (status == XPU_SUCCESS && apart) {
        matrix_plan values = plan;
        values.grads = 1;
        if (plan.unit == MATRIX_UNIT_XMX8)
            values.together = 2, values.rows = 8, values.step = 32; /* each of the two subgroups has a half */
        status = launch(stream, args, KERNEL_GRAD_KEY_VALUE, &values, p);
        plan.grads = 2;
    }
    if (status == XPU_SUCCESS) status = launch(stream, args, KERNEL_GRAD_KEY_VALUE, &plan, p);
    return status;
}

static xpu_status check_grad(const xpu_attention *args, const xpu_attention_grad *grad) {
    if (!grad->key != !grad->value)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "attention: the gradients of key and value must be requested together");
    if (!grad->bias) return XPU_SUCCESS;
    const int64_t size[4] = {args->query->size[0], args->query->size[1], args->query->size[2],
                             args->key->size[2]};
    bool fits = args->bias && args->bias->dtype != XPU_BOOL && grad->bias->dtype == args->bias->dtype;
    for (int i = 0; i < 4 && fits; i++) fits = grad->bias->size[i] == size[i] || grad->bias->size[i] == 1;
    return fits ? XPU_SUCCESS
                : op_fail(XPU_ERROR_INVALID_ARGUMENT,
                          "attention: the gradient of the bias doesn't match the bias in shape or dtype");
}

xpu_status xpu_attention_forward(xpu_stream *stream, const xpu_attention *args) {
    XPU_TRY(check(args));
    attention_params p = describe(args);
    xpu_fault *place;
    XPU_TRY(watch_starts(stream, args, &p, &place));
    XPU_TRY(forward(stream, args, p));
    return place ? xpu_fault_raise(stream, place) : XPU_SUCCESS;
}

static xpu_status backward(xpu_stream *stream, const xpu_attention *args, const xpu_attention_grad *grad,
                           attention_params p) {
    p.grad_out = matrix_of(grad->out);
    p.grad_query = matrix_of(grad->query);
    p.grad_key = matrix_of(grad->key);
    p.grad_value = matrix_of(grad->value);
    if (args->sequences > 0)
        p.grad_out.stride[0] = p.grad_query.stride[0] = p.grad_key.stride[0] = p.grad_value.stride[0] = 0;
    const bool none = p.batch == 0 || p.heads == 0;
    if (none && !grad->bias) return XPU_SUCCESS;
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &properties));
    if (none) return grad_bias(stream, properties, args, &p, grad->bias);

    void *delta = NULL;
    XPU_TRY(xpu_workspace_take(
        stream, (size_t)(p.delta_stride[1] * p.heads * args->query->size[0]) * sizeof(float), &delta));
    p.delta = XPU_ADDR(delta);
    xpu_status status = XPU_SUCCESS;
    if (p.queries > 0) status = launch(stream, args, KERNEL_DELTA, &plain, &p);
    if (status == XPU_SUCCESS && grad->bias) status = grad_bias(stream, properties, args, &p, grad->bias);
    if (status == XPU_SUCCESS && (grad->query || grad->key))
        status = grad_operands(stream, properties, args, grad, &p);
    return workspace_release(delta, status);
}

xpu_status xpu_attention_backward(xpu_stream *stream, const xpu_attention *args,
                                  const xpu_attention_grad *grad) {
    XPU_TRY(check(args));
    XPU_TRY(check_grad(args, grad));
    attention_params p = describe(args);
    xpu_fault *place;
    XPU_TRY(watch_starts(stream, args, &p, &place));
    XPU_TRY(backward(stream, args, grad, p));
    return place ? xpu_fault_raise(stream, place) : XPU_SUCCESS;
}

xpu_status xpu_split_heads(xpu_stream *stream, const xpu_split_heads_args *args) {
    const int device = xpu_stream_device(stream);
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    XPU_TRY(check_floating(properties, "split_heads", args->dtype));
    struct heads_params params = {.projected = XPU_ADDR(args->projected),
                                  .bias = XPU_ADDR(args->bias),
                                  .offset = XPU_ADDR(args->offset),
                                  .out = {XPU_ADDR(args->query), XPU_ADDR(args->key), XPU_ADDR(args->value)},
                                  .rows = args->batch * args->length,
                                  .length = args->length,
                                  .heads = args->heads,
                                  .depth = args->depth,
                                  .scale = (float)args->scale};
    memcpy(&params.scale64, &args->scale, sizeof params.scale64);
    if (params.rows * args->heads * args->depth == 0) return XPU_SUCCESS;

    int lanes = 16; /* on CPUs a vector; on GPUs the elements of a head */
    if (properties->type != XPU_DEVICE_CPU)
        while (lanes < args->depth && lanes < 128) lanes *= 2;
    kernel_spec spec;
    spec_begin(&spec, FAMILY_HEADS);
    spec_dtype(&spec, "T", args->dtype);
    spec_int(&spec, "LANES", lanes, 16);
    spec_option_flag(&spec, "FP64", args->dtype == XPU_FLOAT64);
    xpu_kernel *kernel = kernel_find(device, &spec);
    if (!kernel)
        XPU_TRY(kernel_from_file(device, &spec, "heads.cl", "split_heads", &kernel, "split_heads %s",
                                 dtype_token(args->dtype)));
    const xpu_range range = {1,
                             {(size_t)params.rows},
                             {(size_t)lanes},
                             (uint64_t)params.rows * 3 * (uint64_t)(args->heads * args->depth)};
    return xpu_launch(stream, kernel, &range, &params, sizeof params);
}

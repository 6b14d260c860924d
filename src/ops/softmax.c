/* Softmax and log softmax: chooses kernels for rows, columns or tiles of columns, and plans their launches.
 */
#include "xpu/ops/softmax.h"

#include "kernel.h"
#include "kernels/softmax.h"
#include "row_group.h"
#include "xpu/trace.h"

#define COLUMN_LANES 64
#define LONG_INNER 16 /* shorter ones are flattened with outer */
#define EXP_WORK 8    /* operations an element */
/* Tiles, on GPUs: */
#define TILE_WIDTH 32 /* columns at most, */
#define TILE_BYTES 32 /* but not fewer than memory is read by, where there are more */
#define CHUNK_LANES 256
#define CHUNK_BLOCKS 2 /* a chunk isn't shorter than this many blocks of elements on their way, */
#define CHUNK_BLOCK 8

typedef enum variant { ROWS, COLUMNS, FLAT_COLUMNS, TILES, CHUNKS } variant;

typedef struct plan {
    variant variant;
    bool backward;
    row_group row_group;
    int registers, pack, length; /* as in row_plan */
    int keep;                    /* elements of local memory for exponentials; -1: the result keeps them */
    int width;                   /* columns of a tile */
} plan;

static int power_above(int64_t n) {
    int p = 1;
    while (p < n) p *= 2;
    return p;
}

/* Plans tiles of `p->width` columns that fit into registers, or chunks of them. */
static void plan_tiles(const xpu_device_properties *device, const xpu_softmax *args, plan *p) {
    const size_t in = xpu_dtype_size(args->input_dtype), out = xpu_dtype_size(args->output_dtype);
    const int64_t least = TILE_BYTES / (int64_t)(in < out ? in : out);
    const int held = compute_dtype(args->output_dtype) == XPU_FLOAT64 ? 8 : 16;
    p->width = (int)(args->inner < TILE_WIDTH ? args->inner : TILE_WIDTH);
    int most = CHUNK_LANES;
    while (most < 1024 && 2 * (uint64_t)most <= device->max_work_group_size) most *= 2;
    while (args->inner > TILE_WIDTH && p->width > least && most / p->width * held < args->length)
        p->width /= 2;
    int lanes = 64;
    while (lanes < most && lanes / p->width * held < 2 * args->length) lanes *= 2;
    const int64_t elements = (args->length + lanes / p->width - 1) / (lanes / p->width);
    if (elements <= held) {
        p->variant = TILES;
        p->row_group.lanes = lanes;
        p->registers = power_above(elements);
    } else {
        p->variant = CHUNKS;
        p->width = (int)(args->inner < TILE_WIDTH ? args->inner : TILE_WIDTH);
        p->row_group.lanes = CHUNK_LANES;
    }
}

static plan make_plan(const xpu_device_properties *device, const xpu_softmax *args, bool backward,
                      uintptr_t addresses) {
    plan p = {.backward = backward};
    const bool processor = uses_cpu_policy(device);
    if (args->inner > 1) {
        const int64_t width = args->inner < TILE_WIDTH ? args->inner : TILE_WIDTH;
        if (!processor && args->length >= TUNED(false, TILED_LENGTH) &&
            args->length * width >= TUNED(false, TILED_ELEMENTS)) {
            plan_tiles(device, args, &p);
            return p;
        }
        p.variant = args->inner >= LONG_INNER ? COLUMNS : FLAT_COLUMNS;
        return p;
    }
    const size_t in = xpu_dtype_size(args->input_dtype), out = xpu_dtype_size(args->output_dtype);
    const row_plan row = plan_row(device, args->length, in > out ? in : out, addresses);
    p.row_group = row.row_group;
    p.registers = row.registers;
    p.pack = backward ? 1 : row.pack;
    p.length = row.length;
    if (p.registers) return p;
    if (!processor) {
        p = (plan){.variant = CHUNKS, .backward = backward, .row_group.lanes = CHUNK_LANES, .width = 1};
        return p;
    }
    if (!backward && !args->logarithm && args->output_dtype == compute_dtype(args->output_dtype))
        p.keep = -1;
    else if (!backward && !args->logarithm && device->type == XPU_DEVICE_CPU &&
             args->length <= TUNED(true, EXP_IN_LOCAL_MEMORY))
        p.keep = power_above(args->length);
    return p;
}

static xpu_status get_kernel(int device, const xpu_softmax *args, const plan *p, bool finish,
                             xpu_kernel **kernel) {
    static const char *const names[2][5] = {{[ROWS] = "softmax_rows",
                                             [COLUMNS] = "softmax_columns",
                                             [FLAT_COLUMNS] = "softmax_columns",
                                             [TILES] = "softmax_tiles",
                                             [CHUNKS] = "softmax_parts"},
                                            {[ROWS] = "softmax_backward_rows",
                                             [COLUMNS] = "softmax_backward_columns",
                                             [FLAT_COLUMNS] = "softmax_backward_columns",
                                             [TILES] = "softmax_backward_tiles",
                                             [CHUNKS] = "softmax_backward_parts"}};
    const xpu_dtype in = p->backward ? args->output_dtype : args->input_dtype;
    const xpu_dtype out = p->backward ? args->input_dtype : args->output_dtype;
    const char *name = !finish       ? names[p->backward][p->variant]
                       : p->backward ? "softmax_backward_finish"
                                     : "softmax_finish";
    kernel_spec spec;
    spec_begin(&spec, FAMILY_SOFTMAX);
    row_group_spec(&spec, p->row_group.lanes ? p->row_group : (row_group){.lanes = 1}, compute_dtype(in));
    spec_dtype(&spec, "IN", in);
    spec_dtype(&spec, "OUT", out);
    spec_int(&spec, "REGISTERS", p->registers, 8);
    spec_int(&spec, "VECTOR_SIZE", p->pack ? p->pack : 1, 8);
    spec_option(&spec, "IN_BITS=", vector_type(p->pack, in));
    spec_option(&spec, "OUT_BITS=", vector_type(p->pack, out));
    spec_flag(&spec, "LOG", args->logarithm);
    spec_flag(&spec, "MASKED", args->mask);
    spec_key_only(&spec, "variant", p->variant, 4);
    spec_option_flag(&spec, "FLAT", p->variant == FLAT_COLUMNS);
    spec_flag(&spec, "KEEP_IN_RESULT", p->keep < 0);
    spec_option_flag(&spec, "OWN_BF16", in == XPU_BFLOAT16 && out == XPU_BFLOAT16);
    spec_int_if(&spec, p->keep > 0, "KEEP_LENGTH", p->keep > 0 ? p->keep : 0, 32);
    spec_int_if(&spec, p->length, "LENGTH", p->length, 32);
    spec_option_flag(&spec, "TILES", p->variant >= TILES);
    spec_key_only(&spec, "backward", p->backward, 1);
    spec_key_only(&spec, "finish", finish, 1);
    spec_option(&spec, "BUILD_", name);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(device, &spec, "softmax.cl", name, kernel, "%s%s %s",
                            args->logarithm ? "log_" : "", name, dtype_token(in));
}

/* Runs tiles of columns, each within one outer. Chunks take two launches and scratch memory for partial
 * results. */
static xpu_status run_tiles(xpu_stream *stream, const xpu_device_properties *device, const xpu_softmax *args,
                            const plan *p, uint64_t work, xpu_kernel *kernel, softmax_params *params) {
    params->width = (uint32_t)p->width;
    params->tiles = (args->inner + p->width - 1) / p->width;
    params->chunk = params->length;
    params->chunks = 1;
    const int64_t tiles = args->outer * params->tiles;
    xpu_range range = {1, {(size_t)tiles}, {(size_t)p->row_group.lanes}, work};
    if (p->variant == TILES) return xpu_launch(stream, kernel, &range, params, sizeof *params);

    const int64_t step =
        (int64_t)CHUNK_BLOCK * (p->row_group.lanes / p->width); /* rows that are on their way at a time */
    const int64_t wanted =
        (TUNED(false, SOFTMAX_GROUPS) * (int64_t)device->max_compute_units + tiles - 1) / tiles;
    int64_t blocks = (args->length / wanted + step - 1) / step;
    if (blocks < CHUNK_BLOCKS) blocks = CHUNK_BLOCKS;
    const int64_t chunk = blocks * step < args->length ? blocks * step : args->length;
    params->chunk = (uint32_t)chunk;
    params->chunks = (uint32_t)((args->length + chunk - 1) / chunk);
    range.groups[0] *= params->chunks;
    const size_t size = xpu_dtype_size(compute_dtype(args->output_dtype));
    xpu_kernel *finish;
    XPU_TRY(get_kernel(xpu_stream_device(stream), args, p, true, &finish));
    void *memory;
    XPU_TRY(xpu_workspace_take(stream, 2 * size * range.groups[0] * params->width, &memory));
    params->parts = XPU_ADDR(memory);
    xpu_status status = xpu_launch(stream, kernel, &range, params, sizeof *params);
    if (status == XPU_SUCCESS) status = xpu_launch(stream, finish, &range, params, sizeof *params);
    return workspace_release(memory, status);
}

static xpu_status run(xpu_stream *stream, const xpu_softmax *args, bool backward, softmax_params *params) {
    const int index = xpu_stream_device(stream);
    const xpu_device_properties *device;
    XPU_TRY(xpu_device_get_properties(index, &device));
    XPU_TRY(check_floating(device, "softmax", args->input_dtype));
    XPU_TRY(check_floating(device, "softmax", args->output_dtype));
    if (args->outer < 0 || args->length < 0 || args->inner < 0 || args->length > UINT32_MAX)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "softmax: a size is negative, or a row has 2^32 elements or more");
    if (args->outer == 0 || args->length == 0 || args->inner == 0) return XPU_SUCCESS;

    const plan p = make_plan(device, args, backward, params->input | params->result | params->output);
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(index, args, &p, false, &kernel));
    params->mask = XPU_ADDR(args->mask);
    params->columns = args->outer * args->inner;
    params->inner = args->inner;
    params->length = (uint32_t)args->length;

    const uint64_t columns = (uint64_t)params->columns;
    const uint64_t work = columns * (uint64_t)args->length * (backward && !args->logarithm ? 2 : EXP_WORK);
    if (p.variant >= TILES) return run_tiles(stream, device, args, &p, work, kernel, params);
    xpu_range range;
    if (p.variant == ROWS) {
        params->rows_per_row_group = rows_per_row_group_for(device, args->length, params->columns);
        range = row_group_range(
            p.row_group, (columns + params->rows_per_row_group - 1) / params->rows_per_row_group, work);
    } else {
        const uint64_t along = p.variant == FLAT_COLUMNS ? columns : (uint64_t)args->inner;
        range = (xpu_range){.dims = 2,
                            .groups = {(along + COLUMN_LANES - 1) / COLUMN_LANES,
                                       p.variant == FLAT_COLUMNS ? 1 : (size_t)args->outer},
                            .local = {COLUMN_LANES, 1},
                            .work = work};
    }
    return xpu_launch(stream, kernel, &range, params, sizeof *params);
}

xpu_status xpu_softmax_forward(xpu_stream *stream, const xpu_softmax *args, const void *input, void *output) {
    softmax_params p = {.input = XPU_ADDR(input), .result = XPU_ADDR(output)};
    return run(stream, args, false, &p);
}

xpu_status xpu_softmax_backward(xpu_stream *stream, const xpu_softmax *args, const void *grad_output,
                                const void *output, void *grad_input) {
    softmax_params p = {
        .input = XPU_ADDR(grad_output), .output = XPU_ADDR(output), .result = XPU_ADDR(grad_input)};
    return run(stream, args, true, &p);
}

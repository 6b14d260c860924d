#include "xpu/ops/gemm.h"

#include <stdio.h>
#include <string.h>

#include "host_provider.h"
#include "kernel.h"
#include "kernels/gemm.h"
#include "product.h"
#include "team.h"
#include "xpu/trace.h"

typedef enum gemm_kernel { KERNEL_TILES, KERNEL_ROW, KERNEL_THIN, KERNEL_FINISH } gemm_kernel;

typedef struct gemm_choice {
    gemm_kernel kernel;
    tile_shape tile;
    bool a_k_fast, b_k_fast, sliced;
    int rows, streams; /* KERNEL_THIN: rows of A and columns of B at once */
} gemm_choice;

static xpu_status get_kernel(int device, const xpu_gemm_args *args, gemm_choice choice, xpu_kernel **kernel) {
    static const char *const names[] = {"gemm", "gemm_row", "gemm_thin", "gemm_finish"};
    const bool tiled = choice.kernel == KERNEL_TILES, thin = choice.kernel == KERNEL_THIN;
    kernel_spec spec;
    spec_begin(&spec, FAMILY_GEMM);
    product_spec(&spec, args->dtype);
    spec_number_if(&spec, tiled, "TILE", choice.tile.size, 16);
    spec_number_if(&spec, tiled, "TILE_K", choice.tile.depth, 8);
    spec_number_if(&spec, tiled, "SIDE", choice.tile.side, 8);
    spec_number_if(&spec, thin, "THIN", choice.rows, 4);
    spec_number_if(&spec, thin, "STREAMS", choice.streams, 4);
    spec_pack(&spec, "which", choice.kernel, 4);
    spec_follows_flag(&spec, "ROW", choice.kernel == KERNEL_ROW);
    spec_follows_flag(&spec, "FINISH", choice.kernel == KERNEL_FINISH);
    spec_number(&spec, "EPILOGUE", args->epilogue, 8);
    spec_bool(&spec, "CONJUGATE_A", args->conjugate_a);
    spec_bool(&spec, "CONJUGATE_B", args->conjugate_b);
    spec_bool(&spec, "A_K_FAST", choice.a_k_fast);
    spec_bool(&spec, "B_K_FAST", choice.b_k_fast);
    spec_bool(&spec, "SLICED", choice.sliced);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_of_file(device, &spec, "gemm.cl", names[choice.kernel], kernel, "%s %s",
                          names[choice.kernel], xpu_dtype_name(args->dtype));
}

static gemm_strides strides_of(const xpu_matrix *matrix) {
    return (gemm_strides){matrix->batch_stride, matrix->row_stride, matrix->column_stride};
}

static xpu_status check(const xpu_gemm_args *args, const xpu_device_properties *properties) {
    XPU_TRY(product_check_dtype(properties, args->dtype, "matrix product", false));
    if (args->batch < 0 || args->m < 0 || args->n < 0 || args->k < 0)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "matrix product: a size is negative");
    if (args->epilogue != XPU_EPILOGUE_NONE && !(args->dtype >= XPU_FLOAT16 && args->dtype <= XPU_FLOAT64))
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "matrix product: no epilogue for dtype %s",
                       xpu_dtype_name(args->dtype));
    return XPU_SUCCESS;
}

/* One row of results is many small sums: no tile would be filled. A single column is a row of the
 * transposed product. */
static void transpose(xpu_gemm_args *args) {
    xpu_gemm_args t = *args;
    t.m = args->n, t.n = args->m;
    t.a = (xpu_matrix){args->b.data, args->b.batch_stride, args->b.column_stride, args->b.row_stride};
    t.b = (xpu_matrix){args->a.data, args->a.batch_stride, args->a.column_stride, args->a.row_stride};
    t.c = (xpu_matrix){args->c.data, args->c.batch_stride, args->c.column_stride, args->c.row_stride};
    t.out =
        (xpu_matrix){args->out.data, args->out.batch_stride, args->out.column_stride, args->out.row_stride};
    t.conjugate_a = args->conjugate_b, t.conjugate_b = args->conjugate_a;
    *args = t;
}

/* A few rows times a large matrix take as long as reading that matrix does, and the host's libraries are
 * several times slower: one subgroup reads whole columns of it. oneDNN multiplies bf16 by instructions that
 * OpenCL C lacks; small matrices lie in the cache. */
static bool is_thin(const xpu_device_properties *properties, const xpu_gemm_args *args) {
    const xpu_dtype dtype = args->dtype;
    const int64_t rows = dtype == XPU_BFLOAT16 ? TUNED(true, THIN_ROWS_BF16) : TUNED(true, THIN_ROWS);
    return (dtype == XPU_FLOAT32 || dtype == XPU_FLOAT16 || dtype == XPU_BFLOAT16) && args->m <= rows &&
           args->n >= 16 && args->n * args->k >= TUNED(true, THIN_ELEMENTS) && args->a.column_stride == 1 &&
           args->b.row_stride == 1 && properties->type == XPU_DEVICE_CPU &&
           team_for(properties, args->k).subgroup;
}

static gemm_params params_of(const xpu_gemm_args *args) {
    gemm_params params = {.a = XPU_ADDR(args->a.data),
                          .b = XPU_ADDR(args->b.data),
                          .c = XPU_ADDR(args->c.data),
                          .out = XPU_ADDR(args->out.data),
                          .batch = args->batch,
                          .m = args->m,
                          .n = args->n,
                          .k = args->k,
                          .a_stride = strides_of(&args->a),
                          .b_stride = strides_of(&args->b),
                          .c_stride = strides_of(&args->c),
                          .out_stride = strides_of(&args->out)};
    product_scalar(args->dtype, &args->alpha, params.alpha);
    if (args->c.data) product_scalar(args->dtype, &args->beta, params.beta);
    return params;
}

static xpu_status thin(xpu_stream *stream, const xpu_gemm_args *args) {
    gemm_choice choice = {.kernel = KERNEL_THIN, .rows = args->m > 2 ? 4 : (int)args->m};
    choice.streams = args->k * choice.rows <= TUNED(true, THIN_STREAMED) ? 1 : 4;
    const int64_t columns = 16 / choice.rows;
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(xpu_stream_device(stream), args, choice, &kernel));
    const gemm_params params = params_of(args);
    const xpu_range range = {.dims = 1,
                             .groups = {(size_t)((args->n + columns - 1) / columns * args->batch)},
                             .local = {16},
                             .work = (uint64_t)(args->batch * args->n) * (uint64_t)args->k};
    return xpu_launch(stream, kernel, &range, &params, sizeof params);
}

xpu_status xpu_gemm(xpu_stream *stream, const xpu_gemm_args *given) {
    if (given->batch == 0 || given->m == 0 || given->n == 0) return XPU_SUCCESS;
    const int device = xpu_stream_device(stream);
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    xpu_gemm_args args = *given;
    if (args.n < args.m) transpose(&args);
    if (is_thin(properties, &args)) return thin(stream, &args);
    const xpu_status by_host = host_gemm(stream, given);
    if (by_host != XPU_ERROR_NOT_SUPPORTED) return by_host;

    XPU_TRY(check(given, properties));
    args = *given;
    if (args.n == 1 && args.m != 1) transpose(&args);

    gemm_choice choice = {.kernel = args.m == 1 ? KERNEL_ROW : KERNEL_TILES};
    choice.b_k_fast = args.b.row_stride == 1 && args.b.column_stride != 1;
    if (choice.kernel == KERNEL_TILES) {
        choice.a_k_fast = args.a.column_stride == 1;
        choice.tile = tile_for(properties, args.dtype, args.m, args.n, args.batch);
    }
    int64_t groups = choice.kernel == KERNEL_ROW
                         ? (choice.b_k_fast ? args.n : (args.n + 15) / 16)
                         : tiles(args.m, choice.tile.size) * tiles(args.n, choice.tile.size);
    groups *= args.batch;

    gemm_params params = params_of(&args);
    params.slices = product_slices(properties, groups, args.k, args.batch * args.m * args.n);
    params.slice = (args.k + params.slices - 1) / params.slices;

    void *partial = NULL;
    if (params.slices > 1) {
        choice.sliced = true;
        XPU_TRY(xpu_workspace_take(
            stream, (size_t)(params.slices * args.batch * args.m * args.n) * product_sum_size(args.dtype),
            &partial));
        params.partial = XPU_ADDR(partial);
    }
    xpu_kernel *kernel;
    xpu_status status = get_kernel(device, &args, choice, &kernel);
    if (status == XPU_SUCCESS) {
        xpu_range range = {.dims = 2,
                           .groups = {(size_t)(groups * params.slices), 1, 1},
                           .work = (uint64_t)(args.batch * args.m * args.n) * (uint64_t)(args.k + 1)};
        if (choice.kernel == KERNEL_TILES)
            range.local[0] = range.local[1] = (size_t)(choice.tile.size / choice.tile.side);
        else
            range.local[0] = choice.b_k_fast ? 1 : 16, range.local[1] = choice.b_k_fast ? 64 : 16;
        status = xpu_launch(stream, kernel, &range, &params, sizeof params);
    }
    if (status == XPU_SUCCESS && partial) {
        gemm_choice last = {.kernel = KERNEL_FINISH};
        status = get_kernel(device, &args, last, &kernel);
        const int64_t count = args.batch * args.m * args.n;
        const xpu_range range = {.dims = 1,
                                 .groups = {(size_t)((count + 255) / 256)},
                                 .local = {256},
                                 .work = (uint64_t)(count * params.slices)};
        if (status == XPU_SUCCESS) status = xpu_launch(stream, kernel, &range, &params, sizeof params);
    }
    if (partial) {
        xpu_status freed = xpu_workspace_give_back(partial);
        if (status == XPU_SUCCESS) status = freed;
    }
    return status;
}

static xpu_status refuse(const xpu_gemm_args *args, const xpu_quantised *q, char operand) {
    char groups[64] = "one for all";
    if (q->group_rows || q->group_columns)
        snprintf(groups, sizeof groups, "groups of %lld x %lld", (long long)q->group_rows,
                 (long long)q->group_columns);
    return op_fail(XPU_ERROR_NOT_SUPPORTED,
                   "gemm: no product of %s with %c quantised to %s (scales: %s, %s; zero points: %s)",
                   xpu_dtype_name(args->dtype), operand, xpu_dtype_name(q->dtype),
                   q->scale ? xpu_dtype_name(q->scale_dtype) : "none", groups,
                   q->zero ? xpu_dtype_name(q->zero_dtype) : "none");
}

xpu_status xpu_gemm_quantised(xpu_stream *stream, const xpu_gemm_args *args, const xpu_quantised *a,
                              const xpu_quantised *b) {
    if (a || b) return a ? refuse(args, a, 'A') : refuse(args, b, 'B');
    return xpu_gemm(stream, args);
}

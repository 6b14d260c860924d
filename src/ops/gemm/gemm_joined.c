/* Checks and parameters of horizontally fused products (gemm_fused.h). */
#include "ops/gemm/gemm_joined.h"

#include "ops/gemm/product.h"
#include "ops/iter.h"
#include "xpu/fault.h"

_Static_assert(sizeof(gemm_joined_params) <= 1024, "a kernel's arguments on every device");

void joined_spec(kernel_spec *spec, const joined_form *form) {
    spec_number_if(spec, form->parts > 0, "PARTS", form->parts, 3);
    spec_number_if(spec, form->parts > 0, "GATED", form->gated, 1);
    spec_number_if(spec, form->parts > 0, "NORMED", form->normed, 1);
    spec_number_if(spec, form->parts > 0, "CACHED", form->cached, 2);
    spec_number_if(spec, form->parts > 0, "PLUS_ONE", form->plus_one, 1);
}

int64_t joined_blocks(joined_product *product, int lines) {
    const int each = product->form.gated || product->form.cached ? lines / 2 : lines; /* pairs of lines */
    int64_t block = 0;
    for (int i = 0; i < (product->form.gated ? 1 : product->form.parts); i++) {
        product->params.part[i].block = block;
        block += divided_up(product->params.part[i].n, each);
    }
    return block;
}

bool joined_shares_heads(joined_product *product, int64_t blocks_m, int lines) {
    if (product->form.cached < 2) return true;
    const int64_t half = product->params.cached.depth / 2, each = lines / 2,
                  heads = (product->params.part[0].n + product->params.part[1].n) / half;
    if (half % each || half > 128 || blocks_m > 1 || heads > XPU_WORKSPACE_COUNTERS) return false;
    product->params.cached.head_groups = (xpu_i32)(half / each);
    return true;
}

xpu_gemm_args joined_args(const xpu_gemm_args *args, const xpu_gemm_part *part) {
    xpu_gemm_args one = *args;
    one.b = part->b;
    one.b.batch_stride = 0;
    one.alpha = one.beta = (xpu_scalar){XPU_FLOAT64, {.f = 1}};
    one.c = (xpu_matrix){(void *)part->c, 0, 0, 1};
    if (one.k == 1) one.b.row_stride = 1;
    return one;
}

/* `columns` of the result. */
static xpu_status check(const xpu_gemm_args *args, const xpu_joined *joined, int64_t columns) {
    const int count = joined->count;
    if (count < 1 || count > GEMM_PARTS || args->batch != 1 || (joined->gated && count != 2))
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "joined product: %d parts in a batch of %lld", count,
                       (long long)args->batch);
    for (int i = 0; i < count; i++) {
        const xpu_gemm_part *part = &joined->part[i];
        if (part->n < 1 || (joined->gated && part->n != args->n))
            return op_fail(XPU_ERROR_INVALID_ARGUMENT, "joined product: a part of %lld columns",
                           (long long)part->n);
        if (!part->quantized != !joined->part[0].quantized || !part->c != !joined->part[0].c)
            return op_fail(XPU_ERROR_INVALID_ARGUMENT, "joined product: parts that differ");
    }
    if (columns != args->n)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "joined product: parts of %lld columns for %lld",
                       (long long)columns, (long long)args->n);
    if (joined->gated && (joined->part[0].c || args->combine != XPU_COMBINE_NONE))
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "joined product: something is added to gated parts");
    return XPU_SUCCESS;
}

/* Eight numbers of A's rows and of what they are multiplied by are read at a time. */
static bool can_norm(const xpu_gemm_args *args, const void *norm) {
    const uint64_t eight = 8 * xpu_dtype_size(args->dtype);
    return args->k % 8 == 0 && args->a.column_stride == 1 &&
           (XPU_ADDR(args->a.data) | XPU_ADDR(norm) | (uint64_t)args->a.row_stride * eight / 8) % eight == 0;
}

static xpu_status join(xpu_stream *stream, const xpu_device_properties *properties, const xpu_gemm_args *args,
                       const xpu_joined *joined, const gemm_cached_params *cached) {
    const bool is_single =
        args->dtype == XPU_FLOAT16 || args->dtype == XPU_BFLOAT16 || args->dtype == XPU_FLOAT32;
    if (!is_single || args->k == 0 || args->k >= INT32_MAX || args->n >= INT32_MAX ||
        (joined->norm && !can_norm(args, joined->norm)))
        return XPU_ERROR_NOT_SUPPORTED;
    joined_product product = {.given = joined,
                              .form = {.parts = joined->count,
                                       .gated = joined->gated,
                                       .normed = joined->norm != NULL,
                                       .plus_one = joined->norm_plus_one,
                                       .cached = !cached         ? 0
                                                 : cached->pairs ? 2
                                                                 : 1},
                              .params = {.norm = XPU_ADDR(joined->norm), .eps = (float)joined->eps}};
    if (cached) product.params.cached = *cached;
    int64_t first = 0;
    for (int i = 0; i < joined->count; i++) {
        product.params.part[i].n = cached ? joined->part[i].n / 2 : joined->part[i].n;
        product.params.part[i].first = cached ? 0 : first;
        product.params.part[i].c = XPU_ADDR(joined->part[i].c);
        first += joined->part[i].n;
    }
    return joined->part[0].quantized ? joined_as_read(stream, properties, args, &product)
                                     : joined_by_vector(stream, properties, args, &product);
}

xpu_status xpu_gemm_joined(xpu_stream *stream, const xpu_gemm_args *args, const xpu_joined *joined) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &properties));
    XPU_TRY(gemm_check(args, properties));
    int64_t n = 0;
    for (int i = 0; i < joined->count && i < GEMM_PARTS; i++) n += joined->part[i].n;
    XPU_TRY(check(args, joined, joined->gated ? args->n : n));
    return args->m == 0 ? XPU_SUCCESS : join(stream, properties, args, joined, NULL);
}

static xpu_status check_cached(const xpu_gemm_args *args, const xpu_joined *joined,
                               const xpu_cached *cached) {
    const int64_t depth = cached->depth;
    if (joined->count != 3 || joined->gated || args->combine != XPU_COMBINE_NONE ||
        args->epilogue != XPU_EPILOGUE_NONE)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "cached product: queries, keys and values alone are asked for");
    XPU_TRY(check(args, joined, joined->part[0].n));
    if (depth < 2 || depth % 2 || depth > INT32_MAX)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "cached product: heads of %lld", (long long)depth);
    for (int i = 0; i < 3; i++)
        if (joined->part[i].n % depth)
            return op_fail(XPU_ERROR_INVALID_ARGUMENT, "cached product: %lld columns in heads of %lld",
                           (long long)joined->part[i].n, (long long)depth);
    if (joined->part[1].n != joined->part[2].n || !cached->cos != !cached->sin || !cached->position ||
        !cached->query_norm != !cached->key_norm)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "cached product: keys and values, angles, norms or a position don't fit");
    return XPU_SUCCESS;
}

xpu_status xpu_gemm_cached(xpu_stream *stream, const xpu_gemm_args *args, const xpu_joined *joined,
                           const xpu_cached *cached, xpu_fault *fault) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &properties));
    XPU_TRY(gemm_check(args, properties));
    XPU_TRY(check_cached(args, joined, cached));
    if (fault) fault->state = 0;
    if (args->m == 0) return XPU_SUCCESS;
    const xpu_kv_cache *to[] = {&cached->keys, &cached->values};
    gemm_cached_params params = {.cos = XPU_ADDR(cached->cos),
                                 .sin = XPU_ADDR(cached->sin),
                                 .angle_row = cached->angle_stride,
                                 .position = XPU_ADDR(cached->position),
                                 .length = cached->length,
                                 .depth = (xpu_i32)cached->depth,
                                 .first_sign = (float)cached->first_sign,
                                 .norm = {XPU_ADDR(cached->query_norm), XPU_ADDR(cached->key_norm)},
                                 .norm_eps = (float)cached->head_eps};
    for (int i = 0; i < 2; i++)
        params.cache[i] =
            (gemm_cache){XPU_ADDR(to[i]->data), to[i]->row_stride, to[i]->head_stride, to[i]->place_stride};
    xpu_fault *place = NULL;
    if (fault) XPU_TRY(xpu_fault_watch(stream, &place));
    params.watch = (struct fault_watch){XPU_ADDR(place), XPU_ADDR("index_put")};
    void *pairs = NULL;
    if (cached->query_norm) {
        uint32_t *counters;
        const size_t numbers = (size_t)(args->m * (joined->part[0].n + joined->part[1].n));
        XPU_TRY(xpu_workspace_counters(stream, &counters));
        XPU_TRY(xpu_workspace_take(stream, numbers * sizeof(float), &pairs));
        params.pairs = XPU_ADDR(pairs), params.counters = XPU_ADDR(counters);
    }
    XPU_TRY(workspace_done(pairs, join(stream, properties, args, joined, &params)));
    if (fault) xpu_fault_take(stream, place, fault);
    return XPU_SUCCESS;
}

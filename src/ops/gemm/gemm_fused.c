/* Checks and parameters of horizontally fused products (gemm_fused.h). */
#include "ops/gemm/gemm_fused.h"

#include "ops/gemm/product.h"
#include "ops/iter.h"
#include "xpu/fault.h"

_Static_assert(sizeof(gemm_fused_params) <= 1024, "a kernel's arguments must fit on every device");

void fused_spec(kernel_spec *spec, const fused_form *form) {
    spec_int_if(spec, form->parts > 0, "PARTS", form->parts, 3);
    spec_int_if(spec, form->parts > 0, "GATED", form->gated, 1);
    spec_int_if(spec, form->parts > 0, "NORMED", form->normed, 1);
    spec_int_if(spec, form->parts > 0, "QKV_CACHE", form->cached, 2);
    spec_int_if(spec, form->parts > 0, "UNIT_OFFSET_WEIGHT", form->plus_one, 1);
}

int64_t fused_blocks(fused_product *product, int lines) {
    const int each = product->form.gated || product->form.cached ? lines / 2 : lines; /* pairs of columns */
    int64_t block = 0;
    for (int i = 0; i < (product->form.gated ? 1 : product->form.parts); i++) {
        product->params.part[i].block = block;
        block += div_up(product->params.part[i].n, each);
    }
    return block;
}

bool fused_shares_heads(fused_product *product, int64_t blocks_m, int lines) {
    if (product->form.cached < 2) return true;
    const int64_t half = product->params.cached.depth / 2, each = lines / 2,
                  heads = (product->params.part[0].n + product->params.part[1].n) / half;
    if (half % each || half > 128 || blocks_m > 1 || heads > XPU_WORKSPACE_COUNTERS) return false;
    product->params.cached.head_groups = (xpu_i32)(half / each);
    return true;
}

xpu_gemm_args fused_args(const xpu_gemm_args *args, const xpu_gemm_part *part) {
    xpu_gemm_args one = *args;
    one.b = part->b;
    one.b.batch_stride = 0;
    one.alpha = one.beta = (xpu_scalar){XPU_FLOAT64, {.f = 1}};
    one.c = (xpu_matrix){(void *)part->c, 0, 0, 1};
    if (one.k == 1) one.b.row_stride = 1;
    return one;
}

/* `columns` of the result. */
static xpu_status check(const xpu_gemm_args *args, const xpu_gemm_fusion *fused, int64_t columns) {
    const int count = fused->count;
    if (count < 1 || count > GEMM_PARTS || args->batch != 1 || (fused->gated && count != 2))
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "fused product: %d parts in a batch of %lld are not supported", count,
                       (long long)args->batch);
    for (int i = 0; i < count; i++) {
        const xpu_gemm_part *part = &fused->part[i];
        if (part->n < 1 || (fused->gated && part->n != args->n))
            return op_fail(XPU_ERROR_INVALID_ARGUMENT, "fused product: a part has %lld columns",
                           (long long)part->n);
        if (!part->quantized != !fused->part[0].quantized || !part->c != !fused->part[0].c)
            return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                           "fused product: all parts or none must be quantized, and all or none must have C");
    }
    if (columns != args->n)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "fused product: the parts have %lld columns in all, the product has %lld",
                       (long long)columns, (long long)args->n);
    if (fused->gated && (fused->part[0].c || args->combine != XPU_COMBINE_NONE))
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "fused product: gated parts can't have C or a binary post-op");
    return XPU_SUCCESS;
}

/* Rows of A and the norm's weight are read eight elements at a time. */
static bool can_norm(const xpu_gemm_args *args, const void *norm) {
    const uint64_t eight = 8 * xpu_dtype_size(args->dtype);
    return args->k % 8 == 0 && args->a.column_stride == 1 &&
           (XPU_ADDR(args->a.data) | XPU_ADDR(norm) | (uint64_t)args->a.row_stride * eight / 8) % eight == 0;
}

static xpu_status join(xpu_stream *stream, const xpu_device_properties *properties, const xpu_gemm_args *args,
                       const xpu_gemm_fusion *fused, const gemm_qkv_params *cached) {
    const bool is_single =
        args->dtype == XPU_FLOAT16 || args->dtype == XPU_BFLOAT16 || args->dtype == XPU_FLOAT32;
    if (!is_single || args->k == 0 || args->k >= INT32_MAX || args->n >= INT32_MAX ||
        (fused->norm && !can_norm(args, fused->norm)))
        return XPU_ERROR_NOT_SUPPORTED;
    fused_product product = {.given = fused,
                             .form = {.parts = fused->count,
                                      .gated = fused->gated,
                                      .normed = fused->norm != NULL,
                                      .plus_one = fused->norm_plus_one,
                                      .cached = !cached         ? 0
                                                : cached->pairs ? 2
                                                                : 1},
                             .params = {.norm = XPU_ADDR(fused->norm), .eps = (float)fused->eps}};
    if (cached) product.params.cached = *cached;
    int64_t first = 0;
    for (int i = 0; i < fused->count; i++) {
        product.params.part[i].n = cached ? fused->part[i].n / 2 : fused->part[i].n;
        product.params.part[i].first = cached ? 0 : first;
        product.params.part[i].c = XPU_ADDR(fused->part[i].c);
        first += fused->part[i].n;
    }
    return fused->part[0].quantized ? fused_on_the_fly(stream, properties, args, &product)
                                    : fused_by_gemv(stream, properties, args, &product);
}

xpu_status xpu_gemm_fused(xpu_stream *stream, const xpu_gemm_args *args, const xpu_gemm_fusion *fused) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &properties));
    XPU_TRY(gemm_check(args, properties));
    int64_t n = 0;
    for (int i = 0; i < fused->count && i < GEMM_PARTS; i++) n += fused->part[i].n;
    XPU_TRY(check(args, fused, fused->gated ? args->n : n));
    return args->m == 0 ? XPU_SUCCESS : join(stream, properties, args, fused, NULL);
}

static xpu_status check_qkv(const xpu_gemm_args *args, const xpu_gemm_fusion *fused,
                            const xpu_qkv_rope *cached) {
    const int64_t depth = cached->depth;
    if (fused->count != 3 || fused->gated || args->combine != XPU_COMBINE_NONE ||
        args->epilogue != XPU_EPILOGUE_NONE)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "fused QKV projection: needs three parts (queries, keys, "
                                                   "values), without gating, epilogue or binary post-op");
    XPU_TRY(check(args, fused, fused->part[0].n));
    if (depth < 2 || depth % 2 || depth > INT32_MAX)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "fused QKV projection: head size %lld must be even and at least 2", (long long)depth);
    for (int i = 0; i < 3; i++)
        if (fused->part[i].n % depth)
            return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                           "fused QKV projection: %lld columns are not divisible by head size %lld",
                           (long long)fused->part[i].n, (long long)depth);
    if (fused->part[1].n != fused->part[2].n || !cached->cos != !cached->sin || !cached->position ||
        !cached->query_norm != !cached->key_norm)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "fused QKV projection: keys and values differ in columns, the position is missing, or "
                       "only one of cos and sin, or of the norms, is given");
    return XPU_SUCCESS;
}

xpu_status xpu_gemm_qkv_rope(xpu_stream *stream, const xpu_gemm_args *args, const xpu_gemm_fusion *fused,
                             const xpu_qkv_rope *cached, xpu_fault *fault) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &properties));
    XPU_TRY(gemm_check(args, properties));
    XPU_TRY(check_qkv(args, fused, cached));
    if (fault) fault->state = 0;
    if (args->m == 0) return XPU_SUCCESS;
    const xpu_kv_cache *to[] = {&cached->keys, &cached->values};
    gemm_qkv_params params = {.cos = XPU_ADDR(cached->cos),
                              .sin = XPU_ADDR(cached->sin),
                              .angle_row = cached->angle_stride,
                              .position = XPU_ADDR(cached->position),
                              .length = cached->length,
                              .depth = (xpu_i32)cached->depth,
                              .first_sign = (float)cached->first_sign,
                              .norm = {XPU_ADDR(cached->query_norm), XPU_ADDR(cached->key_norm)},
                              .norm_eps = (float)cached->head_eps};
    for (int i = 0; i < 2; i++)
        params.cache[i] = (kv_cache_view){XPU_ADDR(to[i]->data), to[i]->row_stride, to[i]->head_stride,
                                          to[i]->position_stride};
    xpu_fault *place = NULL;
    if (fault) XPU_TRY(xpu_fault_watch(stream, &place));
    params.watch = (struct fault_watch){XPU_ADDR(place), XPU_ADDR("index_put")};
    void *pairs = NULL;
    if (cached->query_norm) {
        uint32_t *counters;
        const size_t numbers = (size_t)(args->m * (fused->part[0].n + fused->part[1].n));
        XPU_TRY(xpu_workspace_counters(stream, &counters));
        XPU_TRY(xpu_workspace_take(stream, numbers * sizeof(float), &pairs));
        params.pairs = XPU_ADDR(pairs), params.counters = XPU_ADDR(counters);
    }
    XPU_TRY(workspace_release(pairs, join(stream, properties, args, fused, &params)));
    if (fault) xpu_fault_take(stream, place, fault);
    return XPU_SUCCESS;
}

#include "xpu/ops/attention.h"

#include <string.h>

#include "kernel.h"
#include "kernels/attention.h"
#include "team.h"
#include "xpu/trace.h"

#define TILE 64

typedef enum attention_kernel {
    KERNEL_FORWARD,
    KERNEL_DELTA,
    KERNEL_GRAD_QUERY,
    KERNEL_GRAD_KEY_VALUE
} attention_kernel;

static int round_up(int64_t depth) { return (int)(depth + 15) / 16 * 16; }

static xpu_status get_kernel(int device, const xpu_attention *args, attention_kernel which,
                             xpu_kernel **kernel) {
    static const char *const names[] = {"attention_forward", "attention_delta", "attention_grad_query",
                                        "attention_grad_key_value"};
    const xpu_dtype dtype = args->query->dtype;
    kernel_spec spec;
    spec_begin(&spec, FAMILY_ATTENTION);
    spec_dtype(&spec, "T", dtype);
    spec_pack(&spec, "biased", args->bias != NULL, 1);
    spec_pack(&spec, "BIAS_T", args->bias ? args->bias->dtype : 0, 8);
    if (args->bias) {
        spec_follows(&spec, "BIAS_T=", xpu_dtype_name(args->bias->dtype));
        spec_follows_number(&spec, "BIAS_IS_MASK", args->bias->dtype == XPU_BOOL);
    }
    spec_bool(&spec, "DROPOUT", args->dropout > 0);
    spec_number(&spec, "DEPTH", round_up(args->query->size[3]), 16);
    spec_number(&spec, "VALUE_DEPTH", round_up(args->value->size[3]), 16);
    spec_pack(&spec, "which", which, 4);
    spec_follows(&spec, which == KERNEL_FORWARD ? "FORWARD" : "BACKWARD", "");
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_of_file(device, &spec, "attention.cl", names[which], kernel, "%s %s", names[which],
                          xpu_dtype_name(dtype));
}

static xpu_status check(const xpu_attention *args) {
    const xpu_tensor *q = args->query, *k = args->key, *v = args->value;
    if (q->dtype != XPU_FLOAT16 && q->dtype != XPU_BFLOAT16 && q->dtype != XPU_FLOAT32)
        return op_lacks("attention", q->dtype, NULL);
    if (q->size[3] > XPU_ATTENTION_MAX_HEAD || v->size[3] > XPU_ATTENTION_MAX_HEAD)
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "attention: heads of more than %d elements",
                       XPU_ATTENTION_MAX_HEAD);
    if (k->dtype != q->dtype || v->dtype != q->dtype || k->size[1] != v->size[1] ||
        k->size[2] != v->size[2] || k->size[3] != q->size[3] || k->size[1] == 0 || q->size[1] % k->size[1])
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "attention: query, key and value don't fit each other");
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
    return (attention_params){.query = matrix_of(args->query),
                              .key = matrix_of(args->key),
                              .value = matrix_of(args->value),
                              .bias = matrix_of(args->bias),
                              .out = matrix_of(args->out),
                              .logsumexp = matrix_of(args->logsumexp),
                              .batch = args->query->size[0],
                              .heads = args->query->size[1],
                              .key_heads = args->key->size[1],
                              .queries = args->query->size[2],
                              .keys = args->key->size[2],
                              .seed = args->seed,
                              .offset = args->offset,
                              .depth = (xpu_i32)args->query->size[3],
                              .value_depth = (xpu_i32)args->value->size[3],
                              .causal = args->causal,
                              .scale = (float)args->scale,
                              .keep = (float)(1 - args->dropout),
                              .keep_scale = args->dropout < 1 ? (float)(1 / (1 - args->dropout)) : 0};
}

static xpu_status launch(xpu_stream *stream, const xpu_attention *args, attention_kernel which,
                         const attention_params *p) {
    const int64_t query_blocks = (p->queries + TILE - 1) / TILE * p->heads * p->batch;
    const int64_t key_blocks = (p->keys + TILE - 1) / TILE * p->key_heads * p->batch;
    const bool delta = which == KERNEL_DELTA;
    const int64_t groups = delta                            ? p->batch * p->heads * p->queries
                           : which == KERNEL_GRAD_KEY_VALUE ? key_blocks
                                                            : query_blocks;
    const xpu_range range = {.dims = 2,
                             .groups = {(size_t)groups, 1},
                             .local = {delta ? 64 : 16, delta ? 1 : 16},
                             .work = (uint64_t)(p->batch * p->heads * p->queries) *
                                     (uint64_t)(delta ? 1 : p->keys) * (uint64_t)(p->depth + p->value_depth)};
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(xpu_stream_device(stream), args, which, &kernel));
    return xpu_launch(stream, kernel, &range, p, sizeof *p);
}

xpu_status xpu_attention_forward(xpu_stream *stream, const xpu_attention *args) {
    XPU_TRY(check(args));
    const attention_params p = describe(args);
    if (p.batch == 0 || p.heads == 0 || p.queries == 0) return XPU_SUCCESS;
    return launch(stream, args, KERNEL_FORWARD, &p);
}

xpu_status xpu_attention_backward(xpu_stream *stream, const xpu_attention *args,
                                  const xpu_attention_grad *grad) {
    XPU_TRY(check(args));
    attention_params p = describe(args);
    p.grad_out = matrix_of(grad->out);
    p.grad_query = matrix_of(grad->query);
    p.grad_key = matrix_of(grad->key);
    p.grad_value = matrix_of(grad->value);
    if (p.batch == 0 || p.heads == 0) return XPU_SUCCESS;

    void *delta = NULL;
    XPU_TRY(xpu_workspace_take(stream, (size_t)(p.batch * p.heads * p.queries) * sizeof(float), &delta));
    p.delta = XPU_ADDR(delta);
    xpu_status status = XPU_SUCCESS;
    if (p.queries > 0) status = launch(stream, args, KERNEL_DELTA, &p);
    if (status == XPU_SUCCESS && p.queries > 0) status = launch(stream, args, KERNEL_GRAD_QUERY, &p);
    if (status == XPU_SUCCESS && p.keys > 0) status = launch(stream, args, KERNEL_GRAD_KEY_VALUE, &p);
    xpu_status freed = xpu_workspace_give_back(delta);
    return status == XPU_SUCCESS ? freed : status;
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

    int lanes = 16; /* a processor's vector; on GPUs a head's elements */
    if (properties->type != XPU_DEVICE_CPU)
        while (lanes < args->depth && lanes < 128) lanes *= 2;
    kernel_spec spec;
    spec_begin(&spec, FAMILY_HEADS);
    spec_dtype(&spec, "T", args->dtype);
    spec_number(&spec, "LANES", lanes, 16);
    spec_follows_flag(&spec, "FP64", args->dtype == XPU_FLOAT64);
    xpu_kernel *kernel = kernel_find(device, &spec);
    if (!kernel)
        XPU_TRY(kernel_of_file(device, &spec, "heads.cl", "split_heads", &kernel, "split_heads %s",
                               dtype_token(args->dtype)));
    const xpu_range range = {1,
                             {(size_t)params.rows},
                             {(size_t)lanes},
                             (uint64_t)params.rows * 3 * (uint64_t)(args->heads * args->depth)};
    return xpu_launch(stream, kernel, &range, &params, sizeof params);
}

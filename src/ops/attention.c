#include "xpu/ops/attention.h"

#include <stdio.h>
#include <string.h>

#include "kernel.h"
#include "kernels/attention.h"
#include "team.h"
#include "xpu/memory.h"

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
    const int depth = round_up(args->query->size[3]), value_depth = round_up(args->value->size[3]);
    const kernel_key key = {.family = FAMILY_ATTENTION,
                            .word = {(uint64_t)dtype | (uint64_t)which << 8 |
                                         (uint64_t)(args->bias ? args->bias->dtype + 1 : 0) << 16 |
                                         (uint64_t)(args->dropout > 0) << 24,
                                     (uint64_t)depth | (uint64_t)value_depth << 32}};
    *kernel = kernel_find(device, &key);
    if (*kernel) return XPU_SUCCESS;

    char bias[64] = "", options[256], label[64];
    if (args->bias)
        snprintf(bias, sizeof bias, "-DBIAS_T=%s -DBIAS_IS_MASK=%d", xpu_dtype_name(args->bias->dtype),
                 args->bias->dtype == XPU_BOOL);
    snprintf(options, sizeof options, "-DT=%s %s -DDROPOUT=%d -DDEPTH=%d -DVALUE_DEPTH=%d -D%s",
             xpu_dtype_name(dtype), bias, args->dropout > 0, depth, value_depth,
             which == KERNEL_FORWARD ? "FORWARD" : "BACKWARD");
    snprintf(label, sizeof label, "%s %s", names[which], xpu_dtype_name(dtype));
    return kernel_make(
        device, &key,
        &(kernel_recipe){
            .file = "attention_ref.cl", .options = options, .name = names[which], .label = label},
        kernel);
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
    XPU_TRY(xpu_malloc(stream, (size_t)(p.batch * p.heads * p.queries) * sizeof(float), &delta));
    p.delta = XPU_ADDR(delta);
    xpu_status status = XPU_SUCCESS;
    if (p.queries > 0) status = launch(stream, args, KERNEL_DELTA, &p);
    if (status == XPU_SUCCESS && p.queries > 0) status = launch(stream, args, KERNEL_GRAD_QUERY, &p);
    if (status == XPU_SUCCESS && p.keys > 0) status = launch(stream, args, KERNEL_GRAD_KEY_VALUE, &p);
    xpu_status freed = xpu_free(delta);
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
    const kernel_key key = {FAMILY_HEADS, {(uint64_t)args->dtype, (uint64_t)lanes}};
    xpu_kernel *kernel = kernel_find(device, &key);
    if (!kernel) {
        char options[64], label[32];
        snprintf(options, sizeof options, "-DT=%s -DLANES=%d%s", dtype_token(args->dtype), lanes,
                 args->dtype == XPU_FLOAT64 ? " -DFP64" : "");
        snprintf(label, sizeof label, "split_heads %s", dtype_token(args->dtype));
        const kernel_recipe recipe = {
            .file = "heads_ref.cl", .options = options, .name = "split_heads", .label = label};
        XPU_TRY(kernel_make(device, &key, &recipe, &kernel));
    }
    const xpu_range range = {1,
                             {(size_t)params.rows},
                             {(size_t)lanes},
                             (uint64_t)params.rows * 3 * (uint64_t)(args->heads * args->depth)};
    return xpu_launch(stream, kernel, &range, &params, sizeof params);
}

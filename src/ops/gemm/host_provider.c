/* Calls the host's BLAS as operations of a stream (host_provider.h). */
#include "ops/gemm/host_provider.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ops/kernel.h"
#include "xpu/trace.h"

static xpu_host_provider table;
static atomic_bool table_set;

/* Does the environment allow a host provider? */
static bool allowed(void) {
    static atomic_int answer; /* 0 not read yet, 1 no, 2 yes */
    int known = atomic_load_explicit(&answer, memory_order_relaxed);
    if (known == 0) {
        const char *value = getenv("OPENXPU_HOST_PROVIDER");
        known = value && strcmp(value, "0") == 0 ? 1 : 2;
        atomic_store_explicit(&answer, known, memory_order_relaxed);
    }
    return known == 2;
}

xpu_status xpu_set_host_provider(const xpu_host_provider *provider) {
    atomic_store_explicit(&table_set, false, memory_order_release);
    if (provider) {
        table = *provider;
        atomic_store_explicit(&table_set, true, memory_order_release);
    }
    return XPU_SUCCESS;
}

bool xpu_host_provider_active(int device) {
    const xpu_device_properties *properties;
    if (!atomic_load_explicit(&table_set, memory_order_acquire) || !allowed()) return false;
    if (xpu_device_get_properties(device, &properties) != XPU_SUCCESS) return false;
    return properties->type == XPU_DEVICE_CPU && properties->host_unified_memory;
}

/* The elements of a matrix, from the first to the last. */
static void add_matrix(const xpu_gemm_args *args, const xpu_matrix *m, int64_t rows, int64_t columns,
                       xpu_dtype dtype, bool is_written, xpu_access *accesses, int *count) {
    const int64_t last[3] = {(args->batch - 1) * m->batch_stride, (rows - 1) * m->row_stride,
                             (columns - 1) * m->column_stride};
    const int64_t element = (int64_t)xpu_dtype_size(dtype);
    int64_t low = 0, high = 1;
    if (!m->data || rows == 0 || columns == 0) return;
    for (int d = 0; d < 3; d++) *(last[d] < 0 ? &low : &high) += last[d];
    accesses[(*count)++] =
        (xpu_access){(char *)m->data + low * element, (size_t)((high - low) * element), is_written};
}

static int add_matrices(const xpu_gemm_args *args, xpu_dtype out, xpu_access *accesses) {
    int count = 0;
    add_matrix(args, &args->out, args->m, args->n, out, true, accesses, &count);
    add_matrix(args, &args->a, args->m, args->k, args->dtype, false, accesses, &count);
    add_matrix(args, &args->b, args->k, args->n, args->dtype, false, accesses, &count);
    add_matrix(args, &args->c, args->m, args->n, args->dtype, false, accesses, &count);
    return count;
}

static int gemm_accesses(const void *of, xpu_access *accesses) {
    const xpu_gemm_args *args = of;
    return add_matrices(args, args->dtype, accesses);
}

static xpu_status call_gemm(xpu_stream *stream, const void *args) { return table.gemm(stream, args); }

xpu_status host_gemm(xpu_stream *stream, const xpu_gemm_args *args) {
    if (!xpu_host_provider_active(xpu_stream_device(stream)) || !table.gemm) return XPU_ERROR_NOT_SUPPORTED;
    return xpu_host_call(stream, "host gemm", call_gemm, args, sizeof *args, gemm_accesses);
}

static int wide_accesses(const void *of, xpu_access *accesses) {
    return add_matrices(of, XPU_FLOAT32, accesses);
}

static xpu_status call_wide(xpu_stream *stream, const void *args) {
    return table.gemm_f32_output(stream, args);
}

xpu_status host_gemm_wide(xpu_stream *stream, const xpu_gemm_args *args) {
    if (!xpu_host_provider_active(xpu_stream_device(stream)) || !table.gemm_f32_output)
        return XPU_ERROR_NOT_SUPPORTED;
    return xpu_host_call(stream, "host gemm with float32 output", call_wide, args, sizeof *args,
                         wide_accesses);
}

/* Does the CPU have bfloat16 product instructions? */
static bool has_fast_bfloat16(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512bf16");
#else
    return true;
#endif
}

bool host_has_fast_wide(int device) {
    return xpu_host_provider_active(device) && table.gemm_f32_output && has_fast_bfloat16();
}

/* Calls the provider for one group after another. */
static xpu_status call_grouped(xpu_stream *stream, const void *given) {
    const grouped_call *call = given;
    int64_t begin = 0;
    for (int64_t g = 0; g < call->args.batch; g++) {
        xpu_gemm_args args = call->args;
        int64_t *const cut[] = {NULL, &args.m, &args.n, &args.k};
        int64_t end = call->ends[g], *size = cut[call->grouped];
        if (end < begin || end > *size) return op_fail(XPU_ERROR_ASSERTION, GEMM_BAD_ENDS);
        *size = end - begin;
        args.batch = 1;
        const int64_t element = (int64_t)xpu_dtype_size(args.dtype);
        const bool by_rows = call->grouped == XPU_GROUPED_ROWS, by_k = call->grouped == XPU_GROUPED_K;
        const int64_t a = by_rows ? begin * args.a.row_stride
                          : by_k  ? begin * args.a.column_stride
                                  : g * args.a.batch_stride;
        const int64_t b = by_rows ? g * args.b.batch_stride
                          : by_k  ? begin * args.b.row_stride
                                  : begin * args.b.column_stride;
        const int64_t out = by_rows ? begin * args.out.row_stride
                            : by_k  ? g * args.out.batch_stride
                                    : begin * args.out.column_stride;
        args.a.data = (char *)args.a.data + a * element;
        args.b.data = (char *)args.b.data + b * element;
        args.out.data = (char *)args.out.data + out * element;
        begin = end;
        if (args.m > 0 && args.n > 0) XPU_TRY(table.gemm(stream, &args));
    }
    return XPU_SUCCESS;
}

static int grouped_accesses(const void *of, xpu_access *accesses) {
    const grouped_call *call = of;
    const int count = gemm_accesses(&call->args, accesses);
    accesses[count] = (xpu_access){(void *)call->ends, (size_t)call->args.batch * sizeof *call->ends, false};
    return count + 1;
}

xpu_status host_gemm_grouped(xpu_stream *stream, const grouped_call *call) {
    if (!xpu_host_provider_active(xpu_stream_device(stream)) || !table.gemm) return XPU_ERROR_NOT_SUPPORTED;
    return xpu_host_call(stream, "host grouped gemm", call_grouped, call, sizeof *call, grouped_accesses);
}

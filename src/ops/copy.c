/* Copies and fills. Contiguous bytes go to the runtime; strided copies and dtype conversions are pointwise
 * operations, whose layouts handle transposes. */
#include "xpu/ops/copy.h"

#include <stddef.h>
#include <string.h>

#include "core/tuning.h"
#include "kernels/copy.h"
#include "ops/host_bytes.h"
#include "ops/iter.h"
#include "ops/kernel.h"
#include "xpu/memory.h"
#include "xpu/ops/pointwise.h"

/* Is every tensor of a coalesced iteration contiguous? */
static bool contiguous(const xpu_iter *iter) {
    for (int i = 0; i < iter->outputs + iter->inputs; i++) {
        const xpu_operand *o = &iter->operand[i];
        if (!o->data) return false;
        if (iter->dims > 1) return false;
        if (iter->dims == 1 && iter->size[0] > 1 && o->stride[0] != (int64_t)xpu_dtype_size(o->dtype))
            return false;
    }
    return true;
}

static void copy_iter(xpu_iter *to, const xpu_iter *from) {
    to->outputs = from->outputs;
    to->inputs = from->inputs;
    to->dims = from->dims;
    memcpy(to->size, from->size, sizeof(int64_t) * (size_t)from->dims);
    for (int i = 0; i < from->outputs + from->inputs; i++) to->operand[i] = from->operand[i];
}

/* 16-byte elements as pairs of 8-byte ones. */
static bool as_pairs(xpu_iter *iter) {
    if (iter->dims == XPU_MAX_DIMS) return false;
    for (int d = iter->dims; d > 0; d--) {
        iter->size[d] = iter->size[d - 1];
        for (int i = 0; i < 2; i++) iter->operand[i].stride[d] = iter->operand[i].stride[d - 1];
    }
    iter->size[0] = 2;
    for (int i = 0; i < 2; i++) {
        iter->operand[i].stride[0] = 8;
        iter->operand[i].dtype = XPU_UINT64;
    }
    iter->dims++;
    return true;
}

/* Combines elements of rows into larger ones if row sizes and addresses allow it. */
static void widen(xpu_iter *iter) {
    size_t size = xpu_dtype_size(iter->operand[0].dtype);
    while (size < 8 && iter->dims > 0 && iter->size[0] % 2 == 0) {
        uintptr_t places = 0;
        for (int i = 0; i < 2; i++) {
            const xpu_operand *o = &iter->operand[i];
            if (o->stride[0] != (int64_t)size) return;
            places |= (uintptr_t)o->data;
            for (int d = 1; d < iter->dims; d++) places |= (uintptr_t)o->stride[d];
        }
        size *= 2;
        if (places % size) return;
        iter->size[0] /= 2;
        for (int i = 0; i < 2; i++) {
            iter->operand[i].stride[0] = (int64_t)size;
            iter->operand[i].dtype = dtype_of_size(size);
        }
    }
}

/* --- layouts on CPUs --- */

typedef enum copy_kind {
    COPY_TRANSPOSED,
    COPY_INTERLEAVE,
    COPY_DEINTERLEAVE,
    COPY_ROWS,
    COPY_STRIDED
} copy_kind;

/* The kernel of copy.cl, its constant option, and the second dimension of the plane. */
typedef struct copy_plan {
    copy_kind kind;
    int constant, dim;
} copy_plan;

#define LONGEST_INTERLEAVED 8 /* most elements of an interleaved row */
#define BLOCK_BYTES 16384

/* The second dimension of the plane: the source's fastest one, because prefetching reads matters more than
 * the order of writes. */
static int along_source(const xpu_iter *iter, int64_t size, int dim) {
    const int64_t *stride = iter->operand[1].stride;
    for (int d = 1; d < iter->dims; d++)
        if (iter->size[0] * iter->size[d] * size >= BLOCK_BYTES / 2 && stride[d] < stride[dim]) dim = d;
    return dim;
}

static copy_plan plan_copy(const xpu_iter *iter, int64_t size) {
    const xpu_operand *to = &iter->operand[0], *from = &iter->operand[1];
    const int64_t *length = iter->size, tile = size == 8 ? 8 : 16;
    int longest = 1;
    for (int d = 1; d < iter->dims; d++) {
        if (length[d] > length[longest]) longest = d;
        if (to->stride[0] != size || from->stride[d] != size) continue;
        if (length[0] >= tile && length[d] >= tile) return (copy_plan){COPY_TRANSPOSED, 0, d};
        if (length[0] <= LONGEST_INTERLEAVED && to->stride[d] == length[0] * size)
            return (copy_plan){COPY_INTERLEAVE, (int)length[0], d};
        if (length[d] <= LONGEST_INTERLEAVED && from->stride[0] == length[d] * size)
            return (copy_plan){COPY_DEINTERLEAVE, (int)length[d], d};
    }
    copy_plan plan = {COPY_STRIDED, 0, iter->dims > 1 && length[1] >= 8 ? 1 : longest};
    if (to->stride[0] != size) return plan;
    if (from->stride[0] == size) {
        plan.kind = COPY_ROWS;
        plan.dim = along_source(iter, size, plan.dim);
    }
    for (int step = 2; size < 8 && step <= 4; step++)
        if (from->stride[0] == step * size) plan.constant = step;
    if (from->stride[0] == -size) plan.constant = -1;
    return plan;
}

static inline bool is_interleaved(const copy_plan *plan) {
    return plan->kind == COPY_INTERLEAVE || plan->kind == COPY_DEINTERLEAVE;
}

static xpu_status copy_kernel(int device, const copy_plan *plan, int64_t size, int dims,
                              xpu_kernel **kernel) {
    static const char *const names[] = {"TRANSPOSED", "INTERLEAVE", "DEINTERLEAVE", "ROWS", "STRIDED"};
    const bool woven = is_interleaved(plan);
    kernel_spec spec;
    spec_begin(&spec, FAMILY_COPY);
    spec_int(&spec, "E", size, 8);
    spec_enum(&spec, "", names, plan->kind, 8);
    const char *constant = woven ? "K" : "STEP";
    spec_key_only(&spec, constant, (int64_t)plan->constant + 1, 32); /* the step may be -1 */
    if (woven || plan->constant) spec_option_int(&spec, constant, plan->constant);
    spec_int_if(&spec, woven, "DIMS", woven ? dims : 0, 8);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(device, &spec, "copy.cl", "copy", kernel, "copy %d bytes", (int)size);
}

/* --- rows by memcpy --- */

typedef struct row_step {
    int64_t count, to, from; /* rows; bytes from one to the next */
} row_step;

typedef struct row_copy {
    char *to;
    const char *from;
    int64_t row, rows; /* bytes of one; how many */
    int dims;
    row_step step[XPU_MAX_DIMS]; /* the fastest first */
} row_copy;

/* Copies a range of bytes, counted row after row. */
static void copy_row_bytes(const void *of, int64_t begin, int64_t left) {
    const row_copy *c = of;
    int64_t index[XPU_MAX_DIMS], n = begin / c->row, at = begin % c->row;
    char *to = c->to;
    const char *from = c->from;
    for (int d = 0; d < c->dims; d++) {
        index[d] = n % c->step[d].count;
        n /= c->step[d].count;
        to += index[d] * c->step[d].to;
        from += index[d] * c->step[d].from;
    }
    const row_step first = c->step[0];
    while (left > 0) {
        int64_t run = 1; /* whole rows along the fastest dimension, or a part of one */
        if (at || left < c->row) {
            const int64_t size = c->row - at < left ? c->row - at : left;
            memcpy(to + at, from + at, (size_t)size);
            left -= size;
            at = 0;
        } else {
            run = left / c->row < first.count - index[0] ? left / c->row : first.count - index[0];
            for (int64_t k = 0; k < run; k++)
                memcpy(to + k * first.to, from + k * first.from, (size_t)c->row);
            left -= run * c->row;
        }
        for (int d = 0; d < c->dims; d++) {
            const row_step *s = &c->step[d];
            const int64_t on = d == 0 ? run : 1;
            to += on * s->to;
            from += on * s->from;
            if ((index[d] += on) < s->count) break;
            to -= s->count * s->to;
            from -= s->count * s->from;
            index[d] = 0;
        }
    }
}

static xpu_status copy_rows(xpu_stream *stream, const void *context) {
    (void)stream;
    const row_copy *c = context;
    host_move_shared(c->rows * c->row, copy_row_bytes, c);
    return XPU_SUCCESS;
}

static int row_accesses(const void *of, xpu_access *accesses) {
    const row_copy *c = of;
    int64_t low[2] = {0, 0}, high[2] = {c->row, c->row};
    for (int d = 0; d < c->dims; d++) {
        const row_step *s = &c->step[d];
        const int64_t far[2] = {(s->count - 1) * s->to, (s->count - 1) * s->from};
        for (int i = 0; i < 2; i++) *(far[i] < 0 ? &low[i] : &high[i]) += far[i];
    }
    accesses[0] = (xpu_access){c->to + low[0], (size_t)(high[0] - low[0]), true};
    accesses[1] = (xpu_access){c->from + low[1], (size_t)(high[1] - low[1]), false};
    return 2;
}

/* Without a host thread pool a kernel is better: it has the driver's threads. */
static bool suits_memcpy(const xpu_device_properties *properties, const xpu_iter *iter, int64_t size) {
    const int64_t row = iter->size[0] * size;
    return properties->memory == XPU_MEMORY_HOST && row >= TUNED(true, ROW_MEMCPY) &&
           (xpu_get_host_thread_pool() || row * (xpu_iter_numel(iter) / iter->size[0]) < MIN_SHARED_BYTES);
}

static xpu_status copy_by_memcpy(xpu_stream *stream, const xpu_iter *iter, int64_t size) {
    const xpu_operand *to = &iter->operand[0], *from = &iter->operand[1];
    row_copy c = {.to = to->data, .from = from->data, .row = iter->size[0] * size, .rows = 1};
    const int first = along_source(iter, size, 1);
    for (int d = 1; d < iter->dims; d++) { /* that one, and the others in their order */
        const int of = d == 1 ? first : d <= first ? d - 1 : d;
        c.step[c.dims++] = (row_step){iter->size[of], to->stride[of], from->stride[of]};
        c.rows *= iter->size[of];
    }
    return xpu_host_call(stream, "copy", copy_rows, &c,
                         offsetof(row_copy, step) + (size_t)c.dims * sizeof *c.step, row_accesses);
}

/* --- kernels --- */

static inline uint64_t parts(uint64_t n, uint64_t of) { return (n + of - 1) / of; }
static inline uint64_t at_most(uint64_t n, uint64_t limit) { return n < limit ? n : limit; }

/* Elements of one size, in a coalesced iteration with at least one dimension. */
static xpu_status copy_on_host(xpu_stream *stream, const xpu_device_properties *properties,
                               const xpu_iter *iter) {
    const xpu_operand *to = &iter->operand[0], *from = &iter->operand[1];
    int64_t size = (int64_t)xpu_dtype_size(to->dtype);
    copy_plan plan = plan_copy(iter, size);
    if (plan.kind == COPY_ROWS && suits_memcpy(properties, iter, size))
        return copy_by_memcpy(stream, iter, size);
    struct copy_params p = {.to = XPU_ADDR(to->data), .from = XPU_ADDR(from->data), .batch = 1};
    for (int d = 0; d < 2; d++) {
        int of = d ? plan.dim : 0;
        bool there = of < iter->dims;
        p.plane[d] = there ? (uint64_t)iter->size[of] : 1;
        p.to_plane[d] = there ? to->stride[of] : 0;
        p.from_plane[d] = there ? from->stride[of] : 0;
    }
    for (int d = 1; d < iter->dims; d++) {
        if (d == plan.dim) continue;
        p.size[p.dims] = (uint64_t)iter->size[d];
        p.to_stride[p.dims] = to->stride[d];
        p.from_stride[p.dims++] = from->stride[d];
        p.batch *= (uint64_t)iter->size[d];
    }

    xpu_kernel *kernel;
    XPU_TRY(copy_kernel(xpu_stream_device(stream), &plan, size, (int)p.dims, &kernel));
    uint64_t count = p.plane[0] * p.plane[1] * p.batch;
    xpu_range range = {3, {1, 1, p.batch}, {1, 1, 1}, count};
    if (is_interleaved(&plan)) {
        uint64_t length = p.plane[plan.kind == COPY_INTERLEAVE];
        range.local[0] = at_most(parts(length, 16) * 16, 1024);
        range.groups[0] = parts(length, range.local[0]);
        return xpu_launch_with_accesses(stream, kernel, &range, &p, sizeof p, iter_accesses, iter);
    }
    if (plan.kind == COPY_TRANSPOSED) {
        /* long in the source, so that its rows are read sequentially; one vector wide in the target */
        p.block[0] = size == 1 ? 32 : (uint64_t)(size == 8 ? 8 : 16);
        p.block[1] = 1024;
    } else {
        /* large rectangles, but enough of them for all threads */
        uint64_t block = at_most(BLOCK_BYTES / (uint64_t)size, count / 16 + 64);
        p.block[0] = at_most(p.plane[0], block);
        p.block[1] = at_most(p.plane[1], parts(block, p.block[0]));
    }
    for (int d = 0; d < 2; d++) range.groups[d] = parts(p.plane[d], p.block[d]);
    return xpu_launch_with_accesses(stream, kernel, &range, &p, sizeof p, iter_accesses, iter);
}

xpu_status xpu_copy(xpu_stream *stream, const xpu_iter *iter) {
    if (iter->outputs != 1 || iter->inputs != 1)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "xpu_copy: got %d outputs and %d inputs; takes one of each", iter->outputs,
                       iter->inputs);
    const xpu_operand *to = &iter->operand[0], *from = &iter->operand[1];
    xpu_iter own;
    if (iter->dims > 1 && iter_has_mergeable_dims(iter)) {
        copy_iter(&own, iter);
        xpu_iter_coalesce(&own);
        iter = &own;
    }
    if (from->data && to->dtype == from->dtype) {
        size_t size = xpu_dtype_size(to->dtype);
        if (size == 0) return op_unsupported_dtype("copy", to->dtype, NULL);
        if (contiguous(iter))
            return to->data == from->data
                       ? XPU_SUCCESS
                       : xpu_memcpy(stream, to->data, from->data, size * (size_t)xpu_iter_numel(iter), false);
        if (iter != &own) copy_iter(&own, iter);
        if (size == 16 && !as_pairs(&own))
            return xpu_pointwise(stream, XPU_POINTWISE_COPY, to->dtype, iter, NULL, 0);
        own.operand[0].dtype = own.operand[1].dtype = size == 16 ? XPU_UINT64 : dtype_of_size(size);
        widen(&own);
        const xpu_device_properties *properties;
        XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &properties));
        /* an element repeated along rows is a broadcast, which vectorizes well */
        if (properties->type == XPU_DEVICE_CPU && own.dims > 0 && own.operand[1].stride[0])
            return copy_on_host(stream, properties, &own);
        return xpu_pointwise(stream, XPU_POINTWISE_COPY, own.operand[0].dtype, &own, NULL, 0);
    }
    return xpu_pointwise(stream, XPU_POINTWISE_COPY, from->data ? from->dtype : to->dtype, iter, NULL, 0);
}

/* --- fills --- */

/* The fp16 nearest to a float, ties to even. */
static uint16_t half_bits(uint32_t f) {
    uint32_t sign = f >> 16 & 0x8000, magnitude = f & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* rounds to 65536 or beyond? */
    if (magnitude < 0x38800000) { /* subnormal: adding a constant rounds to a multiple of 2^-24 */
        float value;
        uint32_t bits;
        memcpy(&value, &magnitude, sizeof value);
        value += 0.5f;
        memcpy(&bits, &value, sizeof bits);
        return (uint16_t)(sign | (bits - 0x3f000000));
    }
    return (uint16_t)(sign | ((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13));
}

static uint16_t bfloat_bits(uint32_t f) {
    return (f & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : (uint16_t)((f + 0x7fff + (f >> 16 & 1)) >> 16);
}

/* The memory representation of `value` in `dtype`. */
static void element_bytes(const xpu_scalar *value, xpu_dtype dtype, uint64_t bytes[2]) {
    scalar_bits(value, dtype, bytes);
    if (dtype == XPU_FLOAT16) bytes[0] = half_bits((uint32_t)bytes[0]);
    if (dtype == XPU_BFLOAT16) bytes[0] = bfloat_bits((uint32_t)bytes[0]);
    if (dtype_class(dtype) == DTYPE_CLASS_NARROW) {
        float v;
        memcpy(&v, bytes, sizeof v); /* the lower half: little-endian */
        bytes[0] = dtype_narrow(dtype, v);
    }
}

xpu_status xpu_fill(xpu_stream *stream, const xpu_iter *iter, const xpu_scalar *value) {
    if (iter->outputs != 1 || iter->inputs != 0)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "xpu_fill: got %d outputs and %d inputs; takes one output and no input", iter->outputs,
                       iter->inputs);
    const xpu_operand *to = &iter->operand[0];
    xpu_iter own;
    if (dtype_class(to->dtype) == DTYPE_CLASS_PACKED) return op_unsupported_dtype("fill", to->dtype, NULL);
    if (iter->dims > 1 && iter_has_mergeable_dims(iter)) {
        copy_iter(&own, iter);
        xpu_iter_coalesce(&own);
        iter = &own;
    }
    if (!contiguous(iter)) return xpu_pointwise(stream, XPU_POINTWISE_FILL, to->dtype, iter, value, 1);
    uint64_t bytes[2]; /* little-endian: the element comes first */
    size_t size = xpu_dtype_size(to->dtype);
    element_bytes(value, to->dtype, bytes);
    return xpu_memset(stream, to->data, bytes, size, size * (size_t)xpu_iter_numel(iter));
}

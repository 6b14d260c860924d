/* Copies and fills. Plain bytes go to the runtime; what has strides or changes its dtype is a pointwise
 * operation, whose layouts know transposes. */
#include "xpu/ops/copy.h"

#include <string.h>

#include "kernels/copy.h"
#include "ops/iter.h"
#include "ops/kernel.h"
#include "xpu/memory.h"
#include "xpu/ops/pointwise.h"

/* Elements lie one after the other, in every tensor of a coalesced iteration. */
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

/* Takes the elements of rows together into larger ones, when rows and their places allow it. */
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

/* --- layouts on a processor --- */

typedef enum copy_kind { COPY_TURNED, COPY_WEAVE, COPY_UNWEAVE, COPY_ROWS, COPY_STRIDED } copy_kind;

/* How copy.cl does it: which kernel, its constant, and the second dimension of the plane. */
typedef struct copy_plan {
    copy_kind kind;
    int constant, dim;
} copy_plan;

#define LONGEST_WOVEN 8 /* elements of a row that is woven */
#define BLOCK_BYTES 16384

static copy_plan plan_copy(const xpu_iter *iter, int64_t size) {
    const xpu_operand *to = &iter->operand[0], *from = &iter->operand[1];
    const int64_t *length = iter->size, tile = size == 8 ? 8 : 16;
    int longest = 1;
    for (int d = 1; d < iter->dims; d++) {
        if (length[d] > length[longest]) longest = d;
        if (to->stride[0] != size || from->stride[d] != size) continue;
        if (length[0] >= tile && length[d] >= tile) return (copy_plan){COPY_TURNED, 0, d};
        if (length[0] <= LONGEST_WOVEN && to->stride[d] == length[0] * size)
            return (copy_plan){COPY_WEAVE, (int)length[0], d};
        if (length[d] <= LONGEST_WOVEN && from->stride[0] == length[d] * size)
            return (copy_plan){COPY_UNWEAVE, (int)length[d], d};
    }
    copy_plan plan = {COPY_STRIDED, 0, iter->dims > 1 && length[1] >= 8 ? 1 : longest};
    if (to->stride[0] != size) return plan;
    if (from->stride[0] == size) {
        /* along the source: what is read ahead of need counts for more than where it goes */
        plan.kind = COPY_ROWS;
        for (int d = 1; d < iter->dims; d++)
            if (length[0] * length[d] * size >= BLOCK_BYTES / 2 && from->stride[d] < from->stride[plan.dim])
                plan.dim = d;
    }
    for (int step = 2; size < 8 && step <= 4; step++)
        if (from->stride[0] == step * size) plan.constant = step;
    if (from->stride[0] == -size) plan.constant = -1;
    return plan;
}

static inline bool is_woven(const copy_plan *plan) {
    return plan->kind == COPY_WEAVE || plan->kind == COPY_UNWEAVE;
}

static xpu_status copy_kernel(int device, const copy_plan *plan, int64_t size, int dims,
                              xpu_kernel **kernel) {
    static const char *const names[] = {"TURNED", "WEAVE", "UNWEAVE", "ROWS", "STRIDED"};
    const bool woven = is_woven(plan);
    kernel_spec spec;
    spec_begin(&spec, FAMILY_COPY);
    spec_number(&spec, "E", size, 8);
    spec_choice(&spec, "", names, plan->kind, 8);
    const char *constant = woven ? "K" : "STEP";
    spec_pack(&spec, constant, (int64_t)plan->constant + 1, 32); /* the step may be -1 */
    if (woven || plan->constant) spec_follows_number(&spec, constant, plan->constant);
    spec_number_if(&spec, woven, "DIMS", woven ? dims : 0, 8);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_of_file(device, &spec, "copy.cl", "copy", kernel, "copy %d bytes", (int)size);
}

static inline uint64_t parts(uint64_t n, uint64_t of) { return (n + of - 1) / of; }
static inline uint64_t at_most(uint64_t n, uint64_t limit) { return n < limit ? n : limit; }

/* Elements of one size, in a coalesced iteration with at least one dimension. */
static xpu_status copy_on_host(xpu_stream *stream, const xpu_iter *iter) {
    const xpu_operand *to = &iter->operand[0], *from = &iter->operand[1];
    int64_t size = (int64_t)xpu_dtype_size(to->dtype);
    copy_plan plan = plan_copy(iter, size);
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
    if (is_woven(&plan)) {
        uint64_t length = p.plane[plan.kind == COPY_WEAVE];
        range.local[0] = at_most(parts(length, 16) * 16, 1024);
        range.groups[0] = parts(length, range.local[0]);
        return xpu_launch_listed(stream, kernel, &range, &p, sizeof p, iter_accesses, iter);
    }
    if (plan.kind == COPY_TURNED) {
        /* long in the source, whose rows are then read on; as wide as a vector in the target */
        p.block[0] = size == 1 ? 32 : (uint64_t)(size == 8 ? 8 : 16);
        p.block[1] = 1024;
    } else {
        /* rectangles of some size, but enough to go round */
        uint64_t block = at_most(BLOCK_BYTES / (uint64_t)size, count / 16 + 64);
        p.block[0] = at_most(p.plane[0], block);
        p.block[1] = at_most(p.plane[1], parts(block, p.block[0]));
    }
    for (int d = 0; d < 2; d++) range.groups[d] = parts(p.plane[d], p.block[d]);
    return xpu_launch_listed(stream, kernel, &range, &p, sizeof p, iter_accesses, iter);
}

xpu_status xpu_copy(xpu_stream *stream, const xpu_iter *iter) {
    if (iter->outputs != 1 || iter->inputs != 1)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "xpu_copy: %d outputs and %d inputs; takes one of each",
                       iter->outputs, iter->inputs);
    const xpu_operand *to = &iter->operand[0], *from = &iter->operand[1];
    xpu_iter own;
    if (iter->dims > 1 && iter_can_coalesce(iter)) {
        copy_iter(&own, iter);
        xpu_iter_coalesce(&own);
        iter = &own;
    }
    if (from->data && to->dtype == from->dtype) {
        size_t size = xpu_dtype_size(to->dtype);
        if (size == 0) return op_lacks("copy", to->dtype, NULL);
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
        /* one element repeated along rows is a broadcast, which vectors do well */
        if (properties->type == XPU_DEVICE_CPU && own.dims > 0 && own.operand[1].stride[0])
            return copy_on_host(stream, &own);
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
    if (magnitude < 0x38800000) { /* below 2^-14: a multiple of 2^-24, by an addition that rounds there */
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

/* The bytes of `value` as an element of `dtype` lies in memory. */
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
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "xpu_fill: %d outputs and %d inputs; takes one output",
                       iter->outputs, iter->inputs);
    const xpu_operand *to = &iter->operand[0];
    xpu_iter own;
    if (dtype_class(to->dtype) == DTYPE_CLASS_PACKED) return op_lacks("fill", to->dtype, NULL);
    if (iter->dims > 1 && iter_can_coalesce(iter)) {
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

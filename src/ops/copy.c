/* Copies and fills. Plain bytes go to the runtime; what has strides or changes its dtype is a pointwise
 * operation, whose layouts know transposes. */
#include "xpu/ops/copy.h"

#include <string.h>

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

/* The dtype to copy bits of that size in; COUNT when kernels have none. */
static xpu_dtype bits_dtype(size_t size) {
    switch (size) {
    case 1: return XPU_UINT8;
    case 2: return XPU_UINT16;
    case 4: return XPU_UINT32;
    case 8: return XPU_UINT64;
    default: return XPU_DTYPE_COUNT;
    }
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
            iter->operand[i].dtype = bits_dtype(size);
        }
    }
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
        if (contiguous(iter))
            return to->data == from->data
                       ? XPU_SUCCESS
                       : xpu_memcpy(stream, to->data, from->data, size * (size_t)xpu_iter_numel(iter), false);
        if (iter != &own) copy_iter(&own, iter);
        if (size == 16 && !as_pairs(&own))
            return xpu_pointwise(stream, XPU_POINTWISE_COPY, to->dtype, iter, NULL, 0);
        own.operand[0].dtype = own.operand[1].dtype = size == 16 ? XPU_UINT64 : bits_dtype(size);
        widen(&own);
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
}

xpu_status xpu_fill(xpu_stream *stream, const xpu_iter *iter, const xpu_scalar *value) {
    if (iter->outputs != 1 || iter->inputs != 0)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "xpu_fill: %d outputs and %d inputs; takes one output",
                       iter->outputs, iter->inputs);
    const xpu_operand *to = &iter->operand[0];
    xpu_iter own;
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

/* Layouts of iterations (iter.h). */
#include "ops/iter.h"

#include <string.h>

#include "ops/kernel.h"

int64_t xpu_iter_numel(const xpu_iter *iter) {
    int64_t count = 1;
    for (int d = 0; d < iter->dims; d++) count *= iter->size[d];
    return count;
}

/* Can dimension `d` be merged into `to` in every operand? */
static bool follows(const xpu_iter *iter, int to, int d) {
    for (int i = 0; i < iter->outputs + iter->inputs; i++) {
        const xpu_operand *o = &iter->operand[i];
        if (o->data && o->stride[d] != o->stride[to] * iter->size[to]) return false;
    }
    return true;
}

static void move_dim(xpu_iter *iter, int to, int from) {
    iter->size[to] = iter->size[from];
    for (int i = 0; i < iter->outputs + iter->inputs; i++)
        iter->operand[i].stride[to] = iter->operand[i].stride[from];
}

void xpu_iter_coalesce(xpu_iter *iter) {
    int dims = 0;
    for (int d = 0; d < iter->dims; d++) {
        if (iter->size[d] == 1) continue;
        if (dims > 0 && follows(iter, dims - 1, d))
            iter->size[dims - 1] *= iter->size[d];
        else
            move_dim(iter, dims++, d);
    }
    iter->dims = dims;
}

bool iter_has_mergeable_dims(const xpu_iter *iter) {
    for (int d = 0; d < iter->dims; d++)
        if (iter->size[d] == 1 || (d > 0 && follows(iter, d - 1, d))) return true;
    return false;
}

/* Is operand `i` contiguous in the order of the iteration? */
static bool goes_on(const xpu_iter *iter, int i) {
    int64_t stride = (int64_t)xpu_dtype_size(iter->operand[i].dtype);
    for (int d = 0; d < iter->dims; d++) {
        if (iter->operand[i].stride[d] != stride) return false;
        stride *= iter->size[d];
    }
    return true;
}

static int find_transposed_dim(const xpu_iter *iter, const iter_layout *layout) {
    for (int d = 1; d < iter->dims; d++)
        for (int i = 0; i < iter->outputs + iter->inputs; i++) {
            const xpu_operand *o = &iter->operand[i];
            if (layout->access[i] == ACCESS_STRIDED && o->stride[d] == (int64_t)xpu_dtype_size(o->dtype))
                return d;
        }
    return 0;
}

void iter_get_layout(const xpu_iter *iter, iter_layout *layout) {
    layout->count = xpu_iter_numel(iter);
    bool strided = false;
    for (int i = 0; i < iter->outputs + iter->inputs; i++) {
        const xpu_operand *o = &iter->operand[i];
        access_kind access = ACCESS_STRIDED;
        if (!o->data && i >= iter->outputs)
            access = ACCESS_VALUE;
        else if (layout->count <= 1 || o->stride[0] == (int64_t)xpu_dtype_size(o->dtype))
            access = ACCESS_NEXT;
        else if (o->stride[0] == 0)
            access = ACCESS_ONE;
        layout->access[i] = access;
        strided |= access == ACCESS_STRIDED;
    }
    if (layout->count <= 1 || (iter->dims == 1 && !strided))
        layout->kind = LAYOUT_FLAT;
    else
        layout->kind = iter->size[0] >= ITER_MIN_ROW ? LAYOUT_ROWS : LAYOUT_STRIDED;
    if (layout->kind == LAYOUT_STRIDED)
        for (int i = 0; i < iter->outputs + iter->inputs; i++)
            if (layout->access[i] != ACCESS_VALUE)
                layout->access[i] = goes_on(iter, i) ? ACCESS_NEXT : ACCESS_STRIDED;
    layout->transposed = strided && layout->kind == LAYOUT_ROWS ? find_transposed_dim(iter, layout) : 0;
}

void iter_swap(xpu_iter *iter, int d, int e) {
    int64_t size = iter->size[d];
    iter->size[d] = iter->size[e];
    iter->size[e] = size;
    for (int i = 0; i < iter->outputs + iter->inputs; i++) {
        int64_t *stride = iter->operand[i].stride, kept = stride[d];
        stride[d] = stride[e];
        stride[e] = kept;
    }
}

void iter_sort(xpu_iter *iter, int operand) {
    const int64_t *stride = iter->operand[operand].stride;
    for (int i = 1; i < iter->dims; i++)
        for (int d = i; d > 0 && stride[d - 1] > stride[d]; d--) iter_swap(iter, d - 1, d);
}

bool iter_fits_32bit(const xpu_iter *iter) {
    int64_t count = 1;
    for (int d = 0; d < iter->dims; d++)
        if (__builtin_mul_overflow(count, iter->size[d], &count)) return false;
    if (count >= INT32_MAX) return false;
    for (int i = 0; i < iter->outputs + iter->inputs; i++) {
        const xpu_operand *o = &iter->operand[i];
        int64_t low = 0, high = 0;
        if (!o->data) continue;
        for (int d = 0; d < iter->dims; d++) {
            int64_t reach = (iter->size[d] - 1) * o->stride[d];
            if (reach < 0)
                low += reach;
            else
                high += reach;
        }
        if (low < INT32_MIN || high > INT32_MAX) return false;
    }
    return true;
}

void iter_split(const xpu_iter *iter, xpu_iter *low, xpu_iter *high) {
    int d = iter->dims - 1;
    while (d > 0 && iter->size[d] == 1) d--;
    *low = *high = *iter;
    int64_t half = iter->size[d] / 2;
    low->size[d] = half;
    high->size[d] -= half;
    for (int i = 0; i < iter->outputs + iter->inputs; i++)
        if (iter->operand[i].data)
            high->operand[i].data = (char *)iter->operand[i].data + half * iter->operand[i].stride[d];
}

/* --- scalars --- */

static double scalar_double(const xpu_scalar *s) {
    switch (s->dtype) {
    case XPU_FLOAT64: return s->value.f;
    case XPU_COMPLEX128: return s->value.c[0];
    case XPU_UINT64: return (double)s->value.u;
    default: return (double)s->value.i;
    }
}

static uint64_t scalar_integer(const xpu_scalar *s) {
    if (s->dtype != XPU_FLOAT64 && s->dtype != XPU_COMPLEX128) return s->value.u;
    double v = scalar_double(s);
    if (v >= 9223372036854775808.0 && v < 18446744073709551616.0) return (uint64_t)v;
    /* out of range and NaN: the result of x86's conversion */
    return v >= -9223372036854775808.0 && v < 9223372036854775808.0 ? (uint64_t)(int64_t)v
                                                                    : (uint64_t)INT64_MIN;
}

static uint64_t float_bits(double v) {
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static uint64_t double_bits(double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static double rounded(xpu_dtype dtype, double v) { return dtype_widen(dtype, dtype_narrow(dtype, (float)v)); }

void scalar_bits(const xpu_scalar *s, xpu_dtype dtype, uint64_t bits[2]) {
    double imaginary = s->dtype == XPU_COMPLEX128 ? s->value.c[1] : 0;
    bits[1] = 0;
    switch (dtype_class(dtype)) {
    case DTYPE_CLASS_BOOL:
        bits[0] = s->dtype == XPU_FLOAT64 || s->dtype == XPU_COMPLEX128
                      ? scalar_double(s) != 0 || imaginary != 0
                      : s->value.u != 0;
        break;
    case DTYPE_CLASS_FLOAT:
        bits[0] = dtype_needs_fp64(dtype) ? double_bits(scalar_double(s)) : float_bits(scalar_double(s));
        break;
    case DTYPE_CLASS_NARROW: bits[0] = float_bits(rounded(dtype, scalar_double(s))); break;
    case DTYPE_CLASS_COMPLEX:
        if (dtype_needs_fp64(dtype)) {
            bits[0] = double_bits(scalar_double(s));
            bits[1] = double_bits(imaginary);
        } else {
            bits[0] = float_bits(scalar_double(s)) | float_bits(imaginary) << 32;
        }
        break;
    default: bits[0] = scalar_integer(s);
    }
}

int iter_accesses(const void *of, xpu_access *accesses) {
    const xpu_iter *iter = of;
    int count = 0;
    for (int i = 0; i < iter->outputs + iter->inputs; i++) {
        const xpu_operand *o = &iter->operand[i];
        if (!o->data) continue; /* a value */
        int64_t low = 0, high = (int64_t)xpu_dtype_size(o->dtype);
        for (int d = 0; d < iter->dims; d++) {
            const int64_t far = (iter->size[d] - 1) * o->stride[d];
            *(far < 0 ? &low : &high) += far;
        }
        accesses[count++] = (xpu_access){(char *)o->data + low, (size_t)(high - low), i < iter->outputs};
    }
    return count;
}

/* Deformable convolution: unfolds the input into the columns that the convolution multiplies, sampling
 * bilinearly at offset positions; and the gradients. include/xpu/ops/deform.h has the formula.
 *
 * Options: T, dtype; ACC, type computed in; BUILD_<kernel>.
 * Launch:
 *   deform_columns, deform_grad_image   one work-item per output position and channel, for all taps of the
 *   kernel
 *   deform_grad_offset                  one work-item per offset, for all channels of its group */
#include "atomic_add.h"
#include "deform.h"

#if defined(BUILD_deform_grad_image) && defined(ACC_IS_DOUBLE)
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#endif

/* One tap of the kernel at one output position: where its offsets and mask are stored, and its bilinear
 * sample. */
typedef struct tap {
    long offset, mask; /* index of the y offset; the x offset is one plane further */
    ACC scale;         /* by the mask */
    int at[4];         /* in the plane, -1 outside */
    ACC weight[4];
    ACC below[2]; /* fractional distance from the lower neighbor, in y and x */
} tap;

static inline tap tap_of(deform_params p, long batch, long group, int k, long place) {
    tap t;
    const long taps = (long)p.window[0] * p.window[1], plane = (long)p.out[0] * p.out[1];
    t.mask = ((batch * p.groups + group) * taps + k) * plane + place;
    t.offset = ((batch * p.groups + group) * taps + k) * 2 * plane + place;
    t.scale = p.mask ? (ACC)LOAD(T, XPU_CPTR(STORED(T), p.mask), t.mask) : (ACC)1;
    const int step[2] = {k / p.window[1], k % p.window[1]},
              at[2] = {(int)(place / p.out[1]), (int)(place % p.out[1])};
    int low[2];
    bool is_there = true;
    for (int d = 0; d < 2; d++) {
        const ACC moved = (ACC)LOAD(T, XPU_CPTR(STORED(T), p.offset), t.offset + d * plane);
        const ACC x = (ACC)(at[d] * p.stride[d] - p.padding[d] + step[d] * p.dilation[d]) + moved;
        is_there = is_there && x > -1 && x < (ACC)p.in[d]; /* NaN isn't */
        const ACC whole = floor(x);
        low[d] = is_there ? (int)whole : 0;
        t.below[d] = is_there ? x - whole : (ACC)0;
    }
    for (int c = 0; c < 4; c++) {
        const int y = low[0] + c / 2, x = low[1] + c % 2;
        const bool inside = is_there && y >= 0 && y < p.in[0] && x >= 0 && x < p.in[1];
        t.at[c] = inside ? y * p.in[1] + x : -1;
        t.weight[c] = (c / 2 ? t.below[0] : 1 - t.below[0]) * (c % 2 ? t.below[1] : 1 - t.below[1]);
    }
    return t;
}

static inline ACC element(deform_params p, long plane, int at) {
    return at < 0 ? (ACC)0 : (ACC)LOAD(T, XPU_CPTR(STORED(T), p.image), plane + at);
}

#if defined(BUILD_deform_columns) || defined(BUILD_deform_grad_image)
#ifdef BUILD_deform_grad_image
XPU_ATOMIC_ADD_GLOBAL(ACC, add)
#define NAME deform_grad_image
#else
#define NAME deform_columns
#endif

__kernel void NAME(const deform_params p) {
    const long i = get_global_id(0);
    if (i >= p.total) return;
    const long taps = (long)p.window[0] * p.window[1], plane = (long)p.out[0] * p.out[1];
    const long place = i % plane, channel = i / plane % p.channels, batch = i / plane / p.channels;
    const long group = channel / (p.channels / p.groups);
    const long from = (batch * p.channels + channel) * p.in[0] * p.in[1];
    const long column = (batch * p.channels + channel) * taps * plane + place;
    for (int k = 0; k < taps; k++) {
        const tap t = tap_of(p, batch, group, k, place);
#ifdef BUILD_deform_columns
        ACC sum = 0;
        for (int c = 0; c < 4; c++) sum += t.weight[c] * element(p, from, t.at[c]);
        STORE(T, XPU_PTR(STORED(T), p.columns), column + k * plane, sum * t.scale);
#else
        const ACC grad = (ACC)LOAD(T, XPU_CPTR(STORED(T), p.columns), column + k * plane) * t.scale;
        for (int c = 0; c < 4; c++)
            if (t.at[c] >= 0) add(XPU_PTR(ACC, p.grad_image) + from + t.at[c], grad * t.weight[c]);
#endif
    }
}
#endif

#ifdef BUILD_deform_grad_offset
__kernel void deform_grad_offset(const deform_params p) {
    const long i = get_global_id(0);
    if (i >= p.total) return;
    const long taps = (long)p.window[0] * p.window[1], plane = (long)p.out[0] * p.out[1];
    const long place = i % plane, group = i / plane / taps % p.groups, batch = i / plane / taps / p.groups;
    const int k = (int)(i / plane % taps);
    const long several = p.channels / p.groups;
    const tap t = tap_of(p, batch, group, k, place);
    ACC along_y = 0, along_x = 0, by_mask = 0;
    for (long channel = group * several; channel < (group + 1) * several; channel++) {
        const long from = (batch * p.channels + channel) * p.in[0] * p.in[1];
        const ACC grad = (ACC)LOAD(T, XPU_CPTR(STORED(T), p.columns),
                                   ((batch * p.channels + channel) * taps + k) * plane + place);
        ACC e[4], sum = 0;
        for (int c = 0; c < 4; c++) {
            e[c] = element(p, from, t.at[c]);
            sum += t.weight[c] * e[c];
        }
        along_y += grad * ((e[2] - e[0]) * (1 - t.below[1]) + (e[3] - e[1]) * t.below[1]);
        along_x += grad * ((e[1] - e[0]) * (1 - t.below[0]) + (e[3] - e[2]) * t.below[0]);
        by_mask += grad * sum;
    }
    STORE(T, XPU_PTR(STORED(T), p.grad_offset), t.offset, along_y * t.scale);
    STORE(T, XPU_PTR(STORED(T), p.grad_offset), t.offset + plane, along_x * t.scale);
    if (p.grad_mask) STORE(T, XPU_PTR(STORED(T), p.grad_mask), t.mask, by_mask);
}
#endif

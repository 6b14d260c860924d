/* Region-of-interest pooling and alignment, and the gradient of the image; formulas in include/xpu/ops/roi.h.
 * One work-item per bin, for CHANNELS_PER_ITEM channels.
 *
 * Options: T, dtype; ACC, type computed in; ALIGN (mean of bilinear samples), MAXIMUM or MEAN (of whole
 * elements); POSITION_SENSITIVE (each bin reads its own channel; CHANNELS_PER_ITEM is 1); BUILD_<kernel>. */
#include "atomic_add.h"
#include "roi.h"

#if defined(BUILD_roi_backward) && defined(ACC_IS_DOUBLE)
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#endif

typedef struct bin {
    long image, row, column;
    long channel; /* first of `many` channels of the image */
    long out;     /* output index of the first channel; the next ones are `bins` further each */
    int many;
    ACC top, left;     /* of the region, in elements of the image */
    ACC height, width; /* of the region */
    bool is_there;
} bin;

static inline ACC corner(roi_params p, long region, int i) {
    return (ACC)LOAD(T, XPU_CPTR(STORED(T), p.regions), region * 5 + i);
}

static inline bin bin_of(roi_params p, long i) {
    bin b;
    const long bins = (long)p.rows * p.columns,
               groups = (p.planes + CHANNELS_PER_ITEM - 1) / CHANNELS_PER_ITEM;
    const long plane = i / bins % groups * CHANNELS_PER_ITEM, region = i / bins / groups;
    b.out = (region * p.planes + plane) * bins + i % bins;
    b.many = (int)min(p.planes - plane, (long)CHANNELS_PER_ITEM);
    b.row = i % bins / p.columns;
    b.column = i % p.columns;
#ifdef POSITION_SENSITIVE
    b.channel = plane * bins + i % bins;
#else
    b.channel = plane;
#endif
    const ACC image = corner(p, region, 0), scale = (ACC)p.scale + (ACC)p.scale_rest;
    b.is_there = image > -1 && image < (ACC)p.images;
    b.image = b.is_there ? (long)image : 0;
    if (!b.is_there)
        fault_report(p.watch, 0, image > (ACC)-1e18f && image < (ACC)1e18f ? (long)image : -1, p.images);
    b.left = corner(p, region, 1) * scale;
    b.top = corner(p, region, 2) * scale;
    const ACC right = corner(p, region, 3) * scale, bottom = corner(p, region, 4) * scale;
#ifdef ALIGN
#ifdef POSITION_SENSITIVE
    const ACC shift = (ACC)0.5f, least = -(ACC)INFINITY;
#else
    const ACC shift = p.aligned ? (ACC)0.5f : (ACC)0, least = p.aligned ? -(ACC)INFINITY : (ACC)1;
#endif
    b.width = fmax((right - shift) - (b.left - shift), least);
    b.height = fmax((bottom - shift) - (b.top - shift), least);
    b.left -= shift;
    b.top -= shift;
#else
    /* rounded to whole elements and clamped to what int holds */
    const ACC most = (ACC)(1 << 28);
    b.left = clamp(round(b.left), -most, most);
    b.top = clamp(round(b.top), -most, most);
#ifdef POSITION_SENSITIVE
    const ACC last = 0;
#else
    const ACC last = 1;
#endif
    b.width = fmax(clamp(round(right), -most, most) - b.left + last, (ACC)1);
    b.height = fmax(clamp(round(bottom), -most, most) - b.top + last, (ACC)1);
#endif
    return b;
}

#ifdef ALIGN
/* A bin's samples in one dimension are at first + i * step, i < count; samples outside the image are 0. */
typedef struct samples {
    ACC first, step, count;
    long from, to; /* only samples in this range can be inside the image */
} samples;

static inline samples samples_of(roi_params p, ACC start, ACC extent, long bins, long bin, int size) {
    samples s;
    const ACC length = extent / bins;
    s.count = p.samples > 0 ? (ACC)p.samples : ceil(length);
    s.step = length / s.count;
    s.first = start + bin * length + s.step * (ACC)0.5f;
    s.from = s.to = 0;
    if (!(s.count >= 1)) return s;
    const ACC last = s.count - 1, most = (ACC)(1 << 30);
    ACC from = 0, to = last;
    if (s.step > 0) { /* one more at each end for rounding: the loop checks each sample */
        from = fmax(from, floor((-1 - s.first) / s.step) - 1);
        to = fmin(to, ceil((size - s.first) / s.step) + 1);
    }
    if (from <= to && fabs(from) < most && fabs(to) < most) {
        s.from = (long)from;
        s.to = (long)to + 1;
    }
    return s;
}

/* The two elements on either side of coordinate x, and their weights. False: outside. */
static inline bool between(ACC x, int size, int at[2], ACC weight[2]) {
    if (!(x >= -1 && x <= (ACC)size)) return false;
    x = fmax(x, (ACC)0);
    at[0] = (int)x;
    if (at[0] >= size - 1) {
        at[0] = at[1] = size - 1;
        x = (ACC)at[0];
    } else {
        at[1] = at[0] + 1;
    }
    weight[1] = x - (ACC)at[0];
    weight[0] = 1 - weight[1];
    return true;
}

#ifdef POSITION_SENSITIVE
#define COUNT(rows, columns) ((rows) * (columns))
#else
#define COUNT(rows, columns) fmax((rows) * (columns), (ACC)1)
#endif

/* Runs `each` for every sample, with the rows y, columns x and weights v, u of its four elements. */
#define FOR_SAMPLES(p, b, rows, columns, each)                                                               \
    const samples rows = samples_of(p, b.top, b.height, p.rows, b.row, p.height),                            \
                  columns = samples_of(p, b.left, b.width, p.columns, b.column, p.width);                    \
    for (long i_ = rows.from; i_ < rows.to; i_++) {                                                          \
        int y[2];                                                                                            \
        ACC v[2];                                                                                            \
        if (!between(rows.first + i_ * rows.step, p.height, y, v)) continue;                                 \
        for (long j_ = columns.from; j_ < columns.to; j_++) {                                                \
            int x[2];                                                                                        \
            ACC u[2];                                                                                        \
            if (between(columns.first + j_ * columns.step, p.width, x, u)) each                              \
        }                                                                                                    \
    }

#else
/* The bin's half-open range of elements in one dimension. */
static inline int2 elements_of(ACC start, ACC extent, long bins, long bin, int size) {
    const ACC length = extent / bins;
#ifdef POSITION_SENSITIVE
    const int most = size - 1;
#else
    const int most = size;
#endif
    const int from = (int)(floor(bin * length) + start), to = (int)(ceil((bin + 1) * length) + start);
    return (int2)(clamp(from, 0, most), clamp(to, 0, most));
}
#endif

#ifdef BUILD_roi_forward
__kernel void roi_forward(const roi_params p) {
    const long i = get_global_id(0);
    if (i >= p.total) return;
    const bin b = bin_of(p, i);
    __global const STORED(T) *image = XPU_CPTR(STORED(T), p.image);
    const long plane = (b.image * p.channels + b.channel) * p.height * p.width;
#ifdef ALIGN
    const long bins = (long)p.rows * p.columns, area = (long)p.height * p.width;
    ACC sum[CHANNELS_PER_ITEM];
    for (int c = 0; c < CHANNELS_PER_ITEM; c++) sum[c] = 0;
    ACC count = 1;
    if (b.is_there) {
        FOR_SAMPLES(p, b, rows, columns, {
            for (int k = 0; k < 4; k++) {
                const ACC weight = v[k / 2] * u[k % 2];
                const long at = plane + (long)y[k / 2] * p.width + x[k % 2];
                for (int c = 0; c < CHANNELS_PER_ITEM; c++)
                    sum[c] += weight * (ACC)LOAD(T, image, at + min(c, b.many - 1) * area);
            }
        })
        count = COUNT(rows.count, columns.count);
    }
    for (int c = 0; c < CHANNELS_PER_ITEM; c++)
        if (c < b.many) {
            STORE(T, XPU_PTR(STORED(T), p.output), b.out + c * bins, sum[c] / count);
            if (p.argmax) XPU_PTR(int, p.argmax)[b.out + c * bins] = (int)b.channel + c;
        }
#else
    ACC sum = 0;
    int place = (int)b.channel;
    if (b.is_there) {
        const int2 rows = elements_of(b.top, b.height, p.rows, b.row, p.height);
        const int2 columns = elements_of(b.left, b.width, p.columns, b.column, p.width);
        const bool is_empty = rows.y <= rows.x || columns.y <= columns.x;
#ifdef MAXIMUM
        sum = is_empty ? (ACC)0 : (ACC)-FLT_MAX;
        place = -1;
#endif
        for (int y = rows.x; y < rows.y; y++)
            for (int x = columns.x; x < columns.y; x++) {
                const ACC one = (ACC)LOAD(T, image, plane + (long)y * p.width + x);
#ifdef MAXIMUM
                if (one > sum) {
                    sum = one;
                    place = y * p.width + x;
                }
#else
                sum += one;
#endif
            }
#ifndef MAXIMUM
        if (!is_empty) sum /= (ACC)((long)(rows.y - rows.x) * (columns.y - columns.x));
#endif
    }
    STORE(T, XPU_PTR(STORED(T), p.output), b.out, sum);
    if (p.argmax) XPU_PTR(int, p.argmax)[b.out] = place;
#endif
}
#endif

#ifdef BUILD_roi_backward
XPU_ATOMIC_ADD_GLOBAL(ACC, add)

__kernel void roi_backward(const roi_params p) {
    const long i = get_global_id(0);
    if (i >= p.total) return;
    const bin b = bin_of(p, i);
    if (!b.is_there) return;
    __global ACC *plane =
        XPU_PTR(ACC, p.grad_image) + (b.image * p.channels + b.channel) * p.height * p.width;
    __global const STORED(T) *grads = XPU_CPTR(STORED(T), p.output) + b.out;
#if defined ALIGN
    const long bins = (long)p.rows * p.columns, area = (long)p.height * p.width;
    ACC grad[CHANNELS_PER_ITEM];
    for (int c = 0; c < CHANNELS_PER_ITEM; c++) grad[c] = (ACC)LOAD(T, grads, min(c, b.many - 1) * bins);
    FOR_SAMPLES(p, b, rows, columns, {
        for (int k = 0; k < 4; k++) {
            const ACC weight = v[k / 2] * u[k % 2] / COUNT(rows.count, columns.count);
            __global ACC *at = plane + (long)y[k / 2] * p.width + x[k % 2];
            for (int c = 0; c < CHANNELS_PER_ITEM; c++)
                if (c < b.many) add(at + c * area, grad[c] * weight);
        }
    })
#elif defined MAXIMUM
    const int place = XPU_CPTR(int, p.argmax)[b.out];
    if (place >= 0 && place < p.height * p.width) add(plane + place, (ACC)LOAD(T, grads, 0));
#else
    const int2 rows = elements_of(b.top, b.height, p.rows, b.row, p.height);
    const int2 columns = elements_of(b.left, b.width, p.columns, b.column, p.width);
    const ACC part = (ACC)LOAD(T, grads, 0) / (ACC)((long)(rows.y - rows.x) * (columns.y - columns.x));
    for (int y = rows.x; y < rows.y; y++)
        for (int x = columns.x; x < columns.y; x++) add(plane + (long)y * p.width + x, part);
#endif
}
#endif

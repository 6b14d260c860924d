/* Non-maximum suppression of boxes sorted by score: a box is removed if an earlier box that stays overlaps it
 * with an intersection over union above the threshold.
 *
 * Options: T, dtype; ACC, type computed in; LANES, work-items of nms_keep.
 * Launch:
 *   nms_covers   one work-item per box (`rows` boxes from `first` on) and word of 64 later boxes: a bit per
 *                overlap
 *   nms_keep     one work-group goes through the words: within a word the survivors are found serially, then
 *                the boxes that they overlap are removed from all later words */
#include "nms.h"

#if defined(BUILD_nms_covers)
typedef struct box {
    ACC x, y, right, bottom, area;
} box;

static inline box box_of(nms_params p, long i) {
    __global const STORED(T) *boxes = XPU_CPTR(STORED(T), p.boxes);
    box b = {(ACC)LOAD(T, boxes, 4 * i), (ACC)LOAD(T, boxes, 4 * i + 1), (ACC)LOAD(T, boxes, 4 * i + 2),
             (ACC)LOAD(T, boxes, 4 * i + 3), 0};
    b.area = (b.right - b.x) * (b.bottom - b.y);
    return b;
}

__kernel void nms_covers(const nms_params p) {
    const long word = get_global_id(0), i = p.first + XPU_GROUP(1);
    if (word >= p.words) return;
    ulong covered = 0;
    const bool is_left = !(XPU_CPTR(ulong, p.removed)[i / 64] >> (i % 64) & 1);
    if (is_left && word >= i / 64) {
        const ACC threshold = (ACC)p.threshold + (ACC)p.threshold_rest;
        const box a = box_of(p, i);
        const int many = (int)min(p.count - word * 64, (long)64);
        for (int k = 0; k < many; k++) {
            const long j = word * 64 + k;
            const box b = box_of(p, j);
            const ACC width = fmax(fmin(a.right, b.right) - fmax(a.x, b.x), (ACC)0);
            const ACC height = fmax(fmin(a.bottom, b.bottom) - fmax(a.y, b.y), (ACC)0);
            const ACC common = width * height;
            if (j > i && common / (a.area + b.area - common) > threshold) covered |= (ulong)1 << k;
        }
    }
    XPU_PTR(ulong, p.covers)[(i - p.first) * p.words + word] = covered;
}
#endif

#if defined(BUILD_nms_keep)
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void nms_keep(const nms_params p) {
    __local ulong staying; /* bits of the boxes of this word that survive */
    const int lane = (int)get_local_id(0);
    __global ulong *removed = XPU_PTR(ulong, p.removed);
    __global const ulong *covers = XPU_CPTR(ulong, p.covers);
    for (long first = 0; first < p.rows; first += 64) {
        const long word = (p.first + first) / 64;
        const int many = (int)min(p.rows - first, (long)64);
        if (lane == 0) {
            ulong gone = removed[word], stays = 0;
            for (int k = 0; k < many; k++)
                if (!(gone >> k & 1)) {
                    stays |= (ulong)1 << k;
                    gone |= covers[(first + k) * p.words + word];
                }
            staying = stays;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = lane; k < many; k += LANES)
            XPU_PTR(uchar, p.keep)[p.first + first + k] = (uchar)(staying >> k & 1);
        for (long j = word + 1 + lane; j < p.words; j += LANES) {
            ulong gone = removed[j];
            for (int k = 0; k < many; k++)
                if (staying >> k & 1) gone |= covers[(first + k) * p.words + j];
            removed[j] = gone;
        }
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    }
}
#endif

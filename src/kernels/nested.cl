/* Conversion between nested (jagged) tensors and padded ones; xpu/ops/nested.h says how offsets lead to rows.
 *   pad     padded[item][c0]…[r] = values[row(item, c0, …)][r], the padding value past an item's end
 *   unpad   values[row(item, c0, …)][r] = padded[item][c0]…[r], 0 past the end of `padded` in the last level
 *
 * A segment is the rows of one index of the last level; it is contiguous on both sides.
 * Launch: a group copies BLOCK elements of one segment, or of each of `down` segments.
 * Options: E=1|2|4|8|16, bytes of an element; I=i64|i32, dtype of the offsets; LEVELS=1…5; UNPAD=0|1; TX, TY,
 * work-group size along a segment and across segments (1 on CPUs); BLOCK. */
#include "nested.h"
#include "element.h"
#if TX == 1
#include "copy_row.h"
#endif

typedef STORED(I) index_t;

/* Element c of the padding; a 16-byte element may consist of two words. */
#if E == 16
#define PADDING(c) ((element)(p.padding[0], p.padding[1]))
#elif E == 8
#define PADDING(c) p.padding[(c) & 1]
#else
#define PADDING(c) ((element)p.padding[0])
#endif

#if TX == 1
XPU_NO_VECTORIZE
#endif
__kernel void nested_move(const struct nested_params p) {
    const long last_size = p.size[LEVELS - 1], width = last_size * p.row_size;
    const long across = max((width + BLOCK - 1) / BLOCK, 1L), group = XPU_GROUP(1);
    const long column = group % across * BLOCK, stop = min(column + BLOCK, width);
    const long first = group / across * p.down, after = min(first + p.down, p.segments);

    for (long segment = first + get_local_id(1); segment < after; segment += TY) {
        long at[LEVELS], rest = segment;
        for (int d = LEVELS - 2; d >= 0; d--) {
            const long above = rest / p.size[d];
            at[d + 1] = rest - above * p.size[d];
            rest = above;
        }
        at[0] = rest;
        /* descend from the item to the segment's rows: begin … begin + length - 1 */
        long begin = 0, length = p.length[0];
        for (int d = 0; d < LEVELS; d++) {
            if (at[d] >= length) {
                length = 0;
                break;
            }
            __global const index_t *offset = XPU_CPTR(index_t, p.offset[d]) + begin + at[d];
            const long from = offset[0], to = offset[1], extent = p.length[d + 1];
            if (from < 0 || to < from || to > extent) fault_report(p.watch, d, from < 0 ? from : to, extent);
            begin = from;
            length = from < 0 || to > extent ? 0 : max(to - from, 0L);
        }
        const long held = min(length, last_size) * p.row_size,
                   filled = clamp(held, column, max(stop, column));
        __global element *padded = XPU_PTR(element, p.padded) + segment * width;
        __global element *values = XPU_PTR(element, p.values) + begin * p.row_size;
#if UNPAD
        const long end = stop == width ? length * p.row_size : 0; /* the tail that `padded` lacks is zero */
#if TX == 1
        copy_row((__global T *)values + column, (__global const T *)padded + column,
                 (ulong)(filled - column));
        for (long c = width; c < end; c++) values[c] = (element)0;
#else
        for (long c = column + get_local_id(0); c < filled; c += TX) values[c] = padded[c];
        for (long c = width + get_local_id(0); c < end; c += TX) values[c] = (element)0;
#endif
#else
#if TX == 1
#if E == 8
        const ulong2 pair = (ulong2)(p.padding[0], p.padding[1]);
        const V padding = (V)(pair, pair, pair, pair);
#else
        const V padding = (V)(PADDING(0));
#endif
        copy_row((__global T *)padded + column, (__global const T *)values + column,
                 (ulong)(filled - column));
        long c = filled;
        for (; c + N <= stop; c += N) STORE_V(padding, 0, (__global T *)padded + c);
        for (; c < stop; c++) padded[c] = PADDING(c);
#else
        for (long c = column + get_local_id(0); c < stop; c += TX)
            padded[c] = c < held ? values[c] : PADDING(c);
#endif
#endif
    }
}

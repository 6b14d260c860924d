/* Byte copies and fills at any alignment:
 *   copy_bytes    to[i] = from[i]; a work-item moves BYTES_PER_ITEM bytes in units of p.unit (1 to 16)
 *   fill_bytes    to[i] = pattern[i % 16], i counted from addresses that are multiples of 16
 *   upload_<n>    writes up to n bytes that travel in the kernel's argument; one work-group, one work-item
 *                 per word
 * Local size: BYTES_LOCAL (copy_bytes, fill_bytes). */
#include "bytes.h"

#define COPY_UNITS(type)                                                                                     \
    for (; k + sizeof(type) <= n; k += sizeof(type))                                                         \
        *(__global type *)(to + k) = *(__global const type *)(from + k);

__kernel void copy_bytes(copy_bytes_params p) {
    const ulong at = (ulong)get_global_id(0) * BYTES_PER_ITEM;
    if (at >= p.size) return;
    __global uchar *to = (__global uchar *)(p.to + at);
    __global const uchar *from = (__global const uchar *)(p.from + at);
    const ulong n = min(p.size - at, (ulong)BYTES_PER_ITEM);
    ulong k = 0;
    if (p.unit == 16) {
        COPY_UNITS(uint4)
    } else if (p.unit == 8) {
        COPY_UNITS(ulong)
    } else if (p.unit == 4) {
        COPY_UNITS(uint)
    } else if (p.unit == 2) {
        COPY_UNITS(ushort)
    }
    COPY_UNITS(uchar)
}

__kernel void fill_bytes(fill_bytes_params p) {
    const ulong at = p.begin / BYTES_PER_ITEM * BYTES_PER_ITEM + (ulong)get_global_id(0) * BYTES_PER_ITEM;
    if (at >= p.begin && at + BYTES_PER_ITEM <= p.end)
        *(__global ulong2 *)at = (ulong2)(p.pattern[0], p.pattern[1]);
    else
        for (int k = 0; k < BYTES_PER_ITEM; k++)
            if (at + k >= p.begin && at + k < p.end)
                *(__global uchar *)(at + k) = (uchar)(p.pattern[k / 8] >> 8 * (k % 8));
}

#define UPLOAD(capacity)                                                                                     \
    __kernel void upload_##capacity(upload_##capacity##_params p) {                                          \
        const ulong at = 8 * (ulong)get_local_id(0);                                                         \
        if (at >= p.size) return;                                                                            \
        const ulong word = p.words[get_local_id(0)];                                                         \
        __global uchar *to = (__global uchar *)(p.to + at);                                                  \
        if (p.to % 8 == 0 && at + 8 <= p.size)                                                               \
            *(__global ulong *)to = word;                                                                    \
        else                                                                                                 \
            for (ulong k = 0; k < 8 && at + k < p.size; k++) to[k] = (uchar)(word >> 8 * k);                 \
    }
UPLOAD(64)
UPLOAD(256)
UPLOAD(896)

/* Parameters of the kernels in bytes.cl. */
#ifndef XPU_KERNELS_BYTES_H
#define XPU_KERNELS_BYTES_H
#include "shared.h"

#define BYTES_FILE "bytes.cl"
#define BYTES_PER_ITEM 16 /* that a work-item moves */
#define BYTES_LOCAL 256   /* work-items in a group of copy_bytes and fill_bytes */

/* `unit` bytes at a time, 1, 2, 4, 8 or 16, which divide both addresses. */
typedef struct copy_bytes_params {
    xpu_addr to, from;
    xpu_u64 size;
    xpu_i32 unit, reserved;
} copy_bytes_params;

/* The addresses from `begin` to before `end`. Byte k of the pattern is for those k above multiples of 16. */
typedef struct fill_bytes_params {
    xpu_addr begin, end;
    xpu_u64 pattern[2];
} fill_bytes_params;

/* The bytes themselves, in words; one group, one work-item per word. */
#define UPLOAD_BYTES(capacity)                                                                               \
    typedef struct upload_##capacity##_params {                                                              \
        xpu_addr to;                                                                                         \
        xpu_u64 size;                                                                                        \
        xpu_u64 words[(capacity) / 8];                                                                       \
    } upload_##capacity##_params;
UPLOAD_BYTES(64)
UPLOAD_BYTES(256)
UPLOAD_BYTES(896) /* the least that OpenCL allows for parameters is 1,024 bytes */
#endif

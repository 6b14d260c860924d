/* What the scan kernels are given. A row is the scanned dimension at one place of the others; it is cut into
 * `chunks` chunks of `chunk` elements. Strides count elements. */
#ifndef XPU_KERNELS_SCAN_H
#define XPU_KERNELS_SCAN_H
#include "shared.h"

#define SCAN_DIMS 15

typedef struct scan_params {
    xpu_addr in, out, index;
    xpu_addr totals; /* accumulators, one a row and chunk: the chunk's total, then what comes before it */
    xpu_i64 rows, length;
    xpu_i64 chunk, chunks;
    xpu_i64 along[3];        /* strides of in, out, index in the scanned dimension */
    xpu_i64 size[SCAN_DIMS]; /* the other dimensions, ROW_DIMS of them */
    xpu_i64 stride[3][SCAN_DIMS];
} scan_params;

#endif

/* Parameters of the scan kernels. A row is the scanned dimension at one position of the others; it is split
 * into `chunks` chunks of `chunk` elements. Strides count elements. */
#ifndef XPU_KERNELS_SCAN_H
#define XPU_KERNELS_SCAN_H
#include "row_walk.h"

typedef struct scan_params {
    xpu_addr in, out, index;
    xpu_addr totals; /* accumulators, one per row and chunk: the chunk's total, then its exclusive prefix */
    xpu_i64 length;
    xpu_i64 chunk, chunks;
    row_walk walk; /* of in, out, index */
} scan_params;

#endif

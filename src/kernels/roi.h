/* Parameters of roi.cl. */
#ifndef XPU_KERNELS_ROI_H
#define XPU_KERNELS_ROI_H
#include "fault.h"

typedef struct roi_params {
    xpu_addr image, regions; /* T */
    xpu_addr output;         /* T; backward: its gradient */
    xpu_addr argmax;         /* int, as the output, or 0 */
    xpu_addr grad_image;     /* ACC; backward */
    xpu_i64 total;           /* work-items */
    xpu_i64 images;
    struct fault_watch watch;
    xpu_i32 channels, height, width; /* of the image */
    xpu_i32 planes, rows, columns;   /* of a region's output */
    xpu_i32 samples;                 /* per bin and dimension; 0: adaptive, one per element of the bin */
    xpu_i32 aligned;
    float scale, scale_rest; /* their sum is the scale */
} roi_params;
#endif

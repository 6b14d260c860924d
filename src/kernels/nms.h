/* Parameters of nms.cl. */
#ifndef XPU_KERNELS_NMS_H
#define XPU_KERNELS_NMS_H
#include "shared.h"

typedef struct nms_params {
    xpu_addr boxes;   /* T [count, 4] */
    xpu_addr removed; /* ulong [words]: a bit a box */
    xpu_addr covers;  /* ulong [rows, words]: of boxes first … which others each covers */
    xpu_addr keep;    /* uchar [count] */
    xpu_i64 count, words, first, rows;
    float threshold, threshold_rest; /* their sum is the threshold */
} nms_params;
#endif

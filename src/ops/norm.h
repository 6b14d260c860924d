/* Shared by the norms. */
#ifndef OPS_NORM_H
#define OPS_NORM_H

#include "xpu/ops/norm.h"

/* Mean 0 (unless NULL) and 1 / deviation NaN, of `count` sets without an element, as PyTorch's CPU has them.
 */
xpu_status statistics_of_empty(xpu_stream *stream, xpu_dtype dtype, int64_t count, void *mean, void *rstd);

#endif

/* Antialiased resampling (xpu/ops/resample.h): one dimension after the other. */
#ifndef OPS_RESAMPLE_FILTER_H
#define OPS_RESAMPLE_FILTER_H

#include "xpu/ops/resample.h"

static inline bool resample_filters(const xpu_resample *args) {
    return args->kind >= XPU_RESAMPLE_FILTER_LINEAR && args->kind <= XPU_RESAMPLE_FILTER_LANCZOS;
}
xpu_status resample_filter_forward(xpu_stream *stream, const xpu_resample *args, const void *input,
                                   void *output);
xpu_status resample_filter_backward(xpu_stream *stream, const xpu_resample *args, const void *grad_output,
                                    void *grad_input);

#endif

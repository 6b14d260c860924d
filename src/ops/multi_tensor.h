/* Launches over many tensors (kernels/multi_tensor.h). */
#ifndef XPU_OPS_MULTI_TENSOR_H
#define XPU_OPS_MULTI_TENSOR_H

#include "kernels/multi_tensor.h"
#include "ops/kernel.h"

/* Device-dependent choices; part of the kernel key. */
typedef struct multi_tensor_shape {
    bool in_params;   /* the table goes with the parameters */
    int local, steps; /* steps: of a group; 0: the launch tells kernels how many elements */
} multi_tensor_shape;

xpu_status multi_tensor_shape_of(int device, multi_tensor_shape *shape);
/* -DWIDTH=… -DINLINE=… -DLOCAL=… -DSTEPS=… */
void multi_tensor_spec(kernel_spec *spec, const multi_tensor_shape *shape, int width);

/* Launches `kernel` on `tensors` rows of `width` words. The last word of each is written here. `cost` is that
 * of one element in simple operations. */
xpu_status multi_tensor_launch(xpu_stream *stream, xpu_kernel *kernel, const multi_tensor_shape *shape,
                               uint64_t *rows, int width, int64_t tensors, struct multi_tensor_params *params,
                               unsigned cost);
/* The same with one group a row, the row's number being the group's. */
xpu_status multi_tensor_launch_rows(xpu_stream *stream, xpu_kernel *kernel, const multi_tensor_shape *shape,
                                    const uint64_t *rows, int width, int64_t tensors,
                                    struct multi_tensor_params *params, unsigned cost);
#endif

/* The walk over an iteration with index tensors: from an xpu_iter to the parameters of the kernels that
 * include kernels/index.h. */
#ifndef XPU_OPS_INDEX_WALK_H
#define XPU_OPS_INDEX_WALK_H

#include "kernels/index.h"
#include "ops/kernel.h"
#include "xpu/ops/index.h"

/* Dimensions, fastest first, as the kernels see them: at least 2. The first `parallel` of them are the
 * ND-range; the others run inside the work-item. */
typedef struct index_walk {
    const xpu_device_properties *properties;
    int device, dims, parallel;
    struct index_params params;
    bool flat_out, flat_in, flat_index; /* strides of dimension 0 are the element's own */
    bool row;                           /* one index for all of dimension 0 */
    bool copies_rows;                   /* CPU: a work-item copies rows; no dimension is serial */
    size_t element;                     /* bytes moved by a work-item */
    size_t element_in;                  /* of the input; differs if the accumulator is wider */
    xpu_dtype index_dtype;
    int indices;
} index_walk;

/* Runs `launch` on the walk over `iter`, once for each element of the dimensions that are too many for the
 * kernels. `op`: its name in reports of faults. With `fixed`, dimensions along which the output doesn't move
 * go last and run serially. */
typedef xpu_status (*index_launcher)(xpu_stream *stream, index_walk *walk, void *context);
xpu_status index_run(xpu_stream *stream, const char *op, const xpu_iter *iter, const xpu_indexed *indexed,
                     bool fixed, xpu_fault *fault, index_launcher launch, void *context);

/* xpu_index_put under the name of another operation. */
xpu_status index_put(xpu_stream *stream, const char *op, const xpu_iter *iter, const xpu_indexed *indexed,
                     xpu_fault *fault);

/* The facts and the ND-range that belong to the walk. */
void index_spec(kernel_spec *spec, const index_walk *walk);
xpu_range index_range(const index_walk *walk, unsigned cost);

/* Blocks of `block` elements of dimension 0, `lanes` work-items each. */
xpu_range index_blocks(const index_walk *walk, int64_t block, size_t lanes);

/* True where work is done when the call that submits it returns. */
static inline bool device_is_synchronous(const xpu_device_properties *properties) {
    return properties->type == XPU_DEVICE_CPU;
}

/* Iterations of the operations with a dimension. `index_all`: the index has all dimensions (gather, scatter),
 * else one. `chooses` is the operand (0 out, 1 in) that the index chooses from. */
xpu_status index_iter(const char *what, const xpu_tensor *out, const xpu_tensor *in, const xpu_tensor *index,
                      int dim, bool index_all, int chooses, xpu_iter *iter, xpu_indexed *indexed);
#endif

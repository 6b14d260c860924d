/* Indexing: get, put, gather, index_select. */
#include "xpu/ops/index.h"

#include "ops/index_walk.h"

#define LONGEST_BLOCK 8192 /* elements */

/* Combines several elements of a row into a wider one, except 16-byte elements for row copies. */
static void widen(index_walk *walk) {
    struct index_params *p = &walk->params;
    size_t widest = walk->properties->type == XPU_DEVICE_CPU ? 8 : 16;
    if (!walk->row || !walk->flat_out || !walk->flat_in) return;
    uint64_t places = p->out | p->in | (uint64_t)p->size[0] * walk->element;
    for (int d = 1; d < walk->dims; d++) places |= (uint64_t)p->out_stride[d] | (uint64_t)p->in_stride[d];
    for (int k = 0; k < walk->indices; k++) places |= (uint64_t)p->step[k];
    size_t wide = walk->copies_rows && walk->element > widest ? widest : walk->element;
    while (2 * wide <= widest && places % (2 * wide) == 0) wide *= 2;
    p->size[0] = p->size[0] * (int64_t)walk->element / (int64_t)wide;
    walk->element = wide;
    p->out_stride[0] = p->in_stride[0] = (int64_t)wide;
}

/* CPU: elements of a block that a work-item moves (-DBLOCKS), or 0. Scattered elements are moved faster one
 * by one than by gather instructions. */
static int32_t block_of(const index_walk *walk) {
    const struct index_params *p = &walk->params;
    if (walk->properties->type != XPU_DEVICE_CPU || walk->indices > 1 || walk->row) return 0;
    int64_t others = 1, wanted = (int64_t)walk->properties->max_compute_units;
    for (int d = 1; d < walk->dims; d++) others *= p->size[d];
    int64_t parts = others < wanted ? (wanted + others - 1) / others : 1;
    int64_t block = (p->size[0] + parts - 1) / parts;
    return (int32_t)(block < LONGEST_BLOCK ? block : LONGEST_BLOCK);
}

static xpu_status move(xpu_stream *stream, index_walk *walk, void *context) {
    bool put = *(const bool *)context;
    widen(walk);
    walk->params.block = block_of(walk);
    kernel_spec spec;
    spec_begin(&spec, FAMILY_INDEX);
    index_spec(&spec, walk);
    spec_option_int(&spec, "E", (int64_t)walk->element);
    spec_bool(&spec, "PUT", put);
    spec_flag(&spec, "ROWS", walk->copies_rows);
    const struct index_params *p = &walk->params;
    const bool blocks = p->block > 0, by_unit = blocks && p->step[0] == (int64_t)walk->element;
    spec_flag(&spec, "BLOCKS", blocks);
    spec_flag(&spec, "IS_CONTIGUOUS_DIM", by_unit);
    spec_flag(&spec, "OTHER_DIMS_FIXED", by_unit && (put ? p->out_stride : p->in_stride)[0] == 0);
    spec_flag(&spec, "FILLS", blocks && put && p->in_stride[0] == 0);
    spec_flag(&spec, "WRAPS", blocks && p->wrap);
    xpu_kernel *kernel = kernel_find(walk->device, &spec);
    if (!kernel)
        XPU_TRY(kernel_from_file(walk->device, &spec, "index.cl", "index_move", &kernel, "index_%s %zu bytes",
                                 put ? "put" : "get", walk->element));
    xpu_range range = walk->copies_rows ? index_blocks(walk, p->size[0], 1)
                      : blocks          ? index_blocks(walk, p->block, 1)
                                        : index_range(walk, walk->row ? 1 : 4);
    if (blocks) range.work *= 4;
    return xpu_launch(stream, kernel, &range, p, sizeof *p);
}

static xpu_status get(xpu_stream *stream, const char *op, const xpu_iter *iter, const xpu_indexed *indexed,
                      xpu_fault *fault) {
    bool put = false;
    return index_run(stream, op, iter, indexed, false, fault, move, &put);
}

xpu_status index_put(xpu_stream *stream, const char *op, const xpu_iter *iter, const xpu_indexed *indexed,
                     xpu_fault *fault) {
    bool put = true;
    return index_run(stream, op, iter, indexed, false, fault, move, &put);
}

xpu_status xpu_index_get(xpu_stream *stream, const xpu_iter *iter, const xpu_indexed *indexed,
                         xpu_fault *fault) {
    return get(stream, "index", iter, indexed, fault);
}

xpu_status xpu_index_put(xpu_stream *stream, const xpu_iter *iter, const xpu_indexed *indexed,
                         xpu_fault *fault) {
    return index_put(stream, "index_put", iter, indexed, fault);
}

xpu_status xpu_gather(xpu_stream *stream, const xpu_tensor *out, const xpu_tensor *in, int dim,
                      const xpu_tensor *index, xpu_fault *fault) {
    xpu_iter iter;
    xpu_indexed indexed;
    XPU_TRY(index_iter("gather", out, in, index, dim, true, 1, &iter, &indexed));
    return get(stream, "gather", &iter, &indexed, fault);
}

xpu_status xpu_index_select(xpu_stream *stream, const xpu_tensor *out, const xpu_tensor *in, int dim,
                            const xpu_tensor *index, xpu_fault *fault) {
    xpu_iter iter;
    xpu_indexed indexed;
    XPU_TRY(index_iter("index_select", out, in, index, dim, false, 1, &iter, &indexed));
    return get(stream, "index_select", &iter, &indexed, fault);
}

xpu_status xpu_index_fill(xpu_stream *stream, const xpu_tensor *out, int dim, const xpu_tensor *index,
                          const xpu_tensor *in, xpu_fault *fault) {
    xpu_iter iter;
    xpu_indexed indexed;
    XPU_TRY(index_iter("index_fill", out, in, index, dim, false, 0, &iter, &indexed));
    indexed.wrap = true;
    return index_put(stream, "index_fill", &iter, &indexed, fault);
}

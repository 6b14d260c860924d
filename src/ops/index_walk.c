/* Sorts and merges the dimensions of an indexed iteration, and fills kernel parameters (index_walk.h). */
#include "ops/index_walk.h"

#include <stddef.h>
#include <string.h>

_Static_assert(sizeof(struct fault) == sizeof(xpu_fault) &&
                   offsetof(struct fault, state) == offsetof(xpu_fault, state),
               "kernels and libxpu must use the same layout for error reports");

/* --- from tensors to an iteration --- */

/* Sorts the dimensions by the strides of the indexed operand, then of the other one, for sequential access.
 */
static bool goes_before(const xpu_iter *iter, int a, int b) {
    for (int i = 0; i < 2; i++) {
        int64_t left = iter->operand[i].stride[a], right = iter->operand[i].stride[b];
        if (left < 0) left = -left;
        if (right < 0) right = -right;
        if (left != right && left && right) return left < right;
    }
    return false;
}

static void swap_dims(xpu_iter *iter, int a, int b) {
    int64_t size = iter->size[a];
    iter->size[a] = iter->size[b];
    iter->size[b] = size;
    for (int i = 0; i < iter->outputs + iter->inputs; i++) {
        int64_t stride = iter->operand[i].stride[a];
        iter->operand[i].stride[a] = iter->operand[i].stride[b];
        iter->operand[i].stride[b] = stride;
    }
}

static void sort_dims(xpu_iter *iter) {
    for (int d = 1; d < iter->dims; d++)
        for (int e = d; e > 0 && goes_before(iter, e, e - 1); e--) swap_dims(iter, e, e - 1);
}

xpu_status index_iter(const char *what, const xpu_tensor *out, const xpu_tensor *in, const xpu_tensor *index,
                      int dim, bool index_all, int chooses, xpu_iter *iter, xpu_indexed *indexed) {
    const xpu_tensor *chosen = chooses == 0 ? out : in, *other = chooses == 0 ? in : out;
    int dims = chosen->dims;
    if (dims > XPU_MAX_DIMS)
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "%s: more than %d dimensions", what, XPU_MAX_DIMS);
    if (out->dtype != in->dtype)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "%s: dtypes %s and %s differ", what,
                       dtype_token(out->dtype), dtype_token(in->dtype));
    if (dim < 0 || dim >= (dims ? dims : 1))
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "%s: dimension %d is out of range for %d dimensions", what,
                       dim, dims);

    const xpu_tensor *shape = index_all ? index : other; /* whose shape is walked */
    size_t element = xpu_dtype_size(out->dtype), index_element = xpu_dtype_size(index->dtype);
    iter->outputs = 1;
    iter->inputs = 2;
    iter->dims = shape->dims;
    iter->operand[0].data = out->data, iter->operand[0].dtype = out->dtype;
    iter->operand[1].data = in->data, iter->operand[1].dtype = in->dtype;
    iter->operand[2].data = index->data, iter->operand[2].dtype = index->dtype;
    for (int d = 0; d < shape->dims; d++) {
        int at = shape->dims - 1 - d;
        iter->size[at] = shape->size[d];
        int64_t *stride[2] = {&iter->operand[chooses].stride[at], &iter->operand[1 - chooses].stride[at]};
        *stride[0] = d == dim || d >= dims ? 0 : chosen->stride[d] * (int64_t)element;
        *stride[1] = d >= other->dims ? 0 : other->stride[d] * (int64_t)element;
        bool moves = d < index->dims && index_all;
        int64_t index_stride = moves ? index->stride[d] : d == dim && index->dims > 0 ? index->stride[0] : 0;
        iter->operand[2].stride[at] = index_stride * (int64_t)index_element;
    }
    *indexed = (xpu_indexed){.count = 1};
    indexed->extent[0] = dims ? chosen->size[dim] : 1;
    indexed->stride[0] = dims ? chosen->stride[dim] * (int64_t)element : 0;
    sort_dims(iter);
    xpu_iter_coalesce(iter);
    return XPU_SUCCESS;
}

/* --- from an iteration to parameters --- */

/* Moves the dimensions in which the output's stride is 0 to the end; returns the number of the others. */
static int part_dims(xpu_iter *iter) {
    int moving = 0;
    for (int d = 0; d < iter->dims; d++) {
        if (iter->operand[0].stride[d] == 0) continue;
        for (int e = d; e > moving; e--) swap_dims(iter, e, e - 1);
        moving++;
    }
    return moving;
}

static void insert_unit_dim(xpu_iter *iter, int at) {
    iter->size[iter->dims] = 1;
    for (int i = 0; i < iter->outputs + iter->inputs; i++) iter->operand[i].stride[iter->dims] = 0;
    iter->dims++;
    for (int d = iter->dims - 1; d > at; d--) swap_dims(iter, d, d - 1);
}

static void fill_params(index_walk *walk, const xpu_iter *iter, const xpu_indexed *indexed) {
    struct index_params *p = &walk->params;
    p->out = XPU_ADDR(iter->operand[0].data);
    p->in = XPU_ADDR(iter->operand[1].data);
    p->wrap = indexed->wrap;
    p->serial = 1;
    for (int d = 0; d < iter->dims; d++) {
        p->size[d] = iter->size[d];
        p->out_stride[d] = iter->operand[0].stride[d];
        p->in_stride[d] = iter->operand[1].stride[d];
        if (d >= walk->parallel) p->serial *= iter->size[d];
    }
    int64_t index_size = (int64_t)xpu_dtype_size(walk->index_dtype);
    walk->row = true;
    walk->flat_index = true;
    for (int k = 0; k < indexed->count; k++) {
        const xpu_operand *index = &iter->operand[2 + k];
        p->index[k] = XPU_ADDR(index->data);
        p->extent[k] = indexed->extent[k];
        p->step[k] = indexed->stride[k];
        for (int d = 0; d < iter->dims; d++) p->index_stride[k][d] = index->stride[d];
        walk->row &= index->stride[0] == 0;
        walk->flat_index &= index->stride[0] == index_size;
    }
    walk->flat_out = p->out_stride[0] == (int64_t)walk->element;
    walk->flat_in = p->in_stride[0] == (int64_t)walk->element_in;
}

/* Has dimension 0 a single index, and is it long enough for row copies? */
#define LEAST_COPIED 8 /* bytes */
static bool copies_rows(const index_walk *walk, const xpu_iter *iter) {
    const int64_t element = (int64_t)walk->element;
    bool whole = walk->properties->type == XPU_DEVICE_CPU && iter->size[0] * element >= LEAST_COPIED &&
                 iter->operand[0].stride[0] == element && iter->operand[1].stride[0] == element;
    for (int k = 0; k < walk->indices; k++) whole &= iter->operand[2 + k].stride[0] == 0;
    return whole;
}

xpu_status index_run(xpu_stream *stream, const char *op, const xpu_iter *given, const xpu_indexed *indexed,
                     bool fixed, xpu_fault *fault, index_launcher launch, void *context) {
    if (indexed->count < 1 || indexed->count > XPU_MAX_INDICES || given->outputs != 1 ||
        given->inputs != 1 + indexed->count)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "index: %d outputs and %d inputs don't match %d indexed dimensions", given->outputs,
                       given->inputs, indexed->count);
    for (int k = 0; k < indexed->count; k++) {
        xpu_dtype dtype = given->operand[2 + k].dtype;
        if ((dtype != XPU_INT64 && dtype != XPU_INT32) || dtype != given->operand[2].dtype)
            return op_fail(XPU_ERROR_INVALID_ARGUMENT, "index: index tensors must be all int64 or all int32");
    }
    if (fault) fault->state = 0;
    if (xpu_iter_numel(given) == 0) return XPU_SUCCESS;

    index_walk walk;
    walk.device = xpu_stream_device(stream);
    XPU_TRY(xpu_device_get_properties(walk.device, &walk.properties));
    walk.element = xpu_dtype_size(given->operand[0].dtype);
    walk.element_in = xpu_dtype_size(given->operand[1].dtype);
    walk.index_dtype = given->operand[2].dtype;
    walk.indices = indexed->count;
    xpu_fault *place = NULL;
    if (fault) XPU_TRY(xpu_fault_watch(stream, &place));
    walk.params.watch = (struct fault_watch){XPU_ADDR(place), XPU_ADDR(op)};

    xpu_iter iter = *given;
    int moving = fixed ? part_dims(&iter) : iter.dims;
    /* Dimension 0 of the range should be long, except for row copies on CPUs. */
    if (moving > 1 && iter.size[0] < 16 && (fixed || !copies_rows(&walk, &iter))) {
        int longest = 0;
        for (int d = 1; d < moving; d++)
            if (iter.size[d] > iter.size[longest]) longest = d;
        if (longest) swap_dims(&iter, 0, longest);
    }
    for (; moving < 2; moving++) {
        if (iter.dims == XPU_MAX_DIMS) return op_fail(XPU_ERROR_NOT_SUPPORTED, "index: too many dimensions");
        insert_unit_dim(&iter, moving);
    }
    int outer = iter.dims > INDEX_DIMS ? iter.dims - INDEX_DIMS
                                       : 0; /* the slowest dimensions become a loop over launches */
    iter.dims -= outer;
    if (moving > iter.dims) moving = iter.dims;
    int64_t repeats = 1;
    for (int d = 0; d < outer; d++) repeats *= iter.size[iter.dims + d];
    walk.dims = iter.dims;
    walk.parallel = moving;
    walk.copies_rows = moving == iter.dims && copies_rows(&walk, &iter);

    char *base[2 + XPU_MAX_INDICES];
    for (int i = 0; i < 2 + indexed->count; i++) base[i] = iter.operand[i].data;
    for (int64_t n = 0; n < repeats; n++) {
        int64_t rest = n;
        for (int i = 0; i < 2 + indexed->count; i++) iter.operand[i].data = base[i];
        for (int d = iter.dims; d < iter.dims + outer; d++) {
            int64_t at = rest % iter.size[d];
            rest /= iter.size[d];
            for (int i = 0; i < 2 + indexed->count; i++)
                iter.operand[i].data = (char *)iter.operand[i].data + at * iter.operand[i].stride[d];
        }
        fill_params(&walk, &iter, indexed);
        XPU_TRY(launch(stream, &walk, context));
    }
    if (fault) xpu_fault_take(stream, place, fault);
    return XPU_SUCCESS;
}

void index_spec(kernel_spec *spec, const index_walk *walk) {
    spec_int(spec, "NI", walk->indices, 8);
    spec_int(spec, "DIMS", walk->dims, 8);
    spec_int(spec, "PDIMS", walk->parallel, 8);
    spec_dtype(spec, "I", walk->index_dtype);
    spec_key_only(spec, "element", (int64_t)walk->element, 8);
    spec_key_only(spec, "flat_out", walk->flat_out, 1);
    spec_key_only(spec, "flat_in", walk->flat_in, 1);
    spec_key_only(spec, "flat_index", walk->flat_index, 1);
    spec_key_only(spec, "row", walk->row, 1);
    if (walk->flat_out) spec_option_int(spec, "OS0", (int64_t)walk->element);
    if (walk->flat_in) spec_option_int(spec, "IS0", walk->params.in_stride[0]);
    if (walk->row || walk->flat_index)
        spec_option_int(spec, "KS0", walk->row ? 0 : (int64_t)xpu_dtype_size(walk->index_dtype));
}

xpu_range index_range(const index_walk *walk, unsigned cost) {
    const struct index_params *p = &walk->params;
    bool cpu = walk->properties->type == XPU_DEVICE_CPU;
    size_t group = cpu ? 2048 : 256;
    if (group > walk->properties->max_work_group_size) group = walk->properties->max_work_group_size;
    size_t columns = (size_t)p->size[0], rows = (size_t)p->size[1];
    size_t longest = cpu && walk->parallel < walk->dims ? 64 : group; /* serial walks: more, shorter groups */
    size_t parts = (columns + longest - 1) / longest;
    xpu_range range = {.dims = 3};
    range.local[0] = ((columns + parts - 1) / parts + 15) / 16 * 16;
    if (range.local[0] > group) range.local[0] = group;
    range.local[1] = group / range.local[0] < rows ? group / range.local[0] : rows;
    range.local[2] = 1;
    range.groups[0] = (columns + range.local[0] - 1) / range.local[0];
    range.groups[1] = (rows + range.local[1] - 1) / range.local[1];
    range.groups[2] = 1;
    for (int d = 2; d < walk->parallel; d++) range.groups[2] *= (size_t)p->size[d];
    range.work = (uint64_t)columns * rows * range.groups[2] * (uint64_t)p->serial * cost;
    return range;
}

#define GROUP_ELEMENTS 8192

xpu_range index_blocks(const index_walk *walk, int64_t block, size_t lanes) {
    const struct index_params *p = &walk->params;
    size_t rows = (size_t)p->size[1], serial = (size_t)p->serial, others = 1;
    size_t in_group = GROUP_ELEMENTS / ((size_t)block * serial);
    size_t most = walk->properties->max_work_group_size / lanes;
    if (in_group > most) in_group = most;
    if (in_group > rows) in_group = rows;
    if (in_group < 1) in_group = 1;
    for (int d = 2; d < walk->parallel; d++) others *= (size_t)p->size[d];
    return (xpu_range){
        .dims = 3,
        .groups = {(size_t)((p->size[0] + block - 1) / block), (rows + in_group - 1) / in_group, others},
        .local = {lanes, in_group, 1},
        .work = (uint64_t)p->size[0] * rows * others * serial};
}

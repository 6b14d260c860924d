/* Running a package: assigns addresses to its tensors, then executes the steps in order on the caller's
 * stream. One thread at a time may run a package. The caller owns inputs and outputs; outputs without memory
 * are allocated and become the caller's, and are freed again if the run fails. Errors:
 * XPU_ERROR_INVALID_ARGUMENT for tensors that do not fit the model, XPU_ERROR_OUT_OF_MEMORY. */
#include "package/format.h"
#include "xpu/device.h"
#include "xpu/memory.h"
#include "xpu/ops/copy.h"

enum { ALIGNMENT = 16 }; /* compiled kernels rely on it */

void call_tensor(const pack_call *call, int64_t slot, xpu_tensor *tensor) {
    const pack_tensor *t = &call->package->tensors[slot];
    const plan_tensor *at = &call->plan->tensors[slot];
    *tensor = (xpu_tensor){call->package->bases[slot], t->dtype, t->dims, at->size, at->stride};
}

static void put_operand(xpu_iter *iter, int at, const xpu_tensor *t) {
    const int64_t element = (int64_t)xpu_dtype_size(t->dtype);
    iter->operand[at].data = t->data, iter->operand[at].dtype = t->dtype;
    for (int d = 0; d < t->dims; d++) { /* a size-1 dimension may have any stride */
        const int from = t->dims - 1 - d;
        iter->operand[at].stride[d] = t->size[from] > 1 ? t->stride[from] * element : 0;
    }
}

xpu_iter tensor_iter(const xpu_tensor *to, const xpu_tensor *from) {
    xpu_iter iter = {.outputs = 1, .inputs = from != NULL, .dims = to->dims};
    for (int d = 0; d < to->dims; d++) iter.size[d] = to->size[to->dims - 1 - d];
    put_operand(&iter, 0, to);
    if (from) put_operand(&iter, 1, from);
    xpu_iter_coalesce(&iter);
    return iter;
}

xpu_status copy_tensor(xpu_stream *stream, const xpu_tensor *to, const xpu_tensor *from) {
    const xpu_iter iter = tensor_iter(to, from);
    return xpu_copy(stream, &iter);
}

static xpu_status copy(xpu_stream *stream, xpu_dtype dtype, int dims, const int64_t *size, void *to,
                       const int64_t *to_stride, const void *from, const int64_t *from_stride) {
    const xpu_tensor there = {to, dtype, dims, size, to_stride};
    const xpu_tensor here = {(void *)(uintptr_t)from, dtype, dims, size, from_stride};
    return copy_tensor(stream, &there, &here);
}

static bool lies_so(int dims, const int64_t *size, const int64_t *stride, const int64_t *wanted) {
    for (int d = 0; d < dims; d++)
        if (size[d] == 0) return true;
    for (int d = 0; d < dims; d++)
        if (size[d] != 1 && stride[d] != wanted[d]) return false;
    return true;
}
static bool is_aligned(const void *data) { return (uintptr_t)data % ALIGNMENT == 0; }

/* Bytes from element 0 to the end of the last element; 0 if empty, UINT64_MAX on overflow. */
static uint64_t extent(const xpu_package_tensor *t) {
    uint64_t bytes;
    for (int d = 0; d < t->dims; d++)
        if (t->size[d] == 0) return 0;
    return reach_of(t->dims, t->size, t->stride, 0, xpu_dtype_size(t->dtype), &bytes) ? bytes : UINT64_MAX;
}

/* Checks the strides of a caller's tensor and computes its extent. Its sizes have been checked. */
static xpu_status check_strides(const xpu_package_tensor *t, const char *what, const char *name,
                                uint64_t *bytes) {
    for (int d = 0; d < t->dims; d++) BAD_IF(t->stride[d] < 0, "%s %s has a negative stride", what, name);
    *bytes = extent(t);
    BAD_IF(*bytes == UINT64_MAX, "the strides of %s %s exceed the address space", what, name);
    return XPU_SUCCESS;
}

static xpu_status check_given(const xpu_package_tensor *t, const xpu_package_port *port, const char *what) {
    BAD_IF(t->dtype != port->dtype, "%s %s has dtype %s, but the model expects %s", what, port->name,
           (unsigned)t->dtype < XPU_DTYPE_COUNT ? xpu_dtype_name(t->dtype) : "unknown",
           xpu_dtype_name(port->dtype));
    BAD_IF(t->dims != port->dims, "%s %s has %d dimensions, but the model expects %d", what, port->name,
           t->dims, port->dims);
    for (int d = 0; d < t->dims; d++)
        BAD_IF(t->size[d] < 0, "%s %s has invalid size %lld", what, port->name, (long long)t->size[d]);
    return XPU_SUCCESS;
}

static xpu_status find_plan(xpu_package *p, const xpu_package_tensor *inputs, int input_count,
                            int output_count, pack_plan **plan) {
    BAD_IF(input_count != p->input_count, "got %d inputs, but the model has %d", input_count, p->input_count);
    BAD_IF(output_count != p->output_count, "got %d outputs, but the model has %d", output_count,
           p->output_count);
    int at = 0;
    for (int i = 0; i < input_count; i++) {
        XPU_TRY(check_given(&inputs[i], &p->input_ports[i], "input"));
        for (int d = 0; d < inputs[i].dims; d++) p->sizes[at++] = inputs[i].size[d];
    }
    return plan_find(p, plan);
}

/* The layout of an output as the model produces it. An output that is part of a larger tensor, or not in the
 * model's own memory, is returned contiguous. */
static void output_shape(const xpu_package *p, const pack_plan *plan, int i, xpu_package_tensor *to) {
    const pack_tensor *t = &p->tensors[p->outputs[i]];
    const plan_tensor *at = &plan->tensors[p->outputs[i]];
    int64_t stride = 1;
    to->dtype = t->dtype;
    to->dims = t->dims;
    for (int d = t->dims - 1; d >= 0; d--) {
        to->size[d] = at->size[d];
        to->stride[d] = t->kind == TENSOR_NEW ? at->stride[d] : stride;
        stride *= at->size[d] > 1 ? at->size[d] : 1;
    }
}

xpu_status xpu_package_shapes(xpu_package *p, const xpu_package_tensor *inputs, int input_count,
                              xpu_package_tensor *outputs, int output_count) {
    XPU_REJECT_IF(!p || (!inputs && input_count) || (!outputs && output_count), "NULL");
    pack_plan *plan;
    XPU_TRY(find_plan(p, inputs, input_count, output_count, &plan));
    for (int i = 0; i < output_count; i++) output_shape(p, plan, i, &outputs[i]);
    return XPU_SUCCESS;
}

/* --- a run --- */

typedef struct run {
    xpu_package *p;
    pack_plan *plan;
    xpu_stream *stream;
    void **temporary; /* memory that is freed at the end of the run */
    int temporaries;
    void **given; /* output memory allocated for the caller; freed if the run fails */
} run;

static xpu_status get_memory(run *r, uint64_t size, void **to) {
    *to = NULL;
    XPU_TRY(xpu_malloc(r->stream, size ? size : 1, to));
    r->temporary[r->temporaries++] = *to;
    return XPU_SUCCESS;
}

/* Determines the address at which the model reads an input; copies the input if its layout does not fit. */
static xpu_status place_input(run *r, int i, const xpu_package_tensor *in, void **to) {
    const plan_tensor *wanted = &r->plan->expected[i];
    const xpu_package_port *port = &r->p->input_ports[i];
    uint64_t bytes;
    XPU_TRY(check_strides(in, "input", port->name, &bytes));
    BAD_IF(!in->data && bytes, "the data pointer of input %s is NULL", port->name);
    const bool is_there = !in->is_host || r->p->is_mapped_there;
    const bool fits = lies_so(in->dims, in->size, in->stride, wanted->stride);
    *to = in->data;
    if (!bytes) return get_memory(r, 0, to);
    if (is_there && fits && is_aligned(in->data)) return XPU_SUCCESS;
    BAD_IF(port->is_written,
           "input %s is modified by the model: it must be in device memory, aligned to %d bytes, with the "
           "model's strides",
           port->name, ALIGNMENT);
    const void *from = in->data;
    if (!is_there) {
        XPU_TRY(get_memory(r, bytes, to));
        XPU_TRY(xpu_memcpy(r->stream, *to, in->data, bytes, true));
        if (fits) return XPU_SUCCESS;
        from = *to;
    }
    XPU_TRY(get_memory(r, wanted->bytes, to));
    return copy(r->stream, in->dtype, in->dims, in->size, *to, wanted->stride, from, in->stride);
}

static xpu_status place_inputs(run *r, const xpu_package_tensor *inputs) {
    xpu_package *p = r->p;
    void **address = core_calloc((size_t)p->input_count + 1, sizeof *address);
    if (!address) return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for a package's run");
    xpu_status status = XPU_SUCCESS;
    for (int i = 0; i < p->input_count && status == XPU_SUCCESS; i++)
        status = place_input(r, i, &inputs[i], &address[i]);
    for (int i = 0; i < p->tensor_count && status == XPU_SUCCESS; i++)
        if (p->tensors[i].kind == TENSOR_INPUT) p->bases[i] = address[p->tensors[i].base];
    core_free(address);
    return status;
}

/* Tensors without elements may have no memory. */
static void *behind(void *base, uint64_t bytes) { return base ? (char *)base + bytes : NULL; }

/* Ensures that the arena belongs to this run's stream and is large enough for the plan. */
static xpu_status place_arena(run *r) {
    xpu_package *p = r->p;
    if (p->arena && (p->arena_size < r->plan->arena || p->arena_stream != r->stream)) {
        XPU_TRY(xpu_free(p->arena));
        p->arena = NULL;
    }
    if (!p->arena && r->plan->arena) {
        XPU_TRY(xpu_malloc(r->stream, r->plan->arena, &p->arena));
        p->arena_size = r->plan->arena;
        p->arena_stream = r->stream;
    }
    for (int i = 0; i < p->tensor_count; i++) {
        const pack_tensor *t = &p->tensors[i];
        if (t->kind == TENSOR_NEW) p->bases[i] = behind(p->arena, r->plan->tensors[i].start);
        if (t->kind == TENSOR_CONSTANT) p->bases[i] = p->constants[t->base].data;
    }
    return XPU_SUCCESS;
}

/* Can output `i` be computed directly in the caller's memory? Only if it is a whole tensor of the same
 * layout. */
static bool in_place(const run *r, int i, const xpu_package_tensor *out) {
    const xpu_package *p = r->p;
    const int slot = p->outputs[i];
    for (int other = 0; other < i; other++)
        if (p->outputs[other] == slot) return false;
    const plan_tensor *wanted = &r->plan->tensors[slot];
    return p->tensors[slot].kind == TENSOR_NEW && !wanted->offset && out->data && is_aligned(out->data) &&
           (!out->is_host || p->is_mapped_there) &&
           lies_so(out->dims, out->size, out->stride, wanted->stride);
}

static xpu_status place_outputs(run *r, xpu_package_tensor *outputs) {
    xpu_package *p = r->p;
    for (int i = 0; i < p->tensor_count; i++) /* tensors that live to the end are not in the arena */
        if (p->tensors[i].kind == TENSOR_NEW && p->tensors[i].last == p->step_count) p->bases[i] = NULL;
    for (int i = 0; i < p->output_count; i++) {
        xpu_package_tensor *out = &outputs[i], shape = {0};
        uint64_t bytes;
        output_shape(p, r->plan, i, &shape);
        if (out->data) {
            XPU_TRY(check_given(out, &p->output_ports[i], "output"));
            for (int d = 0; d < shape.dims; d++)
                BAD_IF(out->size[d] != shape.size[d],
                       "output %s has size %lld in dimension %d; expected %lld", p->output_ports[i].name,
                       (long long)out->size[d], d, (long long)shape.size[d]);
            XPU_TRY(check_strides(out, "output", p->output_ports[i].name, &bytes));
        } else {
            shape.is_host = false;
            bytes = extent(&shape);
            XPU_TRY(xpu_malloc(r->stream, bytes ? bytes : 1, &shape.data));
            r->given[i] = shape.data;
            *out = shape;
        }
        if (in_place(r, i, out)) p->bases[p->outputs[i]] = out->data;
    }
    for (int i = 0; i < p->tensor_count; i++)
        if (p->tensors[i].kind == TENSOR_NEW && p->tensors[i].last == p->step_count && !p->bases[i])
            XPU_TRY(get_memory(r, r->plan->tensors[i].bytes, &p->bases[i]));
    return XPU_SUCCESS;
}

static void place_views(run *r) {
    xpu_package *p = r->p;
    for (int i = 0; i < p->tensor_count; i++) { /* the base of a view precedes it */
        const pack_tensor *t = &p->tensors[i];
        if (t->kind == TENSOR_VIEW)
            p->bases[i] = behind(p->bases[t->base], (uint64_t)r->plan->tensors[i].offset);
    }
    for (int i = 0; i < p->tensor_count; i++)
        if (p->tensors[i].kind != TENSOR_VIEW)
            p->bases[i] = behind(p->bases[i], (uint64_t)r->plan->tensors[i].offset);
}

static xpu_status launch(const run *r, const pack_step *step) {
    const pack_image *image = &r->p->images[step->image];
    _Alignas(8) char params[XPU_IMAGE_PARAMS_MAX] = {0};
    uint32_t grid[3];
    for (int d = 0; d < 3; d++) {
        const int64_t programs = r->plan->values[step->grid[d]];
        BAD_IF(programs < 0 || programs > INT32_MAX, "%s has an invalid grid size %lld", image->image->name,
               (long long)programs);
        grid[d] = (uint32_t)programs;
    }
    for (int i = 0; i < step->arg_count; i++) {
        const xpu_param *param = &image->image->params[i];
        const pack_arg *arg = &step->args[i];
        char *to = params + param->offset;
        if (arg->tag == ARG_TENSOR) {
            memcpy(to, &r->p->bases[arg->value], sizeof(void *));
        } else if (arg->tag == ARG_INT) {
            memcpy(to, &r->plan->values[arg->value], param->size); /* little-endian: the lower bytes */
        } else {
            double value;
            memcpy(&value, &arg->value, sizeof value);
            const float narrow = (float)value;
            memcpy(to, param->size == 4 ? (const void *)&narrow : (const void *)&value, param->size);
        }
    }
    return xpu_image_submit(r->stream, image->image, image->kernel, grid, params);
}

static xpu_status run_steps(const run *r) {
    for (int i = 0; i < r->p->step_count; i++) {
        const pack_step *step = &r->p->steps[i];
        if (step->image >= 0) {
            XPU_TRY(launch(r, step));
        } else {
            const pack_call call = {r->stream, r->p, r->plan, step};
            XPU_TRY(step->op->run(&call));
        }
    }
    return XPU_SUCCESS;
}

/* Copies the outputs that were not computed in the caller's memory. */
static xpu_status hand_out(run *r, const xpu_package_tensor *outputs) {
    const xpu_package *p = r->p;
    bool waits = false;
    for (int i = 0; i < p->output_count; i++) {
        const xpu_package_tensor *out = &outputs[i];
        const void *from = p->bases[p->outputs[i]];
        const int64_t *stride = r->plan->tensors[p->outputs[i]].stride;
        const uint64_t bytes = extent(out);
        waits = waits || out->is_host;
        if (out->data == from || !bytes) continue;
        if (!out->is_host || p->is_mapped_there) {
            XPU_TRY(copy(r->stream, out->dtype, out->dims, out->size, out->data, out->stride, from, stride));
            continue;
        }
        if (!lies_so(out->dims, out->size, out->stride,
                     stride)) { /* leave the gaps between elements unchanged */
            void *packed;
            XPU_TRY(get_memory(r, bytes, &packed));
            XPU_TRY(xpu_memcpy(r->stream, packed, out->data, bytes, true));
            XPU_TRY(copy(r->stream, out->dtype, out->dims, out->size, packed, out->stride, from, stride));
            from = packed;
        }
        XPU_TRY(xpu_memcpy(r->stream, out->data, from, bytes, true));
    }
    return waits ? xpu_stream_synchronize(r->stream) : XPU_SUCCESS;
}

xpu_status xpu_package_run(xpu_package *p, xpu_stream *stream, const xpu_package_tensor *inputs,
                           int input_count, xpu_package_tensor *outputs, int output_count) {
    XPU_REJECT_IF(!p || !stream || (!inputs && input_count) || (!outputs && output_count), "NULL");
    XPU_REJECT_IF(xpu_stream_device(stream) != p->device,
                  "the stream belongs to device %d, but the package was opened on device %d",
                  xpu_stream_device(stream), p->device);
    run r = {.p = p, .stream = stream};
    XPU_TRY(find_plan(p, inputs, input_count, output_count, &r.plan));
    const size_t rooms = 2 * (size_t)input_count + (size_t)p->tensor_count + 2 * (size_t)output_count;
    r.temporary = core_calloc(rooms + (size_t)output_count + 1, sizeof *r.temporary);
    if (!r.temporary) return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for a package's run");
    r.given = r.temporary + rooms;
    xpu_status status = place_arena(&r);
    if (status == XPU_SUCCESS) status = place_inputs(&r, inputs);
    if (status == XPU_SUCCESS) status = place_outputs(&r, outputs);
    if (status == XPU_SUCCESS) {
        place_views(&r);
        status = run_steps(&r);
    }
    if (status == XPU_SUCCESS) status = hand_out(&r, outputs);
    for (int i = 0; i < r.temporaries; i++) xpu_free(r.temporary[i]);
    if (status != XPU_SUCCESS)
        for (int i = 0; i < output_count; i++)
            if (r.given[i]) {
                xpu_free(r.given[i]);
                outputs[i].data = NULL;
            }
    core_free(r.temporary);
    if (status == XPU_SUCCESS && !p->has_run) {
        p->has_run = true;
        if (p->is_mapped_there) xpu_device_trim(p->device); /* all kernels have been built */
    }
    return status;
}

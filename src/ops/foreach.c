/* foreach: generates a multi-tensor kernel from a formula of the pointwise table. */
#include "xpu/ops/foreach.h"

#include <stdio.h>
#include <string.h>

#include "ops/iter.h"
#include "ops/multi_tensor.h"
#include "ops/pointwise_text.h"

uint64_t xpu_foreach_scalar_word(xpu_dtype dtype, const xpu_scalar *value) {
    uint64_t bits[2];
    scalar_bits(value, dtype, bits);
    return bits[0];
}

typedef struct plan {
    xpu_pointwise_op op;
    xpu_dtype dtype;
    const xpu_foreach_operand *operands;
    int inputs, scalars, width;
} plan;

static void add_operand(text_buffer *t, const plan *p, int k, int column) {
    const char *token = dtype_token(p->dtype);
    char low[40], high[40];
    snprintf(low, sizeof low, "p.number[%d]", 2 * k);
    snprintf(high, sizeof high, "p.number[%d]", 2 * k + 1);
    switch (p->operands[k].source) {
    case XPU_FOREACH_TENSORS: text_addf(t, "load_%s(in%d, i)", token, column); break;
    case XPU_FOREACH_ELEMENT: text_addf(t, "load_%s(XPU_CPTR(s_%s, %s), 0)", token, token, low); break;
    case XPU_FOREACH_SCALARS:
        snprintf(low, sizeof low, "MULTI_TENSOR_WORD(row, %d)", column);
        pointwise_add_number(t, p->dtype, low, low);
        break;
    case XPU_FOREACH_SCALAR: pointwise_add_number(t, p->dtype, low, high); break;
    }
}

static bool in_rows(const xpu_foreach_operand *o) {
    return o->source == XPU_FOREACH_TENSORS || o->source == XPU_FOREACH_SCALARS;
}

static void write_kernel(text_buffer *t, const plan *p) {
    const char *formula = pointwise_formula(p->op, p->dtype), *token = dtype_token(p->dtype);
    text_add(t, "#include \"multi_tensor.h\"\n");
    pointwise_add_types(t, p->dtype, formula);
    text_add(t, "__kernel void foreach(const struct multi_tensor_params p) {\n    MULTI_TENSOR_ROW\n");
    text_addf(t, "    __global s_%s *out = XPU_PTR(s_%s, MULTI_TENSOR_WORD(row, 0));\n", token, token);
    int column = 1;
    for (int k = 0; k < p->inputs + p->scalars; k++) {
        if (p->operands[k].source == XPU_FOREACH_TENSORS)
            text_addf(t, "    __global const s_%s *in%d = XPU_CPTR(s_%s, MULTI_TENSOR_WORD(row, %d));\n",
                      token, column, token, column);
        column += in_rows(&p->operands[k]);
    }
    for (int inside = 0; inside < 2; inside++) { /* uniform operands are loaded before the loop */
        if (inside) text_add(t, "#define ELEMENT(i) \\\n");
        column = 1;
        for (int k = 0; k < p->inputs + p->scalars; k++) {
            const bool input = k < p->inputs, moves = p->operands[k].source == XPU_FOREACH_TENSORS;
            if (moves == inside) {
                text_addf(t, "    const T %s%c = ", input ? "" : "s", input ? 'a' + k : '0' + k - p->inputs);
                add_operand(t, p, k, column);
                text_add(t, inside ? "; \\\n" : ";\n");
            }
            column += in_rows(&p->operands[k]);
        }
    }
    text_addf(t, "    store_%s(out, i, (T)(%s));\n    MULTI_TENSOR_FOR_EACH(ELEMENT)\n}\n", token, formula);
}

/* Letters of operand kinds in the description of a kernel, "foreach add f32 ttn". */
static const char source_letters[] = {[XPU_FOREACH_TENSORS] = 't',
                                      [XPU_FOREACH_SCALARS] = 'r',
                                      [XPU_FOREACH_SCALAR] = 'n',
                                      [XPU_FOREACH_ELEMENT] = 'e'};

bool foreach_read(text_buffer *out, const char *written) {
    char name[40], token[16], letters[XPU_FOREACH_OPERANDS + 1];
    xpu_foreach_operand operands[XPU_FOREACH_OPERANDS] = {0};
    int outputs;
    if (sscanf(written, "%39s %15s %5s", name, token, letters) != 3) return false;
    plan p = {.op = pointwise_named(name), .dtype = dtype_of_token(token), .operands = operands, .width = 3};
    if (!xpu_pointwise_defined(p.op, p.dtype) ||
        xpu_pointwise_arity(p.op, &outputs, &p.inputs, &p.scalars) != XPU_SUCCESS || outputs != 1 ||
        strlen(letters) != (size_t)(p.inputs + p.scalars))
        return false;
    for (int k = 0; letters[k]; k++) {
        const char *letter = memchr(source_letters, letters[k], sizeof source_letters);
        if (!letter) return false;
        operands[k].source = (int)(letter - source_letters);
    }
    write_kernel(out, &p);
    return true;
}

static xpu_status make_kernel(int device, const kernel_spec *spec, const plan *p, xpu_kernel **kernel) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    if (dtype_needs_fp64(p->dtype) && !properties->has_fp64)
        return op_unsupported_dtype(xpu_pointwise_name(p->op), p->dtype, properties);
    char label[64], written[128];
    snprintf(label, sizeof label, "foreach %s %s", xpu_pointwise_name(p->op), dtype_token(p->dtype));
    int n = snprintf(written, sizeof written, "%s ", label);
    for (int k = 0; k < p->inputs + p->scalars; k++)
        n += snprintf(written + n, sizeof written - (size_t)n, "%c", source_letters[p->operands[k].source]);
    text_buffer source = {0};
    write_kernel(&source, p);
    kernel_build_spec build_spec = {
        .text = source.data, .written = written, .name = "foreach", .label = label};
    xpu_status status = source.failed ? op_fail(XPU_ERROR_OUT_OF_HOST_MEMORY,
                                                "out of host memory for the source of kernel %s", label)
                                      : kernel_build(device, spec, &build_spec, kernel);
    text_free(&source);
    return status;
}

xpu_status xpu_foreach(xpu_stream *stream, xpu_pointwise_op op, xpu_dtype dtype,
                       const xpu_foreach_operand *operands, int operand_count, uint64_t *rows,
                       int64_t count) {
    plan p = {.op = op, .dtype = dtype, .operands = operands, .width = 3};
    int outputs;
    XPU_TRY(xpu_pointwise_arity(op, &outputs, &p.inputs, &p.scalars));
    if (outputs != 1 || p.inputs + p.scalars != operand_count || operand_count > XPU_FOREACH_OPERANDS)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "foreach: %s can't be applied to %d operands",
                       xpu_pointwise_name(op), operand_count);
    if (!pointwise_formula(op, dtype)) return op_unsupported_dtype(xpu_pointwise_name(op), dtype, NULL);
    int device = xpu_stream_device(stream);
    multi_tensor_shape shape;
    XPU_TRY(multi_tensor_shape_of(device, &shape));
    struct multi_tensor_params params;
    kernel_spec spec;
    spec_begin(&spec, FAMILY_FOREACH);
    spec_key_only(&spec, "op", op, 16);
    spec_key_only(&spec, "dtype", dtype, 8);
    for (int k = 0; k < operand_count; k++) {
        spec_key_only(&spec, "source", operands[k].source, 4);
        p.width += in_rows(&operands[k]);
        if (operands[k].source == XPU_FOREACH_SCALAR)
            scalar_bits(&operands[k].value, dtype, &params.number[2 * k]);
        else if (operands[k].source == XPU_FOREACH_ELEMENT)
            params.number[2 * k] = XPU_ADDR(operands[k].element);
        else if (operands[k].source == XPU_FOREACH_SCALARS && dtype == XPU_COMPLEX128)
            return op_fail(XPU_ERROR_NOT_SUPPORTED,
                           "foreach: a separate complex128 scalar for each tensor is not supported");
    }
    multi_tensor_spec(&spec, &shape, p.width);
    xpu_kernel *kernel = kernel_find(device, &spec);
    if (!kernel) XPU_TRY(make_kernel(device, &spec, &p, &kernel));
    return multi_tensor_launch(stream, kernel, &shape, rows, p.width, count, &params, 2);
}

/* --- norms --- */

static xpu_status norm_shape(int device, multi_tensor_shape *shape) {
    XPU_TRY(multi_tensor_shape_of(device, shape));
    /* A fixed group size makes partial sums, and results, independent of the number of threads. */
    if (shape->in_params) shape->local = 64;
    shape->steps = shape->in_params ? 64 : 256;
    return XPU_SUCCESS;
}

static int64_t norm_parts(const multi_tensor_shape *shape, int64_t count) {
    int64_t chunk = (int64_t)shape->local * shape->steps;
    return (count + chunk - 1) / chunk;
}

size_t xpu_foreach_norm_scratch(int device, const xpu_norm_row *rows, int64_t count) {
    multi_tensor_shape shape;
    int64_t parts = 0;
    if (norm_shape(device, &shape) != XPU_SUCCESS) return 0;
    for (int64_t i = 0; i < count; i++) parts += norm_parts(&shape, rows[i].count);
    return (size_t)parts * sizeof(double);
}

static xpu_status norm_kernel(int device, xpu_dtype dtype, int order, bool whole,
                              const multi_tensor_shape *shape, xpu_kernel **kernel) {
    kernel_spec spec;
    spec_begin(&spec, FAMILY_FOREACH_NORM);
    multi_tensor_spec(&spec, shape, sizeof(xpu_norm_row) / sizeof(uint64_t));
    spec_dtype(&spec, "T", dtype);
    spec_int(&spec, "ORDER", order, 8);
    spec_key_only(&spec, "whole", whole, 1);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(device, &spec, "foreach_norm.cl", whole ? "norm_whole" : "norm_parts", kernel,
                            "foreach norm %s", dtype_token(dtype));
}

xpu_status xpu_foreach_norm(xpu_stream *stream, xpu_dtype dtype, int order, xpu_norm_row *rows, int64_t count,
                            void *scratch) {
    int device = xpu_stream_device(stream);
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    if (order < 0 || order > 2)
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "foreach norm: order %d of %s is not supported", order,
                       dtype_token(dtype));
    if (dtype_class(dtype) != DTYPE_CLASS_FLOAT || (dtype_needs_fp64(dtype) && !properties->has_fp64))
        return op_unsupported_dtype("foreach_norm", dtype, properties);
    multi_tensor_shape shape;
    xpu_kernel *parts, *whole;
    XPU_TRY(norm_shape(device, &shape));
    XPU_TRY(norm_kernel(device, dtype, order, false, &shape, &parts));
    XPU_TRY(norm_kernel(device, dtype, order, true, &shape, &whole));
    uint64_t next = 0;
    for (int64_t i = 0; i < count; i++) {
        rows[i].reserved0 = next;
        next += (uint64_t)norm_parts(&shape, rows[i].count);
    }
    struct multi_tensor_params params = {.number = {XPU_ADDR(scratch)}};
    const int width = sizeof(xpu_norm_row) / sizeof(uint64_t);
    XPU_TRY(multi_tensor_launch(stream, parts, &shape, (uint64_t *)rows, width, count, &params, 2));
    return multi_tensor_launch_rows(stream, whole, &shape, (const uint64_t *)rows, width, count, &params, 64);
}

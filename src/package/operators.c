/* Operators that package steps can call besides kernels: functions of the op library, with PyTorch's
 * arguments. Each is a function and a line in the table at the end. Tensors and arguments have been checked
 * by the parser and the plan; what is left to check fails with XPU_ERROR_INVALID_ARGUMENT. They run on the
 * call's stream. */
#include <math.h>

#include "package/format.h"
#include "xpu/ops/attention.h"
#include "xpu/ops/conv.h"
#include "xpu/ops/copy.h"
#include "xpu/ops/gemm.h"
#include "xpu/ops/histogram.h"
#include "xpu/ops/index.h"
#include "xpu/ops/sort.h"

/* --- arguments, by index in step->args --- */

static int64_t int_at(const pack_call *call, int at) {
    return call->plan->values[call->step->args[at].value];
}
static double float_at(const pack_call *call, int at) {
    double value;
    memcpy(&value, &call->step->args[at].value, sizeof value);
    return value;
}
static bool is_given(const pack_call *call, int at) { return call->step->args[at].tag == ARG_TENSOR; }
static xpu_tensor tensor_at(const pack_call *call, int at) {
    xpu_tensor tensor;
    call_tensor(call, call->step->args[at].value, &tensor);
    return tensor;
}
/* Reads a list of `count` integers (a single one is repeated) and advances *at behind it. */
static xpu_status list_at(const pack_call *call, int *at, int64_t *list, int count) {
    const int given = (int)call->step->args[*at].value;
    BAD_IF(given != count && given != 1, "%s has a list of %d integers; expected %d or 1",
           call->step->op->name, given, count);
    for (int i = 0; i < count; i++) list[i] = int_at(call, *at + 1 + (given == 1 ? 0 : i));
    *at += 1 + given;
    return XPU_SUCCESS;
}
static xpu_scalar number(double value) { return (xpu_scalar){.dtype = XPU_FLOAT64, .value.f = value}; }

/* --- matrix products --- */

/* The last two dimensions as a matrix, the one before them as the batch. */
static xpu_matrix matrix_of(const xpu_tensor *t) {
    const int d = t->dims;
    return (xpu_matrix){t->data, d > 2 ? t->stride[d - 3] : 0, d > 1 ? t->stride[d - 2] : 0,
                        t->stride[d - 1]};
}
/* The addend, broadcast to the result's sizes. */
static bool addend_of(const xpu_tensor *c, const xpu_tensor *out, xpu_matrix *matrix) {
    int64_t stride[3] = {0};
    for (int i = 1; i <= c->dims; i++) {
        if (i > out->dims) return false;
        const int64_t size = c->size[c->dims - i];
        if (size != 1 && size != out->size[out->dims - i]) return false;
        stride[3 - i] = size == 1 ? 0 : c->stride[c->dims - i];
    }
    *matrix = (xpu_matrix){c->data, stride[0], stride[1], stride[2]};
    return true;
}

/* `first`: index of the argument A; B follows it. */
static xpu_status product(const pack_call *call, int dims, int first, const xpu_tensor *c, double beta,
                          double alpha) {
    const xpu_tensor out = tensor_at(call, 0), a = tensor_at(call, first), b = tensor_at(call, first + 1);
    bool good =
        out.dims == dims && a.dims == dims && b.dims == dims && a.dtype == out.dtype && b.dtype == a.dtype;
    if (good && dims == 3) good = a.size[0] == out.size[0] && b.size[0] == out.size[0];
    good = good && a.size[dims - 1] == b.size[dims - 2] && a.size[dims - 2] == out.size[dims - 2] &&
           b.size[dims - 1] == out.size[dims - 1];
    xpu_gemm_args args = {.dtype = out.dtype, .alpha = number(alpha), .beta = number(beta)};
    if (good && c) good = c->dtype == out.dtype && addend_of(c, &out, &args.c);
    BAD_IF(!good, "%s: the operands' sizes or dtypes don't match", call->step->op->name);
    args.batch = dims == 3 ? out.size[0] : 1;
    args.m = out.size[dims - 2], args.n = out.size[dims - 1], args.k = a.size[dims - 1];
    args.a = matrix_of(&a), args.b = matrix_of(&b), args.out = matrix_of(&out);
    return xpu_gemm(call->stream, &args);
}
static xpu_status mm(const pack_call *call) { return product(call, 2, 1, NULL, 0, 1); }
static xpu_status bmm(const pack_call *call) { return product(call, 3, 1, NULL, 0, 1); }
static xpu_status added(const pack_call *call, int dims) {
    const xpu_tensor c = tensor_at(call, 1);
    return product(call, dims, 2, &c, float_at(call, 4), float_at(call, 5));
}
static xpu_status addmm(const pack_call *call) { return added(call, 2); }
static xpu_status baddbmm(const pack_call *call) { return added(call, 3); }

/* Is the tensor contiguous? */
static bool is_dense(const xpu_tensor *t) {
    int64_t stride = 1;
    for (int d = t->dims - 1; d >= 0; d--) {
        if (t->size[d] == 0) return true;
        if (t->size[d] != 1 && t->stride[d] != stride) return false;
        stride *= t->size[d];
    }
    return true;
}

/* The number of dimensions says what is grouped: a 3-D operand is a batch with one matrix per group; a 2-D
 * operand is divided at `ends`. */
static xpu_status grouped_mm(const pack_call *call) {
    const xpu_tensor out = tensor_at(call, 0), a = tensor_at(call, 1), b = tensor_at(call, 2),
                     ends = tensor_at(call, 3);
    const bool flat_a = a.dims == 2, flat_b = b.dims == 2, is_k = flat_a && flat_b;
    bool good = (flat_a || a.dims == 3) && (flat_b || b.dims == 3) && (flat_a || flat_b) &&
                out.dims == (is_k ? 3 : 2) && a.dtype == out.dtype && b.dtype == out.dtype &&
                ends.dims == 1 && ends.dtype == XPU_INT32 && is_dense(&ends);
    const int64_t count = good ? ends.size[0] : 0;
    good = good && (flat_a || a.size[0] == count) && (flat_b || b.size[0] == count) &&
           (!is_k || out.size[0] == count) && a.size[a.dims - 1] == b.size[b.dims - 2] &&
           a.size[a.dims - 2] == out.size[out.dims - 2] && b.size[b.dims - 1] == out.size[out.dims - 1];
    BAD_IF(!good, "%s: the operands' sizes or dtypes don't match", call->step->op->name);
    const xpu_gemm_args args = {.dtype = out.dtype,
                                .batch = count,
                                .m = out.size[out.dims - 2],
                                .n = out.size[out.dims - 1],
                                .k = a.size[a.dims - 1],
                                .a = matrix_of(&a),
                                .b = matrix_of(&b),
                                .out = matrix_of(&out),
                                .alpha = number(1),
                                .beta = number(0)};
    return xpu_gemm_grouped(call->stream, &args,
                            is_k     ? XPU_GROUPED_K
                            : flat_a ? XPU_GROUPED_ROWS
                                     : XPU_GROUPED_COLUMNS,
                            ends.data);
}

/* --- convolution --- */

static xpu_status convolution(const pack_call *call) {
    const xpu_tensor out = tensor_at(call, 0), input = tensor_at(call, 1), weight = tensor_at(call, 2);
    xpu_tensor bias;
    if (is_given(call, 3)) bias = tensor_at(call, 3);
    const int dims = out.dims - 2;
    BAD_IF(dims < 1 || dims > XPU_CONV_MAX_DIMS || input.dims != out.dims || weight.dims != out.dims ||
               (is_given(call, 3) && bias.dims != 1),
           "convolutions with %d dimensions are not supported", dims);
    xpu_conv conv = {.dims = dims};
    int at = 4;
    XPU_TRY(list_at(call, &at, conv.stride, dims));
    XPU_TRY(list_at(call, &at, conv.padding, dims));
    XPU_TRY(list_at(call, &at, conv.dilation, dims));
    conv.transposed = int_at(call, at++) != 0;
    XPU_TRY(list_at(call, &at, conv.output_padding, dims));
    conv.groups = int_at(call, at);
    return xpu_conv_forward(call->stream, &conv, &input, &weight, is_given(call, 3) ? &bias : NULL, &out);
}

/* --- attention --- */

static xpu_status attention(const pack_call *call) {
    const xpu_tensor out = tensor_at(call, 0), query = tensor_at(call, 1), key = tensor_at(call, 2),
                     value = tensor_at(call, 3);
    BAD_IF(out.dims != 4 || query.dims != 4 || key.dims != 4 || value.dims != 4,
           "attention needs operands with 4 dimensions");
    xpu_tensor bias;
    int64_t size[4], stride[4];
    if (is_given(call, 4)) { /* broadcast to the scores' sizes */
        bias = tensor_at(call, 4);
        const int64_t scores[4] = {query.size[0], query.size[1], query.size[2], key.size[2]};
        BAD_IF(bias.dims > 4, "an attention mask with %d dimensions is not supported", bias.dims);
        for (int d = 3, from = bias.dims - 1; d >= 0; d--, from--) {
            size[d] = scores[d];
            stride[d] = from < 0 || bias.size[from] == 1 ? 0 : bias.stride[from];
            BAD_IF(from >= 0 && bias.size[from] != 1 && bias.size[from] != scores[d],
                   "the attention mask doesn't match the scores");
        }
        bias.dims = 4, bias.size = size, bias.stride = stride;
    }
    const double scale = float_at(call, 6);
    const xpu_attention args = {.query = &query,
                                .key = &key,
                                .value = &value,
                                .bias = is_given(call, 4) ? &bias : NULL,
                                .out = &out,
                                .causal = int_at(call, 5) != 0,
                                .scale =
                                    isnan(scale) && query.size[3] ? 1 / sqrt((double)query.size[3]) : scale};
    return xpu_attention_forward(call->stream, &args);
}

/* --- the rest --- */

static xpu_status sort(const pack_call *call) {
    const xpu_tensor values = tensor_at(call, 0), indices = tensor_at(call, 1), in = tensor_at(call, 2);
    const int64_t dim = int_at(call, 3);
    BAD_IF(dim < 0 || (in.dims && dim >= in.dims), "sort along dimension %lld is not supported",
           (long long)dim);
    return xpu_sort(call->stream, &values, &indices, &in, (int)dim, int_at(call, 4) != 0, 0);
}

static bool is_empty(const xpu_tensor *t) {
    for (int d = 0; d < t->dims; d++)
        if (t->size[d] == 0) return true;
    return false;
}

static xpu_status fill_with(xpu_stream *stream, const xpu_tensor *out, double value) {
    const xpu_scalar scalar = number(value);
    const xpu_iter iter = tensor_iter(out, NULL);
    return is_empty(out) ? XPU_SUCCESS : xpu_fill(stream, &iter, &scalar);
}
static xpu_status fill(const pack_call *call) {
    const xpu_tensor out = tensor_at(call, 0);
    return fill_with(call->stream, &out, float_at(call, 1));
}

static xpu_status copy(const pack_call *call) {
    const xpu_tensor out = tensor_at(call, 0), in = tensor_at(call, 1);
    bool good = out.dims == in.dims;
    for (int d = 0; good && d < out.dims; d++) good = out.size[d] == in.size[d];
    BAD_IF(!good, "a copy between tensors of different sizes");
    return is_empty(&out) ? XPU_SUCCESS : copy_tensor(call->stream, &out, &in);
}

/* Integer inputs need integer bounds; a double represents integers exactly up to 2^53. */
static xpu_status histogram(const pack_call *call) {
    static const double most = 9007199254740992;
    const xpu_tensor counts = tensor_at(call, 0), in = tensor_at(call, 1);
    const double low = float_at(call, 2), high = float_at(call, 3);
    const bool is_real = in.dtype == XPU_FLOAT16 || in.dtype == XPU_BFLOAT16 || in.dtype == XPU_FLOAT32 ||
                         in.dtype == XPU_FLOAT64;
    BAD_IF(!(low >= -most && high <= most && (is_real ? low < high : trunc(low) < trunc(high))),
           "a histogram from %g to %g", low, high);
    BAD_IF(counts.dims != 1 || counts.dtype != XPU_INT32 || !counts.size[0] || !is_dense(&counts) ||
               !is_dense(&in),
           "histogram: the operands' sizes or dtypes don't match");
    int64_t numel = 1;
    for (int d = 0; d < in.dims; d++) numel *= in.size[d];
    const xpu_scalar bounds[] = {number(low), number(high)};
    XPU_TRY(fill_with(call->stream, &counts, 0));
    return xpu_histogram(call->stream, in.dtype, in.data, numel, counts.size[0], &bounds[0], &bounds[1], NULL,
                         XPU_FLOAT32, counts.data);
}

/* `all`: the index has all dimensions of the source and may be smaller (scatter); otherwise it has only
 * `dim`. */
static xpu_status combine(const pack_call *call, bool all) {
    const xpu_tensor out = tensor_at(call, 0), index = tensor_at(call, 1), in = tensor_at(call, 2);
    const int64_t dim = int_at(call, 3), op = int_at(call, 4);
    BAD_IF(op < XPU_SCATTER_SET || op > XPU_SCATTER_MAX, "%s: unknown operation %lld", call->step->op->name,
           (long long)op);
    bool good = out.dims > 0 && in.dims == out.dims && index.dims == (all ? out.dims : 1) && dim >= 0 &&
                dim < out.dims && in.dtype == out.dtype &&
                (index.dtype == XPU_INT64 || index.dtype == XPU_INT32);
    for (int d = 0; good && d < out.dims; d++) {
        if (all)
            good = index.size[d] <= in.size[d] && (d == dim || index.size[d] <= out.size[d]);
        else
            good = in.size[d] == (d == dim ? index.size[0] : out.size[d]);
    }
    BAD_IF(!good, "%s: the operands' sizes or dtypes don't match", call->step->op->name);
    if (is_empty(all ? &index : &in)) return XPU_SUCCESS;
    xpu_fault fault = {0};
    XPU_TRY((all ? xpu_scatter : xpu_index_scatter)(call->stream, &out, (int)dim, &index, &in,
                                                    (xpu_scatter_op)op, XPU_ORDER_ANY, &fault));
    if (fault.state)
        return xpu_fail(XPU_ERROR_INDEX, "package: index %lld is out of bounds for dimension %d of size %lld",
                        (long long)fault.index, (int)dim, (long long)fault.extent);
    return XPU_SUCCESS;
}
static xpu_status scatter(const pack_call *call) { return combine(call, true); }
static xpu_status index_scatter(const pack_call *call) { return combine(call, false); }

static const pack_operator table[] = {
    {"mm", "ott", mm},                          /* out, a, b */
    {"bmm", "ott", bmm},                        /* the same */
    {"addmm", "otttff", addmm},                 /* out, c, a, b, beta, alpha */
    {"baddbmm", "otttff", baddbmm},             /* the same */
    {"grouped_mm", "ottt", grouped_mm},         /* out, a, b, ends */
    {"convolution", "ott?lllili", convolution}, /* out, input, weight, bias, stride, padding, dilation,
                                                   transposed, output_padding, groups */
    {"attention", "ottt?if", attention},        /* out, query, key, value, mask, causal, scale or NaN */
    {"sort", "ootii", sort},                    /* values, indices, in, dim, descending */
    {"histogram", "otff", histogram},           /* counts, in, low, high */
    {"copy", "ot", copy},                       /* out, in, of any dtypes */
    {"fill", "of", fill},                       /* out, value */
    {"scatter", "ottii", scatter},              /* out, index, in, dim, xpu_scatter_op */
    {"index_scatter", "ottii", index_scatter},  /* the same */
};
enum { OPERATORS = sizeof table / sizeof *table };

const pack_operator *operator_find(const char *name) {
    for (int i = 0; i < OPERATORS; i++)
        if (!strcmp(table[i].name, name)) return &table[i];
    return NULL;
}

const char *xpu_package_operator(int index) {
    return index >= 0 && index < OPERATORS ? table[index].name : NULL;
}

/* Random numbers and dropout (src/kernels/random.cl). */
#include "xpu/ops/random.h"

#include <float.h>

#include "kernels/random.h"
#include "ops/iter.h"
#include "ops/kernel.h"
#include "xpu/fault.h"
#include "xpu/graph.h"

/* The values of random.cl's DIST; the first ones are in the order of xpu_distribution. */
static const char *const kinds[] = {"UNIFORM",   "NORMAL",    "LOG_NORMAL",    "EXPONENTIAL", "CAUCHY",
                                    "GEOMETRIC", "BERNOULLI", "PROBABILITIES", "INTEGERS",    "INTEGERS64",
                                    "DROPOUT",   "GAMMA",     "POISSON",       "BINOMIAL"};
enum { KIND_PROBABILITIES = XPU_BERNOULLI + 1, KIND_INTEGERS, KIND_INTEGERS64, KIND_DROPOUT, KIND_GAMMA };

typedef struct draw {
    int kind;
    bool wide; /* computed in fp64 */
    uint64_t a, b;
    uint64_t seed, counter;
    const char *demand; /* condition on the input's values, text of an assertion, or NULL */
} draw;

static bool contiguous(const xpu_iter *iter) {
    for (int i = 0; i < iter->outputs + iter->inputs; i++) {
        int64_t stride = (int64_t)xpu_dtype_size(iter->operand[i].dtype);
        for (int d = 0; d < iter->dims; d++) {
            if (iter->size[d] != 1 && iter->operand[i].stride[d] != stride) return false;
            stride *= iter->size[d];
        }
    }
    return true;
}

static xpu_status make_kernel(int device, const kernel_spec *spec, const xpu_iter *iter, const draw *d,
                              xpu_kernel **kernel) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    int operands = iter->outputs + iter->inputs;
    for (int i = 0; i < operands; i++)
        if (dtype_needs_fp64(iter->operand[i].dtype) && !properties->has_fp64)
            return op_unsupported_dtype("random numbers", iter->operand[i].dtype, properties);
    return kernel_from_file(device, spec, "random.cl", "random", kernel, "random %s ->%s", kinds[d->kind],
                            dtype_token(iter->operand[0].dtype));
}

static xpu_status launch(xpu_stream *stream, const xpu_iter *iter, const draw *d) {
    bool strided = !contiguous(iter);
    int operands = iter->outputs + iter->inputs, device = xpu_stream_device(stream);
    size_t count = (size_t)xpu_iter_numel(iter);
    const xpu_dtype out = iter->operand[0].dtype;
    kernel_spec spec;
    spec_begin(&spec, FAMILY_RANDOM);
    spec_enum(&spec, "DIST=", kinds, d->kind, 8);
    spec_dtype(&spec, "OUT", out);
    spec_option(&spec, "OUT_", dtype_token(out));
    spec_dtype(&spec, "IN", iter->operand[operands - 1].dtype);
    spec_flag(&spec, "STRIDED", strided);
    spec_flag(&spec, "WIDE", d->wide);
    xpu_kernel *kernel = kernel_find(device, &spec);
    if (!kernel) XPU_TRY(make_kernel(device, &spec, iter, d, &kernel));
    random_params params = {.seed = d->seed,
                            .counter = d->counter,
                            .count = count,
                            .a = d->a,
                            .b = d->b,
                            .dims = iter->dims ? (uint32_t)iter->dims : 1};
    for (int i = 0; i < operands; i++) params.pointer[i] = XPU_ADDR(iter->operand[i].data);
    for (int n = 0; strided && n < iter->dims; n++) {
        fast_divisor divisor = fast_divisor_of((uint32_t)iter->size[n]);
        params.size[n] = (uint32_t)iter->size[n];
        params.multiplier[n] = divisor.multiplier;
        params.shift[n] = divisor.shift;
        for (int i = 0; i < operands; i++) params.stride[n][i] = (int32_t)iter->operand[i].stride[n];
    }
    xpu_range range = {.dims = 1,
                       .groups = {(count + 4 * RANDOM_GROUP - 1) / (4 * RANDOM_GROUP)},
                       .local = {RANDOM_GROUP},
                       .work = count * 16};
    xpu_fault *place = NULL;
    if (d->demand) XPU_TRY(xpu_fault_watch(stream, &place));
    params.watch = (struct fault_watch){XPU_ADDR(place), XPU_ADDR(d->demand)};
    XPU_TRY(xpu_launch(stream, kernel, &range, &params, sizeof params));
    return place ? xpu_fault_raise(stream, place) : XPU_SUCCESS;
}

static xpu_status run(xpu_stream *stream, xpu_generator *generator, const xpu_iter *iter, draw *d,
                      const char *function) {
    for (int i = 0; i < iter->outputs + iter->inputs; i++) {
        const xpu_dtype dtype = iter->operand[i].dtype;
        if (dtype_is_complex(dtype))
            return op_fail(
                XPU_ERROR_NOT_SUPPORTED,
                "%s: complex tensors are not supported; pass them as tensors of pairs of real numbers",
                function);
        if (!dtype_is_ordered(dtype)) return op_unsupported_dtype("random numbers", dtype, NULL);
    }
    int64_t count = xpu_iter_numel(iter);
    if (!count) return XPU_SUCCESS;
    if (!contiguous(iter) && !iter_fits_32bit(iter))
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "%s: strides of 2^31 bytes or more are not supported",
                       function);
    uint64_t offset;
    /* Rejection sampling reserves 1,024 words per element; needing more is practically impossible. */
    const bool integers = d->kind == KIND_INTEGERS || d->kind == KIND_INTEGERS64;
    const uint64_t words = d->kind >= KIND_GAMMA ? 1024 : integers ? 12 : d->wide ? 8 : 4;
    XPU_TRY(xpu_graph_reserve(stream, generator, words, &d->seed, &offset));
    d->counter = offset / 4;
    return launch(stream, iter, d);
}

static uint64_t real_bits(double value, bool wide) {
    uint64_t bits[2];
    scalar_bits(&(xpu_scalar){.dtype = XPU_FLOAT64, .value.f = value}, wide ? XPU_FLOAT64 : XPU_FLOAT32,
                bits);
    return bits[0];
}

xpu_status xpu_random(xpu_stream *stream, xpu_generator *generator, const xpu_iter *iter,
                      xpu_distribution distribution, double first, double second) {
    if (iter->outputs != 1 || iter->inputs != 0 || (unsigned)distribution > XPU_BERNOULLI)
        return op_fail(
            XPU_ERROR_INVALID_ARGUMENT,
            "xpu_random: got %d outputs and %d inputs for distribution %d; takes one output and no inputs",
            iter->outputs, iter->inputs, (int)distribution);
    xpu_dtype dtype = iter->operand[0].dtype;
    if (distribution != XPU_GEOMETRIC && distribution != XPU_BERNOULLI &&
        dtype_class(dtype) != DTYPE_CLASS_FLOAT)
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "xpu_random: %s is not supported for %s", kinds[distribution],
                       dtype_token(dtype));
    draw d = {.kind = (int)distribution, .wide = dtype == XPU_FLOAT64};
    d.a = real_bits(first, d.wide);
    d.b = real_bits(second, d.wide);
    return run(stream, generator, iter, &d, "xpu_random");
}

xpu_status xpu_random_bernoulli(xpu_stream *stream, xpu_generator *generator, const xpu_iter *iter) {
    if (iter->outputs != 1 || iter->inputs != 1 || !iter->operand[1].data)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "xpu_random_bernoulli: takes one output and one input tensor");
    draw d = {.kind = KIND_PROBABILITIES,
              .wide = iter->operand[1].dtype == XPU_FLOAT64,
              .demand = "Expected p_in >= 0 && p_in <= 1 to be true, but got false."};
    return run(stream, generator, iter, &d, "xpu_random_bernoulli");
}

xpu_status xpu_random_from(xpu_stream *stream, xpu_generator *generator, const xpu_iter *iter,
                           xpu_parametrized distribution) {
    const int inputs = distribution == XPU_BINOMIAL ? 2 : 1;
    if (iter->outputs != 1 || iter->inputs != inputs || (unsigned)distribution > XPU_BINOMIAL)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "xpu_random_from: got %d outputs and %d inputs, which don't match distribution %d",
                       iter->outputs, iter->inputs, (int)distribution);
    const xpu_dtype dtype = iter->operand[0].dtype;
    for (int i = 0; i <= inputs; i++)
        if (dtype_class(dtype) != DTYPE_CLASS_FLOAT || iter->operand[i].dtype != dtype ||
            !iter->operand[i].data)
            return op_fail(XPU_ERROR_NOT_SUPPORTED,
                           "xpu_random_from: %s needs floating-point tensors of one dtype; got %s",
                           kinds[KIND_GAMMA + (int)distribution], dtype_token(iter->operand[i].dtype));
    draw d = {.kind = KIND_GAMMA + (int)distribution, .wide = dtype == XPU_FLOAT64};
    if (distribution == XPU_POISSON) d.demand = "invalid Poisson rate, expected rate to be non-negative";
    const double least = dtype == XPU_FLOAT64 ? DBL_MIN : dtype == XPU_FLOAT16 ? 6.103515625e-05 : FLT_MIN;
    d.a = real_bits(least, d.wide);
    return run(stream, generator, iter, &d, "xpu_random_from");
}

xpu_status xpu_random_integers(xpu_stream *stream, xpu_generator *generator, const xpu_iter *iter,
                               int64_t from, uint64_t range) {
    if (iter->outputs != 1 || iter->inputs != 0)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "xpu_random_integers: takes one output and no inputs");
    bool small = range && range <= UINT32_MAX;
    draw d = {.kind = small ? KIND_INTEGERS : KIND_INTEGERS64, .a = (uint64_t)from, .b = range};
    return run(stream, generator, iter, &d, "xpu_random_integers");
}

xpu_status xpu_dropout(xpu_stream *stream, xpu_generator *generator, const xpu_iter *iter, double p) {
    if (iter->outputs != 2 || iter->inputs != 1 || iter->operand[1].dtype != XPU_BOOL ||
        !iter->operand[2].data)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "xpu_dropout: takes an output, a bool mask and an input");
    if (!(p >= 0 && p <= 1))
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "xpu_dropout: probability %g is not between 0 and 1", p);
    draw d = {.kind = KIND_DROPOUT, .wide = iter->operand[0].dtype == XPU_FLOAT64};
    d.a = real_bits(1 - p, d.wide);
    d.b = real_bits(p == 1 ? 0 : 1 / (1 - p), d.wide);
    return run(stream, generator, iter, &d, "xpu_dropout");
}

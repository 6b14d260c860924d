/* Optimizer steps: scalars become parameters, variants become build options. */
#include "xpu/ops/optim.h"

#include <math.h>
#include <string.h>

#include "ops/multi_tensor.h"

typedef enum step_kind { ADAM, SGD, ADAGRAD, UNSCALE, UPDATE_SCALE } step_kind;
static const char *const names[] = {"adam", "sgd", "adagrad", "unscale", "update_scale"};

/* A scalar in the kernel's compute type. */
static uint64_t bits(xpu_dtype dtype, double value) {
    uint64_t word = 0;
    float narrow = (float)value;
    if (dtype == XPU_FLOAT64)
        memcpy(&word, &value, sizeof value);
    else
        memcpy(&word, &narrow, sizeof narrow);
    return word;
}

static void fill_common(struct multi_tensor_params *params, xpu_dtype dtype, const xpu_step_options *o) {
    params->number[0] = bits(dtype, o->lr);
    params->number[1] = bits(dtype, o->weight_decay);
    params->number[2] = XPU_ADDR(o->lr_tensor);
    params->number[3] = XPU_ADDR(o->grad_scale);
    params->number[4] = XPU_ADDR(o->found_inf);
    params->number[5] = o->maximize;
}

/* Variants of a step; each has its own bit of the key, although an optimizer uses only some. */
typedef struct variant {
    const char *name[3];
    bool on[3];
} variant;

static xpu_status run(xpu_stream *stream, step_kind kind, xpu_dtype dtype, const variant *v, void *rows,
                      int width, int64_t tensors, struct multi_tensor_params *params, unsigned cost) {
    int device = xpu_stream_device(stream);
    if (dtype != XPU_FLOAT32 && dtype != XPU_FLOAT64 && dtype != XPU_FLOAT16 && dtype != XPU_BFLOAT16)
        return op_unsupported_dtype(names[kind], dtype, NULL);
    multi_tensor_shape shape;
    XPU_TRY(multi_tensor_shape_of(device, &shape));
    kernel_spec spec;
    spec_begin(&spec, FAMILY_OPTIM);
    multi_tensor_spec(&spec, &shape, width);
    spec_enum(&spec, "STEP_", names, kind, 8);
    spec_dtype(&spec, "T", dtype);
    spec_option_int(&spec, "WIDE", dtype == XPU_FLOAT64);
    for (int i = 0; v && i < 3; i++) spec_int_if(&spec, v->name[i], v->name[i], v->on[i], 1);
    xpu_kernel *kernel = kernel_find(device, &spec);
    if (!kernel) {
        const xpu_device_properties *properties;
        XPU_TRY(xpu_device_get_properties(device, &properties));
        if (dtype == XPU_FLOAT64 && !properties->has_fp64)
            return op_unsupported_dtype(names[kind], dtype, properties);
        XPU_TRY(kernel_from_file(device, &spec, "optim.cl", names[kind], &kernel, "%s %s", names[kind],
                                 dtype_token(dtype)));
    }
    return multi_tensor_launch(stream, kernel, &shape, rows, width, tensors, params, cost);
}

#define WIDTH_OF(row) ((int)(sizeof(row) / sizeof(uint64_t)))

xpu_status xpu_adam(xpu_stream *stream, xpu_dtype dtype, xpu_adam_row *rows, int64_t count,
                    const xpu_adam_options *o) {
    struct multi_tensor_params params;
    fill_common(&params, dtype, &o->step);
    const double own[] = {o->beta1, o->beta2, o->eps, log(o->beta1), log(o->beta2)};
    for (int i = 0; i < 5; i++) params.number[6 + i] = bits(dtype, own[i]);
    const variant v = {{"DECOUPLED", "AMSGRAD"}, {o->decoupled, o->amsgrad}};
    return run(stream, ADAM, dtype, &v, rows, WIDTH_OF(xpu_adam_row), count, &params, 8);
}

xpu_status xpu_sgd(xpu_stream *stream, xpu_dtype dtype, xpu_sgd_row *rows, int64_t count,
                   const xpu_sgd_options *o) {
    struct multi_tensor_params params;
    fill_common(&params, dtype, &o->step);
    params.number[6] = bits(dtype, o->momentum);
    params.number[7] = bits(dtype, o->dampening);
    bool momentum = o->momentum != 0;
    const variant v = {{"MOMENTUM", "NESTEROV", "FIRST"}, {momentum, o->nesterov, o->first_step}};
    return run(stream, SGD, dtype, &v, rows, WIDTH_OF(xpu_sgd_row), count, &params, 4);
}

xpu_status xpu_adagrad(xpu_stream *stream, xpu_dtype dtype, xpu_adagrad_row *rows, int64_t count,
                       const xpu_step_options *o, double lr_decay, double eps) {
    struct multi_tensor_params params;
    fill_common(&params, dtype, o);
    params.number[6] = bits(dtype, lr_decay);
    params.number[7] = bits(dtype, eps);
    return run(stream, ADAGRAD, dtype, NULL, rows, WIDTH_OF(xpu_adagrad_row), count, &params, 6);
}

xpu_status xpu_unscale(xpu_stream *stream, xpu_dtype dtype, xpu_unscale_row *rows, int64_t count,
                       const float *inv_scale, float *found_inf) {
    struct multi_tensor_params params;
    params.number[0] = XPU_ADDR(inv_scale);
    params.number[1] = XPU_ADDR(found_inf);
    return run(stream, UNSCALE, dtype, NULL, rows, WIDTH_OF(xpu_unscale_row), count, &params, 2);
}

xpu_status xpu_update_scale(xpu_stream *stream, float *scale, int32_t *growth_tracker, const float *found_inf,
                            double growth, double backoff, int interval) {
    int device = xpu_stream_device(stream);
    kernel_spec spec;
    spec_begin(&spec, FAMILY_SCALE);
    spec_option(&spec, "STEP_", "update_scale");
    spec_option(&spec, "T=", "f32");
    spec_option_int(&spec, "WIDE", 0);
    xpu_kernel *kernel = kernel_find(device, &spec);
    if (!kernel)
        XPU_TRY(kernel_from_file(device, &spec, "optim.cl", "update_scale", &kernel, "update_scale"));
    struct multi_tensor_params params = {.number = {XPU_ADDR(scale), XPU_ADDR(growth_tracker),
                                                    XPU_ADDR(found_inf), bits(XPU_FLOAT32, growth),
                                                    bits(XPU_FLOAT32, backoff), (uint64_t)interval}};
    xpu_range range = {1, {1}, {1}, 1};
    return xpu_launch(stream, kernel, &range, &params, sizeof params);
}

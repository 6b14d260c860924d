/* Convolutions: argument checks, choice of the algorithm, bias gradient. */
#include "xpu/ops/conv.h"

#include <string.h>

#include "kernels/conv/conv.h"
#include "ops/conv/conv_depthwise.h"
#include "ops/conv/conv_few_channels.h"
#include "ops/conv/conv_host.h"
#include "ops/conv/conv_matrix.h"
#include "ops/conv/conv_patches.h"
#include "ops/gemm/epilogue.h"
#include "ops/gemm/product.h"
#include "ops/iter.h"
#include "ops/kernel.h"
#include "xpu/ops/reduce.h"
#include "xpu/trace.h"

typedef enum conv_kernel { KERNEL_TILES, KERNEL_POINT, KERNEL_FINISH } conv_kernel;

typedef struct conv_choice {
    conv_kernel kernel;
    conv_direction direction;
    tile_shape tile;
    xpu_dtype dtype;
    bool long_index, channels_fast, point_kernel, sliced;
    post_ops_params end;
} conv_choice;

static xpu_status get_kernel(int device, conv_choice choice, xpu_kernel **kernel) {
    static const char *const names[] = {"conv_tiles", "conv_point", "conv_reduce_slices"};
    static const char *const macros[] = {NULL, "POINT", "FINISH"};
    static const char *const purposes[] = {"", " grad_input", " grad_weight"};
    const bool tiled = choice.kernel == KERNEL_TILES;
    kernel_spec spec;
    spec_begin(&spec, FAMILY_CONV);
    product_spec(&spec, choice.dtype);
    spec_int_if(&spec, tiled, "TILE", choice.tile.size, 16);
    spec_int_if(&spec, tiled, "TILE_K", choice.tile.depth, 8);
    spec_int_if(&spec, tiled, "SIDE", choice.tile.side, 8);
    spec_enum(&spec, "", macros, choice.kernel, 4);
    spec_int(&spec, "DIRECTION", choice.direction, 4);
    spec_key_only(&spec, "INDEX", choice.long_index, 1);
    spec_option(&spec, "INDEX=", choice.long_index ? "long" : "int");
    spec_bool(&spec, "CHANNELS_CONTIGUOUS", choice.channels_fast);
    spec_bool(&spec, "POINT_KERNEL", choice.point_kernel);
    spec_bool(&spec, "IS_SPLIT", choice.sliced);
    post_ops_spec(&spec, &choice.end);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(device, &spec, "conv.cl", names[choice.kernel], kernel, "%s %s%s",
                            names[choice.kernel], xpu_dtype_name(choice.dtype), purposes[choice.direction]);
}

static int64_t volume(const xpu_i32 size[3]) { return (int64_t)size[0] * size[1] * size[2]; }

static const xpu_post_ops no_post_ops;

static xpu_status run(xpu_stream *stream, xpu_dtype dtype, conv_direction direction, conv_params p,
                      const xpu_tensor *bias, const xpu_post_ops *ending, const xpu_tensor *other,
                      const xpu_tensor *output) {
    const int device = xpu_stream_device(stream);
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    if (bias) p.bias = XPU_ADDR(bias->data), p.bias_stride = bias->stride[0];
    p.end = post_ops_params_of(dtype, ending, other ? other->data : NULL);
    bool done;
    XPU_TRY(conv_by_depthwise(stream, dtype, direction, &p, &done));
    if (!done) XPU_TRY(conv_by_few_channels(stream, dtype, direction, &p, &done));
    if (done) return XPU_SUCCESS;
    /* These apply post-ops in a separate pass, so the result must not overwrite the post-op's operand. */
    const xpu_addr result = direction == CONV_BACKWARD_DATA ? p.x : p.y;
    if (p.end.other != result) XPU_TRY(conv_by_patches(stream, dtype, direction, &p, &done));
    if (!done && p.end.other != result) XPU_TRY(conv_by_matrix(stream, dtype, direction, &p, &done));
    if (!done && p.end.other != result && direction == CONV_FORWARD)
        XPU_TRY(conv_on_host(stream, dtype, &p, &done));
    if (done && !post_ops_is_none(ending)) return xpu_post_ops_apply(stream, ending, other, output);
    if (done) return XPU_SUCCESS;
    const int64_t taps = volume(p.taps), y_pixels = p.batch * volume(p.out),
                  x_pixels = p.batch * volume(p.in);
    conv_choice choice = {.direction = direction, .dtype = dtype, .point_kernel = taps == 1, .end = p.end};

    /* Are channels contiguous and pixels not? The im2col operand's tensor decides. */
    const xpu_i64 *layout = direction == CONV_BACKWARD_DATA ? p.y_stride : p.x_stride;
    choice.channels_fast = layout[1] == 1 && layout[4] != 1;
    int64_t channels, few;
    if (direction == CONV_BACKWARD_WEIGHT) {
        p.rows = p.k, p.columns = p.c * taps, p.depth = y_pixels;
        channels = p.k, few = 4;
    } else {
        const int64_t pixels = direction == CONV_FORWARD ? y_pixels : x_pixels;
        channels = direction == CONV_FORWARD ? p.k : p.c, few = 8;
        p.rows = choice.channels_fast ? pixels : channels;
        p.columns = choice.channels_fast ? channels : pixels;
        p.depth = (direction == CONV_FORWARD ? p.c : p.k) * taps;
    }
    if (p.rows == 0 || p.columns == 0 || p.groups == 0) return XPU_SUCCESS;
    /* Sums of a pixel's coordinate and the padding must fit too: hence a quarter of the range. */
    const int64_t limit = INT32_MAX / 4;
    choice.long_index = p.rows > limit || p.columns > limit || p.depth > limit;
    p.slice = p.depth;

    const uint64_t work = (uint64_t)(p.groups * p.rows) * (uint64_t)p.columns * (uint64_t)(p.depth + 1);
    xpu_kernel *kernel;
    if (channels < few) {
        choice.kernel = KERNEL_POINT;
        const int64_t results = p.groups * p.rows * p.columns;
        xpu_range range = {.dims = 1, .local = {64}, .work = work};
        range.groups[0] = (size_t)(direction == CONV_BACKWARD_WEIGHT ? results : (results + 63) / 64);
        XPU_TRY(get_kernel(device, choice, &kernel));
        return xpu_launch(stream, kernel, &range, &p, sizeof p);
    }

    choice.kernel = KERNEL_TILES;
    choice.tile = tile_for(properties, dtype, p.rows, p.columns, p.groups);
    const int64_t groups = tiles(p.rows, choice.tile.size) * tiles(p.columns, choice.tile.size) * p.groups;
    const int64_t results = p.groups * p.rows * p.columns;
    if (direction == CONV_BACKWARD_WEIGHT)
        p.slices = product_split_count(properties, groups, p.depth, results);
    choice.sliced = p.slices > 1;
    p.slice = div_up(p.depth, p.slices);
    const size_t side = (size_t)(choice.tile.size / choice.tile.side);
    const xpu_range range = {
        .dims = 2, .groups = {(size_t)(groups * p.slices), 1}, .local = {side, side}, .work = work};
    split_k_product product = {.range = range, .dtype = dtype, .results = results, .slices = p.slices};
    XPU_TRY(get_kernel(device, choice, &product.sum));
    if (p.slices == 1) return xpu_launch(stream, product.sum, &range, &p, sizeof p);
    conv_choice last = choice;
    last.kernel = KERNEL_FINISH, last.sliced = false, last.tile = (tile_shape){0};
    XPU_TRY(get_kernel(device, last, &product.finish));
    return product_split_k(stream, &product, &p, sizeof p, &p.partial);
}

static xpu_status check(xpu_stream *stream, const xpu_conv *conv, const xpu_tensor *input,
                        const xpu_tensor *weight, const xpu_tensor *output) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &properties));
    XPU_TRY(product_check_dtype(properties, input->dtype, "convolution", true));
    if (conv->dims < 1 || conv->dims > XPU_CONV_MAX_DIMS || input->dims != conv->dims + 2 ||
        weight->dims != input->dims || output->dims != input->dims)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "convolution: tensors must have %d dimensions",
                       conv->dims + 2);
    if (weight->dtype != input->dtype || output->dtype != input->dtype)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "convolution: input, weight and output must have the same dtype");
    if (conv->groups < 1 || input->size[1] % conv->groups || output->size[1] % conv->groups)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "convolution: the input and output channels must be divisible by groups");
    if (!conv_sizes_fit_32bit(conv, input, weight, output))
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "convolution: a dimension has 2^31 elements or more");
    return XPU_SUCCESS;
}

xpu_status xpu_conv_forward(xpu_stream *stream, const xpu_conv *conv, const xpu_tensor *input,
                            const xpu_tensor *weight, const xpu_tensor *bias, const xpu_tensor *output) {
    return xpu_conv_forward_post_ops(stream, conv, input, weight, bias, &no_post_ops, NULL, output);
}

static bool lie_alike(const xpu_tensor *a, const xpu_tensor *b) {
    bool alike = a->dims == b->dims && a->dtype == b->dtype;
    for (int i = 0; i < b->dims && alike; i++)
        alike = a->size[i] == b->size[i] && (a->stride[i] == b->stride[i] || b->size[i] < 2);
    return alike;
}

xpu_status xpu_conv_forward_post_ops(xpu_stream *stream, const xpu_conv *conv, const xpu_tensor *input,
                                     const xpu_tensor *weight, const xpu_tensor *bias,
                                     const xpu_post_ops *ending, const xpu_tensor *other,
                                     const xpu_tensor *output) {
    XPU_TRY(check(stream, conv, input, weight, output));
    XPU_TRY(post_ops_check("convolution", input->dtype, ending, other ? other->data : NULL));
    if (ending->combine != XPU_COMBINE_NONE && !lie_alike(other, output))
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "convolution: the binary post-op's operand must have the output's sizes and strides");
    const conv_direction direction = conv->transposed ? CONV_BACKWARD_DATA : CONV_FORWARD;
    const conv_params p = conv->transposed ? conv_params_of(conv, output, weight, input)
                                           : conv_params_of(conv, input, weight, output);
    return run(stream, input->dtype, direction, p, bias, ending, other, output);
}

/* Gradient of the bias: sums y's gradient over all dimensions but channels, the innermost first. */
static xpu_status sum_bias(xpu_stream *stream, const xpu_tensor *y, const xpu_tensor *bias) {
    const int64_t element = (int64_t)xpu_dtype_size(y->dtype);
    xpu_iter iter = {.outputs = 1, .inputs = 1, .dims = y->dims};
    iter.operand[0] = (xpu_operand){.data = bias->data, .dtype = bias->dtype};
    iter.operand[1] = (xpu_operand){.data = y->data, .dtype = y->dtype};
    for (int i = 0; i < y->dims; i++) {
        iter.size[i] = y->size[i];
        iter.operand[0].stride[i] = i == 1 ? bias->stride[0] * element : 0;
        iter.operand[1].stride[i] = y->stride[i] * element;
    }
    iter_sort(&iter, 1);
    xpu_iter_coalesce(&iter);
    return xpu_reduce(stream, XPU_REDUCE_SUM, &iter, 0);
}

xpu_status xpu_conv_backward(xpu_stream *stream, const xpu_conv *conv, const xpu_tensor *grad_output,
                             const xpu_tensor *input, const xpu_tensor *weight, const xpu_tensor *grad_input,
                             const xpu_tensor *grad_weight, const xpu_tensor *grad_bias) {
    XPU_TRY(check(stream, conv, input, weight, grad_output));
    const xpu_dtype dtype = input->dtype;
    if (grad_input) {
        if (conv->transposed)
            XPU_TRY(run(stream, dtype, CONV_FORWARD, conv_params_of(conv, grad_output, weight, grad_input),
                        NULL, &no_post_ops, NULL, NULL));
        else
            XPU_TRY(run(stream, dtype, CONV_BACKWARD_DATA,
                        conv_params_of(conv, grad_input, weight, grad_output), NULL, &no_post_ops, NULL,
                        NULL));
    }
    if (grad_weight) {
        if (conv->transposed)
            XPU_TRY(run(stream, dtype, CONV_BACKWARD_WEIGHT,
                        conv_params_of(conv, grad_output, grad_weight, input), NULL, &no_post_ops, NULL,
                        NULL));
        else
            XPU_TRY(run(stream, dtype, CONV_BACKWARD_WEIGHT,
                        conv_params_of(conv, input, grad_weight, grad_output), NULL, &no_post_ops, NULL,
                        NULL));
    }
    if (grad_bias) XPU_TRY(sum_bias(stream, grad_output, grad_bias));
    return XPU_SUCCESS;
}

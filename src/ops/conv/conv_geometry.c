/* Layouts, phases and ranges of channels-last convolutions (conv_geometry.h). */
#include "ops/conv/conv_geometry.h"

#include <stdlib.h>

#include "ops/iter.h"

/* Spreads the strides of N, C and up to three dimensions over five; missing dimensions come first. */
static void spread(int dims, const int64_t *stride, xpu_i64 to[5]) {
    to[0] = stride[0], to[1] = stride[1];
    for (int i = 0; i < 3; i++) to[2 + i] = i < 3 - dims ? 0 : stride[2 + i - (3 - dims)];
}

static xpu_i32 at(int dims, const int64_t *values, int i, int64_t missing) {
    return (xpu_i32)(i < 3 - dims ? missing : values[i - (3 - dims)]);
}

bool conv_sizes_fit_32bit(const xpu_conv *conv, const xpu_tensor *x, const xpu_tensor *w,
                          const xpu_tensor *y) {
    for (int i = 0; i < conv->dims; i++) {
        const int64_t all[] = {x->size[2 + i],  w->size[2 + i],   y->size[2 + i],
                               conv->stride[i], conv->padding[i], conv->dilation[i]};
        for (size_t n = 0; n < sizeof all / sizeof *all; n++)
            if (all[n] != (xpu_i32)all[n]) return false;
    }
    return true;
}

conv_params conv_params_of(const xpu_conv *conv, const xpu_tensor *x, const xpu_tensor *w,
                           const xpu_tensor *y) {
    const int dims = conv->dims;
    conv_params p = {.x = XPU_ADDR(x->data),
                     .w = XPU_ADDR(w->data),
                     .y = XPU_ADDR(y->data),
                     .batch = x->size[0],
                     .groups = conv->groups,
                     .c = x->size[1] / conv->groups,
                     .k = y->size[1] / conv->groups,
                     .slices = 1};
    spread(dims, x->stride, p.x_stride);
    spread(dims, y->stride, p.y_stride);
    spread(dims, w->stride, p.w_stride);
    for (int i = 0; i < 3; i++) {
        p.in[i] = at(dims, x->size + 2, i, 1);
        p.out[i] = at(dims, y->size + 2, i, 1);
        p.taps[i] = at(dims, w->size + 2, i, 1);
        p.stride[i] = at(dims, conv->stride, i, 1);
        p.padding[i] = at(dims, conv->padding, i, 0);
        p.dilation[i] = at(dims, conv->dilation, i, 1);
    }
    return p;
}

conv_divisor conv_divisor_of(int64_t value) {
    const fast_divisor d = fast_divisor_of(value > 0 ? (uint32_t)value : 1);
    return (conv_divisor){.value = (xpu_u32)value, .factor = d.multiplier, .shift = d.shift};
}

conv_operand conv_operand_of(xpu_dtype dtype, xpu_addr data, const xpu_i64 stride[5], int64_t n,
                             int64_t groups, int64_t channels, const xpu_i32 *size) {
    conv_operand o = {.vec = 16 / (int64_t)xpu_dtype_size(dtype),
                      .data = data,
                      .n = n,
                      .groups = groups,
                      .channels = channels,
                      .size = size};
    o.whole = o.vec;
    const int64_t count[5] = {n, groups * channels, size[0], size[1], size[2]};
    for (int i = 0; i < 5; i++) o.stride[i] = count[i] > 1 ? stride[i] : 0;
    if (count[1] == 1) o.stride[1] = 1;
    return o;
}

bool conv_is_vector_aligned(const conv_operand *o) {
    bool ready =
        o->channels % o->whole == 0 && o->stride[1] == 1 && o->data % (xpu_addr)(16 * o->whole / o->vec) == 0;
    for (int i = 0; i < 5; i++)
        if (i != 1) ready = ready && o->stride[i] >= 0 && o->stride[i] % o->whole == 0;
    return ready;
}

int64_t conv_pixel_pitch(const conv_operand *o, int first) {
    const int64_t count[5] = {o->n, 1, o->size[0], o->size[1], o->size[2]};
    int64_t pitch = 0, pixels = 1;
    for (int i = 4; i >= first; i--) {
        if (count[i] == 1) continue;
        if (pixels == 1) pitch = o->stride[i];
        if (o->stride[i] != pitch * pixels) return -1;
        pixels *= count[i];
    }
    return pitch;
}

conv_operand conv_packed(const conv_operand *o) {
    const int64_t width = o->groups * conv_padded_channels(o), line = width * o->size[2],
                  plane = line * o->size[1];
    conv_operand to = *o;
    to.channels = conv_padded_channels(o);
    const xpu_i64 stride[5] = {plane * o->size[0], 1, plane, line, width};
    for (int i = 0; i < 5; i++) to.stride[i] = stride[i];
    return to;
}

int64_t conv_common_divisor(int64_t a, int64_t b) { return b == 0 ? a : conv_common_divisor(b, a % b); }

/* One dimension of a convolution whose result's pixels are those of x: pixel q * stride + r is reached by the
 * taps t with q * stride + r = o * stride + t * dilation - padding. */
static conv_phase phase_of(const conv_params *p, int d, int64_t r) {
    const int64_t stride = p->stride[d], dilation = p->dilation[d], u = r + p->padding[d];
    const int64_t apart = stride / conv_common_divisor(stride, dilation);
    for (int64_t t = 0; t < apart && t < p->taps[d]; t++)
        if ((u - t * dilation) % stride == 0)
            return (conv_phase){.pixel = (xpu_i32)r,
                                .first = (xpu_i32)((u - t * dilation) / stride),
                                .tap = (xpu_i32)t,
                                .taps = conv_divisor_of((p->taps[d] - 1 - t) / apart + 1)};
    return (conv_phase){.pixel = (xpu_i32)r};
}

static int by_taps(const void *a, const void *b) {
    const xpu_u32 x = ((const conv_phase *)a)->taps.value, y = ((const conv_phase *)b)->taps.value;
    return x < y ? 1 : x > y ? -1 : 0;
}

bool conv_describe_dimensions(const conv_params *p, conv_direction direction, conv_matrix_params *m) {
    for (int d = 0; d < 3; d++) {
        const bool of_x = direction == CONV_BACKWARD_DATA;
        if (of_x) {
            const int64_t g = conv_common_divisor(p->stride[d], p->dilation[d]);
            const int64_t count = p->stride[d] < p->in[d] ? p->stride[d] : p->in[d];
            if (count > CONV_PHASES) return false;
            m->phases[d] = (xpu_u32)count;
            for (int64_t r = 0; r < count; r++) m->phase[d][r] = phase_of(p, d, r);
            qsort(m->phase[d], (size_t)count, sizeof(conv_phase),
                  by_taps); /* the phases with most taps first */
            m->step[d] = 1, m->tap_step[d] = (xpu_i32)(-p->dilation[d] / g);
            m->pixel_step[d] = p->stride[d];
            m->extent[d] = conv_divisor_of(div_up(p->in[d], p->stride[d]));
        } else {
            m->phases[d] = 1;
            m->phase[d][0] = (conv_phase){.first = -p->padding[d], .taps = conv_divisor_of(p->taps[d])};
            m->step[d] = p->stride[d], m->tap_step[d] = p->dilation[d];
            m->pixel_step[d] = 1;
            m->extent[d] = conv_divisor_of(p->out[d]);
        }
        m->size[d] = of_x ? p->in[d] : p->out[d];
        m->source[d] = of_x ? p->out[d] : p->in[d];
    }
    return true;
}

void conv_source_range(const conv_matrix_params *m, int d, int64_t *least, int64_t *most) {
    *least = 0, *most = m->source[d] - 1;
    for (xpu_u32 i = 0; i < m->phases[d]; i++) {
        const conv_phase *phase = &m->phase[d][i];
        const int64_t last = (int64_t)(m->extent[d].value - 1) * m->step[d];
        const int64_t reach = phase->taps.value ? ((int64_t)phase->taps.value - 1) * m->tap_step[d] : 0;
        const int64_t low = phase->first + (reach < 0 ? reach : 0);
        const int64_t high = phase->first + last + (reach > 0 ? reach : 0);
        if (low < *least) *least = low;
        if (high > *most) *most = high;
    }
}

bool conv_offsets_fit_32bit(const conv_operand *o, const conv_matrix_params *m) {
    int64_t pieces = o->groups * o->channels / o->vec + o->n * (o->stride[0] / o->vec);
    for (int d = 0; d < 3; d++) {
        int64_t least = 0, most = o->size[d];
        if (m) conv_source_range(m, d, &least, &most);
        pieces += (most - 2 * least + 1) * (o->stride[2 + d] / o->vec);
    }
    return pieces < INT32_MAX / 2;
}

bool conv_is_3d(const conv_params *p) {
    return p->in[0] > 1 || p->out[0] > 1 || p->taps[0] > 1 || p->padding[0] > 0;
}

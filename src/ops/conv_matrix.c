/* How a convolution becomes a product of matrices whose operands conv_matrix.cl gathers, or a plain one. */
#include "conv_matrix.h"

#include "matrix.h"
#include "product.h"
#include "xpu/ops/gemm.h"
#include "xpu/trace.h"

enum {
    PIECE = 8,           /* elements in 16 bytes */
    BLOCK = 8,           /* rows of Intel's units */
    WHOLE = 32,          /* elements in 64 bytes, which their reads keep to */
    MOST_BYTES = 1 << 24 /* of a line that they read, and of their distance */
};

typedef enum conv_matrix_kernel { KERNEL_PRODUCT, KERNEL_FINISH, KERNEL_PACK } conv_matrix_kernel;

typedef struct choice {
    conv_matrix_kernel kernel;
    xpu_dtype dtype;
    sought sought;
    matrix_choice matrix;
    bool padded, one_tap, volume, phases, sliced, out_pieces, out_quads;
    bool pixels_fast; /* KERNEL_PACK */
    int parts;        /* KERNEL_FINISH: work-items for four numbers */
} choice;

static xpu_status get_kernel(int device, const choice *c, xpu_kernel **kernel) {
    static const char *const names[] = {"conv_matrix", "conv_matrix_finish", "conv_pack"};
    static const char *const macros[] = {NULL, "FINISH", "PACK"};
    static const char *const purposes[] = {"", " grad_input", " grad_weight"};
    kernel_spec spec;
    spec_begin(&spec, FAMILY_CONV_MATRIX);
    spec_choice(&spec, "", macros, c->kernel, 2);
    spec_pack(&spec, "T", c->dtype, 8);
    spec_number(&spec, "SOUGHT", c->sought, 2);
    spec_bool(&spec, "PADDED", c->padded);
    spec_bool(&spec, "ONE_TAP", c->one_tap);
    spec_bool(&spec, "VOLUME", c->volume);
    spec_bool(&spec, "PHASES", c->phases);
    spec_bool(&spec, "SLICED", c->sliced);
    spec_bool(&spec, "OUT_PIECES", c->out_pieces);
    spec_bool(&spec, "OUT_QUADS", c->out_quads);
    spec_bool(&spec, "PIXELS_FAST", c->pixels_fast);
    spec_number(&spec, "PARTS", c->parts, 5);
    matrix_spec(&spec, &c->matrix, c->dtype);
    if (c->kernel == KERNEL_FINISH) spec_follows(&spec, "MATRIX_T=", dtype_token(c->dtype));
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_of_file(device, &spec, "conv_matrix.cl", names[c->kernel], kernel, "%s %s%s",
                          names[c->kernel], xpu_dtype_name(c->dtype),
                          c->kernel == KERNEL_PACK ? "" : purposes[c->sought]);
}

static xpu_status pack(xpu_stream *stream, xpu_dtype dtype, conv_operand *o) {
    const int64_t per_n = conv_volume(o->size), width = o->groups * conv_padded_channels(o);
    int64_t nearest = o->stride[1]; /* of pixels */
    for (int i = 2; i < 5; i++)
        if (o->size[i - 2] > 1 && o->stride[i] < nearest) nearest = o->stride[i];
    const choice c = {
        .kernel = KERNEL_PACK, .dtype = dtype, .pixels_fast = nearest < o->stride[1] && per_n >= 32};
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(xpu_stream_device(stream), &c, &kernel));
    XPU_TRY(xpu_workspace_take(stream, (size_t)(o->n * per_n * width) * 2, &o->workspace));
    conv_pack_params q = {.from = o->data,
                          .to = XPU_ADDR(o->workspace),
                          .pixels = o->n * per_n,
                          .groups = (xpu_u32)o->groups,
                          .channels = (xpu_u32)o->channels,
                          .padded = (xpu_u32)conv_padded_channels(o),
                          .tiles = (xpu_u32)divided_up(per_n, 64)};
    for (int i = 0; i < 5; i++) q.stride[i] = o->stride[i];
    for (int i = 0; i < 3; i++) q.size[i] = conv_divisor_of(o->size[i]);
    const int64_t groups =
        c.pixels_fast ? o->n * q.tiles * divided_up(width, 64) : divided_up(q.pixels * width / PIECE, 256);
    const xpu_range range = {
        .dims = 1, .groups = {(size_t)groups}, .local = {256}, .work = (uint64_t)(q.pixels * width)};
    XPU_TRY(xpu_launch(stream, kernel, &range, &q, sizeof q));
    *o = conv_packed(o);
    o->data = q.to;
    return XPU_SUCCESS;
}

static xpu_status make_ready(xpu_stream *stream, xpu_dtype dtype, conv_operand *o, bool ready) {
    return ready ? XPU_SUCCESS : pack(stream, dtype, o);
}

/* --- the product --- */

static bool is_dense_along_k(const conv_operand *w) {
    const int64_t pitch = conv_pixel_pitch(w, 2);
    return pitch == w->channels || conv_volume(w->size) == 1;
}

static xpu_status launch(xpu_stream *stream, const choice *c, const conv_matrix_params *m, int64_t groups,
                         int64_t threads, int64_t work) {
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(xpu_stream_device(stream), c, &kernel));
    const xpu_range range = {
        .dims = 1, .groups = {(size_t)groups}, .local = {(size_t)threads}, .work = (uint64_t)work};
    return xpu_launch(stream, kernel, &range, m, sizeof *m);
}

/* How many numbers of the result, channels beside each other, can be written as one. */
static void set_widths(choice *c, const conv_operand *result, conv_matrix_params *m) {
    int64_t together = result->channels | (int64_t)(result->data / 2) | PIECE;
    for (int i = 0; i < 5; i++)
        if (i != 1) together |= result->stride[i];
    together &= -together;
    if (result->stride[1] != 1) together = 1;
    c->matrix.out_pairs = together >= 2;
    c->out_quads = together >= 4;
    c->out_pieces = c->sought != SOUGHT_W && conv_is_ready(result) && conv_is_in_reach(result, NULL);
    if (!c->out_pieces) return;
    c->matrix.out_pairs = false;
    m->result_pitch[0] = (xpu_i32)(result->stride[0] / PIECE);
    for (int d = 0; d < 3; d++) m->result_pitch[1 + d] = (xpu_i32)(result->stride[2 + d] / PIECE);
}

/* Both operands are ready. */
static xpu_status multiply(xpu_stream *stream, const xpu_device_properties *properties, choice c,
                           const conv_params *p, const conv_operand *gathered, const conv_operand *other,
                           const conv_operand *result, conv_matrix_params *m) {
    const bool of_w = c.sought == SOUGHT_W;
    const int64_t taps = conv_volume(p->taps),
                  products = p->groups * m->phases[0] * m->phases[1] * m->phases[2];
    const bool by_blocks = c.matrix.unit == MATRIX_UNIT_XMX;
    for (int d = 0; d < 3 && !by_blocks; d++) {
        int64_t least, most;
        conv_source_range(m, d, &least, &most);
        c.padded = c.padded || least < 0 || most >= m->source[d];
    }
    if (by_blocks) m->extent[2] = conv_divisor_of(divided_up(m->extent[2].value, BLOCK));
    const int64_t pixels = (int64_t)m->extent[0].value * m->extent[1].value * m->extent[2].value * p->batch *
                           (by_blocks ? BLOCK : 1);
    int64_t busy = p->groups; /* products that there is something to do for */
    for (int d = 0; d < 3; d++) {
        xpu_u32 some = 0; /* those with taps come first */
        while (some < m->phases[d] && m->phase[d][some].taps.value > 0) some++;
        busy *= some > 0 ? some : 1;
    }
    m->gathered = gathered->data, m->other = other->data;
    m->groups = (xpu_u32)p->groups;
    m->per_tap = conv_divisor_of(gathered->channels / PIECE);
    m->gathered_pitch[0] = (xpu_i32)(gathered->stride[0] / PIECE);
    for (int d = 0; d < 3; d++) m->gathered_pitch[1 + d] = (xpu_i32)(gathered->stride[2 + d] / PIECE);
    m->gathered_group = (xpu_i32)m->per_tap.value;

    int64_t depth; /* of k, on the average of these */
    if (of_w) {
        m->rows = (xpu_u32)p->k, m->columns = (xpu_u32)(taps * gathered->channels);
        m->depth = (xpu_u32)pixels, m->channels = (xpu_u32)p->c, m->result_channels = (xpu_u32)p->k;
        m->other_pitch = (xpu_i32)(conv_pixel_pitch(other, 0) / PIECE);
        m->other_group = (xpu_i32)(other->channels / PIECE);
        depth = pixels;
    } else {
        const int64_t channels = c.sought == SOUGHT_Y ? p->k : p->c;
        m->rows = (xpu_u32)pixels, m->columns = (xpu_u32)channels, m->result_channels = (xpu_u32)channels;
        m->depth = (xpu_u32)(c.sought == SOUGHT_Y ? p->c : p->k);
        m->other_pitch = (xpu_i32)(other->stride[0] / PIECE);
        m->other_group =
            (xpu_i32)(by_blocks && c.sought == SOUGHT_Y ? other->channels / PIECE : p->k * m->other_pitch);
        m->other_width = (xpu_i32)(other->channels * 2);
        for (int d = 0; d < 3; d++) {
            const xpu_i32 g = (xpu_i32)conv_common_divisor(p->stride[d], p->dilation[d]);
            m->other_tap_first[d] = (xpu_i32)(other->stride[2 + d] / PIECE);
            m->other_tap[d] = m->other_tap_first[d] * (c.sought == SOUGHT_X ? p->stride[d] / g : 1);
        }
        depth = divided_up(taps * gathered->channels * p->groups, busy);
    }

    c.volume = conv_has_volume(p);
    /* Of parameters without an index Intel's compiler keeps all in registers, which are short by then. */
    c.phases = by_blocks || products > p->groups;
    c.matrix.a_piece = c.matrix.b_piece = 16;
    set_widths(&c, result, m);
    c.matrix.tile = matrix_tile_for(c.matrix.unit, c.dtype, properties, busy, m->rows, m->columns, depth,
                                    of_w                                 ? 0
                                    : c.sought == SOUGHT_Y && !by_blocks ? 2
                                                                         : 1,
                                    &m->slices);
    const matrix_tile *tile = matrix_tile_of(&c.matrix);
    if (by_blocks) { /* writes number by number, and knows no slices */
        matrix_for_intel(&c.matrix, properties);
        c.matrix.out_pairs = c.out_pieces = c.out_quads = false;
        m->slices = 1;
    }
    const int step = matrix_step(tile, c.matrix.unit, c.dtype);
    c.one_tap = !of_w && !by_blocks && gathered->channels % step == 0;
    int64_t most_taps = 1; /* of a phase */
    for (int d = 0; d < 3; d++) most_taps *= m->phase[d][0].taps.value;
    const int64_t steps = divided_up(of_w ? pixels : most_taps * gathered->channels, step);
    m->slice = (xpu_u32)rounded_up(divided_up(steps, m->slices), 2); /* SLABS_AT_ONCE, at most */
    if (m->slice == 0) m->slice = 2;
    m->slices = steps > 0 ? divided_up(steps, m->slice) : 1;
    m->pitch = rounded_up(m->columns, 4);

    const int64_t results = products * m->rows * m->pitch, work = results * (depth + 1);
    const int64_t groups = tiles(m->rows, tile->m) * tiles(m->columns, tile->n) * products * m->slices;
    const int64_t threads = tile->teams_m * tile->teams_n * matrix_team(c.matrix.unit);
    if (m->slices == 1) {
        c.out_quads = false;
        return launch(stream, &c, m, groups, threads, work);
    }

    void *partial;
    XPU_TRY(xpu_workspace_take(stream, (size_t)(m->slices * results) * sizeof(float), &partial));
    m->partial = XPU_ADDR(partial);
    const bool out_quads = c.out_quads;
    c.sliced = true, c.matrix.out_pairs = c.out_pieces = c.out_quads = false;
    xpu_status status = launch(stream, &c, m, groups, threads, work);
    if (status == XPU_SUCCESS) {
        choice last = {.kernel = KERNEL_FINISH,
                       .dtype = c.dtype,
                       .sought = c.sought,
                       .volume = c.volume,
                       .phases = c.phases,
                       .out_quads = out_quads,
                       .parts = m->slices >= 8   ? 8
                                : m->slices >= 4 ? 4
                                                 : 1};
        status =
            launch(stream, &last, m, divided_up(results / 4, 256 / last.parts), 256, results * m->slices);
    }
    return workspace_done(partial, status);
}

/* A kernel of one tap that meets each pixel once is a plain product of w and each image, which needn't be
 * packed where its channels are lines of pixels. */
static bool plan_plain_product(const choice *c, const conv_params *p, const conv_operand *from,
                               const conv_operand *to, xpu_gemm_args *args) {
    const sought sought = c->sought;
    if (sought == SOUGHT_W || p->groups != 1 || conv_volume(p->taps) != 1) return false;
    for (int d = 0; d < 3; d++)
        if (p->stride[d] != 1 || p->padding[d] != 0) return false;
    if (from->data % 16 != 0 || from->stride[0] % from->piece != 0 || from->stride[1] % from->piece != 0 ||
        conv_volume(p->in) == 1 || conv_pixel_pitch(from, 2) != 1 || conv_pixel_pitch(to, 2) != 1)
        return false;
    *args = (xpu_gemm_args){.dtype = c->dtype,
                            .batch = p->batch,
                            .m = to->channels,
                            .n = conv_volume(p->in),
                            .k = from->channels,
                            .alpha = {.dtype = XPU_FLOAT64, .value.f = 1},
                            .beta = {.dtype = XPU_FLOAT64, .value.f = p->bias ? 1 : 0}};
    const bool of_y = sought == SOUGHT_Y;
    args->a = (xpu_matrix){(void *)(uintptr_t)p->w, 0, p->w_stride[!of_y], p->w_stride[of_y]};
    args->b = (xpu_matrix){(void *)(uintptr_t)from->data, from->stride[0], from->stride[1], 1};
    args->c = (xpu_matrix){(void *)(uintptr_t)p->bias, 0, p->bias_stride, 0};
    args->out = (xpu_matrix){(void *)(uintptr_t)to->data, to->stride[0], to->stride[1], 1};
    const matrix_lines a = {args->a.data, args->a.column_stride, args->a.row_stride, 0};
    const matrix_lines b = {args->b.data, 1, args->b.row_stride, args->b.batch_stride};
    return c->matrix.unit != MATRIX_UNIT_XMX ||
           (a.along == 1 && matrix_reads_blocks(&a, args->k, args->m, c->dtype) &&
            matrix_reads_blocks(&b, args->n, args->k, c->dtype));
}

xpu_status conv_by_units(xpu_stream *stream, xpu_dtype dtype, sought sought, const conv_params *p,
                         bool *done) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &properties));
    choice c = {.dtype = dtype, .sought = sought};
    c.matrix.unit = matrix_unit_of(properties, dtype, &c.matrix.emulated);
    *done = false;
    const bool by_blocks = c.matrix.unit == MATRIX_UNIT_XMX;
    if (c.matrix.unit != MATRIX_UNIT_PTX && (!by_blocks || sought == SOUGHT_W)) return XPU_SUCCESS;
    const int64_t most = INT32_MAX - 4096, taps = conv_volume(p->taps); /* of what is counted with 31 bits */
    if (p->batch == 0 || p->c == 0 || p->k == 0 || conv_volume(p->in) == 0 || conv_volume(p->out) == 0 ||
        taps == 0 || p->batch * conv_volume(p->in) > most / 2 || p->batch * conv_volume(p->out) > most / 2 ||
        (p->c + PIECE) * taps > most || (p->k + PIECE) * taps > most)
        return XPU_SUCCESS;
    /* Units multiply blocks of eight channels. */
    if (p->groups > 1 ? p->c < PIECE || p->k < PIECE : p->c * p->k * taps < 256) return XPU_SUCCESS;

    conv_operand x = conv_operand_of(dtype, p->x, p->x_stride, p->batch, p->groups, p->c, p->in);
    conv_operand y = conv_operand_of(dtype, p->y, p->y_stride, p->batch, p->groups, p->k, p->out);
    conv_operand w = conv_operand_of(dtype, p->w, p->w_stride, p->groups * p->k, 1, p->c, p->taps);
    if (by_blocks) {
        if (sought == SOUGHT_Y) { /* its columns, channels of y, innermost */
            const xpu_i64 turned[5] = {p->w_stride[1], p->w_stride[0], p->w_stride[2], p->w_stride[3],
                                       p->w_stride[4]};
            w = conv_operand_of(dtype, p->w, turned, p->c, p->groups, p->k, p->taps);
        }
        x.whole = y.whole = w.whole = WHOLE;
    }
    xpu_gemm_args plain;
    if (plan_plain_product(&c, p, sought == SOUGHT_Y ? &x : &y, sought == SOUGHT_Y ? &y : &x, &plain)) {
        *done = true;
        return xpu_gemm(stream, &plain);
    }

    conv_matrix_params m = {.bias = sought == SOUGHT_W ? 0 : p->bias, .bias_stride = p->bias_stride};
    if (!conv_describe_dimensions(p, sought, &m)) return XPU_SUCCESS;
    conv_operand *const gathered = sought == SOUGHT_X ? &y : &x, *const other = sought == SOUGHT_W ? &y : &w;
    const conv_operand *const result = sought == SOUGHT_Y ? &y : sought == SOUGHT_X ? &x : &w;
    m.result = result->data;
    for (int i = 0; i < 5; i++) m.result_stride[i] = result->stride[i];
    bool other_ready = conv_is_ready(other);
    if (sought == SOUGHT_Y && !by_blocks) other_ready = other_ready && is_dense_along_k(&w);
    if (sought == SOUGHT_W) other_ready = other_ready && conv_pixel_pitch(&y, 0) >= 0;
    bool gathered_ready = conv_is_ready(gathered);
    if (by_blocks) { /* lines mustn't overlap */
        gathered_ready =
            gathered_ready && (gathered->stride[4] == 0 || gathered->stride[4] >= gathered->channels);
        other_ready = other_ready && (w.stride[0] == 0 || w.stride[0] >= w.channels);
    }
    const conv_operand g = gathered_ready ? *gathered : conv_packed(gathered),
                       o = other_ready ? *other : conv_packed(other);
    if (!conv_is_in_reach(&g, &m) || !conv_is_in_reach(&o, NULL)) return XPU_SUCCESS;
    if (by_blocks && (g.stride[4] * m.step[2] >= MOST_BYTES / 2 || o.stride[0] >= MOST_BYTES / 2 ||
                      g.channels >= MOST_BYTES / 2 || o.n >= MOST_BYTES))
        return XPU_SUCCESS;

    *done = true;
    xpu_status status = make_ready(stream, dtype, gathered, gathered_ready);
    if (status == XPU_SUCCESS) status = make_ready(stream, dtype, other, other_ready);
    if (status == XPU_SUCCESS) status = multiply(stream, properties, c, p, gathered, other, result, &m);
    void *const workspaces[] = {gathered->workspace, other->workspace};
    for (int i = 0; i < 2; i++) status = workspace_done(workspaces[i], status);
    return status;
}

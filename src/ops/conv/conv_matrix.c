/* Chooses how a convolution is computed: as an implicit GEMM (conv_matrix.cl), as a plain matrix product, or
 * by Winograd. */
#include "ops/conv/conv_matrix.h"

#include <math.h>

#include "core/tuning.h"
#include "ops/conv/conv_winograd.h"
#include "ops/gemm/epilogue.h"
#include "ops/gemm/matrix.h"
#include "ops/gemm/product.h"
#include "ops/iter.h"
#include "xpu/memory.h"
#include "xpu/ops/copy.h"
#include "xpu/ops/gemm.h"
#include "xpu/trace.h"

enum {
    UNIT = 8,             /* channels per matrix instruction; twice as many for int8 */
    QUAD = 4,             /* … without a matrix engine: channels per load */
    BLOCK = 8,            /* rows of an XMX block, … */
    BLOCK_K = 16,         /* … and K per instruction */
    WHOLE = 64,           /* bytes; alignment of block reads */
    BLANK_BYTES = 32,     /* bytes of a vector, at most */
    HALF_LINE = 32,       /* bytes that a work-item reads for XMX with SIMD8 */
    MOST_BYTES = 1 << 24, /* length and distance of rows for block reads */
    FEW_CHANNELS = 8,     /* channels of x or y per group that conv.cl computes with another kernel */
    FEW_ROWS = 4,         /* … and rows, for the gradient of w */
    FEW_PIECES = 2,       /* vectors per pixel; adjacent work-items then read adjacent pixels anyway */
    MOST_IMAGES = 1024,   /* from this on, first_images decides */
};

typedef enum conv_matrix_kernel { KERNEL_PRODUCT, KERNEL_FINISH, KERNEL_PACK } conv_matrix_kernel;

typedef struct choice {
    conv_matrix_kernel kernel;
    xpu_dtype dtype;
    conv_direction direction;
    matrix_choice matrix;
    bool padded, one_tap, volume, phases, sliced, out_pieces, out_quads;
    bool pixels_fast;       /* pixels are contiguous in the packed tensor, the result or, for w, in y */
    int parts;              /* KERNEL_FINISH: work-items per four elements */
    int vec;                /* channels per vector, the unit of strides */
    const conv_int8 *bytes; /* quantized convolution, or NULL */
    bool blank;             /* the padding is not zero */
    bool by_numbers;        /* … and elements are multiplied as float32 */
} choice;

static bool is_wide(xpu_dtype dtype) { return xpu_dtype_size(dtype) > 4; }
static int pack_side(xpu_dtype dtype) { return is_wide(dtype) ? 32 : 64; }

static xpu_status get_kernel(int device, const choice *c, xpu_kernel **kernel) {
    static const char *const names[] = {"conv_matrix", "conv_matrix_reduce_slices", "conv_pack"};
    static const char *const macros[] = {NULL, "FINISH", "VECTOR_SIZE"};
    static const char *const purposes[] = {"", " grad_input", " grad_weight"};
    kernel_spec spec;
    spec_begin(&spec, FAMILY_CONV_MATRIX);
    spec_enum(&spec, "", macros, c->kernel, 2);
    const conv_int8 *const bytes = c->bytes;
    product_spec(&spec, bytes ? XPU_FLOAT32 : c->dtype);
    spec_bool(&spec, "REQUANTIZED", bytes != NULL);
    spec_option(&spec, "OPERAND_T=", bytes ? dtype_token(c->dtype) : NULL);
    spec_key_only(&spec, "SUM_T", c->by_numbers, 1);
    spec_option(&spec, "SUM_T=", c->by_numbers ? "f32" : NULL);
    spec_flag(&spec, "A_UNSIGNED", bytes && bytes->x_unsigned);
    spec_bool(&spec, "HAS_PAD_VALUE", c->blank);
    output_quant_spec(&spec, bytes ? bytes->way : NULL);
    const post_ops_params end = bytes ? bytes->params.end : (post_ops_params){0};
    post_ops_spec(&spec, &end);
    spec_int(&spec, "DIRECTION", c->direction, 2);
    spec_bool(&spec, "PADDED", c->padded);
    spec_bool(&spec, "IS_1X1", c->one_tap);
    spec_bool(&spec, "VOLUME", c->volume);
    spec_bool(&spec, "PHASES", c->phases);
    spec_bool(&spec, "IS_SPLIT", c->sliced);
    spec_bool(&spec, "OUT_VECTORS", c->out_pieces);
    spec_bool(&spec, "OUT_QUADS", c->out_quads);
    spec_bool(&spec, "PIXELS_CONTIGUOUS", c->pixels_fast);
    spec_int(&spec, "PARTS", c->parts, 6);
    spec_int_if(&spec, c->kernel != KERNEL_PRODUCT, "VECTOR_ELEMENTS", c->vec, 6);
    if (c->kernel == KERNEL_PACK) spec_option_int(&spec, "SIDE", pack_side(c->dtype));
    matrix_spec(&spec, &c->matrix, c->dtype);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(device, &spec, "conv_matrix.cl", names[c->kernel], kernel, "%s %s%s%s%s",
                            names[c->kernel], xpu_dtype_name(c->dtype),
                            c->kernel == KERNEL_PACK ? "" : purposes[c->direction], bytes ? " to " : "",
                            bytes ? xpu_dtype_name(bytes->way->dtype) : "");
}

static xpu_status pack(xpu_stream *stream, xpu_dtype dtype, conv_operand *o) {
    const int64_t per_n = conv_volume(o->size), width = o->groups * conv_padded_channels(o);
    int64_t nearest = o->stride[1]; /* stride of adjacent pixels */
    for (int i = 2; i < 5; i++)
        if (o->size[i - 2] > 1 && o->stride[i] < nearest) nearest = o->stride[i];
    const int side = pack_side(dtype);
    const choice c = {.kernel = KERNEL_PACK,
                      .dtype = dtype,
                      .vec = (int)o->vec,
                      .pixels_fast = nearest < o->stride[1] && per_n >= 32 && width > FEW_PIECES * o->vec};
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(xpu_stream_device(stream), &c, &kernel));
    XPU_TRY(
        xpu_workspace_take(stream, (size_t)(o->n * per_n * width) * xpu_dtype_size(dtype), &o->workspace));
    conv_pack_params q = {.from = o->data,
                          .to = XPU_ADDR(o->workspace),
                          .pixels = o->n * per_n,
                          .groups = (xpu_u32)o->groups,
                          .channels = (xpu_u32)o->channels,
                          .padded = (xpu_u32)conv_padded_channels(o),
                          .tiles = (xpu_u32)div_up(per_n, side)};
    for (int i = 0; i < 5; i++) q.stride[i] = o->stride[i];
    for (int i = 0; i < 3; i++) q.size[i] = conv_divisor_of(o->size[i]);
    const int64_t groups =
        c.pixels_fast ? o->n * q.tiles * div_up(width, side) : div_up(q.pixels * width / o->vec, 256);
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

/* --- int8: the value of the padding --- */

static bool is_padded(const conv_params *p) { return p->padding[0] || p->padding[1] || p->padding[2]; }
static bool has_pad_value(const conv_int8 *bytes, const conv_params *p) {
    return bytes && is_padded(p) && (bytes->params.x_zero || bytes->blank);
}

/* Fills `count` bytes with the zero point of x. */
static xpu_status fill_pad_value(xpu_stream *stream, const conv_int8 *bytes, void *to, int64_t count) {
    if (!bytes->params.x_zero) return xpu_memset(stream, to, &bytes->blank, 1, (size_t)count);
    const xpu_iter iter = {
        .outputs = 1,
        .inputs = 1,
        .dims = 1,
        .size = {count},
        .operand = {{.data = to, .dtype = bytes->x_unsigned ? XPU_UINT8 : XPU_INT8, .stride = {1}},
                    {.data = (void *)(uintptr_t)bytes->params.x_zero, .dtype = XPU_INT32, .stride = {0}}}};
    return xpu_copy(stream, &iter);
}

/* Packs x with its padding: `o` has the padded sizes, `p` the original ones. */
static xpu_status pack_padded(xpu_stream *stream, const conv_int8 *bytes, const conv_params *p,
                              conv_operand *o) {
    const conv_operand to = conv_packed(o);
    const int64_t count = o->n * to.stride[0];
    XPU_TRY(xpu_workspace_take(stream, (size_t)count, &o->workspace));
    XPU_TRY(fill_pad_value(stream, bytes, o->workspace, count));
    int64_t inside = 0;
    for (int d = 0; d < 3; d++) inside += p->padding[d] * to.stride[2 + d];
    xpu_iter iter = {.outputs = 1,
                     .inputs = 1,
                     .dims = 6,
                     .size = {p->c, p->in[2], p->in[1], p->in[0], p->groups, p->batch},
                     .operand = {{.data = (char *)o->workspace + inside, .dtype = XPU_INT8},
                                 {.data = (void *)(uintptr_t)p->x, .dtype = XPU_INT8}}};
    const int64_t there[] = {1, to.stride[4], to.stride[3], to.stride[2], to.channels, to.stride[0]};
    const int64_t here[] = {p->x_stride[1], p->x_stride[4],        p->x_stride[3],
                            p->x_stride[2], p->c * p->x_stride[1], p->x_stride[0]};
    for (int d = 0; d < 6; d++) iter.operand[0].stride[d] = there[d], iter.operand[1].stride[d] = here[d];
    xpu_iter_coalesce(&iter);
    XPU_TRY(xpu_copy(stream, &iter));
    void *const workspace = o->workspace;
    *o = to;
    o->workspace = workspace, o->data = XPU_ADDR(workspace);
    return XPU_SUCCESS;
}

/* --- the product --- */

static bool is_dense_along_k(const conv_operand *w) {
    const int64_t pitch = conv_pixel_pitch(w, 2);
    return pitch == w->channels || conv_volume(w->size) == 1;
}

/* Parameters of a launch; `m` does not have the operands' addresses yet. */
typedef struct conv_plan {
    choice choice;
    conv_matrix_params m;
    int64_t products, busy; /* products of all groups and phases; `busy` of them have taps */
    int64_t depth;          /* average K of the busy ones */
} conv_plan;

/* Are an image's pixels contiguous, in aligned vectors of `vec`? */
static bool has_pixel_vectors(const conv_operand *o, xpu_dtype dtype, int64_t vec) {
    const int64_t first = (int64_t)(o->data / xpu_dtype_size(dtype)), volume = conv_volume(o->size);
    const int64_t channel = o->groups * o->channels > 1 ? o->stride[1] : 0;
    return conv_pixel_pitch(o, 2) == 1 && channel >= 0 && o->stride[0] >= 0 &&
           (first | volume | channel | o->stride[0]) % vec == 0;
}

/* Sets how many adjacent channels of the result are stored at a time. */
static void set_vector_widths(conv_plan *plan, const conv_operand *result) {
    choice *c = &plan->choice;
    const xpu_dtype dtype = c->bytes ? c->bytes->way->dtype : c->dtype;
    int64_t together = result->channels | (int64_t)(result->data / xpu_dtype_size(dtype)) | UNIT;
    for (int i = 0; i < 5; i++)
        if (i != 1) together |= result->stride[i];
    together &= -together;
    if (result->stride[1] != 1) together = 1;
    c->matrix.out_pairs = together >= 2 && c->matrix.unit == MATRIX_UNIT_PTX && !c->bytes;
    c->out_quads = together >= 4;
    if (c->direction != CONV_BACKWARD_WEIGHT)
        c->pixels_fast =
            c->matrix.unit != MATRIX_UNIT_XMX && !c->phases && has_pixel_vectors(result, dtype, QUAD);
    c->out_pieces = c->direction != CONV_BACKWARD_WEIGHT && conv_is_vector_aligned(result) &&
                    conv_offsets_fit_32bit(result, NULL);
    if (!c->out_pieces) return;
    c->matrix.out_pairs = false;
    plan->m.result_pitch[0] = (xpu_i32)(result->stride[0] / result->vec);
    for (int d = 0; d < 3; d++) plan->m.result_pitch[1 + d] = (xpu_i32)(result->stride[2 + d] / result->vec);
}

static int operands_along_k(const choice *c) {
    if (c->direction == CONV_BACKWARD_WEIGHT) return c->pixels_fast;
    return c->direction == CONV_FORWARD && c->matrix.unit != MATRIX_UNIT_XMX ? 2 : 1;
}

/* Plans the implicit GEMM of operands that are, or will be, packed as needed. False if no tile fits the
 * device. */
static bool plan_product(const xpu_device_properties *properties, const conv_params *p,
                         const conv_operand *im2col, const conv_operand *other, const conv_operand *result,
                         conv_plan *plan) {
    choice *c = &plan->choice;
    conv_matrix_params *m = &plan->m;
    const bool of_w = c->direction == CONV_BACKWARD_WEIGHT, by_blocks = c->matrix.unit == MATRIX_UNIT_XMX;
    const int64_t taps = conv_volume(p->taps), vec = im2col->vec;
    plan->products = p->groups * m->phases[0] * m->phases[1] * m->phases[2];
    for (int d = 0; d < 3 && !by_blocks; d++) {
        int64_t least, most;
        conv_source_range(m, d, &least, &most);
        c->padded = c->padded || least < 0 || most >= m->source[d];
    }
    const int64_t together = !by_blocks ? 1 : of_w ? BLOCK_K : BLOCK; /* pixels of a row per block */
    if (by_blocks) m->extent[2] = conv_divisor_of(div_up(m->extent[2].value, together));
    const int64_t pixels =
        (int64_t)m->extent[0].value * m->extent[1].value * m->extent[2].value * p->batch * together;
    plan->busy = p->groups;
    for (int d = 0; d < 3; d++) {
        xpu_u32 some = 0; /* phases with taps come first */
        while (some < m->phases[d] && m->phase[d][some].taps.value > 0) some++;
        plan->busy *= some > 0 ? some : 1;
    }
    m->groups = (xpu_u32)p->groups;
    m->per_tap = conv_divisor_of(im2col->channels / vec);
    m->im2col_pitch[0] = (xpu_i32)(im2col->stride[0] / vec);
    for (int d = 0; d < 3; d++) m->im2col_pitch[1 + d] = (xpu_i32)(im2col->stride[2 + d] / vec);
    m->im2col_group = (xpu_i32)m->per_tap.value;
    m->dense_width = (xpu_i32)(other->channels * (int64_t)xpu_dtype_size(c->dtype));

    if (of_w) {
        m->rows = (xpu_u32)p->k, m->columns = (xpu_u32)(taps * im2col->channels);
        m->depth = (xpu_u32)pixels, m->channels = (xpu_u32)p->c, m->result_channels = (xpu_u32)p->k;
        m->dense_pitch = (xpu_i32)((c->pixels_fast ? other->stride[1] : conv_pixel_pitch(other, 0)) / vec);
        m->dense_group = c->pixels_fast ? (xpu_i32)p->k * m->dense_pitch : (xpu_i32)(other->channels / vec);
        m->dense_image = (xpu_i32)((other->stride[0] - conv_volume(other->size)) / vec);
        plan->depth = pixels;
    } else {
        const int64_t channels = c->direction == CONV_FORWARD ? p->k : p->c;
        m->rows = (xpu_u32)pixels, m->columns = (xpu_u32)channels, m->result_channels = (xpu_u32)channels;
        m->depth = (xpu_u32)(c->direction == CONV_FORWARD ? p->c : p->k);
        m->dense_pitch = (xpu_i32)(other->stride[0] / vec);
        m->dense_group = (xpu_i32)(by_blocks && c->direction == CONV_FORWARD ? other->channels / vec
                                                                             : p->k * m->dense_pitch);
        for (int d = 0; d < 3; d++) {
            const xpu_i32 g = (xpu_i32)conv_common_divisor(p->stride[d], p->dilation[d]);
            m->dense_tap_first[d] = (xpu_i32)(other->stride[2 + d] / vec);
            m->dense_tap[d] =
                m->dense_tap_first[d] * (c->direction == CONV_BACKWARD_DATA ? p->stride[d] / g : 1);
        }
        plan->depth = div_up(taps * im2col->channels * p->groups, plan->busy);
    }

    c->vec = (int)vec;
    c->volume = conv_is_3d(p);
    /* Intel's compiler keeps parameters that are not indexed in registers, of which few are left, so they are
     * indexed. */
    c->phases = by_blocks || plan->products > p->groups;
    c->matrix.a_alignment = c->matrix.b_alignment = 16;
    const bool has_most = c->volume || (c->direction == CONV_BACKWARD_DATA && c->phases);
    c->matrix.im2col_mode = has_most ? 3 : c->direction == CONV_BACKWARD_WEIGHT ? 2 : 1;
    set_vector_widths(plan, result);
    c->matrix.tile = matrix_tile_for(&c->matrix, c->dtype, properties, plan->busy, m->rows, m->columns,
                                     plan->depth, operands_along_k(c), &m->slices);
    if (c->matrix.tile < 0) return false;
    const matrix_tile *tile = matrix_tile_of(&c->matrix);
    matrix_for_intel(&c->matrix, properties);
    if (by_blocks) c->out_pieces = false;  /* results are stored one by one, … */
    if (by_blocks && !of_w) m->slices = 1; /* … and only w's gradient uses split-K */
    const int step = matrix_step(tile, c->matrix.unit, c->dtype);
    c->one_tap = !of_w && !by_blocks && im2col->channels % step == 0;
    /* A different tap per row of the tile needs large register mode. */
    c->matrix.wide =
        c->matrix.wide || (c->matrix.lanes > 0 && c->direction == CONV_BACKWARD_DATA && !c->one_tap);
    int64_t most_taps = 1; /* of the phase with most taps */
    for (int d = 0; d < 3; d++) most_taps *= m->phase[d][0].taps.value;
    const int64_t steps = div_up(of_w ? pixels : most_taps * im2col->channels, step);
    m->slice = (xpu_u32)align_up(div_up(steps, m->slices),
                                 2); /* a multiple of LOCAL_TILES_PER_ITERATION, which is at most 2 */
    if (m->slice == 0) m->slice = 2;
    m->slices = steps > 0 ? div_up(steps, m->slice) : 1;
    m->pitch = align_up(m->columns, 4);
    return true;
}

/* Launches the implicit GEMM; the operands are ready. */
static xpu_status multiply(xpu_stream *stream, const conv_plan *plan) {
    choice c = plan->choice;
    conv_matrix_params m = plan->m;
    const matrix_tile *tile = matrix_tile_of(&c.matrix);
    const int64_t results = plan->products * m.rows * m.pitch, work = results * (plan->depth + 1);
    const int64_t groups = tiles(m.rows, tile->m) * tiles(m.columns, tile->n) * plan->products * m.slices;
    const int64_t threads = tile->subgroups_m * tile->subgroups_n * matrix_subgroup_size(c.matrix.unit);
    c.out_quads = false, c.sliced = m.slices > 1;
    if (c.sliced) c.matrix.out_pairs = c.out_pieces = false;
    if (c.sliced && c.direction != CONV_BACKWARD_WEIGHT) c.pixels_fast = false;
    const int device = xpu_stream_device(stream);
    split_k_product product = {
        .range = {.dims = 1, .groups = {(size_t)groups}, .local = {(size_t)threads}, .work = (uint64_t)work},
        .dtype = c.dtype,
        .results = results,
        .slices = m.slices};
    XPU_TRY(get_kernel(device, &c, &product.sum));
    if (!c.sliced) return xpu_launch(stream, product.sum, &product.range, &m, sizeof m);

    const choice last = {.kernel = KERNEL_FINISH,
                         .dtype = c.dtype,
                         .direction = c.direction,
                         .vec = c.vec,
                         .volume = c.volume,
                         .phases = c.phases,
                         .out_quads = plan->choice.out_quads,
                         .bytes = c.bytes,
                         .by_numbers = c.by_numbers,
                         .parts = product_reduce_lanes(m.slices)};
    product.finished = 4 * 256 / last.parts;
    XPU_TRY(get_kernel(device, &last, &product.finish));
    return product_split_k(stream, &product, &m, sizeof m, &m.partial);
}

/* Images of the first of two launches, or 0 for one launch. In a single launch, the last wave of work-groups
 * would leave most compute units idle. The first launch has as many images as keep all of them busy to its
 * end; the rest uses a smaller tile or split-K. For XMX with SIMD8, whose tiles are large for the images of
 * common networks. */
static int64_t first_images(const xpu_device_properties *properties, const conv_params *p,
                            const conv_plan *whole) {
    const choice *c = &whole->choice;
    const conv_matrix_params *m = &whole->m;
    if (c->direction == CONV_BACKWARD_WEIGHT || c->bytes) return 0;
    const int64_t pinned = TUNED(properties->type == XPU_DEVICE_CPU, CONV_IMAGES);
    if (pinned < MOST_IMAGES) return pinned < p->batch ? pinned : 0;
    if (c->matrix.unit != MATRIX_UNIT_XMX8 || m->slices > 1) return 0;
    const matrix_tile *tile = matrix_tile_of(&c->matrix);
    const int64_t units = (int64_t)properties->gpu_subslice_count, pixels = m->rows / p->batch;
    const int64_t across = tiles(m->columns, tile->n) * whole->busy;
    const int64_t rounds = tiles(m->rows, tile->m) * across / units;
    const int64_t first = rounds * units / across * tile->m / pixels;
    if (first <= 0 || first >= p->batch) return 0;
    double clocks = matrix_clocks_of_traffic(properties, 0);
    for (int i = 0; i < 2; i++) {
        matrix_choice part = c->matrix;
        const int64_t rows = (i == 0 ? first : p->batch - first) * pixels;
        int64_t slices;
        part.tile = matrix_tile_for(&part, c->dtype, properties, whole->busy, rows, m->columns, whole->depth,
                                    operands_along_k(c), &slices);
        clocks += matrix_clocks(&part, c->dtype, properties, whole->busy, rows, m->columns, whole->depth,
                                operands_along_k(c), slices);
    }
    return clocks < matrix_clocks(&c->matrix, c->dtype, properties, whole->busy, m->rows, m->columns,
                                  whole->depth, operands_along_k(c), 1)
               ? first
               : 0;
}

/* --- choice of the algorithm --- */

/* Estimated clocks of the direct kernel (conv.cl), by the cost model of matrix.c: its tiles reach a sixth of
 * the rate of the tiles here, also on devices whose measured rates differ from the table, and its kernel for
 * few channels a fraction of that. It has no phases and packs nothing. */
static double plain_clocks(const xpu_device_properties *properties, const choice *c, const conv_params *p) {
    const int64_t taps = conv_volume(p->taps), units = (int64_t)properties->gpu_subslice_count;
    const bool of_w = c->direction == CONV_BACKWARD_WEIGHT, of_y = c->direction == CONV_FORWARD;
    const int64_t pixels = p->batch * conv_volume(c->direction == CONV_BACKWARD_DATA ? p->in : p->out);
    const int64_t rows = of_w ? p->k : pixels, columns = of_w ? p->c * taps : of_y ? p->k : p->c;
    const int64_t depth = of_w ? pixels : (of_y ? p->c : p->k) * taps;
    const double rate =
        (is_wide(c->dtype) ? 0.5 : 1) * matrix_measured_over_table(&c->matrix, c->dtype, operands_along_k(c));
    if (of_w ? p->k < FEW_ROWS : columns < FEW_CHANNELS)
        return (double)(p->groups * rows * columns) * (double)depth / (double)units / (4 * rate);
    const tile_shape tile = tile_for(properties, c->dtype, rows, columns, p->groups);
    int64_t groups = tiles(rows, tile.size) * tiles(columns, tile.size) * p->groups;
    const int64_t slices =
        of_w ? product_split_count(properties, groups, depth, p->groups * rows * columns) : 1;
    return (double)(div_up(groups * slices, units) * tile.size * tile.size) * (double)div_up(depth, slices) /
           (16 * rate);
}

/* Estimated clocks of the implicit GEMM, with packing. */
static double all_clocks(const xpu_device_properties *properties, const conv_plan *plan,
                         const conv_operand *const packed[2]) {
    const choice *c = &plan->choice;
    const conv_matrix_params *m = &plan->m;
    double clocks = matrix_clocks(&c->matrix, c->dtype, properties, plan->busy, m->rows, m->columns,
                                  plan->depth, operands_along_k(c), m->slices);
    for (int i = 0; i < 2; i++)
        if (packed[i])
            clocks += matrix_clocks_of_traffic(
                properties, 2 * packed[i]->n * packed[i]->groups * conv_padded_channels(packed[i]) *
                                conv_volume(packed[i]->size) * (int64_t)xpu_dtype_size(c->dtype));
    return clocks;
}

/* Algorithms of devices without a matrix engine. A pinned tile selects the implicit GEMM, unless Winograd is
 * forced. */
typedef enum conv_method { BY_DIRECT, BY_IMPLICIT_GEMM, BY_WINOGRAD } conv_method;
static conv_method fastest_algorithm(const xpu_device_properties *properties, const conv_params *p,
                                     const conv_plan *plan, const conv_operand *const packed[2]) {
    const choice *c = &plan->choice;
    const bool pinned = matrix_is_pinned(c->matrix.unit, c->dtype, properties);
    const double tiles = pinned ? 1 : all_clocks(properties, plan, packed);
    const double plain = pinned ? HUGE_VAL : plain_clocks(properties, c, p);
    const int64_t percent = TUNED(properties->type == XPU_DEVICE_CPU, CONV_WINOGRAD);
    const double clocks = conv_winograd_clocks(c->matrix.device, c->dtype, c->direction, p);
    if (clocks * 100 < fmin(tiles, plain) * (double)percent) return BY_WINOGRAD;
    return tiles < plain ? BY_IMPLICIT_GEMM : BY_DIRECT;
}

/* A 1 x 1 convolution without stride and padding is a matrix product. */
static bool is_plain_product(const conv_params *p) {
    for (int d = 0; d < 3; d++)
        if (p->taps[d] != 1 || p->stride[d] != 1 || p->padding[d] != 0) return false;
    return true;
}

static xpu_gemm_args plain_product(xpu_dtype dtype, int64_t batch, int64_t m, int64_t n, int64_t k,
                                   bool has_bias) {
    return (xpu_gemm_args){.dtype = dtype,
                           .batch = batch,
                           .m = m,
                           .n = n,
                           .k = k,
                           .alpha = {.dtype = XPU_FLOAT64, .value.f = 1},
                           .beta = {.dtype = XPU_FLOAT64, .value.f = has_bias ? 1 : 0}};
}

#define POINTER(address) ((void *)(uintptr_t)(address))

/* Do both operands of a product satisfy the rules of XMX? With 8 lanes they must be K-major. */
static bool units_read(matrix_unit unit, const xpu_gemm_args *args) {
    if (unit == MATRIX_UNIT_FMA) return true;
    const xpu_matrix *const sides[] = {&args->a, &args->b};
    for (int i = 0; i < 2; i++) {
        const int64_t of_rows = i == 0 ? args->m : args->k, of_columns = i == 0 ? args->k : args->n;
        const bool by_rows = sides[i]->column_stride == 1;
        const strided_view lines = {sides[i]->data, by_rows ? 1 : sides[i]->row_stride,
                                    by_rows ? sides[i]->row_stride : sides[i]->column_stride,
                                    args->batch == 1 ? 0 : sides[i]->batch_stride};
        if (unit == MATRIX_UNIT_XMX8) {
            if ((i == 0) != by_rows || lines.along != 1 || matrix_alignment(&lines, args->dtype) != 16)
                return false;
            continue;
        }
        if (lines.along != 1 || !matrix_reads_blocks(&lines, by_rows ? of_columns : of_rows,
                                                     by_rows ? of_rows : of_columns, args->dtype))
            return false;
    }
    return true;
}

/* A product of w and each image. Images with contiguous pixels per channel needn't be packed. */
static bool plan_product_of_images(const choice *c, const conv_params *p, const conv_operand *from,
                                   const conv_operand *to, xpu_gemm_args *args) {
    if (c->direction == CONV_BACKWARD_WEIGHT || p->groups != 1 || !is_plain_product(p) ||
        from->data % 16 != 0 || from->stride[0] % from->vec != 0 || from->stride[1] % from->vec != 0 ||
        conv_volume(p->in) == 1 || conv_pixel_pitch(from, 2) != 1 || conv_pixel_pitch(to, 2) != 1)
        return false;
    *args = plain_product(c->dtype, p->batch, to->channels, conv_volume(p->in), from->channels, p->bias != 0);
    const bool of_y = c->direction == CONV_FORWARD;
    args->a = (xpu_matrix){POINTER(p->w), 0, p->w_stride[!of_y], p->w_stride[of_y]};
    args->b = (xpu_matrix){POINTER(from->data), from->stride[0], from->stride[1], 1};
    args->c = (xpu_matrix){POINTER(p->bias), 0, p->bias_stride, 0};
    args->out = (xpu_matrix){POINTER(to->data), to->stride[0], to->stride[1], 1};
    return c->matrix.unit == MATRIX_UNIT_PTX || units_read(c->matrix.unit, args);
}

/* A product over all pixels, if channels are contiguous: of x (or y) and w, or of y and x. Groups are a
 * batch. Without a matrix engine, or for XMX if its rules are satisfied. */
static bool plan_product_of_pixels(const choice *c, const conv_params *p, const conv_operand *x,
                                   const conv_operand *y, xpu_gemm_args *args) {
    const int64_t x_pitch = conv_pixel_pitch(x, 0), y_pitch = conv_pixel_pitch(y, 0),
                  pixels = p->batch * conv_volume(p->in);
    if (c->matrix.unit == MATRIX_UNIT_PTX || !is_plain_product(p) || x->stride[1] != 1 || y->stride[1] != 1 ||
        x_pitch < 0 || y_pitch < 0 || (p->groups > 1 && (p->c < UNIT || p->k < UNIT)))
        return false;
    const xpu_matrix all_x = {POINTER(x->data), p->c, x_pitch, 1},
                     all_y = {POINTER(y->data), p->k, y_pitch, 1};
    const xpu_matrix w = {POINTER(p->w), p->k * p->w_stride[0], p->w_stride[0], p->w_stride[1]};
    const xpu_matrix w_transposed = {w.data, w.batch_stride, w.column_stride, w.row_stride};
    const xpu_matrix y_transposed = {all_y.data, all_y.batch_stride, all_y.column_stride, all_y.row_stride};
    if (c->direction == CONV_BACKWARD_WEIGHT) {
        *args = plain_product(c->dtype, p->groups, p->k, p->c, pixels, false);
        args->a = y_transposed, args->b = all_x, args->out = w;
        return units_read(c->matrix.unit, args);
    }
    const bool of_y = c->direction == CONV_FORWARD;
    const int64_t channels = of_y ? p->k : p->c;
    *args = plain_product(c->dtype, p->groups, pixels, channels, of_y ? p->c : p->k, p->bias != 0);
    args->a = of_y ? all_x : all_y, args->b = of_y ? w_transposed : w, args->out = of_y ? all_y : all_x;
    args->c = (xpu_matrix){POINTER(p->bias), channels * p->bias_stride, 0, p->bias_stride};
    return units_read(c->matrix.unit, args);
}

/* Do rows of a group's channels not overlap? */
static bool is_apart(int64_t pitch, const conv_operand *o, int64_t lines) {
    return lines == 1 || pitch >= o->channels;
}

/* Can y be read unpacked, as vectors of pixels, for the gradient of w? */
static bool reads_pixels(const choice *c, const conv_operand *y) {
    const bool turns = c->matrix.unit == MATRIX_UNIT_FMA || c->matrix.unit == MATRIX_UNIT_PTX;
    const int64_t reach = y->n * y->stride[0] + y->groups * y->channels * y->stride[1] + conv_volume(y->size);
    return turns && c->direction == CONV_BACKWARD_WEIGHT && has_pixel_vectors(y, c->dtype, y->vec) &&
           y->data % 16 == 0 && reach / y->vec < INT32_MAX / 2;
}

/* Tries the chosen engine. */
static xpu_status try_unit(xpu_stream *stream, const xpu_device_properties *properties, const choice *c,
                           const conv_params *given, bool *done) {
    const xpu_dtype dtype = c->dtype;
    const conv_direction direction = c->direction;
    const bool by_blocks = c->matrix.unit == MATRIX_UNIT_XMX, by_fma = c->matrix.unit == MATRIX_UNIT_FMA;
    const bool by_xmx8 = c->matrix.unit == MATRIX_UNIT_XMX8;
    const conv_int8 *const bytes = c->bytes;
    const int64_t most = INT32_MAX - 4096, taps = conv_volume(given->taps); /* offsets have 31 bits */
    conv_params own = *given;
    const conv_params *const p = &own;
    /* XMX block reads past a row's end return zeros. */
    const bool pads_first = by_blocks && has_pad_value(bytes, given);
    for (int d = 0; d < 3 && pads_first; d++) own.in[d] += 2 * own.padding[d], own.padding[d] = 0;
    if (p->batch == 0 || p->c == 0 || p->k == 0 || conv_volume(p->in) == 0 || conv_volume(p->out) == 0 ||
        taps == 0 || p->batch * conv_volume(p->in) > most / 2 || p->batch * conv_volume(p->out) > most / 2 ||
        (p->c + UNIT) * taps > most || (p->k + UNIT) * taps > most)
        return XPU_SUCCESS;
    const int64_t unit = bytes && !by_fma ? 2 * UNIT : UNIT;
    if ((!by_fma || bytes) && (p->groups > 1 ? p->c < unit || p->k < unit : p->c * p->k * taps < 256))
        return XPU_SUCCESS;

    conv_operand x = conv_operand_of(dtype, p->x, p->x_stride, p->batch, p->groups, p->c, p->in);
    conv_operand y = conv_operand_of(bytes ? bytes->way->dtype : dtype, p->y, p->y_stride, p->batch,
                                     p->groups, p->k, p->out);
    conv_operand w = conv_operand_of(dtype, p->w, p->w_stride, p->groups * p->k, 1, p->c, p->taps);
    if (by_blocks) {
        if (direction == CONV_FORWARD) { /* the columns of w, channels of y, are contiguous */
            const xpu_i64 transposed_strides[5] = {p->w_stride[1], p->w_stride[0], p->w_stride[2],
                                                   p->w_stride[3], p->w_stride[4]};
            w = conv_operand_of(dtype, p->w, transposed_strides, p->c, p->groups, p->k, p->taps);
        }
        x.whole = y.whole = w.whole = WHOLE / (int64_t)xpu_dtype_size(dtype);
    }
    if (by_xmx8) { /* x and w are read half a row (HALF_LINE) at a time, y whole rows of one tap */
        const int64_t half = HALF_LINE / (int64_t)xpu_dtype_size(dtype);
        conv_operand *const im2col = direction == CONV_BACKWARD_DATA ? &y : &x,
                            *const other = direction == CONV_BACKWARD_WEIGHT ? &y : &w;
        im2col->vec = other->vec = other->whole = half;
        im2col->whole = direction == CONV_BACKWARD_DATA ? 2 * half : half;
    }
    if (by_fma) x.vec = w.vec = x.whole = w.whole = QUAD;
    if (by_fma || c->matrix.unit == MATRIX_UNIT_DOT) y.vec = y.whole = QUAD;
    xpu_gemm_args product;
    if (!bytes && (plan_product_of_images(c, p, direction == CONV_FORWARD ? &x : &y,
                                          direction == CONV_FORWARD ? &y : &x, &product) ||
                   plan_product_of_pixels(c, p, &x, &y, &product))) {
        *done = true;
        return xpu_gemm(stream, &product);
    }

    conv_plan plan = {
        .choice = *c,
        .m = {.bias = direction == CONV_BACKWARD_WEIGHT ? 0 : p->bias, .bias_stride = p->bias_stride}};
    conv_matrix_params *m = &plan.m;
    if (!conv_describe_dimensions(p, direction, m)) return XPU_SUCCESS;
    conv_operand *const im2col = direction == CONV_BACKWARD_DATA ? &y : &x, *const other =
                                                                                direction ==
                                                                                        CONV_BACKWARD_WEIGHT
                                                                                    ? &y
                                                                                    : &w;
    const conv_operand *const result = direction == CONV_FORWARD         ? &y
                                       : direction == CONV_BACKWARD_DATA ? &x
                                                                         : &w;
    m->result = result->data;
    for (int i = 0; i < 5; i++) m->result_stride[i] = result->stride[i];
    bool dense_ready = conv_is_vector_aligned(other);
    if (direction == CONV_FORWARD && !by_blocks) dense_ready = dense_ready && is_dense_along_k(&w);
    if (direction == CONV_BACKWARD_WEIGHT) dense_ready = dense_ready && conv_pixel_pitch(&y, 0) >= 0;
    bool im2col_ready = conv_is_vector_aligned(im2col) && !pads_first;
    if (by_blocks) { /* rows must not overlap */
        im2col_ready = im2col_ready && is_apart(im2col->stride[4], im2col, im2col->size[2]);
        dense_ready = dense_ready && (direction == CONV_BACKWARD_WEIGHT
                                          ? is_apart(conv_pixel_pitch(&y, 0), &y, conv_volume(y.size) * y.n)
                                          : is_apart(w.stride[0], &w, w.n));
    }
    const conv_operand g = im2col_ready ? *im2col : conv_packed(im2col),
                       o = dense_ready ? *other : conv_packed(other);
    if (!conv_offsets_fit_32bit(&g, m) || !conv_offsets_fit_32bit(&o, NULL)) return XPU_SUCCESS;
    const int64_t o_pitch = direction == CONV_BACKWARD_WEIGHT ? conv_pixel_pitch(&o, 0) : o.stride[0];
    if (by_blocks && (g.stride[4] * m->step[2] >= MOST_BYTES / 2 || o_pitch >= MOST_BYTES / 2 ||
                      g.channels >= MOST_BYTES / 2 || o.channels >= MOST_BYTES / 2 ||
                      (direction == CONV_BACKWARD_WEIGHT ? o.size[2] : o.n) >= MOST_BYTES))
        return XPU_SUCCESS;
    if (by_xmx8 && o_pitch >= MOST_BYTES) return XPU_SUCCESS; /* offsets within a tile have 32 bits */
    const conv_operand *packed[] = {im2col_ready ? NULL : im2col, dense_ready ? NULL : other};
    struct conv_plan begin = plan, rest = plan, as_it_lies = plan;
    if (!plan_product(properties, p, &g, &o, result, &plan)) return XPU_SUCCESS;
    if (!dense_ready && reads_pixels(c, &y)) {
        const conv_operand *const fewer[] = {packed[0], NULL};
        as_it_lies.choice.pixels_fast = true;
        if (plan_product(properties, p, &g, &y, result, &as_it_lies) &&
            all_clocks(properties, &as_it_lies, fewer) < all_clocks(properties, &plan, packed))
            plan = as_it_lies, packed[1] = NULL, dense_ready = true;
    }
    const conv_method way =
        by_fma && !bytes ? fastest_algorithm(properties, p, &plan, packed) : BY_IMPLICIT_GEMM;
    if (way == BY_DIRECT) return XPU_SUCCESS;
    *done = true;
    if (way == BY_WINOGRAD) {
        const xpu_status transformed = conv_by_winograd(stream, dtype, direction, p);
        if (transformed != XPU_ERROR_OUT_OF_MEMORY)
            return transformed; /* the implicit GEMM needs less memory */
    }
    int64_t first = first_images(properties, p, &plan);
    if (first > 0) {
        own.batch = first;
        const bool begins = plan_product(properties, p, &g, &o, result, &begin);
        own.batch = given->batch - first;
        if (!plan_product(properties, p, &g, &o, result, &rest) || !begins) first = 0;
        own.batch = given->batch;
    }

    void *blank = NULL;
    xpu_status status = pads_first ? pack_padded(stream, bytes, given, im2col)
                                   : make_ready(stream, dtype, im2col, im2col_ready);
    plan.choice.blank = has_pad_value(bytes, p);
    if (by_xmx8 && plan.choice.blank && status == XPU_SUCCESS) {
        status = xpu_workspace_take(stream, BLANK_BYTES, &blank);
        if (status == XPU_SUCCESS) status = fill_pad_value(stream, bytes, blank, BLANK_BYTES);
    }
    if (bytes) {
        m->bytes = bytes->params;
        m->bytes.blank = XPU_ADDR(blank);
        /* as for uint8, except on XMX */
        if (bytes->x_unsigned && !by_blocks && !by_xmx8) m->bytes.less -= 128;
    }
    if (status == XPU_SUCCESS) status = make_ready(stream, dtype, other, dense_ready);
    m->im2col = im2col->data, m->other = other->data;
    if (first > 0) {
        const xpu_addr element = xpu_dtype_size(dtype);
        begin.m.im2col = m->im2col, begin.m.other = rest.m.other = m->other;
        rest.m.im2col = m->im2col + (xpu_addr)(first * im2col->stride[0]) * element;
        rest.m.result += (xpu_addr)(first * result->stride[0]) * element;
        if (status == XPU_SUCCESS) status = multiply(stream, &begin);
    }
    if (status == XPU_SUCCESS) status = multiply(stream, first > 0 ? &rest : &plan);
    void *const workspaces[] = {im2col->workspace, other->workspace, blank};
    for (int i = 0; i < 3; i++) status = workspace_release(workspaces[i], status);
    return status;
}

xpu_status conv_by_matrix(xpu_stream *stream, xpu_dtype dtype, conv_direction direction, const conv_params *p,
                          bool *done) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &properties));
    choice c = {.dtype = dtype, .direction = direction, .matrix.device = xpu_stream_device(stream)};
    c.matrix.unit = matrix_unit_of(properties, dtype, &c.matrix.emulated);
    *done = false;
    if (c.matrix.unit != MATRIX_UNIT_NONE) XPU_TRY(try_unit(stream, properties, &c, p, done));
    c.matrix = (matrix_choice){.device = c.matrix.device, .unit = matrix_fma_of(properties)};
    if (*done || c.matrix.unit == MATRIX_UNIT_NONE) return XPU_SUCCESS;
    return try_unit(stream, properties, &c, p, done);
}

xpu_status conv_int8_by_matrix(xpu_stream *stream, const conv_int8 *bytes, const conv_params *p, bool *done) {
    const xpu_device_properties *properties;
    const int device = xpu_stream_device(stream);
    XPU_TRY(xpu_device_get_properties(device, &properties));
    bool emulated[3] = {false};
    const matrix_unit units[] = {matrix_unit_for(properties, XPU_INT8, false, &emulated[0]),
                                 matrix_dot_of(properties, XPU_INT8, &emulated[1]),
                                 matrix_fma_of(properties)};
    *done = false;
    for (int i = 0; i < 3 && !*done; i++) {
        if (units[i] == MATRIX_UNIT_NONE) continue;
        const choice c = {.dtype = XPU_INT8,
                          .direction = CONV_FORWARD,
                          .matrix = {.device = device, .unit = units[i], .emulated = emulated[i]},
                          .bytes = bytes,
                          .by_numbers = units[i] == MATRIX_UNIT_FMA};
        XPU_TRY(try_unit(stream, properties, &c, p, done));
    }
    return XPU_SUCCESS;
}

/* conv_matrix on XMX (16 lanes) with 2D block reads (conv_matrix.cl with MATRIX_XMX). Pixels come in blocks
 * of eight of a row (gradient of w: sixteen); reads outside the image return zeros. */
#define NO_UNROLL __attribute__((opencl_unroll_hint(1)))

/* Row of the source as a surface for one tap along the width. With a stride, every stride-th pixel belongs to
 * the surface, which starts `shift` pixels after the row does. */
typedef struct tap_row {
    int shift, ahead; /* of the surface's rows: that of a pixel is so far ahead of it */
    int height, pitch;
} tap_row;
static inline tap_row tap_row_of(const conv_matrix_params *p, const product *z, int w) {
    const int at = z->w.first + w * p->tap_step[2], step = p->step[2], over = at % step;
    const int shift = over < 0 ? over + step : over;
    return (tap_row){shift, (at - shift) / step, (p->source[2] - shift + step - 1) / step,
                     max(p->im2col_pitch[3] * step * 16, (int)p->per_tap.value * 16)};
}

#if DIRECTION != 2
/* Eight adjacent pixels along the width, as rows of the left operand. */
typedef struct block {
    uint n;
    int d, h, w; /* of the product's pixels */
} block;

/* The address of the source row that a block reads at a tap. `first`: the block's first pixel in it, or,
 * outside of the image, a negative position at which reads return zeros. */
static inline __global void *line_of(const conv_matrix_params *p, const product *z, xpu_addr base,
                                     const block *b, int d_tap, int h_tap, int ahead, __private int *first) {
    const int d = b->d * p->step[0] + z->d.first + d_tap * p->tap_step[0];
    const int h = b->h * p->step[1] + z->h.first + h_tap * p->tap_step[1];
    const bool inside = (uint)d < (uint)p->source[0] && (uint)h < (uint)p->source[1];
    const long vecs =
        (long)b->n * p->im2col_pitch[0] + (long)d * p->im2col_pitch[1] + (long)h * p->im2col_pitch[2];
    *first = inside ? b->w + ahead : -8;
    return XPU_PTR(void, base + (inside ? vecs : 0) * 16);
}

__attribute__((intel_reqd_sub_group_size(MATRIX_SUBGROUP_SIZE)))
__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
conv_matrix(const conv_matrix_params p) {
    const tile_origin t = find_conv_tile(&p);
    const product z = product_of(&p, t.product);
    const uint subgroup = (uint)get_local_id(0) / MATRIX_SUBGROUP_SIZE,
               lane = (uint)get_local_id(0) % MATRIX_SUBGROUP_SIZE;
    const uint m0 = t.m + subgroup % SUBGROUPS_M * (SUMS_M * 8),
               n0 = t.n + subgroup / SUBGROUPS_M * (SUMS_N * 16);
    const xpu_addr im2col = p.im2col + (long)z.group * p.im2col_group * 16;
    const xpu_addr other = p.other + ((long)z.group * p.dense_group + z.d.tap * p.dense_tap_first[0] +
                                      z.h.tap * p.dense_tap_first[1] + z.w.tap * p.dense_tap_first[2]) *
                                         16;
    block blocks[SUMS_M];
    sum_block sum[SUMS_M][SUMS_N];
    UNROLL for (int i = 0; i < SUMS_M; i++) {
        const pixel q = pixel_of(&p, min(m0 / 8 + i, p.rows / 8 - 1));
        blocks[i] = (block){q.n, (int)q.d, (int)q.h, (int)q.w * 8};
        UNROLL for (int j = 0; j < SUMS_N; j++)
            sum[i][j] = 0;
    }

    const int depth = (int)p.per_tap.value * 8; /* 32-bit words */
    NO_UNROLL for (int d = 0; d < (int)z.d.taps.value; d++) NO_UNROLL
        for (int h = 0; h < (int)z.h.taps.value; h++) NO_UNROLL
            for (int w = 0; w < (int)z.w.taps.value; w++) {
                const tap_row line = tap_row_of(&p, &z, w);
                if (line.height <= 0) continue;
                __global void *lines[SUMS_M];
                int first[SUMS_M];
                UNROLL for (int i = 0; i < SUMS_M; i++)
                    lines[i] = line_of(&p, &z, im2col + (long)line.shift * p.im2col_pitch[3] * 16, &blocks[i],
                                       d, h, line.ahead, &first[i]);
                const long tap =
                    (long)d * p.dense_tap[0] + (long)h * p.dense_tap[1] + (long)w * p.dense_tap[2];
                const surface b = {XPU_PTR(void, other + tap * 16), p.dense_width, (int)p.depth,
                                   max(p.dense_pitch * 16, p.dense_width)};
                NO_UNROLL for (int k = 0; k < depth; k += 32) {
                    short8 left[2][SUMS_M];
                    int8 right[SUMS_N][2];
                    UNROLL for (int i = 0; i < SUMS_M; i++) {
                        union {
                            ushort numbers[16];
                            short8 halves[2];
                        } rows;
                        intel_sub_group_2d_block_read_16b_8r16x2c(
                            lines[i], depth * 2, line.height, line.pitch, (int2)(k, first[i]), rows.numbers);
                        left[0][i] = rows.halves[0], left[1][i] = rows.halves[1];
                    }
                    UNROLL for (int j = 0; j < SUMS_N; j += 2)
                        read_b_twice(&right[j], &b, (int)n0 + j * 16, k * 2 / ELEMENT);
                    multiply_blocks(sum, left, right);
                }
            }

    UNROLL for (int j = 0; j < SUMS_N; j++) {
        const uint n = n0 + j * 16 + lane;
        const long column = place_of_column(&p, &z, n);
        const channel c = channel_of(&p, &z, n);
        UNROLL for (int i = 0; i < SUMS_M; i++) {
            const int d = blocks[i].d * p.pixel_step[0] + z.d.pixel,
                      h = blocks[i].h * p.pixel_step[1] + z.h.pixel;
            if (m0 / 8 + i >= p.rows / 8 || d >= p.size[0] || h >= p.size[1]) continue;
            const long line =
                blocks[i].n * p.result_stride[0] + d * p.result_stride[2] + h * p.result_stride[3];
            const acc_t rows[8] = {sum[i][j].s0, sum[i][j].s1, sum[i][j].s2, sum[i][j].s3,
                                   sum[i][j].s4, sum[i][j].s5, sum[i][j].s6, sum[i][j].s7};
            UNROLL for (int r = 0; r < 8; r++) {
                const int w = (blocks[i].w + r) * p.pixel_step[2] + z.w.pixel;
                if (w < p.size[2]) put(&p, &c, line + w * p.result_stride[4], column, rows[r]);
            }
        }
    }
}
#else
/* 32 columns: channels of x at one tap. */
typedef struct columns {
    int d, h, channel; /* position of the source of pixel 0 */
    tap_row line;
} columns;
static inline columns columns_of(const conv_matrix_params *p, const product *z, uint n) {
    const tap at = tap_of(p, z, min(n, p->columns - 1) / VECTOR_ELEMENTS);
    columns c = {(int)at.d * p->tap_step[0] + z->d.first, (int)at.h * p->tap_step[1] + z->h.first,
                 (int)at.vec * VECTOR_ELEMENTS, tap_row_of(p, z, (int)at.w)};
    /* Pixels that y doesn't have must not be read from x either: 0 times infinity is NaN. */
    c.line.height = min(c.line.height, p->size[2] + c.line.ahead);
    if (c.line.height <= 0) c.line = (tap_row){0, -(1 << 25), 1, c.line.pitch};
    return c;
}

#define PIXELS 16 /* per matrix instruction */
#define PAIRS (SUMS_N / 2)
__attribute__((intel_reqd_sub_group_size(MATRIX_SUBGROUP_SIZE)))
__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void conv_matrix(const conv_matrix_params p) {
    const tile_origin t = find_conv_tile(&p);
    const product z = product_of(&p, t.product);
    const uint subgroup = (uint)get_local_id(0) / MATRIX_SUBGROUP_SIZE,
               lane = (uint)get_local_id(0) % MATRIX_SUBGROUP_SIZE;
    const uint m0 = t.m + subgroup % SUBGROUPS_M * (SUMS_M * 8),
               n0 = t.n + subgroup / SUBGROUPS_M * (SUMS_N * 16);
    const xpu_addr im2col = p.im2col + (long)z.group * p.im2col_group * 16;
    const xpu_addr other = p.other + (long)z.group * p.dense_group * 16;
    const int width = (int)p.per_tap.value * 16, pitch = max(p.dense_pitch * 16, p.dense_width);
    columns c[PAIRS];
    UNROLL for (int j = 0; j < PAIRS; j++)
        c[j] = columns_of(&p, &z, n0 + j * 32);
    float8 sum[SUMS_M][SUMS_N];
    UNROLL for (int i = 0; i < SUMS_M; i++) UNROLL
        for (int j = 0; j < SUMS_N; j++) sum[i][j] = 0;

    /* A slice is counted in steps of two blocks of pixels, as on other engines. */
    const uint all = p.depth / PIXELS, begin = z.slice * p.slice * 2, end = min(all, begin + p.slice * 2);
    NO_UNROLL for (uint block = begin; block < end;) {
        const pixel q = pixel_of(&p, block);
        const long line = ((long)(q.n * p.extent[0].value + q.d) * p.extent[1].value + q.h) * p.size[2];
        const surface y = {XPU_PTR(void, other + line * p.dense_pitch * 16), p.dense_width, p.size[2], pitch};
        surface x[PAIRS];
        int first[PAIRS];
        UNROLL for (int j = 0; j < PAIRS; j++) {
            const int d = (int)q.d * p.step[0] + c[j].d, h = (int)q.h * p.step[1] + c[j].h;
            const bool inside = (uint)d < (uint)p.source[0] && (uint)h < (uint)p.source[1];
            const long vecs = (long)q.n * p.im2col_pitch[0] + (long)d * p.im2col_pitch[1] +
                              (long)h * p.im2col_pitch[2] + (long)c[j].line.shift * p.im2col_pitch[3];
            x[j] = (surface){XPU_PTR(void, im2col + (inside ? vecs : 0) * 16), width, c[j].line.height,
                             c[j].line.pitch};
            first[j] = inside ? c[j].line.ahead : -(1 << 25);
        }
        const uint last = min(end, block + p.extent[2].value - q.w); /* of the row */
        NO_UNROLL for (int w = (int)q.w * PIXELS; block < last; block++, w += PIXELS) {
            short8 left[SUMS_M];
            int8 right[SUMS_N];
            read_a_across(left, &y, (int)m0, w);
            UNROLL for (int j = 0; j < PAIRS; j++)
                read_b_half(&right[2 * j], &x[j], c[j].channel, w + first[j]);
            UNROLL for (int j = 0; j < SUMS_N; j++) UNROLL
                for (int i = 0; i < SUMS_M; i++) sum[i][j] = MULTIPLY(left[i], right[j], sum[i][j]);
        }
    }

    UNROLL for (int j = 0; j < SUMS_N; j++) {
        const uint n = n0 + j * 16 + lane;
#if !IS_SPLIT
        const long column = place_of_column(&p, &z, n);
        const channel none = channel_of(&p, &z, n);
#endif
        UNROLL for (int i = 0; i < SUMS_M; i++) {
            const float rows[8] = {sum[i][j].s0, sum[i][j].s1, sum[i][j].s2, sum[i][j].s3,
                                   sum[i][j].s4, sum[i][j].s5, sum[i][j].s6, sum[i][j].s7};
            UNROLL for (int r = 0; r < 8; r++) {
                const uint m = m0 + i * 8 + r;
#if IS_SPLIT
                if (m < p.rows && n < p.columns)
                    XPU_PTR(float, p.partial)[((long)t.product * p.rows + m) * p.pitch + n] = rows[r];
#else
                put(&p, &none, place_of_row(&p, &z, m), column, rows[r]);
#endif
            }
        }
    }
}
#endif

/* Depthwise and other convolutions with 1, 2 or 4 channels per group, and their gradients. Memory-bound:
 * channels-last tensors are read 16 bytes at a time, every element about once. As many channels of x as of y
 * per group. Portable.
 *
 * Kernels:
 *   conv_depthwise           y and gradient of x: a work-item has a strip of STRIP pixels; TAPS, most taps of
 *                            a phase
 *   conv_depthwise_weights   gradient of w: a work-item has RUNS runs of taps and traverses a slice of all
 *                            strips of y; partial sums [slice][channel of y][channel of x in the group][tap]
 *   conv_depthwise_reduce    adds these up
 * Options: T; DIRECTION=0 y, 1 x, 2 w, with phases as in conv_matrix.cl; VOLUME, PHASES (conv_geometry.h);
 * GROUP, channels per group; LANES, 16-byte vectors side by side in a work-group of LANES x ROWS work-items;
 * COMBINE, EPILOGUE (epilogue_math.h) for y and x; RUN, taps along the width that are processed together;
 * EXACT=1, all runs are full; STEP, TAP_STEP, source pixels from pixel to pixel and from tap to tap along the
 * width. */
#include "conv/conv_geometry.h"
#define post_ops_t float
#include "matrix/epilogue_math.h"

#define VECTOR (16 / (int)sizeof(STORED(T)))
#define STRIP 4
#define THREADS (LANES * ROWS)
/* SPAN: pixels of the source that a strip's run of taps reads; ORIGIN: which of them the first tap of the
 * first pixel is. */
#define SPAN ((STRIP - 1) * STEP + (RUN - 1) * (TAP_STEP < 0 ? -(TAP_STEP) : TAP_STEP) + 1)
#define ORIGIN (TAP_STEP < 0 ? (RUN - 1) * -(TAP_STEP) : 0)
#define UNROLL _Pragma("unroll")

typedef union pieces {
    uint4 bits;
    RAW(T) each[VECTOR];
} pieces;

static inline void widen(__private float *v, pieces p) {
    UNROLL for (int i = 0; i < VECTOR; i++)
        v[i] = WIDEN(T, p.each[i]);
}

/* Loads the span's pixels of a row of `width` pixels, from pixel `first` on; zeros outside. All loads are
 * issued before a value is used, without branches. */
static inline void load_span(__private pieces *v, xpu_addr from, int first, int pitch, int width) {
    UNROLL for (int x = 0; x < SPAN; x++)
        v[x].bits = XPU_CPTR(uint4, from)[clamp(first + x, 0, width - 1) * pitch];
    UNROLL for (int x = 0; x < SPAN; x++)
        if ((uint)(first + x) >= (uint)width) v[x].bits = (uint4)0;
}

#if defined(TAPS) && DIRECTION != 2
#define LINE (LANES * VECTOR) /* weights of one tap and one channel of each group */
__kernel
    __attribute__((reqd_work_group_size(THREADS, 1, 1))) void conv_depthwise(const conv_depthwise_params p) {
    __local float weights[TAPS * GROUP * LINE] __attribute__((aligned(16)));
    const conv_matrix_params *m = &p.geometry;
    const uint id = (uint)get_local_id(0), lane = id % LANES, number = (uint)XPU_GROUP(0) / p.blocks;
    const uint block = (uint)XPU_GROUP(0) % p.blocks, chunk = number % p.chunks;
    const product z = product_of(m, number / p.chunks);
    const uint wide = z.w.taps.value, taps = z.d.taps.value * z.h.taps.value * wide;

    for (uint i = id; i < taps * GROUP * LINE; i += THREADS) {
        const uint tap = i / (GROUP * LINE), other = i / LINE % GROUP, channel = chunk * LINE + i % LINE;
        const uint line = quotient(tap, z.w.taps), d = quotient(line, z.h.taps),
                   h = line - d * z.h.taps.value;
        const uint k = DIRECTION == 0 ? channel : channel / GROUP * GROUP + other;
        const uint c = DIRECTION == 0 ? other : channel % GROUP;
        const long at = k * p.w_stride[0] + c * p.w_stride[1] +
                        (z.d.tap + (int)d * p.apart[0]) * p.w_stride[2] +
                        (z.h.tap + (int)h * p.apart[1]) * p.w_stride[3] +
                        (z.w.tap + (int)(tap - line * wide) * p.apart[2]) * p.w_stride[4];
        weights[i] = channel < p.channels ? LOAD(T, XPU_CPTR(STORED(T), p.w), at) : 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    const uint strip = block * ROWS + id / LANES, vector = chunk * LANES + lane;
    if (strip >= p.strips || vector >= p.vectors) return;
    const pixel q = pixel_of(m, strip);
    float sum[STRIP][VECTOR];
    UNROLL for (int i = 0; i < VECTOR; i++) {
        const float bias =
            m->bias ? LOAD(T, XPU_CPTR(STORED(T), m->bias), (vector * VECTOR + i) * m->bias_stride) : 0;
        UNROLL for (int s = 0; s < STRIP; s++)
            sum[s][i] = bias;
    }
    const int d0 = (int)q.d * m->step[0] + z.d.first, h0 = (int)q.h * m->step[1] + z.h.first;
    const int w0 = (int)q.w * (STRIP * STEP) + z.w.first;
    for (uint line = 0; line < z.d.taps.value * z.h.taps.value; line++) {
        const uint dt = quotient(line, z.h.taps), ht = line - dt * z.h.taps.value;
        const int d = d0 + (int)dt * m->tap_step[0], h = h0 + (int)ht * m->tap_step[1];
        if ((uint)d >= (uint)m->source[0] || (uint)h >= (uint)m->source[1]) continue;
        const int from =
            (int)q.n * m->im2col_pitch[0] + d * m->im2col_pitch[1] + h * m->im2col_pitch[2] + (int)vector;
        for (uint first = 0; first < wide; first += RUN) {
            __local const float *run = weights + (line * wide + first) * (GROUP * LINE) + lane * VECTOR;
            pieces span[SPAN];
            load_span(span, m->im2col + (long)from * 16, w0 + (int)first * TAP_STEP - ORIGIN,
                      m->im2col_pitch[3], m->source[2]);
#if GROUP == 1
            float w[RUN][VECTOR];
            UNROLL for (uint j = 0; j < RUN; j++)
                if (EXACT || first + j < wide) UNROLL
                    for (int i = 0; i < VECTOR; i++) w[j][i] = run[j * LINE + i];
            UNROLL for (int x = 0; x < SPAN; x++) {
                float v[VECTOR];
                widen(v, span[x]);
                UNROLL for (int s = 0; s < STRIP; s++) UNROLL
                    for (int j = 0; j < RUN; j++)
                        if (s * STEP + j * TAP_STEP + ORIGIN == x && (EXACT || first + j < wide)) UNROLL
                            for (int i = 0; i < VECTOR; i++) sum[s][i] = fma(v[i], w[j][i], sum[s][i]);
            }
#else
            UNROLL for (int j = 0; j < RUN; j++) {
                if (!EXACT && first + j >= wide) continue;
                float w[GROUP][VECTOR];
                UNROLL for (int o = 0; o < GROUP; o++) UNROLL
                    for (int i = 0; i < VECTOR; i++) w[o][i] = run[(j * GROUP + o) * LINE + i];
                UNROLL for (int s = 0; s < STRIP; s++) {
                    float v[VECTOR];
                    widen(v, span[s * STEP + j * TAP_STEP + ORIGIN]);
                    UNROLL for (int i = 0; i < VECTOR; i++) UNROLL
                        for (int o = 0; o < GROUP; o++)
                            sum[s][i] = fma(v[i / GROUP * GROUP + o], w[o][i], sum[s][i]);
                }
            }
#endif
        }
    }

    const int d = (int)q.d * m->pixel_step[0] + z.d.pixel, h = (int)q.h * m->pixel_step[1] + z.h.pixel;
    if (d >= m->size[0] || h >= m->size[1]) return;
    const long to =
        q.n * m->result_stride[0] + vector * VECTOR + d * m->result_stride[2] + h * m->result_stride[3];
    UNROLL for (int s = 0; s < STRIP; s++) {
        const int w = (int)(q.w * STRIP + s) * m->pixel_step[2] + z.w.pixel;
        if (w >= m->size[2]) continue;
        const xpu_addr at = (to + w * m->result_stride[4]) * sizeof(STORED(T));
        pieces out;
        float other[VECTOR] = {0};
#if COMBINE
        out.bits = *XPU_CPTR(uint4, p.end.other + at);
        widen(other, out);
#endif
        UNROLL for (int i = 0; i < VECTOR; i++)
            out.each[i] = NARROW(T, apply_post_ops(&p.end, sum[s][i], other[i]));
        *XPU_PTR(uint4, m->result + at) = out.bits;
    }
}
#endif

#if defined(RUNS) && DIRECTION == 2
__kernel __attribute__((reqd_work_group_size(THREADS, 1, 1))) void
conv_depthwise_weights(const conv_depthwise_params p) {
    __local float parts[THREADS * VECTOR];
    const conv_matrix_params *m = &p.geometry;
    const uint id = (uint)get_local_id(0), lane = id % LANES, group = (uint)XPU_GROUP(0);
    const uint turn = group % p.turns, chunk = group / p.turns % p.chunks, slice = group / p.turns / p.chunks;
    const conv_phase *zd = &m->phase[0][0], *zh = &m->phase[1][0], *zw = &m->phase[2][0];
    const uint wide = zw->taps.value, across = (wide + RUN - 1) / RUN, vector = chunk * LANES + lane;
    float sum[RUNS][RUN][GROUP][VECTOR];
    UNROLL for (int r = 0; r < RUNS; r++) UNROLL
        for (int j = 0; j < RUN; j++) UNROLL
            for (int o = 0; o < GROUP; o++) UNROLL
                for (int i = 0; i < VECTOR; i++) sum[r][j][o][i] = 0;

    const uint end = min(p.strips, (slice + 1) * p.slice);
    for (uint strip = slice * p.slice + id / LANES; strip < end && vector < p.vectors; strip += ROWS) {
        const pixel q = pixel_of(m, strip);
        pieces y[STRIP];
        const int w0 = (int)q.w * STRIP;
        const int given =
            (int)q.n * p.y_pitch[0] + (int)q.d * p.y_pitch[1] + (int)q.h * p.y_pitch[2] + (int)vector;
        UNROLL for (int s = 0; s < STRIP; s++)
            y[s].bits = XPU_CPTR(uint4, p.y)[given + min(w0 + s, m->size[2] - 1) * p.y_pitch[3]];
        UNROLL for (uint r = 0; r < RUNS; r++) {
            const uint run = turn * RUNS + r, line = run / across, first = run % across * RUN;
            const uint dt = quotient(line, zh->taps), ht = line - dt * zh->taps.value;
            const int d = (int)q.d * m->step[0] + zd->first + (int)dt * m->tap_step[0];
            const int h = (int)q.h * m->step[1] + zh->first + (int)ht * m->tap_step[1];
            if (run >= p.runs || (uint)d >= (uint)m->source[0] || (uint)h >= (uint)m->source[1]) continue;
            const int from =
                (int)q.n * m->im2col_pitch[0] + d * m->im2col_pitch[1] + h * m->im2col_pitch[2] + (int)vector;
            pieces span[SPAN];
            load_span(span, m->im2col + (long)from * 16, w0 * STEP + zw->first + (int)first * TAP_STEP,
                      m->im2col_pitch[3], m->source[2]);
            UNROLL for (int s = 0; s < STRIP; s++) {
                if (w0 + s >= m->size[2]) continue;
                float u[VECTOR];
                widen(u, y[s]);
                UNROLL for (int j = 0; j < RUN; j++) {
                    float v[VECTOR];
                    widen(v, span[s * STEP + j * TAP_STEP]);
                    UNROLL for (int o = 0; o < GROUP; o++) UNROLL
                        for (int i = 0; i < VECTOR; i++)
                            sum[r][j][o][i] = fma(u[i], v[i / GROUP * GROUP + o], sum[r][j][o][i]);
                }
            }
        }
    }

    const uint taps = zd->taps.value * zh->taps.value * wide;
    UNROLL for (uint r = 0; r < RUNS; r++) UNROLL
        for (uint j = 0; j < RUN; j++) UNROLL
            for (uint o = 0; o < GROUP; o++) {
                UNROLL for (int i = 0; i < VECTOR; i++)
                    parts[id * VECTOR + i] = sum[r][j][o][i];
                barrier(CLK_LOCAL_MEM_FENCE);
                const uint run = turn * RUNS + r, line = run / across, tap = run % across * RUN + j;
                for (uint i = id; i < LANES * VECTOR; i += THREADS) {
                    const uint channel = chunk * (LANES * VECTOR) + i;
                    float total = 0;
                    for (uint row = 0; row < ROWS; row++) total += parts[row * (LANES * VECTOR) + i];
                    // clang-format off
                    if (run < p.runs && tap < wide && channel < p.channels)
                        XPU_PTR(float, m->partial)
                            [((slice * (long)p.channels + channel) * GROUP + o) * taps + line * wide + tap] =
                                total;
                    // clang-format on
                }
                barrier(CLK_LOCAL_MEM_FENCE);
            }
}
#endif

#ifdef FINISH
#define PARTS 8
#define NUMBERS (256 / PARTS)
__kernel __attribute__((reqd_work_group_size(256, 1, 1))) void
conv_depthwise_reduce(const conv_depthwise_params p) {
    __local float sums[PARTS][NUMBERS];
    const conv_matrix_params *m = &p.geometry;
    const uint x = (uint)get_local_id(0) % NUMBERS, part = (uint)get_local_id(0) / NUMBERS;
    const uint high = m->phase[1][0].taps.value, wide = m->phase[2][0].taps.value;
    const uint taps = m->phase[0][0].taps.value * high * wide;
    const long count = (long)p.channels * GROUP * taps, i = (long)XPU_GROUP(0) * NUMBERS + x;
    float sum = 0;
    if (i < count)
        for (long s = part; s < m->slices; s += PARTS) sum += XPU_CPTR(float, m->partial)[s * count + i];
    sums[part][x] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (part > 0 || i >= count) return;
    for (int other = 1; other < PARTS; other++) sum += sums[other][x];
    const uint tap = (uint)(i % taps), c = (uint)(i / taps % GROUP), k = (uint)(i / taps / GROUP);
    STORE(T, XPU_PTR(STORED(T), p.w),
          k * p.w_stride[0] + c * p.w_stride[1] + tap / wide / high * p.w_stride[2] +
              tap / wide % high * p.w_stride[3] + tap % wide * p.w_stride[4],
          sum);
}
#endif

/* Gradient of x (or transposed convolution) for x with 1 to 4 channels per group, e.g. images; two
 * dimensions, by multiply-adds. Portable.
 *
 * Launch: a work-item has HIGH x WIDE pixels of x in all of their channels, whole strides, so that the taps
 * of each pixel are known at build time. A work-group has ROWS x LANES work-items and traverses y's channels
 * STEP at a time; the pixels of y that it needs, and w, are in local memory.
 * Options: T; CHANNELS of x per group; HIGH, WIDE, multiples of the strides; TAPS_H, TAPS_W, STRIDE_H,
 * STRIDE_W, DILATION_H, DILATION_W, the geometry of w; AHEAD_H, AHEAD_W, pixel i of a work-item and tap t
 * meet pixel (i + AHEAD - t * DILATION) / STRIDE of y, counted from the first one that the work-item reads,
 * if that is an integer (it is never negative); SPAN_H, SPAN_W, pixels of y that a work-item reads; Y_QUADS,
 * y is read four channels at a time; OUT=1 channels of consecutive pixels, 2 consecutive pixels of a channel,
 * are stored four at a time if all exist, 0 one by one; SUBGROUP_SIZE on Intel GPUs; COMBINE, EPILOGUE
 * (epilogue_math.h). */
#include "conv/conv_few_channels.h"
#define post_ops_t float
#include "matrix/epilogue_math.h"

#define UNROLL _Pragma("unroll")
#define THREADS (LANES * ROWS)
#define TAPS (TAPS_H * TAPS_W)
/* Pixels of y between adjacent work-items. */
#define Y_HIGH (HIGH / STRIDE_H)
#define Y_WIDE (WIDE / STRIDE_W)
#define VECTOR (Y_WIDE >= 4 ? 4 : Y_WIDE >= 2 ? 2 : 1)
#define LINE ((SPAN_W + VECTOR - 1) / VECTOR * VECTOR)
#define PITCH ((LANES - 1) * Y_WIDE + LINE)
#define LINES ((ROWS - 1) * Y_HIGH + SPAN_H)
#define PLANE ((PITCH * LINES + 3) / 4 * 4)
#define HELD                                                                                                 \
    (CHANNELS == 3 ? 4 : CHANNELS) /* channels of w in local memory, padded so that they are one load */
#define BATCH (32 / STEP)          /* pixels of y per work-item and batch of loads */
/* The first of a work-item's pixels that a tap reaches. */
#define FIRST(t, along)                                                                                      \
    ((((t) * DILATION_##along - AHEAD_##along) % STRIDE_##along + STRIDE_##along) % STRIDE_##along)

static inline void read_y(const conv_few_channels_params *p, __local float *tile, xpu_addr image, int k,
                          int h0, int w0) {
    for (int first = (int)get_local_id(0); first < PITCH * LINES; first += THREADS * BATCH) {
        int at[BATCH];
        bool inside[BATCH];
        UNROLL for (int b = 0; b < BATCH; b++) {
            const int i = first + b * THREADS, h = h0 + i / PITCH, w = w0 + i % PITCH;
            inside[b] = i < PITCH * LINES && (uint)h < (uint)p->out[0] && (uint)w < (uint)p->out[1];
            at[b] = inside[b] ? h * p->y_pitch[0] + w * p->y_pitch[1] : 0;
        }
        /* All loads are issued before a value is used. */
#if Y_QUADS
        float4 held[BATCH][STEP / 4];
        UNROLL for (int b = 0; b < BATCH; b++) UNROLL
            for (int s = 0; s < STEP / 4; s++)
                held[b][s] = *(__global const float4 *)(XPU_CPTR(float, image) + at[b] +
                                                        min(k + s * 4, (int)p->k - 4));
        UNROLL for (int b = 0; b < BATCH; b++) UNROLL
            for (int s = 0; s < STEP / 4; s++) {
                const int i = first + b * THREADS;
                const float4 v = inside[b] && k + s * 4 < (int)p->k ? held[b][s] : (float4)0;
                if (i >= PITCH * LINES) continue;
                tile[s * 4 * PLANE + i] = v.x;
                tile[(s * 4 + 1) * PLANE + i] = v.y;
                tile[(s * 4 + 2) * PLANE + i] = v.z;
                tile[(s * 4 + 3) * PLANE + i] = v.w;
            }
#else
        RAW(T) held[BATCH][STEP];
        UNROLL for (int b = 0; b < BATCH; b++) UNROLL
            for (int s = 0; s < STEP; s++)
                held[b][s] = XPU_CPTR(RAW(T), image)[at[b] + min(k + s, (int)p->k - 1) * p->y_channel];
        UNROLL for (int b = 0; b < BATCH; b++) UNROLL
            for (int s = 0; s < STEP; s++) {
                const int i = first + b * THREADS;
                if (i < PITCH * LINES)
                    tile[s * PLANE + i] = inside[b] && k + s < (int)p->k ? WIDEN(T, held[b][s]) : 0;
            }
#endif
    }
}

static inline void read_w(const conv_few_channels_params *p, __local float *weights, uint group, int k) {
    for (int i = (int)get_local_id(0); i < STEP * TAPS * CHANNELS; i += THREADS) {
        const int s = i / (TAPS * CHANNELS), tap = i / CHANNELS % TAPS, c = i % CHANNELS;
        const long at = (group * (long)p->k + k + s) * p->w_stride[0] + c * p->w_stride[1] +
                        tap / TAPS_W * p->w_stride[2] + tap % TAPS_W * p->w_stride[3];
        weights[(s * TAPS + tap) * HELD + c] = k + s < (int)p->k ? LOAD(T, XPU_CPTR(STORED(T), p->w), at) : 0;
    }
}

static inline void read_line(__private float *line, __local const float *from) {
    UNROLL for (int x = 0; x < LINE; x += VECTOR) {
#if WIDE / STRIDE_W >= 4
        const float4 v = *(__local const float4 *)(from + x);
        line[x] = v.x, line[x + 1] = v.y, line[x + 2] = v.z, line[x + 3] = v.w;
#elif WIDE / STRIDE_W >= 2
        const float2 v = *(__local const float2 *)(from + x);
        line[x] = v.x, line[x + 1] = v.y;
#else
        line[x] = from[x];
#endif
    }
}

static inline void read_tap(__private float *v, __local const float *from) {
#if CHANNELS >= 3
    const float4 all = *(__local const float4 *)from;
    v[0] = all.x, v[1] = all.y, v[2] = all.z, v[HELD - 1] = all.w;
#elif CHANNELS == 2
    const float2 all = *(__local const float2 *)from;
    v[0] = all.x, v[1] = all.y;
#else
    v[0] = *from;
#endif
}

#ifdef SUBGROUP_SIZE
__attribute__((intel_reqd_sub_group_size(SUBGROUP_SIZE)))
#endif
__kernel __attribute__((reqd_work_group_size(THREADS, 1, 1))) void
conv_few_channels(const conv_few_channels_params p) {
    __local float tile[STEP * PLANE] __attribute__((aligned(16)));
    __local float weights[STEP * TAPS * HELD] __attribute__((aligned(16)));
    const int lane = (int)get_local_id(0) % LANES, row = (int)get_local_id(0) / LANES;
    ulong number = XPU_GROUP(0);
    const int tile_w = (int)(number % p.tiles[1]);
    number /= p.tiles[1];
    const int tile_h = (int)(number % p.tiles[0]);
    number /= p.tiles[0];
    const uint group = (uint)(number % p.groups);
    const long n = (long)(number / p.groups);
    const xpu_addr image = p.y + (n * p.y_image + (long)group * p.k * p.y_channel) * (long)sizeof(STORED(T));

    float sum[HIGH][WIDE][CHANNELS];
    UNROLL for (int c = 0; c < CHANNELS; c++) {
        const float bias =
            p.bias ? LOAD(T, XPU_CPTR(STORED(T), p.bias), (group * CHANNELS + c) * p.bias_stride) : 0;
        UNROLL for (int i = 0; i < HIGH; i++) UNROLL
            for (int j = 0; j < WIDE; j++) sum[i][j][c] = bias;
    }
    for (int k = 0; k < (int)p.k; k += STEP) {
        barrier(CLK_LOCAL_MEM_FENCE);
        read_y(&p, tile, image, k, tile_h * (ROWS * Y_HIGH) + p.least[0],
               tile_w * (LANES * Y_WIDE) + p.least[1]);
        read_w(&p, weights, group, k);
        barrier(CLK_LOCAL_MEM_FENCE);
        __attribute__((opencl_unroll_hint(1))) for (int s = 0; s < STEP; s++) {
            __local const float *const y = tile + s * PLANE + row * Y_HIGH * PITCH + lane * Y_WIDE;
            UNROLL for (int t = 0; t < TAPS_H; t++) UNROLL
                for (int a = 0; a < Y_HIGH; a++) {
                    const int i = FIRST(t, H) + a * STRIDE_H;
                    float line[LINE];
                    read_line(line, y + (i + AHEAD_H - t * DILATION_H) / STRIDE_H * PITCH);
                    UNROLL for (int u = 0; u < TAPS_W; u++) {
                        float w[HELD];
                        read_tap(w, weights + ((s * TAPS_H + t) * TAPS_W + u) * HELD);
                        UNROLL for (int b = 0; b < Y_WIDE; b++) UNROLL
                            for (int c = 0; c < CHANNELS; c++) {
                                const int j = FIRST(u, W) + b * STRIDE_W;
                                sum[i][j][c] =
                                    fma(line[(j + AHEAD_W - u * DILATION_W) / STRIDE_W], w[c], sum[i][j][c]);
                            }
                    }
                }
        }
    }

    const int h0 = (tile_h * ROWS + row) * HIGH, w0 = (tile_w * LANES + lane) * WIDE;
    UNROLL for (int i = 0; i < HIGH; i++) {
        if (h0 + i >= p.in[0]) continue;
        const long to = n * p.x_stride[0] + (long)group * CHANNELS * p.x_stride[1] +
                        (h0 + i) * p.x_stride[2] + w0 * p.x_stride[3];
#if OUT
        if (w0 + WIDE <= p.in[1]) {
            UNROLL for (int f = 0; f < WIDE * CHANNELS; f += 4) {
#if OUT == 1
#define OUT_AT(f) sum[i][(f) / CHANNELS][(f) % CHANNELS]
                const long at = to + f;
#else
#define OUT_AT(f) sum[i][(f) % WIDE][(f) / WIDE]
                const long at = to + f / WIDE * p.x_stride[1] + f % WIDE;
#endif
                *(__global float4 *)(XPU_PTR(float, p.x) + at) =
                    (float4)(OUT_AT(f), OUT_AT(f + 1), OUT_AT(f + 2), OUT_AT(f + 3));
            }
            continue;
        }
#endif
        UNROLL for (int j = 0; j < WIDE; j++) UNROLL
            for (int c = 0; c < CHANNELS; c++) {
                if (w0 + j >= p.in[1]) continue;
                const long at = to + j * p.x_stride[3] + c * p.x_stride[1];
#if COMBINE
                const float other = LOAD(T, XPU_CPTR(STORED(T), p.end.other), at);
#else
                const float other = 0;
#endif
                STORE(T, XPU_PTR(STORED(T), p.x), at, apply_post_ops(&p.end, sum[i][j][c], other));
            }
    }
}

/* Horizontally fused products: several right operands share a few rows of A in one launch (xpu_gemm_fused),
 * for gemv, gemm_small_m and gemm_small_m_mma.
 *
 * Options:
 *   PARTS=1 … GEMM_PARTS   number of matrices, whose results are contiguous
 *   GATED=1       two matrices: the first result, after post-ops, is multiplied by the second
 *   QKV_CACHE=1   three matrices, the QKV projection with RoPE and KV-cache write (gemm_qkv_params); Q is the
 *                 output.
 *   QKV_CACHE=2   heads of Q and K are RMS-normalized, too, by the last work-group that has a part of the
 *                 head
 *   NORMED=1      RMS norm of A: rows of A, aligned to 16 bytes, are multiplied by `norm` and divided by
 *                 their root mean square; k is a multiple of eight
 *   UNIT_OFFSET_WEIGHT=1   norm weights are 1 + the stored values
 * The includer (gemm.cl) defines store_result and value. */
#ifndef PARTS
#define PARTS 0
#define GATED 0
#define NORMED 0
#define QKV_CACHE 0
#define UNIT_OFFSET_WEIGHT 0
#endif
/* With LINE_PAIRS, rows of B come in pairs whose sums are in the same work-item. LINE_OF(n, j): row j (0 or
 * 1) of pair n. */
#define LINE_PAIRS (GATED || QKV_CACHE)
#define NORM_HEADS (QKV_CACHE == 2)
#if NORM_HEADS
#include "matrix/last_group.h"
#endif
#if QKV_CACHE
#define LINE_OF(n, j) line_of_pair(&fused, (uint)(n), j)
#else
#define LINE_OF(n, j) (n)
#endif

static inline float sum8(float8 v) {
    const float4 w = v.lo + v.hi;
    return (w.x + w.y) + (w.z + w.w);
}

#if PARTS || defined(SMALL_M_MMA)
/* Eight adjacent elements as float8, from 16 or 32 bytes. */
#define EIGHT_OF(v) XPU_CAT(eight_, T)(v)
static inline float8 eight_f32(float8 v) { return v; }
static inline float8 eight_bf16(uint4 v) { return as_float8(convert_uint8(as_ushort8(v)) << 16); }
static inline float8 eight_f16(uint4 v) { return widen8_f16(as_ushort8(v)); }
#define PIECE_f32 float8
#define PIECE_bf16 uint4
#define PIECE_f16 uint4
#define EIGHT_AT(address, k) EIGHT_OF(*XPU_CPTR(XPU_CAT(PIECE_, T), (address) + (k) * sizeof(STORED(T))))
#endif

#if PARTS
/* `chosen` ? b : a, field by field: selecting the whole struct would put it into private memory on NVIDIA
 * GPUs. */
static inline gemm_part choose_part(bool chosen, const gemm_part *a, const gemm_part *b) {
#define CHOOSE(field) .field = chosen ? b->field : a->field
    return (gemm_part){CHOOSE(b),           CHOOSE(scale),      CHOOSE(zero), CHOOSE(b_scale), CHOOSE(c),
                       CHOOSE(scale_along), CHOOSE(zero_along), CHOOSE(n),    CHOOSE(first),   CHOOSE(block)};
#undef CHOOSE
}

/* Sets `p` and `l` (NULL for unquantized weights) to the work-group's part. `block`: the work-group's number
 * along n, over all parts. Returns the first block of the part. */
static inline uint take_part(gemm_params *p, quantized_lines *l, const gemm_fused_params *g, uint block) {
    gemm_part part = g->part[0];
    __attribute__((opencl_unroll_hint)) for (int i = 1; i < (GATED ? 1 : PARTS); i++)
        part = choose_part(block >= (uint)g->part[i].block, &part, &g->part[i]);
    p->n = part.n;
    p->b = part.b, p->b_scale = part.b_scale, p->c = part.c;
    p->out += part.first * p->out_stride.column * sizeof(STORED(OUT_T));
    p->end.other += part.first * p->other_stride.column * sizeof(STORED(OTHER_T));
    if (l) {
        l->data = part.b;
        l->scale.data = part.scale, l->scale.along = part.scale_along;
        l->zero.data = part.zero, l->zero.along = part.zero_along;
    }
    return (uint)part.block;
}

#if GATED
/* The second weight (up projection), and storing of gate times up. */
static inline quantized_lines second_lines(const gemm_fused_params *g) {
    quantized_lines l = g->given.b;
    l.data = g->part[1].b;
    l.scale.data = g->part[1].scale, l.scale.along = g->part[1].scale_along;
    l.zero.data = g->part[1].zero, l.zero.along = g->part[1].zero_along;
    return l;
}
static inline void store_gated(const gemm_params *p, const gemm_fused_params *g, long m, long n, acc_t sum,
                               acc_t other) {
    gemm_params q = *p;
    q.b_scale = g->part[1].b_scale;
    STORE(OUT_T, XPU_PTR(STORED(OUT_T), p->out), m * p->out_stride.row + n * p->out_stride.column,
          quantize_output(&p->leave, value(p, 0, m, n, sum) * scaled(&q, 0, m, n, other)));
}
#endif

#if QKV_CACHE
/* The column of an element of pair n within its part. */
static inline long line_of_pair(const gemm_fused_params *g, uint n, int second) {
    const uint half_ = (uint)g->cached.depth / 2;
    return n + n / half_ * half_ + (second ? half_ : 0);
}
/* The part that work-group `block` along n belongs to. */
static inline int part_of(const gemm_fused_params *g, uint block) {
    return (block >= (uint)g->part[1].block) + (block >= (uint)g->part[2].block);
}
/* Rotates pair n of part `which` (RoPE) and stores it, keys and values in the caches. */
static inline void put_pair(const gemm_params *p, const gemm_fused_params *g, int which, long m, uint n,
                            value_t v, value_t w) {
    const gemm_qkv_params *c = &g->cached;
    const uint half_ = (uint)c->depth / 2, head = n / half_, i = n % half_;
    const long column = line_of_pair(g, n, 0);
    if (which < 2 && c->cos) {
        const long at = m * c->angle_row + i;
#define ANGLE(of, i) (value_t) LOAD(T, XPU_CPTR(STORED(T), c->of), i)
        const value_t rotated = v * ANGLE(cos, at) + c->first_sign * w * ANGLE(sin, at);
        w = w * ANGLE(cos, at + half_) + v * ANGLE(sin, at + half_);
        v = rotated;
#undef ANGLE
    }
    xpu_addr to = p->out;
    long place = m * p->out_stride.row + column * p->out_stride.column, apart = half_ * p->out_stride.column;
    if (which > 0) {
        const bool is_value = which == 2;
#define CACHE(field)                                                                                         \
    (is_value ? c->cache[1].field : c->cache[0].field) /* field by field, as in choose_part */
        const long given = *XPU_CPTR(long, c->position), at = given < 0 ? given + c->length : given;
        if ((ulong)at >= (ulong)c->length) {
            fault_report(c->watch, 0, given, c->length);
            return;
        }
        to = CACHE(data), apart = half_;
        place = m * CACHE(row) + head * CACHE(head) + at * CACHE(place) + i;
#undef CACHE
    }
    STORE(OUT_T, XPU_PTR(STORED(OUT_T), to), place, quantize_output(&p->leave, v));
    STORE(OUT_T, XPU_PTR(STORED(OUT_T), to), place + apart, quantize_output(&p->leave, w));
}

#if NORM_HEADS
/* The stored pairs of one row and of the head of pair n, queries' or keys'. */
static inline volatile __global float2 *pairs_of_head(const gemm_fused_params *g, int which, long m, uint n) {
    const uint half_ = (uint)g->cached.depth / 2, of_queries = (uint)g->part[0].n,
               all_ = of_queries + (uint)g->part[1].n;
    return (volatile __global float2 *)XPU_PTR(float2, g->cached.pairs) + m * all_ +
           (which ? of_queries : 0) + n / half_ * half_;
}
/* Called by all work-items (`id` of `count`) of a work-group after its sums, of the pairs from n0 on, have
 * been stored. `room`: half a head's elements. */
static inline void store_normed_heads(const gemm_params *p, const gemm_fused_params *g, uint block, long m0,
                                      int rows_here, uint n0, __local float *room, __local uint *last,
                                      uint id, uint count) {
    const gemm_qkv_params *c = &g->cached;
    const int which = part_of(g, block);
    const uint half_ = (uint)c->depth / 2, head = n0 / half_;
    const xpu_addr norm = which ? c->norm[1] : c->norm[0];
    if (which == 2) return;
    const uint counter = head + (which ? (uint)g->part[0].n / half_ : 0);
    if (!is_last_group(XPU_PTR(uint, c->counters) + counter, (uint)c->head_groups, last)) return;
    for (long m = m0; m < m0 + rows_here; m++) {
        volatile __global float2 *pairs = pairs_of_head(g, which, m, n0);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint i = id; i < half_; i += count) {
            const float2 v = pairs[i];
            room[i] = v.x * v.x + v.y * v.y;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        float square = 0;
        for (uint i = 0; i < half_; i++) square += room[i];
        const float root = 1 / sqrt(square / (float)c->depth + c->norm_eps);
        for (uint i = id; i < half_; i += count) {
            const float2 v = pairs[i];
#define HEAD_NORM(i) ((value_t)UNIT_OFFSET_WEIGHT + (value_t)LOAD(T, XPU_CPTR(STORED(T), norm), i))
            put_pair(p, g, which, m, head * half_ + i, v.x * root * HEAD_NORM(i),
                     v.y * root * HEAD_NORM(i + half_));
#undef HEAD_NORM
        }
    }
}
#endif

/* The same for the part of work-group `block` along n. */
static inline void store_qkv(const gemm_params *p, const gemm_fused_params *g, uint block, long m, long n,
                             acc_t sum, acc_t other) {
    const int which = part_of(g, block);
    const long column = line_of_pair(g, (uint)n, 0), second = line_of_pair(g, (uint)n, 1);
    const value_t v = value(p, 0, m, column, sum), w = value(p, 0, m, second, other);
#if NORM_HEADS
    if (which < 2) {
        pairs_of_head(g, which, m, (uint)n)[(uint)n % ((uint)g->cached.depth / 2)] = (float2)(v, w);
        return;
    }
#endif
    put_pair(p, g, which, m, (uint)n, v, w);
}
#endif

#if NORMED
/* 1 / RMS of a row, from the sum of its squares. */
static inline float inverse_rms_of(const gemm_fused_params *g, float square) {
    return 1 / sqrt(square / (float)g->given.gemm.k + g->eps);
}

/* Computes 1 / RMS of rows m0 …, into `room[row]`. `room` has `rows` elements for each of the `count` work-
 * items, a power of two. All work-items of the work-group must call it. */
static inline void find_inverse_rms(__local float *room, const gemm_fused_params *g, long m0, const int rows,
                                    int id, const int count) {
    const gemm_params *p = &g->given.gemm;
    for (int r = 0; r < rows; r++) {
        const xpu_addr row = p->a + min(m0 + r, p->m - 1) * p->a_stride.row * sizeof(STORED(T));
        float8 sum = 0;
        for (long k = id * 8; k < p->k; k += count * 8) {
            const float8 v = EIGHT_AT(row, k);
            sum = fma(v, v, sum);
        }
        room[id * rows + r] = sum8(sum);
    }
    for (int half_ = count / 2; half_ > 0; half_ /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (id < half_)
            for (int r = 0; r < rows; r++) room[id * rows + r] += room[(id + half_) * rows + r];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (id < rows) room[id] = inverse_rms_of(g, room[id]);
    barrier(CLK_LOCAL_MEM_FENCE);
}
#endif
#endif

/* Attention on CPUs: S = scale Q K^T + bias, P = softmax(S), O = P V, with online softmax.
 *
 * Launch: a work-item is a work-group and has p.slice rows (at most HOST_BAND) of one head, or of all
 * p.packed heads that share keys, their queries one after the other.
 * Algorithm: HOST_KEYS keys at a time are packed as columns (host_panel.h); ROWS rows x 16 columns are the
 * register tile. The softmax is updated, then values are packed in the same place and multiplied.
 * Options: T: f32, f16 or bf16; BIAS_T, b8 for a boolean mask; DEPTH, VALUE_DEPTH, rounded up to multiples of
 * 16; ROWS=1 to 6; DIRECT=1, ROWS rows, too few to be worth packing, read keys and values in place; head
 * elements are contiguous and multiples of 16. */
#include "attention/attention.h"
#include "matrix/host_panel.h"

#if DIRECT
#define HOST_BAND ROWS
#else
#define HOST_BAND 48
#endif
#define WIDER (DEPTH > VALUE_DEPTH ? DEPTH : VALUE_DEPTH)
#define HOST_KEYS (WIDER <= 128 ? 64 : 32)
#define HEAD(m, b, h, row)                                                                                   \
    ((m).data) + sizeof(STORED(T)) * ((b) * (m).stride[0] + (h) * (m).stride[1] + (row) * (m).stride[2])
#define PANEL(n, k, room) (panel + (n) * (room) + (k) * 16) /* n: a multiple of 16 */

static inline float16 load16_b8(__global const s_b8 *from) { return convert_float16(vload16(0, from)); }

static inline float highest(float16 v) {
    const float8 a = fmax(v.lo, v.hi);
    const float4 b = fmax(a.lo, a.hi);
    const float2 c = fmax(b.lo, b.hi);
    return fmax(c.x, c.y);
}
static inline float total(float16 v) {
    const float8 a = v.lo + v.hi;
    const float4 b = a.lo + a.hi;
    const float2 c = b.lo + b.hi;
    return c.x + c.y;
}

#ifdef BIAS_T
/* Scores plus bias for `count` keys; `step`: stride of the bias between keys. */
static inline float16 biased(float16 s, __global const STORED(BIAS_T) *from, long step, int count) {
    float16 v;
    if (step == 1 && count >= 16) {
        v = XPU_CAT(load16_, BIAS_T)(from);
    } else {
        float lane[16];
        for (int i = 0; i < 16; i++) lane[i] = i < count ? (float)LOAD(BIAS_T, from, i * step) : 0;
        v = vload16(0, lane);
    }
#if BIAS_IS_MASK
    return select((float16)-INFINITY, s, v != 0);
#else
    return s + v;
#endif
}
#endif

#if DIRECT
/* Blocks of 16 columns of values at a time, so that a row's sums fit registers; divides VALUE_DEPTH / 16. */
#define FIT(n) (ROWS * (n) <= 8 && VALUE_DEPTH / 16 % (n) == 0)
#define ACROSS (FIT(8) ? 8 : FIT(4) ? 4 : FIT(2) ? 2 : 1)

/* scores[row][key] = left . key, for `keys` keys with stride `step`. */
static inline void direct_scores(__local float *scores, __local const float *left,
                                 __global const STORED(T) *from, long step, int keys) {
    for (int n = 0; n < keys; n++, from += step) {
        float16 s[ROWS];
        _Pragma("unroll") for (int i = 0; i < ROWS; i++)
            s[i] = 0;
        _Pragma("unroll") for (int k = 0; k < DEPTH; k += 16) {
            const float16 right = LOAD16(from + k);
            _Pragma("unroll") for (int i = 0; i < ROWS; i++)
                s[i] = fma(vload16(0, left + i * DEPTH + k), right, s[i]);
        }
        _Pragma("unroll") for (int i = 0; i < ROWS; i++)
            scores[i * HOST_KEYS + n] = total(s[i]);
    }
}

/* out[row] = (begin ? 0 : out[row] alpha[row]) + scores[row] . values. */
static inline void direct_values(__local float *out, __local const float *scores, const float *alpha,
                                 bool begin, __global const STORED(T) *from, long step, int keys) {
    for (int n = 0; n < VALUE_DEPTH; n += 16 * ACROSS) {
        float16 o[ROWS][ACROSS];
        _Pragma("unroll") for (int i = 0; i < ROWS; i++) _Pragma("unroll")
            for (int c = 0; c < ACROSS; c++)
                o[i][c] = begin ? 0 : vload16(c, out + i * VALUE_DEPTH + n) * alpha[i];
        __global const STORED(T) *value = from + n;
        for (int k = 0; k < keys; k++, value += step) _Pragma("unroll")
            for (int c = 0; c < ACROSS; c++) {
                const float16 right = LOAD16(value + c * 16);
                _Pragma("unroll") for (int i = 0; i < ROWS; i++)
                    o[i][c] = fma((float16)scores[i * HOST_KEYS + k], right, o[i][c]);
            }
        _Pragma("unroll") for (int i = 0; i < ROWS; i++) _Pragma("unroll")
            for (int c = 0; c < ACROSS; c++) vstore16(o[i][c], c, out + i * VALUE_DEPTH + n);
    }
}
#endif

XPU_NO_VECTORIZE
__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void attention_host(const attention_params p) {
    __local float left[HOST_BAND * DEPTH] __attribute__((aligned(64)));
#if !DIRECT
    __local float panel[HOST_KEYS * WIDER] __attribute__((aligned(64)));
#endif
    __local float scores[HOST_BAND * HOST_KEYS] __attribute__((aligned(64)));
    __local float out[HOST_BAND * VALUE_DEPTH] __attribute__((aligned(64)));
    float row_max[HOST_BAND], sum[HOST_BAND], alpha[HOST_BAND];
    const long all_rows = p.queries * p.packed, bands = (all_rows + p.slice - 1) / p.slice,
               sets = p.heads / p.packed;
    const long g = XPU_GROUP(0), r0 = g % bands * p.slice, set = g / bands % sets, b = g / bands / sets;
    const long kh = set * p.packed / (p.heads / p.key_heads);
    const int rows = (int)min(all_rows - r0, p.slice);

    for (int m = 0; m < rows; m++) {
        const long row = r0 + m, h = set * p.packed + row / p.queries;
        __global const STORED(T) *from = XPU_CPTR(STORED(T), HEAD(p.query, b, h, row % p.queries));
        int i = 0;
        if (p.query.stride[3] == 1)
            for (; i + 16 <= p.depth; i += 16) vstore16(LOAD16(from + i) * p.scale, 0, left + m * DEPTH + i);
        for (; i < p.depth; i++) left[m * DEPTH + i] = LOAD(T, from, i * p.query.stride[3]) * p.scale;
        row_max[m] = -INFINITY;
        sum[m] = 0;
    }

    const long last =
        r0 / p.queries == (r0 + rows - 1) / p.queries ? (r0 + rows - 1) % p.queries : p.queries - 1;
    const long k_end = p.causal ? min(p.keys, last + 1) : p.keys;
    for (long k0 = 0; k0 < k_end; k0 += HOST_KEYS) {
        const int keys = (int)min(k_end - k0, (long)HOST_KEYS);
#if DIRECT
        direct_scores(scores, left, XPU_CPTR(STORED(T), HEAD(p.key, b, kh, k0)), p.key.stride[2], keys);
#else
        host_pack_panel(panel, DEPTH, XPU_CPTR(STORED(T), HEAD(p.key, b, kh, k0)), p.key.stride[3],
                        p.key.stride[2], p.key.stride[3] == 1, p.depth, keys);
        for (int m = 0; m < rows; m += ROWS)
            for (int n = 0; n < keys; n += 16) {
                float16 s[ROWS];
                __local const float *a[ROWS];
                _Pragma("unroll") for (int i = 0; i < ROWS; i++) {
                    a[i] = left + min(m + i, rows - 1) * DEPTH;
                    s[i] = 0;
                }
                for (int k = 0; k < p.depth; k++) {
                    const float16 right = vload16(0, PANEL(n, k, DEPTH));
                    _Pragma("unroll") for (int i = 0; i < ROWS; i++)
                        s[i] = fma((float16)a[i][k], right, s[i]);
                }
                _Pragma("unroll") for (int i = 0; i < ROWS; i++)
                    if (m + i < rows) vstore16(s[i], 0, scores + (m + i) * HOST_KEYS + n);
            }
#endif

        for (int m = 0; m < rows; m++) {
            const long row = r0 + m, query = row % p.queries;
            __local float *s = scores + m * HOST_KEYS;
            const long seen = p.causal ? min((long)keys, query + 1 - k0) : keys;
            float16 most = -INFINITY;
            for (int n = 0; n < keys; n += 16) {
                float16 v = vload16(0, s + n);
#ifdef BIAS_T
                const attention_matrix *from = &p.bias;
                v = biased(v,
                           XPU_CPTR(STORED(BIAS_T), from->data) + b * from->stride[0] +
                               (set * p.packed + row / p.queries) * from->stride[1] +
                               query * from->stride[2] + (k0 + n) * from->stride[3],
                           from->stride[3], keys - n);
#endif
                if (n + 16 > seen)
                    v = select((float16)-INFINITY, v,
                               (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15) <
                                   (int16)(int)(seen - n));
                vstore16(v, 0, s + n);
                most = fmax(most, v);
            }
            const float before = row_max[m], after = fmax(before, highest(most));
            const float shift = after == -INFINITY ? 0.0f : after; /* all keys masked so far? */
            float16 part = 0;
            for (int n = 0; n < keys; n += 16) {
                const float16 v = exp(vload16(0, s + n) - shift);
                vstore16(v, 0, s + n);
                part += v;
            }
            alpha[m] = exp(before - shift);
            row_max[m] = after;
            sum[m] = sum[m] * alpha[m] + total(part);
        }

#if DIRECT
        direct_values(out, scores, alpha, k0 == 0, XPU_CPTR(STORED(T), HEAD(p.value, b, kh, k0)),
                      p.value.stride[2], keys);
#else
        host_pack_panel(panel, HOST_KEYS, XPU_CPTR(STORED(T), HEAD(p.value, b, kh, k0)), p.value.stride[2],
                        p.value.stride[3], false, keys, p.value_depth);
        for (int m = 0; m < rows; m += ROWS)
            for (int n = 0; n < VALUE_DEPTH; n += 16) {
                float16 o[ROWS];
                __local const float *a[ROWS];
                _Pragma("unroll") for (int i = 0; i < ROWS; i++) {
                    const int row = min(m + i, rows - 1);
                    a[i] = scores + row * HOST_KEYS;
                    o[i] = k0 ? vload16(0, out + row * VALUE_DEPTH + n) * alpha[row] : 0;
                }
                for (int k = 0; k < keys; k++) {
                    const float16 right = vload16(0, PANEL(n, k, HOST_KEYS));
                    _Pragma("unroll") for (int i = 0; i < ROWS; i++)
                        o[i] = fma((float16)a[i][k], right, o[i]);
                }
                _Pragma("unroll") for (int i = 0; i < ROWS; i++)
                    if (m + i < rows) vstore16(o[i], 0, out + (m + i) * VALUE_DEPTH + n);
            }
#endif
    }

    for (int m = 0; m < rows; m++) {
        const long row = r0 + m, h = set * p.packed + row / p.queries, query = row % p.queries;
        __global STORED(T) *to = XPU_PTR(STORED(T), HEAD(p.out, b, h, query));
        const float scale = sum[m] == 0 ? 0.0f : 1 / sum[m];
        int i = 0;
        if (p.out.stride[3] == 1 && k_end > 0)
            for (; i + 16 <= p.value_depth; i += 16)
                STORE16(vload16(0, out + m * VALUE_DEPTH + i) * scale, to + i);
        for (; i < p.value_depth; i++)
            STORE(T, to, i * p.out.stride[3],
                  (COMPUTED(T))(k_end > 0 ? out[m * VALUE_DEPTH + i] * scale : 0.0f));
        // clang-format off
        if (p.logsumexp.data)
            XPU_PTR(float, p.logsumexp.data)
                [b * p.logsumexp.stride[0] + h * p.logsumexp.stride[1] + query * p.logsumexp.stride[2]] =
                    row_max[m] + log(sum[m]);
        // clang-format on
    }
}

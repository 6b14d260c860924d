/* Shared by fft.cl and fft_length.cl: roots of unity, butterflies, and the loads and stores of a pass.
 *
 * Options: IN, OUT, dtypes of real elements (complex ones are pairs of them); R, real type computed in; PAIR,
 * the dtype of two R; IN_PAIR, OUT_PAIR, the dtypes of two IN and two OUT if they exist; FLAGS, the flags of
 * fft.h. */
#include "fft.h"

typedef COMPUTED(PAIR) value_t;
#include "complex.h"

#ifdef WIDE
#define K(x) x
#define PI_ROUNDED 3.14159265358979311600
#define PI_REST 1.22464679914735318e-16
#else
#define K(x) x##f
#define PI_ROUNDED 3.14159274101257324219f
#define PI_REST -8.742278000e-8f
#endif

#define AT(i) ((i) + (i) / 16) /* padded: power-of-two strides would hit the same bank */

static inline value_t swapped(value_t a) { return (value_t)(a.y, a.x); }
static inline value_t turned(value_t a) { return (value_t)(a.y, -a.x); } /* -i a */

/* exp(-2πi k / n), k < n <= 2³⁰, reduced to at most an eighth of a circle, where short Taylor series suffice.
 */
static inline value_t turn(uint k, uint n) {
    uint rest = 2 * k;
    const bool half_turn = rest >= n;
    rest = 2 * (rest - (half_turn ? n : 0));
    const bool quarter = rest >= n;
    rest = 2 * (rest - (quarter ? n : 0));
    const bool eighth = rest >= n;
    rest -= eighth ? n : 0;
    const R x = (R)(eighth ? n - rest : rest) / (R)n * K(0.25), z = x * x;
    /* Taylor series of sin πx and cos πx, corrected for the rounding error of π */
#ifdef WIDE
    R s = (K(7.95205400147551278e-7) * z + K(-2.19153534478302158e-5)) * z + K(4.66302805767612564e-4);
    s = (s * z + K(-0.00737043094571435078)) * z + K(0.0821458866111282288);
    R c = (K(4.30306958703294701e-6) * z + K(-1.04638104924845707e-4)) * z + K(0.00192957430940392305);
    c = c * z + K(-0.02580689139001406001);
#else
    R s = K(0.0821458866111282288), c = K(-0.02580689139001406001);
#endif
    s = ((s * z + K(-0.59926452932079207689)) * z + K(2.55016403987734544386)) * z +
        K(-5.16771278004997002925);
    c = (c * z + K(0.23533063035889320454)) * z + K(-1.33526276885458949588);
    c = (c * z + K(4.05871212641676821819)) * z + K(-4.93480220054467930942);
    s = x * PI_ROUNDED + x * (s * z + PI_REST);
    c = c * z + 1;
    value_t w = eighth ? (value_t)(s, c) : (value_t)(c, s);
    if (quarter) w = (value_t)(-w.y, w.x);
    return half_turn ? (value_t)(-w.x, w.y) : (value_t)(w.x, -w.y);
}

/* The chirp c[k] of Bluestein's algorithm, n <= 2²⁹. */
static inline value_t chirp(uint k, uint n) {
    return turn(k < 65536 ? k * k % (2 * n) : (uint)((ulong)k * k % (2 * n)), 2 * n);
}

/* --- butterflies --- */

static inline void dft_2(value_t *v) {
    const value_t a = v[0];
    v[0] = a + v[1];
    v[1] = a - v[1];
}

static inline void dft_4(value_t *v) {
    const value_t a = v[0] + v[2], b = v[0] - v[2], c = v[1] + v[3], d = turned(v[1] - v[3]);
    v[0] = a + c;
    v[1] = b + d;
    v[2] = a - c;
    v[3] = b - d;
}

static inline void dft_8(value_t *v) {
    value_t even[4] = {v[0], v[2], v[4], v[6]}, odd[4] = {v[1], v[3], v[5], v[7]};
    dft_4(even);
    dft_4(odd);
    const R root = K(0.70710678118654752440);
    odd[1] = root * (odd[1] + turned(odd[1]));
    odd[2] = turned(odd[2]);
    odd[3] = root * (turned(odd[3]) - odd[3]);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        v[k] = even[k] + odd[k];
        v[k + 4] = even[k] - odd[k];
    }
}

/* Odd radices n: cosines and sines of 2π k / n, k = 1 … n / 2. */
__constant R cosines_3[] = {K(-0.5)}, sines_3[] = {K(0.86602540378443864676)};
__constant R cosines_5[] = {K(0.30901699437494742410), K(-0.80901699437494742410)},
             sines_5[] = {K(0.95105651629515357212), K(0.58778525229247312917)};
__constant R cosines_7[] = {K(0.62348980185873353053), K(-0.22252093395631440429),
                            K(-0.90096886790241912624)},
             sines_7[] = {K(0.78183148246802980871), K(0.97492791218182360702), K(0.43388373911755812048)};
__constant R cosines_11[] = {K(0.84125353283118116886), K(0.41541501300188642553), K(-0.14231483827328514044),
                             K(-0.65486073394528506406), K(-0.95949297361449738989)},
             sines_11[] = {K(0.54064081745559758211), K(0.90963199535451837141), K(0.98982144188093273238),
                           K(0.75574957435425828377), K(0.28173255684142969771)};
__constant R cosines_13[] = {K(0.88545602565320989590),  K(0.56806474673115580251),
                             K(0.12053668025532305335),  K(-0.35460488704253562597),
                             K(-0.74851074817110109863), K(-0.97094181742605202716)},
             sines_13[] = {K(0.46472317204376854566), K(0.82298386589365639458), K(0.99270887409805399280),
                           K(0.93501624268541482344), K(0.66312265824079520238), K(0.23931566428755776715)};

#define ODD_DFT(N)                                                                                           \
    static inline void dft_##N(value_t *v) {                                                                 \
        const value_t first = v[0];                                                                          \
        value_t sum[N / 2], difference[N / 2];                                                               \
        _Pragma("unroll") for (int k = 0; k < N / 2; k++) {                                                  \
            sum[k] = v[k + 1] + v[N - 1 - k];                                                                \
            difference[k] = turned(v[k + 1] - v[N - 1 - k]);                                                 \
            v[0] += sum[k];                                                                                  \
        }                                                                                                    \
        _Pragma("unroll") for (int j = 1; j <= N / 2; j++) {                                                 \
            value_t a = first, b = 0;                                                                        \
            _Pragma("unroll") for (int k = 1; k <= N / 2; k++) {                                             \
                const int at = j * k % N;                                                                    \
                const bool beyond = at > N / 2;                                                              \
                const int place = (beyond ? N - at : at) - 1;                                                \
                a += cosines_##N[place] * sum[k - 1];                                                        \
                b += (beyond ? -sines_##N[place] : sines_##N[place]) * difference[k - 1];                    \
            }                                                                                                \
            v[j] = a + b;                                                                                    \
            v[N - j] = a - b;                                                                                \
        }                                                                                                    \
    }
ODD_DFT(3)
ODD_DFT(5)
ODD_DFT(7)
ODD_DFT(11)
ODD_DFT(13)

/* N = A * B: transforms of length A with stride B, then of length B. */
#define COMPOSED_DFT(N, A, B)                                                                                \
    static inline void dft_##N(value_t *v) {                                                                 \
        value_t parts[B][A];                                                                                 \
        _Pragma("unroll") for (int j = 0; j < B; j++) {                                                      \
            _Pragma("unroll") for (int i = 0; i < A; i++) parts[j][i] = v[i * B + j];                        \
            dft_##A(parts[j]);                                                                               \
            if (j > 0)                                                                                       \
                _Pragma("unroll") for (int i = 1; i < A; i++) parts[j][i] =                                  \
                    times(parts[j][i], turn(i * j, N));                                                      \
        }                                                                                                    \
        _Pragma("unroll") for (int i = 0; i < A; i++) {                                                      \
            value_t line[B];                                                                                 \
            _Pragma("unroll") for (int j = 0; j < B; j++) line[j] = parts[j][i];                             \
            dft_##B(line);                                                                                   \
            _Pragma("unroll") for (int j = 0; j < B; j++) v[i + A * j] = line[j];                            \
        }                                                                                                    \
    }
COMPOSED_DFT(6, 2, 3)
COMPOSED_DFT(9, 3, 3)
COMPOSED_DFT(10, 2, 5)
COMPOSED_DFT(12, 4, 3)
COMPOSED_DFT(14, 2, 7)
COMPOSED_DFT(15, 3, 5)
COMPOSED_DFT(16, 4, 4)

/* The largest power of two that is not greater than k. */
#define HIGH_BIT(k) ((k) < 2 ? 1 : (k) < 4 ? 2 : (k) < 8 ? 4 : 8)

/* Multiplies element k of N by the twiddle factor exp(-2πi k * phase / whole). */
#define TRANSPOSE_SIZE(N, v, phase, whole)                                                                   \
    {                                                                                                        \
        value_t w[N];                                                                                        \
        _Pragma("unroll") for (uint k = 1; k < N; k++) {                                                     \
            w[k] = k == HIGH_BIT(k) ? turn((phase) * k, whole) : times(w[HIGH_BIT(k)], w[k - HIGH_BIT(k)]);  \
            (v)[k] = times((v)[k], w[k]);                                                                    \
        }                                                                                                    \
    }

/* --- loads and stores of a pass --- */

#ifdef IN_PAIR
#define READ_PAIR(i) LOAD(IN_PAIR, XPU_CPTR(STORED(IN_PAIR), p->in), i)
#else
#define READ_PAIR(i) ((value_t)(LOAD(IN, in, 2 * (i)), LOAD(IN, in, 2 * (i) + 1)))
#endif

/* A column of a pass: its first offsets in the input and the output, and its index in its row. */
typedef struct column {
    long from, to;
    uint place;
} column;

static inline column find_column(const fft_params *p, ulong number_, uint apart) {
    ulong row = number_, place = 0;
    if (FLAGS & FFT_ROWS_FIRST) {
        place = number_ / (ulong)p->rows;
        row = number_ - place * p->rows;
    } else if (apart > 1) {
        row = number_ / apart;
        place = number_ - row * apart;
    }
    row += p->first_row;
    return (column){row_offset(&p->walk, row, 0), row_offset(&p->walk, row, 1), (uint)place};
}

/* Input element q of the row at offset `row`. */
static inline value_t source(const fft_params *p, long row, uint q) {
    __global const STORED(IN) *in = XPU_CPTR(STORED(IN), p->in);
    if (FLAGS & FFT_READ_CHIRP) {
        const uint k = min(q, p->n - q);
        return k < p->signal ? conjugate(chirp(k, p->signal)) : (value_t)0;
    }
    if (FLAGS & FFT_READ_TIMES_CHIRP && q >= p->signal) return 0;
    value_t v;
    if (FLAGS & FFT_READ_REAL) {
        v = (value_t)(LOAD(IN, in, row + q * p->walk.along[0]), 0);
    } else if (FLAGS & FFT_READ_HALF) {
        const uint k = min(q, p->signal - q);
        v = READ_PAIR(row + k * p->walk.along[0]);
        if (k != q) v = conjugate(v);
        if (k == 0 || 2 * k == p->signal) v.y = 0;
    } else {
        v = READ_PAIR(row + q * p->walk.along[0]);
    }
    if (p->spectrum) v = times(v, LOAD(PAIR, XPU_CPTR(STORED(PAIR), p->spectrum), q));
    if (FLAGS & FFT_READ_SWAPPED) v = swapped(v);
    if (FLAGS & FFT_READ_TIMES_CHIRP) v = times(v, chirp(q, p->signal));
    return v;
}

static inline void put(const fft_params *p, long row, uint q, value_t v) {
    if (FLAGS & FFT_WRITE_INNER_SWAPPED) v = swapped(v);
#ifdef WIDE
    v *= as_double(p->scale[0]);
#else
    v *= as_float((uint)p->scale[0]);
#endif
    if (FLAGS & FFT_WRITE_TIMES_CHIRP) v = times(v, chirp(q, p->signal));
    if (FLAGS & FFT_WRITE_SWAPPED) v = swapped(v);
    const long at = row + q * p->walk.along[1];
    __global STORED(OUT) *out = XPU_PTR(STORED(OUT), p->out);
    if (FLAGS & FFT_WRITE_REAL) {
        STORE(OUT, out, at, v.x);
        return;
    }
#ifdef OUT_PAIR
    STORE(OUT_PAIR, XPU_PTR(STORED(OUT_PAIR), p->out), at, v);
#else
    STORE(OUT, out, 2 * at, v.x);
    STORE(OUT, out, 2 * at + 1, v.y);
#endif
}

/* Discrete Fourier transforms of rows, forward: X[k] = Σ x[j] exp(-2πi jk / n). With real and imaginary parts swapped
 * before and after, it is the inverse one.
 *
 * n = r1 r2 …, a pass for each. A pass takes n / r columns j of r numbers x[j + k n / r], multiplies them by
 * exp(-2πi k (j mod done) / (done r)), where `done` is the product of the r before, transforms each column and puts it
 * to (j / done) done r + j mod done + k done: Stockham's algorithm, which needs no order of bits. In local memory a
 * column goes the same way by radices from 2 to 13, whose butterflies are in registers.
 * What passes can do on the way in and out makes the other transforms: of real numbers, to real numbers, and
 * Bluestein's of any length: X[k] = c[k] Σ (x[j] c[j]) conj(c[k - j]), c[k] = exp(-πi k² / n), a convolution.
 *
 * Options: IN, OUT: the dtypes of real numbers and of the parts of complex ones; R, what they are computed in, and PAIR,
 * the dtype of two of them; IN_PAIR, OUT_PAIR, those of two of IN and OUT, where there is one; HELD, numbers in local
 * memory, FFT_SHARE for each of GROUP work-items; ROW_DIMS. */
#include "fft.h"

typedef COMPUTED(PAIR) number;
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

#define AT(i) ((i) + (i) / 16) /* so that powers of 2 apart are in different banks */

static inline number swapped(number a) { return (number)(a.y, a.x); }
static inline number turned(number a) { return (number)(a.y, -a.x); } /* -i a */

/* exp(-2πi k / n), k < n <= 2³⁰: of an eighth of a turn at the most, by their series, which are short then. */
static inline number turn(uint k, uint n) {
    uint rest = 2 * k;
    const bool half_turn = rest >= n;
    rest = 2 * (rest - (half_turn ? n : 0));
    const bool quarter = rest >= n;
    rest = 2 * (rest - (quarter ? n : 0));
    const bool eighth = rest >= n;
    rest -= eighth ? n : 0;
    const R x = (R)(eighth ? n - rest : rest) / (R)n * K(0.25), z = x * x;
    /* sin πx and cos πx: (πx)^k / k!, π's own rounding put right */
#ifdef WIDE
    R s = (K(7.95205400147551278e-7) * z + K(-2.19153534478302158e-5)) * z + K(4.66302805767612564e-4);
    s = (s * z + K(-0.00737043094571435078)) * z + K(0.0821458866111282288);
    R c = (K(4.30306958703294701e-6) * z + K(-1.04638104924845707e-4)) * z + K(0.00192957430940392305);
    c = c * z + K(-0.02580689139001406001);
#else
    R s = K(0.0821458866111282288), c = K(-0.02580689139001406001);
#endif
    s = ((s * z + K(-0.59926452932079207689)) * z + K(2.55016403987734544386)) * z + K(-5.16771278004997002925);
    c = (c * z + K(0.23533063035889320454)) * z + K(-1.33526276885458949588);
    c = (c * z + K(4.05871212641676821819)) * z + K(-4.93480220054467930942);
    s = x * PI_ROUNDED + x * (s * z + PI_REST);
    c = c * z + 1;
    number w = eighth ? (number)(s, c) : (number)(c, s);
    if (quarter) w = (number)(-w.y, w.x);
    return half_turn ? (number)(-w.x, w.y) : (number)(w.x, -w.y);
}

/* c[k] of n <= 2²⁹ */
static inline number chirp(uint k, uint n) {
    return turn(k < 65536 ? k * k % (2 * n) : (uint)((ulong)k * k % (2 * n)), 2 * n);
}

/* --- butterflies --- */

static inline void dft_2(number *v) {
    const number a = v[0];
    v[0] = a + v[1];
    v[1] = a - v[1];
}

static inline void dft_4(number *v) {
    const number a = v[0] + v[2], b = v[0] - v[2], c = v[1] + v[3], d = turned(v[1] - v[3]);
    v[0] = a + c;
    v[1] = b + d;
    v[2] = a - c;
    v[3] = b - d;
}

static inline void dft_8(number *v) {
    number even[4] = {v[0], v[2], v[4], v[6]}, odd[4] = {v[1], v[3], v[5], v[7]};
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

/* Odd lengths n: cosines and sines of 2π k / n, k = 1 … n / 2. */
__constant R cosines_3[] = {K(-0.5)}, sines_3[] = {K(0.86602540378443864676)};
__constant R cosines_5[] = {K(0.30901699437494742410), K(-0.80901699437494742410)},
             sines_5[] = {K(0.95105651629515357212), K(0.58778525229247312917)};
__constant R cosines_7[] = {K(0.62348980185873353053), K(-0.22252093395631440429), K(-0.90096886790241912624)},
             sines_7[] = {K(0.78183148246802980871), K(0.97492791218182360702), K(0.43388373911755812048)};
__constant R cosines_11[] = {K(0.84125353283118116886), K(0.41541501300188642553), K(-0.14231483827328514044),
                             K(-0.65486073394528506406), K(-0.95949297361449738989)},
             sines_11[] = {K(0.54064081745559758211), K(0.90963199535451837141), K(0.98982144188093273238),
                           K(0.75574957435425828377), K(0.28173255684142969771)};
__constant R cosines_13[] = {K(0.88545602565320989590), K(0.56806474673115580251), K(0.12053668025532305335),
                             K(-0.35460488704253562597), K(-0.74851074817110109863), K(-0.97094181742605202716)},
             sines_13[] = {K(0.46472317204376854566), K(0.82298386589365639458), K(0.99270887409805399280),
                           K(0.93501624268541482344), K(0.66312265824079520238), K(0.23931566428755776715)};

#define ODD_DFT(N)                                                                                           \
    static inline void dft_##N(number *v) {                                                                  \
        const number first = v[0];                                                                           \
        number sum[N / 2], difference[N / 2];                                                                \
        _Pragma("unroll") for (int k = 0; k < N / 2; k++) {                                                  \
            sum[k] = v[k + 1] + v[N - 1 - k];                                                                \
            difference[k] = turned(v[k + 1] - v[N - 1 - k]);                                                 \
            v[0] += sum[k];                                                                                  \
        }                                                                                                    \
        _Pragma("unroll") for (int j = 1; j <= N / 2; j++) {                                                 \
            number a = first, b = 0;                                                                         \
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

/* All columns go through a butterfly of N, each work-item with at least FFT_SHARE numbers in registers; `step` is the
 * product of the radices before. Number k of butterfly b lies at b + k count, in the order of columns. */
#define HIGH_BIT(k) ((k) < 2 ? 1 : (k) < 4 ? 2 : (k) < 8 ? 4 : 8)
#define TAKES(N) ((FFT_SHARE + N - 1) / N)
#define STAGE(N)                                                                                             \
    case N: {                                                                                                \
        number v[TAKES(N)][N];                                                                               \
        const size_t count = total / N;                                                                      \
        _Pragma("unroll") for (size_t i = 0; i < TAKES(N); i++) {                                            \
            const size_t b = lane + i * GROUP;                                                               \
            if (b >= count) continue;                                                                        \
            _Pragma("unroll") for (size_t k = 0; k < N; k++) v[i][k] = held[AT(b + k * count)];              \
            if (step > 1) {                                                                                  \
                number w[N];                                                                                 \
                const uint phase = (uint)(b >> p.column_bits) % step;                                        \
                _Pragma("unroll") for (size_t k = 1; k < N; k++)                                             \
                    w[k] = k == HIGH_BIT(k) ? turn(phase * k, step * N)                                      \
                                            : times(w[HIGH_BIT(k)], w[k - HIGH_BIT(k)]);                     \
                _Pragma("unroll") for (size_t k = 1; k < N; k++) v[i][k] = times(v[i][k], w[k]);             \
            }                                                                                                \
            dft_##N(v[i]);                                                                                   \
        }                                                                                                    \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                        \
        _Pragma("unroll") for (size_t i = 0; i < TAKES(N); i++) {                                            \
            const size_t b = lane + i * GROUP, column = b & (columns - 1);                                   \
            if (b >= count) continue;                                                                        \
            const uint j = (uint)(b >> p.column_bits), rest = j % step;                                      \
            const size_t first = ((size_t)(j - rest) * N + rest) << p.column_bits;                           \
            _Pragma("unroll") for (size_t k = 0; k < N; k++)                                                 \
                held[AT(first + column + ((k * step) << p.column_bits))] = v[i][k];                          \
        }                                                                                                    \
        break;                                                                                               \
    }

/* --- what is read and written --- */

#ifdef IN_PAIR
#define READ_PAIR(i) LOAD(IN_PAIR, XPU_CPTR(STORED(IN_PAIR), p.in), i)
#else
#define READ_PAIR(i) ((number)(LOAD(IN, in, 2 * (i)), LOAD(IN, in, 2 * (i) + 1)))
#endif

/* Number q of a row that begins at `row`. */
static inline number source(fft_params p, long row, uint q) {
    __global const STORED(IN) *in = XPU_CPTR(STORED(IN), p.in);
    if (p.flags & FFT_READ_CHIRP) {
        const uint k = min(q, p.n - q);
        return k < p.signal ? conjugate(chirp(k, p.signal)) : (number)0;
    }
    if (p.flags & FFT_READ_TIMES && q >= p.signal) return 0;
    number v;
    if (p.flags & FFT_READ_REAL) {
        v = (number)(LOAD(IN, in, row + q * p.walk.along[0]), 0);
    } else if (p.flags & FFT_READ_HALF) {
        const uint k = min(q, p.signal - q);
        v = READ_PAIR(row + k * p.walk.along[0]);
        if (k != q) v = conjugate(v);
        if (k == 0 || 2 * k == p.signal) v.y = 0;
    } else {
        v = READ_PAIR(row + q * p.walk.along[0]);
    }
    if (p.spectrum) v = times(v, LOAD(PAIR, XPU_CPTR(STORED(PAIR), p.spectrum), q));
    if (p.flags & FFT_READ_SWAPPED) v = swapped(v);
    if (p.flags & FFT_READ_TIMES) v = times(v, chirp(q, p.signal));
    return v;
}

static inline void put(fft_params p, long row, uint q, number v) {
    if (p.flags & FFT_WRITE_TURNED) v = swapped(v);
#ifdef WIDE
    v *= as_double(p.scale[0]);
#else
    v *= as_float((uint)p.scale[0]);
#endif
    if (p.flags & FFT_WRITE_TIMES) v = times(v, chirp(q, p.signal));
    if (p.flags & FFT_WRITE_SWAPPED) v = swapped(v);
    const long at = row + q * p.walk.along[1];
    __global STORED(OUT) *out = XPU_PTR(STORED(OUT), p.out);
    if (p.flags & FFT_WRITE_REAL) {
        STORE(OUT, out, at, v.x);
        return;
    }
#ifdef OUT_PAIR
    STORE(OUT_PAIR, XPU_PTR(STORED(OUT_PAIR), p.out), at, v);
#else
    STORE(OUT, out, 2 * at, v.x);
    STORE(OUT, out, 2 * at + 1, v.y);
#endif
}

/* Work-item e's column c and number k in it, columns first or numbers first. */
#define COLUMN_AND_NUMBER(by_column)                                                                         \
    const size_t k = by_column ? e >> p.column_bits : (uint)e % length;                                      \
    const size_t c = by_column ? e & (columns - 1) : (uint)e / length;

/* Intel's CPU compiler takes five times as long for vectors of it, which only tests would gain by. */
XPU_BY_ITSELF __attribute__((reqd_work_group_size(GROUP, 1, 1))) __kernel void fft_pass(fft_params p) {
    __local number held[AT(HELD)];
    __local long from[FFT_COLUMNS], to[FFT_COLUMNS]; /* where the columns' rows begin */
    __local uint place[FFT_COLUMNS];                 /* the column's number in its row */
    const size_t lane = get_local_id(0);
    const uint length = p.length, columns = 1u << p.column_bits, total = length << p.column_bits;
    const uint apart = p.n / length;
    const long before = (long)XPU_GROUP(0) << p.column_bits;
    const size_t present = min((long)columns, p.columns - before);
    for (size_t c = lane; c < present; c += GROUP) {
        const ulong number_ = before + c;
        ulong row, column;
        if (p.flags & FFT_ROWS_FIRST) {
            column = number_ / (ulong)p.rows;
            row = number_ - column * p.rows;
        } else {
            row = number_ / apart;
            column = number_ - row * apart;
        }
        from[c] = row_offset(&p.walk, row + p.first_row, 0);
        to[c] = row_offset(&p.walk, row + p.first_row, 1);
        place[c] = (uint)column;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (size_t e = lane; e < total; e += GROUP) {
        COLUMN_AND_NUMBER(p.flags & FFT_READ_BY_COLUMN)
        if (c >= present) continue;
        number v = source(p, from[c], place[c] + k * apart);
        if (p.done > 1) v = times(v, turn(place[c] % p.done * k, p.done * length));
        held[AT(k * columns + c)] = v;
    }
    uint step = 1;
    for (ulong left = p.radices; left; left >>= 4) {
        barrier(CLK_LOCAL_MEM_FENCE);
        const uint radix = left & 15;
        switch (radix) {
            STAGE(2)
            STAGE(3)
            STAGE(4)
            STAGE(5)
            STAGE(7)
            STAGE(8)
            STAGE(11)
            STAGE(13)
        }
        step *= radix;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (size_t e = lane; e < total; e += GROUP) {
        COLUMN_AND_NUMBER(p.flags & FFT_WRITE_BY_COLUMN)
        if (c >= present) continue;
        const uint rest = place[c] % p.done, q = (place[c] - rest) * length + rest + k * p.done;
        if (q < p.stored) put(p, to[c], q, held[AT(k * columns + c)]);
    }
}

/* Discrete Fourier transforms of rows, X[k] = Σ_j x[j] exp(-2πi jk / n). Swapping real and imaginary parts of
 * the input and the output gives the inverse transform.
 *
 * Algorithm: Stockham's autosort FFT, n = r1 r2 …, one pass (launch) per factor. With `done` the product of
 * the factors before, a pass takes n / r columns j of r values x[j + k n / r], multiplies them by the twiddle
 * factors exp(-2πi k (j mod done) / (done r)), transforms every column and stores it at (j / done) done r + j
 * mod done + k done. Within a pass, columns stay in local memory and are transformed the same way with
 * radices 2 to 13, whose butterflies are in registers. Input and output flags of a pass (fft.h) give the
 * remaining transforms: real to complex, complex to real, and any length by Bluestein's algorithm, X[k] =
 * c[k] Σ_j (x[j] c[j]) conj(c[k - j]), c[k] = exp(-πi k² / n).
 *
 * Options besides those of fft_parts.h: HELD, values in local memory, FFT_VALUES_PER_ITEM for each of GROUP
 * work-items; ROW_DIMS. */
#define FLAGS p->flags
#include "fft_parts.h"

/* One radix-N stage over all columns; a work-item has at least FFT_VALUES_PER_ITEM values in registers.
 * `step` is the product of the radices before. Element k of butterfly b is at b + k * count, columns
 * innermost. */
#define TAKES(N) ((FFT_VALUES_PER_ITEM + N - 1) / N)
#define STAGE(N)                                                                                             \
    case N: {                                                                                                \
        value_t v[TAKES(N)][N];                                                                              \
        const size_t count = total / N;                                                                      \
        _Pragma("unroll") for (size_t i = 0; i < TAKES(N); i++) {                                            \
            const size_t b = lane + i * GROUP;                                                               \
            if (b >= count) continue;                                                                        \
            _Pragma("unroll") for (size_t k = 0; k < N; k++) v[i][k] = held[AT(b + k * count)];              \
            if (step > 1) TRANSPOSE_SIZE(N, v[i], (uint)(b >> p.column_bits) % step, step * N)               \
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

/* Column c and element k of index e; columns or elements vary fastest. */
#define COLUMN_AND_NUMBER(by_column)                                                                         \
    const size_t k = by_column ? e >> p.column_bits : (uint)e % length;                                      \
    const size_t c = by_column ? e & (columns - 1) : (uint)e / length;

/* Not vectorized on CPUs: Intel's compiler would take five times as long, for a gain that only tests would
 * see. */
XPU_NO_VECTORIZE __attribute__((reqd_work_group_size(GROUP, 1, 1))) __kernel void fft_pass(fft_params p) {
    __local value_t held[AT(HELD)];
    __local long from[FFT_COLUMNS], to[FFT_COLUMNS]; /* offsets of the columns' rows */
    __local uint place[FFT_COLUMNS];                 /* the column's index in its row */
    const size_t lane = get_local_id(0);
    const uint length = p.length, columns = 1u << p.column_bits, total = length << p.column_bits;
    const uint apart = p.n / length;
    const long before = (long)XPU_GROUP(0) << p.column_bits;
    const size_t present = min((long)columns, p.columns - before);
    for (size_t c = lane; c < present; c += GROUP) {
        const column found = find_column(&p, before + c, apart);
        from[c] = found.from, to[c] = found.to, place[c] = found.place;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (size_t e = lane; e < total; e += GROUP) {
        COLUMN_AND_NUMBER(p.flags & FFT_READ_BY_COLUMN)
        if (c >= present) continue;
        value_t v = source(&p, from[c], place[c] + k * apart);
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
        if (q < p.stored) put(&p, to[c], q, held[AT(k * columns + c)]);
    }
}

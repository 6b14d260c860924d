/* Register transpose of a TRANSPOSE_SIZE x TRANSPOSE_SIZE tile (8 or 16), a row per vector.
 *
 * Options: TRANSPOSE_SIZE. Algorithm: log2(TRANSPOSE_SIZE) steps; step n swaps the off-diagonal n x n blocks
 * of every 2n x 2n block by interleaving two rows. */
#if TRANSPOSE_SIZE == 8
#define FIRST_1(a, b) a.s0, b.s0, a.s2, b.s2, a.s4, b.s4, a.s6, b.s6
#define SECOND_1(a, b) a.s1, b.s1, a.s3, b.s3, a.s5, b.s5, a.s7, b.s7
#define FIRST_2(a, b) a.s01, b.s01, a.s45, b.s45
#define SECOND_2(a, b) a.s23, b.s23, a.s67, b.s67
#define FIRST_4(a, b) a.s0123, b.s0123
#define SECOND_4(a, b) a.s4567, b.s4567
#else
#define FIRST_1(a, b)                                                                                        \
    a.s0, b.s0, a.s2, b.s2, a.s4, b.s4, a.s6, b.s6, a.s8, b.s8, a.sa, b.sa, a.sc, b.sc, a.se, b.se
#define SECOND_1(a, b)                                                                                       \
    a.s1, b.s1, a.s3, b.s3, a.s5, b.s5, a.s7, b.s7, a.s9, b.s9, a.sb, b.sb, a.sd, b.sd, a.sf, b.sf
#define FIRST_2(a, b) a.s01, b.s01, a.s45, b.s45, a.s89, b.s89, a.scd, b.scd
#define SECOND_2(a, b) a.s23, b.s23, a.s67, b.s67, a.sab, b.sab, a.sef, b.sef
#define FIRST_4(a, b) a.s0123, b.s0123, a.s89ab, b.s89ab
#define SECOND_4(a, b) a.s4567, b.s4567, a.scdef, b.scdef
#define FIRST_8(a, b) a.s01234567, b.s01234567
#define SECOND_8(a, b) a.s89abcdef, b.s89abcdef
#endif

/* Step n: swaps the off-diagonal n x n blocks of every 2n x 2n block. `row`: TRANSPOSE_SIZE vectors of type
 * V. */
#define TRANSPOSE_STEP(row, V, n)                                                                            \
    _Pragma("unroll") for (int i = 0; i < TRANSPOSE_SIZE; i++) if (!(i & (n))) {                             \
        const V a = (V)(FIRST_##n(row[i], row[i + n])), b = (V)(SECOND_##n(row[i], row[i + n]));             \
        row[i] = a;                                                                                          \
        row[i + n] = b;                                                                                      \
    }
#if TRANSPOSE_SIZE == 16
#define TRANSPOSE_REGISTERS(row, V)                                                                          \
    TRANSPOSE_STEP(row, V, 8) TRANSPOSE_STEP(row, V, 4) TRANSPOSE_STEP(row, V, 2) TRANSPOSE_STEP(row, V, 1)
#else
#define TRANSPOSE_REGISTERS(row, V)                                                                          \
    TRANSPOSE_STEP(row, V, 4) TRANSPOSE_STEP(row, V, 2) TRANSPOSE_STEP(row, V, 1)
#endif

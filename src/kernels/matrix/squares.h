/* Intel's matrix units of 8 lanes, which have no reads of blocks, and squares of local memory that they read:
 * what products and convolutions (matrix_squares.h) and attention share.
 *
 * A team is a subgroup. A multiplication takes 8 rows of the left operand by 8 dwords along k, a work-item
 * having a dword of each row, and 8 dwords along k of 8 columns, a work-item having a column; its sums are 8
 * rows in a vector of each work-item, whose column they are. An operand in local memory is a square of 256
 * bytes, which a block read brings. Work-items read an operand by half lines of 64 bytes: a row of a left
 * square, or what a block write makes a right square of. (cl_intel_subgroup_matrix_multiply_accumulate,
 * cl_intel_subgroup_local_block_io)
 *
 * Wants MATRIX_T (bf16, f16, i8). With MATRIX_EMULATED matrix_units.cl comes before it. */
#ifdef MATRIX_EMULATED
#define WRITTEN_OUT _Pragma("nounroll")
#else
#define WRITTEN_OUT __attribute__((opencl_unroll_hint))
#endif

#define MATRIX_TEAM 8
#define MATRIX_KERNEL __attribute__((intel_reqd_sub_group_size(MATRIX_TEAM))) __kernel
#define ELEMENT ((int)sizeof(STORED(MATRIX_T)))

#define MULTIPLY_bf16 intel_sub_group_bf16_bf16_matrix_mad_k16
#define MULTIPLY_f16 intel_sub_group_f16_f16_matrix_mad_k16
#define MULTIPLY_i8 MULTIPLY_BYTES /* gemm.cl */
#define MULTIPLY XPU_CAT(MULTIPLY_, MATRIX_T)
#define SUMS_bf16 float8
#define SUMS_f16 float8
#define SUMS_i8 int8
#define sum_block XPU_CAT(SUMS_, MATRIX_T)

#define LINE 64    /* bytes of a line in a step */
#define SQUARE 256 /* bytes */
#define HALF (LINE / 2)
typedef uint8 piece __attribute__((aligned(16)));

static inline int8 read_square(const __local uchar *from) {
    return as_int8(intel_sub_group_block_read8((const __local uint *)from));
}
static inline void write_square(__local uchar *to, uint8 columns) {
    intel_sub_group_block_write8((__local uint *)to, columns);
}

/* What is read instead of what isn't there. */
__constant uint zeros[8] __attribute__((aligned(32))) = {0};
#define NOTHING ((xpu_addr)zeros)

/* Nothing that is read so may be looked at later than it stands, or it would be read after the
 * multiplications (volatile), and nothing may have an index that varies, or it would lie in memory. */
static inline uint8 fetch_piece(xpu_addr from) { return *(volatile __global const piece *)from; }
static inline uint4 fetch_eight(xpu_addr from) { return *(volatile __global const uint4 *)from; }

/* Of eight numbers in each of two lines, dwords of what is to be neighbours along k. */
static inline uint8 paired(uint4 even, uint4 odd) {
    const uint4 low = (even & 0xffff) | odd << 16, high = even >> 16 | (odd & 0xffff0000);
    return (uint8)(low.s0, high.s0, low.s1, high.s1, low.s2, high.s2, low.s3, high.s3);
}

/* XMX with 8 lanes, which has no 2D block reads: local memory in blocked (DPAS) layout; shared by products,
 * convolutions (matrix_xmx8.h) and attention.
 *
 * A multiplication takes a left block of 8 rows x 8 dwords along k (a work-item has one dword of each row)
 * and a right block of 8 dwords along k x 8 columns (a work-item has one column); the accumulator is 8 rows
 * in a vector per work-item, whose column they are. A block of 256 bytes in local memory is loaded by one
 * block read. Work-items read global memory in half rows of 32 bytes of a 64-byte step: a row of a left
 * block, or what a block write turns into a right block. (cl_intel_subgroup_matrix_multiply_accumulate,
 * cl_intel_subgroup_local_block_io)
 * Options: MATRIX_T (bf16, f16, i8). With MATRIX_EMULATED, include xmx_emulation.cl first. */
#ifdef MATRIX_EMULATED
#define UNROLL _Pragma("nounroll")
#else
#define UNROLL __attribute__((opencl_unroll_hint))
#endif

#define MATRIX_SUBGROUP_SIZE 8
#define MATRIX_KERNEL __attribute__((intel_reqd_sub_group_size(MATRIX_SUBGROUP_SIZE))) __kernel
#define ELEMENT ((int)sizeof(STORED(MATRIX_T)))

#define MULTIPLY_bf16 intel_sub_group_bf16_bf16_matrix_mad_k16
#define MULTIPLY_f16 intel_sub_group_f16_f16_matrix_mad_k16
#define MULTIPLY_i8 MULTIPLY_BYTES /* gemm.cl */
#define MULTIPLY XPU_CAT(MULTIPLY_, MATRIX_T)
#define SUMS_bf16 float8
#define SUMS_f16 float8
#define SUMS_i8 int8
#define sum_block XPU_CAT(SUMS_, MATRIX_T)

#define LINE 64              /* bytes of a row in a step */
#define DPAS_BLOCK_BYTES 256 /* bytes */
#define HALF (LINE / 2)
typedef uint8 vec __attribute__((aligned(16)));

static inline int8 read_dpas_block(const __local uchar *from) {
    return as_int8(intel_sub_group_block_read8((const __local uint *)from));
}
static inline void write_dpas_block(__local uchar *to, uint8 columns) {
    intel_sub_group_block_write8((__local uint *)to, columns);
}

/* Read in place of rows outside the matrix. */
__constant uint zeros[8] __attribute__((aligned(32))) = {0};
#define ZERO_VECTOR ((xpu_addr)zeros)

/* volatile: loads must stay before the multiplications that follow them. Indices must be constants, or the
 * array would be placed in memory instead of registers. */
static inline uint8 load_vector_in_order(xpu_addr from) { return *(volatile __global const vec *)from; }
static inline uint4 load_half_vector_in_order(xpu_addr from) {
    return *(volatile __global const uint4 *)from;
}

/* Interleaves eight elements of each of two rows into dwords of elements adjacent in k. */
static inline uint8 to_vnni(uint4 even, uint4 odd) {
    const uint4 low = (even & 0xffff) | odd << 16, high = even >> 16 | (odd & 0xffff0000);
    return (uint8)(low.s0, high.s0, low.s1, high.s1, low.s2, high.s2, low.s3, high.s3);
}

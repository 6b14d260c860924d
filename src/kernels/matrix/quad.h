/* Vectors of four contiguous elements of any dtype: as in memory, accessed with the widest loads, and as
 * elements of tiles or accumulators. The includer defines OPERAND_T and what gemm_tile.h defines for it. With
 * MATRIX_DOT an element is a dword of four int8. */
#ifdef MATRIX_DOT
#define ELEMENT_T u32
#define element_t uint
#else
#define ELEMENT_T OPERAND_T
#define element_t acc_t
#endif

#define PART_i8 uint
#define PART_u8 uint
#define PART_i16 uint2
#define PART_u16 uint2
#define PART_f16 uint2
#define PART_bf16 uint2
#define PART_i32 uint4
#define PART_u32 uint4
#define PART_f32 uint4
#define PART_i64 uint4
#define PART_u64 uint4
#define PART_f64 uint4
#define PART_c64 uint4
#define PART_c128 uint4
#define PART XPU_CAT(PART_, ELEMENT_T)
#define QUAD_PARTS (int)(4 * sizeof(RAW(ELEMENT_T)) / sizeof(PART))
#define RUN_PARTS (int)(sizeof(element_t) / 4)
typedef union quad {
    PART parts[QUAD_PARTS];
    RAW(ELEMENT_T) of[4];
} quad;
typedef union run {
    uint4 parts[RUN_PARTS];
    element_t of[4];
} run;

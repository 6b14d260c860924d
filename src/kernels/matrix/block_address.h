/* 2D block reads on XMX (16 lanes) through addresses that the kernel keeps in registers ("address payloads").
 *
 * Why: with the documented block reads (cl_intel_subgroup_2d_block_io) the compiler keeps an address for each
 * read position, which takes more registers than there are; it builds the address of a prefetch each time;
 * and on GPUs whose reads have no immediate offsets (PVC) it builds an address again if that changes while a
 * read is in flight. The functions below are older than that extension; Intel's own kernel library uses them.
 * xmx_emulation.cl defines their meaning. Include after matrix_xmx.h. */

#ifdef MATRIX_EMULATED
#define PAYLOAD(p) (&(p))
#define READ_BLOCK(name, to, p, x, y) XPU_CAT(matrix_payload_, name)(&(p), x, y, (to).numbers)
#define BLOCK_VALUES(type, n) type numbers[n]
#else
typedef __private int *payload;
#define PAYLOAD(p) (p)
#define READ_BLOCK(name, to, p, x, y)                                                                        \
    (to).numbers = XPU_CAT(__builtin_IB_subgroup_block_read_ap_, name)(p, x, y, 0)
#define BLOCK_VALUES(type, n) XPU_CAT(type##_, n) numbers
typedef ushort ushort_16 __attribute__((ext_vector_type(16)));
typedef ushort ushort_32 __attribute__((ext_vector_type(32)));
typedef ushort ushort_64 __attribute__((ext_vector_type(64)));
typedef uint uint_4 __attribute__((ext_vector_type(4)));
typedef uint uint_8 __attribute__((ext_vector_type(8)));
typedef uint uint_16 __attribute__((ext_vector_type(16)));
typedef uint uint_32 __attribute__((ext_vector_type(32)));
payload __builtin_IB_subgroup_createBlock2DAddressPayload(long base, int last_byte, int last_line,
                                                          int pitch_minus_one, int x, int y, int columns,
                                                          int rows, int blocks);
void __builtin_IB_subgroup_addBlock2DAddressPayloadBlockX(payload, int columns);
void __builtin_IB_subgroup_addBlock2DAddressPayloadBlockY(payload, int rows);
void __builtin_IB_subgroup_block_read_ap_prefetch_u16_m32k16v2(payload, int x, int y, int cache);
payload __builtin_IB_subgroup_copyBlock2DAddressPayload(payload);
#define DECLARED(vector, name)                                                                               \
    vector __builtin_IB_subgroup_block_read_ap_##name(payload, int x, int y, int cache);
DECLARED(ushort_16, u16_m8k16v2)
DECLARED(ushort_32, u16_m16k16v2)
DECLARED(ushort_64, u16_m32k16v2)
DECLARED(uint_4, u32_m8k8v1)
DECLARED(uint_16, u32_m16k16v1)
DECLARED(uint_8, transpose_u32_m16k8v1)
DECLARED(uint_4, transpose_u32_m16k4v1)
DECLARED(uint_16, transform_u8_m32k16v2)
DECLARED(uint_32, transform_u8_m32k16v4)
DECLARED(uint_32, transform_u16_m32k16v2)
#endif
#define BOTH_CACHES 4

/* Creates the address of a surface, for reads of this many columns, rows and adjacent blocks. */
#define OPEN(s, x, y, ...)                                                                                   \
    __builtin_IB_subgroup_createBlock2DAddressPayload((long)(s)->base, (s)->width - 1, (s)->height - 1,      \
                                                      (s)->pitch - 1, x, y, __VA_ARGS__)
static inline void go_on(__private payload *at, const int count, const bool k_major, const int far) {
    UNROLL for (int r = 0; r < count; r++) {
        if (k_major)
            __builtin_IB_subgroup_addBlock2DAddressPayloadBlockX(PAYLOAD(at[r]), far);
        else
            __builtin_IB_subgroup_addBlock2DAddressPayloadBlockY(PAYLOAD(at[r]), far);
    }
}

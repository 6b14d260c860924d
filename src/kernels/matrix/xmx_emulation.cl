/* Emulation of Intel's XMX and block-read builtins, to run their kernels on other devices. The subgroup size
 * follows from the type of the left operand: short8 and float4 mean 16 lanes, int8 means 8.
 * (cl_intel_subgroup_matrix_multiply_accumulate, …_tensor_float32, cl_intel_subgroup_local_block_io,
 * cl_intel_subgroup_2d_block_io) */
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define OVERLOAD __attribute__((overloadable))

#define READ(name, vector, scalar, n)                                                                        \
    vector name(const __local scalar *from) {                                                                \
        vector v;                                                                                            \
        for (int i = 0; i < n; i++) v[i] = from[i * get_sub_group_size() + get_sub_group_local_id()];        \
        return v;                                                                                            \
    }
#define WRITE(name, vector, scalar)                                                                          \
    void name(__local scalar *to, vector v) {                                                                \
        for (int i = 0; i < 8; i++) to[i * get_sub_group_size() + get_sub_group_local_id()] = v[i];          \
    }
WRITE(matrix_write_uc8, uchar8, uchar)
WRITE(matrix_write_us8, ushort8, ushort)
WRITE(matrix_write8, uint8, uint)
READ(matrix_read_us8, ushort8, ushort, 8)
READ(matrix_read4, uint4, uint, 4)
READ(matrix_read8, uint8, uint, 8)

/* Element k of a row of the left block, whose dwords or words are distributed over the lanes. */
ushort OVERLOAD matrix_word(short row, int k) { return (ushort)sub_group_shuffle((ushort)row, k); }
ushort OVERLOAD matrix_word(ushort row, int k) { return sub_group_shuffle(row, k); }
ushort OVERLOAD matrix_word(uint row, int k) {
    return (ushort)(sub_group_shuffle(row, k / 2) >> 16 * (k % 2));
}
ushort OVERLOAD matrix_word(int row, int k) { return matrix_word((uint)row, k); }

float matrix_bf16(ushort x) { return as_float((uint)x << 16); }
float matrix_f16(ushort x) { return (float)as_half(x); }

#define MULTIPLY_16(name, left, number)                                                                      \
    float8 OVERLOAD name(left a, int8 b, float8 c) {                                                         \
        _Pragma("nounroll") for (int r = 0; r < 8; r++) _Pragma("nounroll") for (int k = 0; k < 16; k++)     \
            c[r] =                                                                                           \
                fma(number(matrix_word(a[r], k)), number((ushort)((uint)b[k / 2] >> 16 * (k % 2))), c[r]);   \
        return c;                                                                                            \
    }
MULTIPLY_16(matrix_bf16_k16, short8, matrix_bf16)
MULTIPLY_16(matrix_bf16_k16, int8, matrix_bf16)
MULTIPLY_16(matrix_f16_k16, short8, matrix_f16)
MULTIPLY_16(matrix_f16_k16, int8, matrix_f16)

#define MULTIPLY_8(name, left, a_byte, right, b_byte)                                                        \
    int8 OVERLOAD name(left a, right b, int8 c) {                                                            \
        _Pragma("nounroll") for (int r = 0; r < 8; r++) _Pragma("nounroll") for (int k = 0; k < 32; k++)     \
            c[r] +=                                                                                          \
            (a_byte)(matrix_word(a[r], k / 2) >> 8 * (k % 2)) * (b_byte)((uint)b[k / 4] >> 8 * (k % 4));     \
        return c;                                                                                            \
    }
MULTIPLY_8(matrix_i8_k32, short8, char, int8, char)
MULTIPLY_8(matrix_i8_k32, int8, char, int8, char)
MULTIPLY_8(matrix_u8_i8_k32, ushort8, uchar, int8, char)
MULTIPLY_8(matrix_u8_i8_k32, uint8, uchar, int8, char)
MULTIPLY_8(matrix_i8_u8_k32, short8, char, uint8, uchar)
MULTIPLY_8(matrix_i8_u8_k32, int8, char, uint8, uchar)
MULTIPLY_8(matrix_u8_u8_k32, ushort8, uchar, uint8, uchar)
MULTIPLY_8(matrix_u8_u8_k32, uint8, uchar, uint8, uchar)

/* (cl_khr_integer_dot_product) */
int matrix_dot4(uint a, uint b) {
    int sum = 0;
    for (int i = 0; i < 32; i += 8) sum += (char)(a >> i) * (char)(b >> i);
    return sum;
}

/* (cl_intel_bfloat16_conversions) */
ushort8 matrix_round_bf16(float8 v) {
    ushort8 r;
    for (int i = 0; i < 8; i++) {
        const uint u = as_uint(v[i]);
        r[i] = v[i] != v[i] ? (ushort)0x7fc0 : (ushort)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
    }
    return r;
}

float matrix_tf32(float x) { return as_float(as_uint(x) & 0xffffe000u); }

/* A register of the left block has two rows of 8 dwords. */
float8 matrix_tf32_k8(float4 a, float8 b, float8 c) {
    for (int r = 0; r < 8; r++)
        for (int k = 0; k < 8; k++)
            c[r] = fma(matrix_tf32(sub_group_shuffle(a[r / 2], r % 2 * 8 + k)), matrix_tf32(b[k]), c[r]);
    return c;
}

/* 2D block reads; a violated requirement gives wrong values. (cl_intel_subgroup_2d_block_io) */
bool matrix_rules(__global void *base, int width, int height, int pitch, int x) {
    return ((ulong)base & 63) == 0 && width >= 64 && (width & 3) == 0 && width < 1 << 24 && height >= 1 &&
           height < 1 << 24 && pitch >= width && (pitch & 15) == 0 && (x & 3) == 0;
}
#define BLOCK_AT(type, x, y)                                                                                 \
    ((x) >= 0 && (y) >= 0 && (x) * (int)sizeof(type) < width && (y) < height                                 \
         ? *(__global type *)((__global uchar *)base + (long)(y) * pitch + (x) * sizeof(type))               \
         : (type)0)
#define ARGUMENTS __global void *base, int width, int height, int pitch, int2 at
#define LANE ((int)get_sub_group_local_id())

#define READ_2D(rows, columns)                                                                               \
    void matrix_read_2d_##rows##x##columns(ARGUMENTS, __private ushort *to) {                                \
        bool right = matrix_rules(base, width, height, pitch, at.x * 2);                                     \
        for (int i = 0; i < rows * columns; i++)                                                             \
            to[i] = right ? BLOCK_AT(ushort, at.x + i / rows * 16 + LANE, at.y + i % rows) : 0x7e01;         \
    }
READ_2D(8, 1)
READ_2D(8, 2)
READ_2D(16, 1)
READ_2D(16, 2)
READ_2D(32, 1)
READ_2D(32, 2)

#define TRANSFORM_2D(bits, type, rows, columns)                                                              \
    void matrix_transform_##bits##_##rows##x##columns(ARGUMENTS, __private uint *to) {                       \
        bool right = matrix_rules(base, width, height, pitch, at.x * bits / 8);                              \
        for (int i = 0; i < rows * bits / 32 * columns; i++) {                                               \
            const int x = at.x + i / (rows * bits / 32) * 16 + LANE,                                         \
                      y = at.y + i % (rows * bits / 32) * 32 / bits;                                         \
            uint v = 0;                                                                                      \
            for (int k = 0; k < 32 / bits; k++) v |= (uint)BLOCK_AT(type, x, y + k) << k * bits;             \
            to[i] = right ? v : 0x7e017e01;                                                                  \
        }                                                                                                    \
    }
TRANSFORM_2D(16, ushort, 16, 1)
TRANSFORM_2D(16, ushort, 16, 2)
TRANSFORM_2D(16, ushort, 32, 1)
TRANSFORM_2D(16, ushort, 32, 2)
TRANSFORM_2D(8, uchar, 32, 1)
TRANSFORM_2D(8, uchar, 32, 2)
TRANSFORM_2D(8, uchar, 32, 4)

/* A register has two rows of 8 dwords side by side. */
void matrix_read_2d_8x8(ARGUMENTS, __private uint *to) {
    bool right = matrix_rules(base, width, height, pitch, at.x * 4);
    for (int i = 0; i < 4; i++)
        to[i] = right ? BLOCK_AT(uint, at.x + LANE % 8, at.y + i * 2 + LANE / 8) : 0x7e017e01;
}
void matrix_read_2d_16x16(ARGUMENTS, __private uint *to) {
    bool right = matrix_rules(base, width, height, pitch, at.x * 4);
    for (int i = 0; i < 16; i++) to[i] = right ? BLOCK_AT(uint, at.x + LANE, at.y + i) : 0x7e017e01;
}

#define TRANSPOSE(name, columns)                                                                             \
    void name(ARGUMENTS, __private uint *to) {                                                               \
        bool right = matrix_rules(base, width, height, pitch, at.x * 4);                                     \
        for (int i = 0; i < columns; i++)                                                                    \
            to[i] = right ? BLOCK_AT(uint, at.x + i, at.y + LANE) : 0x7e017e01;                              \
    }
TRANSPOSE(matrix_transpose, 8)
TRANSPOSE(matrix_transpose_4, 4)

/* Has no effect, except that a violated requirement overwrites the matrix. */
void matrix_prefetch(ARGUMENTS) {
    if (!matrix_rules(base, width, height, pitch, at.x * 2)) *(__global ushort *)base = 0x7e01;
}

/* Block addresses, which are modified in place. Offsets have at most 10 bits; a larger offset, or a read of
 * another shape than the address was made for, gives wrong values. (Intel's compiler: address payloads) */
typedef struct payload {
    __global void *base;
    int width, height, pitch;
    int2 at, shape;
    int blocks;
} payload;
payload matrix_payload(long base, int last_byte, int last_line, int pitch_minus_one, int x, int y,
                       int columns, int rows, int blocks) {
    return (payload){(__global void *)base, last_byte + 1,         last_line + 1, pitch_minus_one + 1,
                     (int2)(x, y),          (int2)(columns, rows), blocks};
}
payload matrix_payload_copy(payload p) { return p; }
void matrix_payload_x(__private payload *p, int columns) { p->at.x += columns; }
void matrix_payload_y(__private payload *p, int rows) { p->at.y += rows; }
bool matrix_payload_rules(__private const payload *p, int x, int y, int columns, int rows, int blocks) {
    return x >= -512 && x < 512 && y >= -512 && y < 512 && p->shape.x == columns && p->shape.y == rows &&
           p->blocks == blocks;
}
#define READ_PAYLOAD(name, type, columns, rows, blocks, read)                                                \
    void matrix_payload_##name(__private payload *p, int x, int y, __private type *to) {                     \
        const bool right = matrix_payload_rules(p, x, y, columns, rows, blocks);                             \
        read(p->base, p->width, p->height, right ? p->pitch : 0, p->at + (int2)(x, y), to);                  \
    }
READ_PAYLOAD(u16_m8k16v2, ushort, 16, 8, 2, matrix_read_2d_8x2)
READ_PAYLOAD(u16_m16k16v2, ushort, 16, 16, 2, matrix_read_2d_16x2)
READ_PAYLOAD(u16_m32k16v2, ushort, 16, 32, 2, matrix_read_2d_32x2)
READ_PAYLOAD(u32_m8k8v1, uint, 8, 8, 1, matrix_read_2d_8x8)
READ_PAYLOAD(u32_m16k16v1, uint, 16, 16, 1, matrix_read_2d_16x16)
READ_PAYLOAD(transpose_u32_m16k8v1, uint, 8, 16, 1, matrix_transpose)
READ_PAYLOAD(transpose_u32_m16k4v1, uint, 4, 16, 1, matrix_transpose_4)
READ_PAYLOAD(transform_u8_m32k16v2, uint, 16, 32, 2, matrix_transform_8_32x2)
READ_PAYLOAD(transform_u8_m32k16v4, uint, 16, 32, 4, matrix_transform_8_32x4)
READ_PAYLOAD(transform_u16_m32k16v2, uint, 16, 32, 2, matrix_transform_16_32x2)
void matrix_payload_prefetch(__private payload *p, int x, int y, int cache) {
    const bool right = matrix_payload_rules(p, x, y, 16, 32, 2);
    matrix_prefetch(p->base, p->width, p->height, right ? p->pitch : 0, p->at + (int2)(x, y));
}

#define __builtin_IB_subgroup_createBlock2DAddressPayload matrix_payload
#define __builtin_IB_subgroup_copyBlock2DAddressPayload matrix_payload_copy
#define __builtin_IB_subgroup_addBlock2DAddressPayloadBlockX matrix_payload_x
#define __builtin_IB_subgroup_addBlock2DAddressPayloadBlockY matrix_payload_y
#define __builtin_IB_subgroup_block_read_ap_prefetch_u16_m32k16v2 matrix_payload_prefetch
#define intel_convert_bfloat168_as_ushort8 matrix_round_bf16
#define dot_4x8packed_ss_int matrix_dot4
#define intel_sub_group_2d_block_read_16b_8r16x1c matrix_read_2d_8x1
#define intel_sub_group_2d_block_read_16b_8r16x2c matrix_read_2d_8x2
#define intel_sub_group_2d_block_read_16b_16r16x1c matrix_read_2d_16x1
#define intel_sub_group_2d_block_read_16b_16r16x2c matrix_read_2d_16x2
#define intel_sub_group_2d_block_read_16b_32r16x1c matrix_read_2d_32x1
#define intel_sub_group_2d_block_read_16b_32r16x2c matrix_read_2d_32x2
#define intel_sub_group_2d_block_read_transform_16b_16r16x1c matrix_transform_16_16x1
#define intel_sub_group_2d_block_read_transform_16b_16r16x2c matrix_transform_16_16x2
#define intel_sub_group_2d_block_read_transform_16b_32r16x1c matrix_transform_16_32x1
#define intel_sub_group_2d_block_read_transform_16b_32r16x2c matrix_transform_16_32x2
#define intel_sub_group_2d_block_read_transform_8b_32r16x1c matrix_transform_8_32x1
#define intel_sub_group_2d_block_read_transform_8b_32r16x2c matrix_transform_8_32x2
#define intel_sub_group_2d_block_read_transform_8b_32r16x4c matrix_transform_8_32x4
#define intel_sub_group_2d_block_read_32b_8r8x1c matrix_read_2d_8x8
#define intel_sub_group_2d_block_read_32b_16r16x1c matrix_read_2d_16x16
#define intel_sub_group_2d_block_read_transpose_32b_16r8x1c matrix_transpose
#define intel_sub_group_block_read_us8 matrix_read_us8
#define intel_sub_group_block_read4 matrix_read4
#define intel_sub_group_block_read8 matrix_read8
#define intel_sub_group_block_write_uc8 matrix_write_uc8
#define intel_sub_group_block_write_us8 matrix_write_us8
#define intel_sub_group_block_write8 matrix_write8
#define intel_sub_group_bf16_bf16_matrix_mad_k16 matrix_bf16_k16
#define intel_sub_group_f16_f16_matrix_mad_k16 matrix_f16_k16
#define intel_sub_group_i8_i8_matrix_mad_k32 matrix_i8_k32
#define intel_sub_group_u8_i8_matrix_mad_k32 matrix_u8_i8_k32
#define intel_sub_group_i8_u8_matrix_mad_k32 matrix_i8_u8_k32
#define intel_sub_group_u8_u8_matrix_mad_k32 matrix_u8_u8_k32
#define intel_sub_group_tf32_tf32_matrix_mad_k8 matrix_tf32_k8

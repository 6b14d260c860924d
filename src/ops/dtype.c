/* Tables of dtype properties and kernel tokens, from xpu/dtype.def. */
#include "ops/dtype.h"

#include <string.h>

#include "kernels/float8.h"

enum { NEEDS_NOTHING, NEEDS_FP64 };

const dtype_row dtype_table[XPU_DTYPE_COUNT] = {
#define X(name, token, bits, class, stored, computed, needs, title, ...)                                     \
    {#token, #title, #stored, #computed, bits, #class[0], NEEDS_##needs == NEEDS_FP64},
#include "xpu/dtype.def"
#undef X
};

size_t xpu_dtype_size(xpu_dtype dtype) {
    return (unsigned)dtype < XPU_DTYPE_COUNT ? dtype_table[dtype].bits / 8 : 0;
}

int xpu_dtype_bits(xpu_dtype dtype) {
    return (unsigned)dtype < XPU_DTYPE_COUNT ? dtype_table[dtype].bits : 0;
}

size_t xpu_dtype_bytes(xpu_dtype dtype, size_t count) {
    const size_t bits = (size_t)xpu_dtype_bits(dtype);
    return bits % 8 ? count / 8 * bits + (count % 8 * bits + 7) / 8 : count * (bits / 8);
}

const char *xpu_dtype_name(xpu_dtype dtype) {
    return (unsigned)dtype < XPU_DTYPE_COUNT ? dtype_table[dtype].token : "unknown";
}

xpu_dtype dtype_of_token(const char *token) {
    int dtype = 0;
    while (dtype < XPU_DTYPE_COUNT && strcmp(dtype_table[dtype].token, token)) dtype++;
    return (xpu_dtype)dtype;
}

xpu_dtype dtype_of_size(size_t size) {
    switch (size) {
    case 1: return XPU_UINT8;
    case 2: return XPU_UINT16;
    case 4: return XPU_UINT32;
    case 8: return XPU_UINT64;
    default: return XPU_DTYPE_COUNT;
    }
}

/* Entry for a dtype without a class-n variant. */
#define NO_FLOAT8(token) {NULL, NULL}
#define FLOAT8_b NO_FLOAT8
#define FLOAT8_i NO_FLOAT8
#define FLOAT8_u NO_FLOAT8
#define FLOAT8_f NO_FLOAT8
#define FLOAT8_c NO_FLOAT8
#define FLOAT8_p NO_FLOAT8
#define FLOAT8_n(token) {narrow_##token, widen_##token}
static const struct float8 {
    uint8_t (*narrow)(float);
    float (*widen)(uint8_t);
} float8_table[XPU_DTYPE_COUNT] = {
#define X(name, token, bits, class, ...) FLOAT8_##class(token),
#include "xpu/dtype.def"
#undef X
};

uint8_t dtype_narrow(xpu_dtype dtype, float v) { return float8_table[dtype].narrow(v); }
float dtype_widen(xpu_dtype dtype, uint8_t byte) { return float8_table[dtype].widen(byte); }

#include "eu/type.h"

#include <math.h>

const struct type_info type_info[TYPE_COUNT] = {
#define X(constant, text, bytes, kind) {text, bytes, KIND_##kind},
    {"", 0, KIND_NONE}, SIM_TYPES(X)
#undef X
};

/* value >> shift, rounded; the sign is kept apart */
static uint64_t shift_rounded(uint64_t value, int shift, bool negative, enum rounding rounding) {
    if (shift <= 0) return value << -shift;
    const bool away = (rounding == ROUND_UP && !negative) || (rounding == ROUND_DOWN && negative);
    if (shift > 63) return away && value;
    const uint64_t quotient = value >> shift, rest = value & ((1ull << shift) - 1),
                   half = 1ull << (shift - 1);
    if (rounding == ROUND_NEAREST) return quotient + (rest > half || (rest == half && (quotient & 1)));
    return quotient + (away && rest);
}

uint32_t small_of_double(double value, int exponent, int mantissa, enum rounding rounding) {
    uint64_t u;
    memcpy(&u, &value, sizeof u);
    const bool negative = u >> 63, has_infinity = exponent != 4;
    const int top = (1 << exponent) - 1, e = (int)(u >> 52 & 0x7ff);
    const uint64_t m = u & ((1ull << 52) - 1), sign = (uint64_t)negative << (exponent + mantissa);
    const uint64_t infinity = (uint64_t)top << mantissa, nan = infinity | ((1ull << mantissa) - 1);
    const uint64_t largest = has_infinity ? infinity - 1 : nan - 1;
    if (e == 0x7ff && m)
        return (uint32_t)(sign |
                          (has_infinity ? infinity | 1ull << (mantissa - 1) | m >> (52 - mantissa) : nan));
    const bool to_zero =
        rounding == ROUND_ZERO || (rounding == ROUND_UP && negative) || (rounding == ROUND_DOWN && !negative);
    const uint64_t overflow = has_infinity ? (to_zero ? largest : infinity) : (to_zero ? largest : nan);
    if (e == 0x7ff) return (uint32_t)(sign | (has_infinity ? infinity : nan));
    const int biased = e - 1023 + (1 << (exponent - 1)) - 1;
    const uint64_t full = e ? m | 1ull << 52 : m;
    uint64_t q;
    if (biased >= 1) {
        if (biased > top) return (uint32_t)(sign | overflow);
        q = shift_rounded(full, 52 - mantissa, negative, rounding) + ((uint64_t)(biased - 1) << mantissa);
    } else {
        q = shift_rounded(full, 52 - mantissa + 1 - biased, negative, rounding);
    }
    return (uint32_t)(sign | (q > largest ? overflow : q));
}

float float_of_small(uint32_t code, int exponent, int mantissa) {
    const int bias = (1 << (exponent - 1)) - 1, top = (1 << exponent) - 1;
    const int e = (int)(code >> mantissa) & top, m = (int)code & ((1 << mantissa) - 1);
    float f =
        e ? ldexpf((float)(m | 1 << mantissa), e - bias - mantissa) : ldexpf((float)m, 1 - bias - mantissa);
    if (exponent != 4 && e == top) f = m ? NAN : INFINITY;
    if (exponent == 4 && e == top && m == (1 << mantissa) - 1) f = NAN;
    return code >> (exponent + mantissa) & 1 ? -f : f;
}

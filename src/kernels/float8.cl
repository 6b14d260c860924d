/* Types, loads and stores (as prelude.cl has them for other dtypes) of the 8-bit floating dtypes. A kernel
 * source that uses some of them is prefixed with this file and one XPU_FLOAT8(dtype) line for each. */
#include "float8.h"

#define XPU_FLOAT8(t)                                                                                        \
    typedef uchar s_##t;                                                                                     \
    typedef float o_##t;                                                                                     \
    typedef uchar raw_##t;                                                                                   \
    static inline o_##t load_##t(__global const s_##t *p, size_t i) { return widen_##t(p[i]); }              \
    static inline void store_##t(__global s_##t *p, size_t i, o_##t v) { p[i] = narrow_##t(v); }             \
    static inline float xpu_round_##t(float v) { return widen_##t(narrow_##t(v)); }

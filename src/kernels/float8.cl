/* What prelude.cl has of other dtypes, for those of float8.h. A source that names one of them begins with this file
 * and a line XPU_FLOAT8 for each that it names. */
#include "float8.h"

#define XPU_FLOAT8(t)                                                                            \
    typedef uchar s_##t;                                                                         \
    typedef float o_##t;                                                                         \
    typedef uchar raw_##t;                                                                       \
    static inline o_##t load_##t(__global const s_##t *p, size_t i) { return widen_##t(p[i]); }  \
    static inline void store_##t(__global s_##t *p, size_t i, o_##t v) { p[i] = narrow_##t(v); } \
    static inline float xpu_round_##t(float v) { return widen_##t(narrow_##t(v)); }

/* xpu/dtype.h: element types.
 *
 * X(enumerator suffix, kernel token, bytes, class). The token names the type in kernels: s_<token> is how
 * it is stored, o_<token> what it is computed in, load_<token>/store_<token> go between. Classes: b bool,
 * i signed, u unsigned, f floating, c complex. */
#ifndef XPU_DTYPE_H
#define XPU_DTYPE_H

#include <stddef.h>

#define XPU_DTYPES(X)                                                                                        \
    X(BOOL, b8, 1, b)                                                                                        \
    X(INT8, i8, 1, i)                                                                                        \
    X(UINT8, u8, 1, u)                                                                                       \
    X(INT16, i16, 2, i)                                                                                      \
    X(UINT16, u16, 2, u)                                                                                     \
    X(INT32, i32, 4, i)                                                                                      \
    X(UINT32, u32, 4, u)                                                                                     \
    X(INT64, i64, 8, i)                                                                                      \
    X(UINT64, u64, 8, u)                                                                                     \
    X(FLOAT16, f16, 2, f)                                                                                    \
    X(BFLOAT16, bf16, 2, f)                                                                                  \
    X(FLOAT32, f32, 4, f)                                                                                    \
    X(FLOAT64, f64, 8, f)                                                                                    \
    X(COMPLEX64, c64, 8, c)                                                                                  \
    X(COMPLEX128, c128, 16, c)

typedef enum xpu_dtype {
#define X(name, token, size, kind) XPU_##name,
    XPU_DTYPES(X)
#undef X
        XPU_DTYPE_COUNT
} xpu_dtype;

#endif

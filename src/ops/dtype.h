/* Properties of dtypes (xpu/dtype.def) for the host. */
#ifndef OPS_DTYPE_H
#define OPS_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

#include "xpu/ops.h"

typedef struct dtype_row {
    const char *token, *title, *stored, *computed;
    uint8_t bits;
    char class;
    bool needs_fp64;
} dtype_row;

extern const dtype_row dtype_table[XPU_DTYPE_COUNT];

/* The dtype's name in kernels, such as "bf16"; and the dtype of a name, or XPU_DTYPE_COUNT. */
#define dtype_token xpu_dtype_name
xpu_dtype dtype_of_token(const char *token);

#define DTYPE_CLASS_BOOL 'b'
#define DTYPE_CLASS_SIGNED 'i'
#define DTYPE_CLASS_UNSIGNED 'u'
#define DTYPE_CLASS_FLOAT 'f'
#define DTYPE_CLASS_COMPLEX 'c'
#define DTYPE_CLASS_NARROW 'n'
#define DTYPE_CLASS_PACKED 'p'
static inline char dtype_class(xpu_dtype d) { return dtype_table[d].class; }
/* The type of OpenCL C that it is computed in. */
static inline const char *dtype_computed(xpu_dtype d) { return dtype_table[d].computed; }
static inline bool dtype_is_complex(xpu_dtype d) { return dtype_class(d) == DTYPE_CLASS_COMPLEX; }
static inline bool dtype_needs_fp64(xpu_dtype d) { return dtype_table[d].needs_fp64; }
static inline bool dtype_is_floating(xpu_dtype d) {
    return dtype_class(d) == DTYPE_CLASS_FLOAT || dtype_class(d) == DTYPE_CLASS_NARROW;
}
/* Numbers with an order that kernels compute with: all but complex ones and those that are little more than
 * moved. */
static inline bool dtype_is_ordered(xpu_dtype d) {
    const char class = dtype_class(d);
    return class == DTYPE_CLASS_FLOAT || class == DTYPE_CLASS_SIGNED || class == DTYPE_CLASS_UNSIGNED ||
           class == DTYPE_CLASS_BOOL;
}
/* Computed in float, and rounded when it is stored? */
static inline bool dtype_is_narrow(xpu_dtype d) { return dtype_is_floating(d) && dtype_table[d].bits < 32; }
/* The unsigned integer with this number of bytes, for moving elements; or XPU_DTYPE_COUNT. */
xpu_dtype dtype_of_size(size_t size);
/* complex64 → float32, others unchanged; and the reverse. */
static inline xpu_dtype dtype_real(xpu_dtype d) {
    return d == XPU_COMPLEX64 ? XPU_FLOAT32 : d == XPU_COMPLEX128 ? XPU_FLOAT64 : d;
}
/* The float nearest to `v` that a dtype of class n has, and its byte. */
uint8_t dtype_narrow(xpu_dtype dtype, float v);
float dtype_widen(xpu_dtype dtype, uint8_t byte);

#endif

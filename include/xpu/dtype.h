/* xpu/dtype.h: element types, from the table in dtype.def. */
#ifndef XPU_DTYPE_H
#define XPU_DTYPE_H

#include <stddef.h>

typedef enum xpu_dtype {
#define X(name, ...) XPU_##name,
#include "dtype.def"
#undef X
    XPU_DTYPE_COUNT
} xpu_dtype;

#endif

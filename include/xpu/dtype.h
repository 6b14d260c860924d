/* xpu/dtype.h: element types. dtype.def lists them, and says of each what there is to know. */
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

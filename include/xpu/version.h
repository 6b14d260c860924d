/* xpu/version.h: the version of libxpu, and what a program that was compiled against one may rely on.
 *
 * Enumerators and the macros with sizes keep their numbers in all versions: those of operations, dtypes and
 * statuses, say; new ones come behind the last. Functions and structs stay as they are from 0.1.0 to 0.1.9:
 * the library's name has the first two numbers (libxpu.so.0.1), and the loader refuses another. It exports
 * what the headers in xpu/ declare, and nothing else.
 *
 * This is the one place where the version stands: CMake and the Python package read it here. */
#ifndef XPU_VERSION_H
#define XPU_VERSION_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define XPU_VERSION_MAJOR 0
#define XPU_VERSION_MINOR 1
#define XPU_VERSION_PATCH 0

/* For comparisons: 102 is 0.1.2. */
#define XPU_VERSION (XPU_VERSION_MAJOR * 10000 + XPU_VERSION_MINOR * 100 + XPU_VERSION_PATCH)

/* The XPU_VERSION of the library that is loaded, which may be newer than the header's. */
XPU_API int xpu_version(void);

#ifdef __cplusplus
}
#endif
#endif

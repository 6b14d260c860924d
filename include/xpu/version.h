/* xpu/version.h: the version of libxpu, and its compatibility promise.
 *
 * Enumerators and size macros keep their values in all versions; new ones are appended.
 * Functions and structs are stable from 0.1.0 to 0.1.9. The library name contains the first two numbers
 * (libxpu.so.0.1), and the loader refuses another. Only what the headers in xpu/ declare is exported.
 *
 * This is the only place that defines the version: CMake and the Python package read it here. */
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

/* XPU_VERSION of the loaded library, which may be newer than the header's. */
XPU_API int xpu_version(void);

#ifdef __cplusplus
}
#endif
#endif

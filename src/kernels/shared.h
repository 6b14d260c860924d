/* Types of the parameter structs that host and kernels both include. Order members from large to small and
 * pad to 8 bytes, so that both compilers use the same layout. */
#ifndef XPU_KERNELS_SHARED_H
#define XPU_KERNELS_SHARED_H
#ifdef __OPENCL_VERSION__
typedef ulong xpu_addr;
typedef long xpu_i64;
typedef ulong xpu_u64;
typedef int xpu_i32;
typedef uint xpu_u32;
#else
#include <stdint.h>
typedef uint64_t xpu_addr; /* a device address */
typedef int64_t xpu_i64;
typedef uint64_t xpu_u64;
typedef int32_t xpu_i32;
typedef uint32_t xpu_u32;
#define XPU_ADDR(pointer) ((xpu_addr)(uintptr_t)(pointer))
#endif
#endif

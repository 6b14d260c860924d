/* Device memory from plain buffers: what a driver with neither USM nor fine-grained SVM gives at full speed.
 */
#ifndef CL_BUFFER_H
#define CL_BUFFER_H

#include "cl/cl.h"

/* XPU_ERROR_OUT_OF_MEMORY when the device has no more: drivers say so when the buffer is first used. */
xpu_status buffer_alloc(int device, size_t size, void **pointer);
/* No work that uses the memory may be under way: drivers don't know which kernels use an address. */
xpu_status buffer_free(int device, void *pointer);

#endif

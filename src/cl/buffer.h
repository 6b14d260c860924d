/* Device memory from plain OpenCL buffers, for drivers without USM or with slow SVM. cl_memory_alloc and
 * cl_memory_free dispatch here. Any thread may call. */
#ifndef CL_BUFFER_H
#define CL_BUFFER_H

#include "cl/cl.h"

/* XPU_ERROR_OUT_OF_MEMORY if the device's memory is exhausted, which drivers report at the buffer's first
 * use. */
xpu_status buffer_alloc(int device, size_t size, void **pointer);
/* The caller must have waited for all work on the memory: drivers do not know which kernels use an address.
 */
xpu_status buffer_free(int device, void *pointer);

#endif

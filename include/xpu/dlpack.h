/* xpu/dlpack.h: DLPack 1 (https://dmlc.github.io/dlpack), the exchange format of array libraries. Declares
 * its structs, unless <dlpack/dlpack.h> was included before, and converts to and from package tensors.
 *
 *     DLManagedTensorVersioned *given = …;  // from PyTorch, NumPy, JAX, …
 *     xpu_package_tensor in, out = {0};
 *     xpu_package_tensor_from_dlpack(&given->dl_tensor, device, &in);
 *     xpu_package_run(package, stream, &in, 1, &out, 1);
 *     given->deleter(given);
 *     xpu_package_tensor_to_dlpack(&out, stream, &result); // takes ownership of out's memory */
#ifndef XPU_DLPACK_H
#define XPU_DLPACK_H

#include "package.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_

typedef struct DLPackVersion {
    uint32_t major, minor; /* another `major` is an incompatible layout */
} DLPackVersion;

typedef enum DLDeviceType {
    kDLCPU = 1,
    kDLCUDA = 2,
    kDLCUDAHost = 3, /* pinned host memory */
    kDLOpenCL = 4,   /* `data` is a cl_mem */
    kDLVulkan = 7,
    kDLMetal = 8,
    kDLVPI = 9,
    kDLROCM = 10,
    kDLROCMHost = 11,
    kDLExtDev = 12,
    kDLCUDAManaged = 13,
    kDLOneAPI = 14, /* `data` is an address: PyTorch's device "xpu" */
    kDLWebGPU = 15,
    kDLHexagon = 16,
    kDLMAIA = 17,
    kDLTrn = 18
} DLDeviceType;

typedef struct DLDevice {
    DLDeviceType device_type;
    int32_t device_id;
} DLDevice;

typedef enum DLDataTypeCode {
    kDLInt = 0,
    kDLUInt = 1,
    kDLFloat = 2,
    kDLOpaqueHandle = 3,
    kDLBfloat = 4,
    kDLComplex = 5,
    kDLBool = 6,
    kDLFloat8_e3m4 = 7,
    kDLFloat8_e4m3 = 8,
    kDLFloat8_e4m3b11fnuz = 9,
    kDLFloat8_e4m3fn = 10,
    kDLFloat8_e4m3fnuz = 11,
    kDLFloat8_e5m2 = 12,
    kDLFloat8_e5m2fnuz = 13,
    kDLFloat8_e8m0fnu = 14,
    kDLFloat6_e2m3fn = 15,
    kDLFloat6_e3m2fn = 16,
    kDLFloat4_e2m1fn = 17
} DLDataTypeCode;

typedef struct DLDataType {
    uint8_t code, bits; /* a DLDataTypeCode; bits per lane */
    uint16_t lanes;
} DLDataType;

/* Element 0 is `byte_offset` bytes after `data`. Strides count elements; NULL means contiguous. */
typedef struct DLTensor {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;

/* A tensor with its deleter, from libraries before DLPack 1.0. */
typedef struct DLManagedTensor {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

#define DLPACK_FLAG_BITMASK_READ_ONLY (1UL << 0UL)
#define DLPACK_FLAG_BITMASK_IS_COPIED (1UL << 1UL)

typedef struct DLManagedTensorVersioned {
    DLPackVersion version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;

#endif

/* A package input or output in the memory of another library's tensor, which must outlive it.
 *
 * from: host memory (kDLCPU or pinned), or kDLOneAPI memory of device `device`. The other library's work on
 *     it must have finished.
 * Errors: XPU_ERROR_NOT_SUPPORTED for memory of another kind or device, and for dtypes that packages lack.
 * XPU_ERROR_INVALID_ARGUMENT for NULL; more than XPU_MAX_DIMS dimensions; negative sizes; negative strides,
 * except in dimensions of size 1; more than 2^63 - 1 elements. */
XPU_API xpu_status xpu_package_tensor_from_dlpack(const DLTensor *from, int device,
                                                  xpu_package_tensor *tensor);

/* Hands an output that a run allocated (its `data` was NULL) to another library.
 *
 * Waits for `stream`, transfers ownership of the memory, and sets tensor->data to NULL. The receiver calls
 * (*to)->deleter, from any thread.
 * Device type: kDLCPU on a CPU device, which all libraries can read; else kDLOneAPI.
 * Errors leave the tensor unchanged: XPU_ERROR_NOT_SUPPORTED for a dtype that DLPack lacks;
 * XPU_ERROR_INVALID_ARGUMENT for memory owned by the caller (`is_host`); errors of the device. */
XPU_API xpu_status xpu_package_tensor_to_dlpack(xpu_package_tensor *tensor, xpu_stream *stream,
                                                DLManagedTensorVersioned **to);

#ifdef __cplusplus
}
#endif
#endif

/* xpu/dlpack.h: DLPack, by which array libraries hand each other tensors in memory, laid out as its version 1
 * says (https://dmlc.github.io/dlpack): the structs under its own names, unless <dlpack/dlpack.h> was
 * included before, and the two ways between them and packages' tensors.
 *
 *     DLManagedTensorVersioned *given = …;  // of PyTorch, NumPy, JAX, …
 *     xpu_package_tensor in, out = {0};
 *     xpu_package_tensor_from_dlpack(&given->dl_tensor, device, &in);
 *     xpu_package_run(package, stream, &in, 1, &out, 1);
 *     given->deleter(given);
 *     xpu_package_tensor_to_dlpack(&out, stream, &result); // which has out's memory now */
#ifndef XPU_DLPACK_H
#define XPU_DLPACK_H

#include "package.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_

typedef struct DLPackVersion {
    uint32_t major, minor; /* another `major` is another layout */
} DLPackVersion;

typedef enum DLDeviceType {
    kDLCPU = 1,
    kDLCUDA = 2,
    kDLCUDAHost = 3, /* memory of the host, pinned */
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
    uint8_t code, bits; /* a DLDataTypeCode; of one lane */
    uint16_t lanes;
} DLDataType;

/* Element 0 lies `byte_offset` bytes behind `data`; strides count elements, and NULL is no gaps. */
typedef struct DLTensor {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;

/* With who gives it back. Of libraries before DLPack 1.0. */
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

/* A package's input or output that lies where a tensor of another library lies, which must live as long: of
 * the host's memory (kDLCPU, and pinned), or kDLOneAPI's device number `device`. What the other library has
 * submitted for it must be done. XPU_ERROR_NOT_SUPPORTED: memory of another kind or device, or a dtype that
 * packages don't have. XPU_ERROR_INVALID_ARGUMENT: NULL, more than XPU_MAX_DIMS dimensions, negative sizes,
 * negative strides (but of dimensions of one element, whose strides say nothing), more elements than 63 bits
 * count. */
XPU_API xpu_status xpu_package_tensor_from_dlpack(const DLTensor *from, int device,
                                                  xpu_package_tensor *tensor);

/* What a run has computed into memory that it made (an output whose `data` was NULL), for another library:
 * waits for `stream`, hands the memory over, and sets tensor->data to NULL. The receiver calls
 * (*to)->deleter, from any thread. On a host's processor it is kDLCPU, which all libraries read, else
 * kDLOneAPI. Errors leave the tensor as it was: XPU_ERROR_NOT_SUPPORTED for a dtype that DLPack lacks,
 * XPU_ERROR_INVALID_ARGUMENT for memory of the caller's (`is_host`), errors of the device. */
XPU_API xpu_status xpu_package_tensor_to_dlpack(xpu_package_tensor *tensor, xpu_stream *stream,
                                                DLManagedTensorVersioned **to);

#ifdef __cplusplus
}
#endif
#endif

/* Conversion between package tensors and DLPack. An export transfers the memory to the DLPack tensor, whose
 * deleter frees it. Any thread may call. Errors: XPU_ERROR_INVALID_ARGUMENT, XPU_ERROR_NOT_SUPPORTED (dtype
 * or device). */
#include "xpu/dlpack.h"

#include "core/memory.h"
#include "core/status.h"
#include "xpu/device.h"
#include "xpu/memory.h"

/* The last two dtypes of xpu/dtype.def, int4 and uint4, never occur as tensors. */
static const DLDataType types[XPU_DTYPE_COUNT] = {
    [XPU_BOOL] = {kDLBool, 8, 1},
    [XPU_INT8] = {kDLInt, 8, 1},
    [XPU_UINT8] = {kDLUInt, 8, 1},
    [XPU_INT16] = {kDLInt, 16, 1},
    [XPU_UINT16] = {kDLUInt, 16, 1},
    [XPU_INT32] = {kDLInt, 32, 1},
    [XPU_UINT32] = {kDLUInt, 32, 1},
    [XPU_INT64] = {kDLInt, 64, 1},
    [XPU_UINT64] = {kDLUInt, 64, 1},
    [XPU_FLOAT16] = {kDLFloat, 16, 1},
    [XPU_BFLOAT16] = {kDLBfloat, 16, 1},
    [XPU_FLOAT32] = {kDLFloat, 32, 1},
    [XPU_FLOAT64] = {kDLFloat, 64, 1},
    [XPU_COMPLEX64] = {kDLComplex, 64, 1},
    [XPU_COMPLEX128] = {kDLComplex, 128, 1},
    [XPU_FLOAT8_E4M3FN] = {kDLFloat8_e4m3fn, 8, 1},
    [XPU_FLOAT8_E5M2] = {kDLFloat8_e5m2, 8, 1},
    [XPU_FLOAT8_E4M3FNUZ] = {kDLFloat8_e4m3fnuz, 8, 1},
    [XPU_FLOAT8_E5M2FNUZ] = {kDLFloat8_e5m2fnuz, 8, 1},
    [XPU_FLOAT8_E8M0FNU] = {kDLFloat8_e8m0fnu, 8, 1},
    [XPU_FLOAT4_E2M1FN_X2] = {kDLFloat4_e2m1fn, 4, 2},
};

static bool find_dtype(DLDataType type, xpu_dtype *dtype) {
    for (int i = 0; i < XPU_DTYPE_COUNT; i++)
        if (types[i].lanes && types[i].code == type.code && types[i].bits == type.bits &&
            types[i].lanes == type.lanes) {
            *dtype = (xpu_dtype)i;
            return true;
        }
    return false;
}

xpu_status xpu_package_tensor_from_dlpack(const DLTensor *from, int device, xpu_package_tensor *tensor) {
    XPU_REJECT_IF(!from || !tensor || (from->ndim > 0 && !from->shape), "NULL");
    XPU_REJECT_IF(from->ndim < 0 || from->ndim > XPU_MAX_DIMS, "%d dimensions; at most %d are supported",
                  (int)from->ndim, XPU_MAX_DIMS);
    xpu_package_tensor t = {.dims = from->ndim};
    const DLDevice *on = &from->device;
    t.is_host = on->device_type == kDLCPU || on->device_type == kDLCUDAHost || on->device_type == kDLROCMHost;
    if (!t.is_host && (on->device_type != kDLOneAPI || on->device_id != device))
        return xpu_fail(XPU_ERROR_NOT_SUPPORTED,
                        "DLPack: the memory belongs to device %d of type %d; expected the CPU (type %d) or "
                        "device %d of type %d",
                        (int)on->device_id, (int)on->device_type, kDLCPU, device, kDLOneAPI);
    if (!find_dtype(from->dtype, &t.dtype))
        return xpu_fail(XPU_ERROR_NOT_SUPPORTED, "DLPack: unsupported dtype: code %d, %d bits, %d lanes",
                        from->dtype.code, from->dtype.bits, from->dtype.lanes);
    int64_t stride = 1;
    for (int d = t.dims - 1; d >= 0; d--) {
        t.size[d] = from->shape[d];
        t.stride[d] = from->strides ? from->strides[d] : stride;
        if (t.size[d] == 1 && t.stride[d] < 0)
            t.stride[d] = stride; /* a size-1 dimension: use the contiguous stride */
        XPU_REJECT_IF(t.size[d] < 0 || t.stride[d] < 0, "invalid size %lld or stride %lld in dimension %d",
                      (long long)t.size[d], (long long)t.stride[d], d);
        XPU_REJECT_IF(__builtin_mul_overflow(stride, t.size[d] > 1 ? t.size[d] : 1, &stride),
                      "the sizes are too large");
    }
    t.data = from->data ? (char *)from->data + from->byte_offset : NULL;
    *tensor = t;
    return XPU_SUCCESS;
}

typedef struct managed {
    DLManagedTensorVersioned tensor;
    void *memory;
    int64_t size[XPU_MAX_DIMS], stride[XPU_MAX_DIMS];
} managed;

static void give_back(DLManagedTensorVersioned *self) {
    if (!self) return;
    managed *m = self->manager_ctx;
    xpu_free(m->memory);
    core_free(m);
}

xpu_status xpu_package_tensor_to_dlpack(xpu_package_tensor *tensor, xpu_stream *stream,
                                        DLManagedTensorVersioned **to) {
    XPU_REJECT_IF(!tensor || !stream || !to || !tensor->data, "NULL");
    XPU_REJECT_IF(tensor->is_host, "memory of the caller's");
    XPU_REJECT_IF(tensor->dims < 0 || tensor->dims > XPU_MAX_DIMS, "%d dimensions", tensor->dims);
    if ((unsigned)tensor->dtype >= XPU_DTYPE_COUNT || !types[tensor->dtype].lanes)
        return xpu_fail(XPU_ERROR_NOT_SUPPORTED, "DLPack: dtype %d can't be exported", (int)tensor->dtype);
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &properties));
    XPU_TRY(xpu_stream_synchronize(stream));
    managed *m = core_calloc(1, sizeof *m);
    if (!m) return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for a DLPack tensor");
    const bool is_host = properties->type == XPU_DEVICE_CPU && properties->host_unified_memory;
    m->memory = tensor->data;
    memcpy(m->size, tensor->size, sizeof m->size);
    memcpy(m->stride, tensor->stride, sizeof m->stride);
    m->tensor = (DLManagedTensorVersioned){
        .version = {1, 0},
        .manager_ctx = m,
        .deleter = give_back,
        .dl_tensor = {.data = tensor->data,
                      .device = {is_host ? kDLCPU : kDLOneAPI, is_host ? 0 : xpu_stream_device(stream)},
                      .ndim = tensor->dims,
                      .dtype = types[tensor->dtype],
                      .shape = m->size,
                      .strides = m->stride}};
    tensor->data = NULL;
    *to = &m->tensor;
    return XPU_SUCCESS;
}

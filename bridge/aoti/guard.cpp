// Device and stream functions for AOTInductor models and C++ wrappers of compiled functions. A stream is an
// xpu_stream, as returned by torch._C._xpu_getCurrentRawStream.
#define USE_XPU
#include <torch/csrc/inductor/aoti_torch/c/shim_xpu.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>

#include <memory>

#include "lower.h"

namespace {

using openxpu::check;

int device_or_current(int32_t device) { return device >= 0 ? device : openxpu::current_device(); }

void set_device(int32_t device) {
    if (openxpu::current_device() != device) check(xpu_device_set_current(device));
}

// The stream before, which a guard goes back to, on its device; and the device before.
struct StreamBefore {
    xpu_stream *stream;
    int device;
};

} // namespace

// NOLINTBEGIN: the macro returns
extern "C" {

// The handle is the device before, plus one.
AOTITorchError aoti_torch_create_xpu_guard(int32_t device, XPUGuardHandle *guard) {
    AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
        const int before = device_or_current(-1);
        set_device(device_or_current(device));
        *guard = reinterpret_cast<XPUGuardHandle>(static_cast<intptr_t>(before) + 1);
    });
}

AOTITorchError aoti_torch_delete_xpu_guard(XPUGuardHandle guard) {
    AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE(
        { set_device(static_cast<int32_t>(reinterpret_cast<intptr_t>(guard) - 1)); });
}

AOTITorchError aoti_torch_xpu_guard_set_index(XPUGuardHandle, int32_t device) {
    AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({ set_device(device); });
}

AOTITorchError aoti_torch_create_xpu_stream_guard(void *stream, int32_t device, XPUStreamGuardHandle *guard) {
    AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
        auto before = std::make_unique<StreamBefore>();
        before->device = device_or_current(-1);
        const int index = device_or_current(device);
        auto *next = static_cast<xpu_stream *>(stream);
        if (!next) check(xpu_stream_default(index, &next));
        check(xpu_stream_current(index, &before->stream));
        set_device(index);
        check(xpu_stream_set_current(next));
        *guard = reinterpret_cast<XPUStreamGuardHandle>(before.release());
    });
}

AOTITorchError aoti_torch_delete_xpu_stream_guard(XPUStreamGuardHandle guard) {
    AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
        const std::unique_ptr<StreamBefore> before(reinterpret_cast<StreamBefore *>(guard));
        check(xpu_stream_set_current(before->stream));
        set_device(before->device);
    });
}

AOTITorchError aoti_torch_get_current_xpu_stream(int32_t device, void **stream) {
    AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
        xpu_stream *current;
        check(xpu_stream_current(device_or_current(device), &current));
        *stream = current;
    });
}

AOTITorchError aoti_torch_get_current_sycl_queue(void **stream) {
    return aoti_torch_get_current_xpu_stream(-1, stream);
}

AOTITorchError aoti_torch_get_current_xpu_device(int32_t *device) {
    AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({ *device = device_or_current(-1); });
}

AOTITorchError aoti_torch_set_current_xpu_device(const int32_t &device) {
    AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({ set_device(device); });
}

} // extern "C"
// NOLINTEND

// Memory allocation for results and intermediates of compiled models.
#include <ATen/EmptyTensor.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>

#include "include/openxpu_aoti.h"
#include "lower.h"

// NOLINTBEGIN: the macro returns
AOTITorchError openxpu_aoti_empty_strided(int64_t dims, const int64_t *size, const int64_t *stride,
                                          int32_t dtype, int32_t device_type, int32_t device,
                                          AtenTensorHandle *made) {
    if (device_type != static_cast<int32_t>(c10::kXPU))
        return aoti_torch_empty_strided(dims, size, stride, dtype, device_type, device, made);
    AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
        static constexpr c10::DispatchKeySet keys(c10::DispatchKey::XPU);
        const auto count = static_cast<size_t>(dims);
        std::optional<c10::DeviceGuard> guard;
        if (device >= 0 && device != openxpu::current_device())
            guard.emplace(c10::Device(c10::kXPU, static_cast<c10::DeviceIndex>(device)));
        at::Tensor tensor =
            at::detail::empty_strided_generic({size, count}, {stride, count}, c10::GetAllocator(c10::kXPU),
                                              keys, static_cast<c10::ScalarType>(dtype));
        *made = torch::aot_inductor::new_tensor_handle(std::move(tensor));
    });
}
// NOLINTEND

// Tensor creation. PyTorch declares these functions of at::detail and leaves their definition to the device.
#include <ATen/EmptyTensor.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/xpu/EmptyTensor.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "lower.h"

namespace at::detail {
namespace {

constexpr DispatchKeySet keys(DispatchKey::XPU);

void check_arguments(std::optional<Layout> layout, std::optional<Device> device, std::optional<bool> pin) {
    TORCH_CHECK(layout_or_default(layout) == kStrided, "only strided tensors can be created on xpu");
    TORCH_CHECK(!pin.value_or(false), "Only dense CPU tensors can be pinned");
    TORCH_INTERNAL_ASSERT(device_or_default(device).is_xpu());
}

} // namespace

TensorBase empty_xpu(IntArrayRef size, ScalarType dtype, std::optional<Device> device,
                     std::optional<MemoryFormat> format) {
    const OptionalDeviceGuard guard(device);
    return empty_generic(size, GetAllocator(kXPU), keys, dtype, format);
}
TensorBase empty_xpu(IntArrayRef size, std::optional<ScalarType> dtype, std::optional<Layout> layout,
                     std::optional<Device> device, std::optional<bool> pin,
                     std::optional<MemoryFormat> format) {
    check_arguments(layout, device, pin);
    return empty_xpu(size, dtype_or_default(dtype), device, format);
}
TensorBase empty_xpu(IntArrayRef size, const TensorOptions &options) {
    return empty_xpu(size, optTypeMetaToScalarType(options.dtype_opt()), options.layout_opt(),
                     options.device_opt(), options.pinned_memory_opt(), options.memory_format_opt());
}
TensorBase empty_strided_xpu(IntArrayRef size, IntArrayRef stride, ScalarType dtype,
                             std::optional<Device> device) {
    const OptionalDeviceGuard guard(device);
    return empty_strided_generic(size, stride, GetAllocator(kXPU), keys, dtype);
}
TensorBase empty_strided_xpu(IntArrayRef size, IntArrayRef stride, std::optional<ScalarType> dtype,
                             std::optional<Layout> layout, std::optional<Device> device,
                             std::optional<bool> pin) {
    check_arguments(layout, device, pin);
    return empty_strided_xpu(size, stride, dtype_or_default(dtype), device);
}
TensorBase empty_strided_xpu(IntArrayRef size, IntArrayRef stride, const TensorOptions &options) {
    return empty_strided_xpu(size, stride, optTypeMetaToScalarType(options.dtype_opt()), options.layout_opt(),
                             options.device_opt(), options.pinned_memory_opt());
}

} // namespace at::detail

namespace openxpu {
namespace {

using Dtype = std::optional<at::ScalarType>;
using Layout = std::optional<at::Layout>;
using Device = std::optional<at::Device>;

at::Tensor empty(at::IntArrayRef size, Dtype dtype, Layout layout, Device device, std::optional<bool> pin,
                 std::optional<at::MemoryFormat> format) {
    at::Tensor result = at::detail::empty_xpu(size, dtype, layout, device, pin, format);
    if (C10_UNLIKELY(at::globalContext().deterministicAlgorithms() &&
                     at::globalContext().deterministicFillUninitializedMemory()))
        at::native::fill_empty_deterministic_(result);
    return result;
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, Dtype dtype, Layout layout,
                         Device device, std::optional<bool> pin) {
    at::Tensor result = at::detail::empty_strided_xpu(size, stride, dtype, layout, device, pin);
    if (C10_UNLIKELY(at::globalContext().deterministicAlgorithms() &&
                     at::globalContext().deterministicFillUninitializedMemory()))
        at::native::fill_empty_deterministic_(result);
    return result;
}

// A tensor of zeros without memory, for derivatives of constants.
at::Tensor efficient_zero_tensor(at::IntArrayRef size, Dtype dtype, Layout, Device device,
                                 std::optional<bool>) {
    const c10::OptionalDeviceGuard guard(device);
    at::native::ZeroTensorAllocator no_memory(c10::impl::getDeviceGuardImpl(c10::kXPU)->getDevice());
    return at::detail::empty_generic(
        size, &no_memory, c10::DispatchKeySet({c10::DispatchKey::XPU, c10::DispatchKey::ZeroTensor}),
        c10::dtype_or_default(dtype), std::nullopt);
}

} // namespace

TORCH_LIBRARY_IMPL(aten, XPU, m) {
    m.impl("empty.memory_format", empty);
    m.impl("empty_strided", empty_strided);
    m.impl("_efficientzerotensor", efficient_zero_tensor);
}

} // namespace openxpu

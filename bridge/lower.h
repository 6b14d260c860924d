// Conversion from ATen's types to libxpu's structs. On the path of every eager operation: cheap, and without
// allocation (except as_cpu).
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <array>
#include <string_view>

#include "export.h"
#include "xpu/device.h"
#include "xpu/ops.h"

namespace openxpu {

// Throws what Python shows as torch.OutOfMemoryError, NotImplementedError, torch.AcceleratorError or
// RuntimeError, with xpu_last_error() as the text.
[[noreturn]] OPENXPU_API void raise(xpu_status status);
inline void check(xpu_status status) {
    if (C10_UNLIKELY(status != XPU_SUCCESS)) raise(status);
}

// The text, for as long as the process lives: for what a device reports later.
const char *lasting(std::string_view text);

inline c10::DeviceIndex current_device() {
    int device;
    check(xpu_device_current(&device));
    return static_cast<c10::DeviceIndex>(device);
}

// The calling thread's current stream of a device, as torch.xpu.current_stream() gives it.
inline xpu_stream *current_stream(c10::DeviceIndex device) {
    xpu_stream *stream;
    check(xpu_stream_current(device, &stream));
    return stream;
}
inline xpu_stream *current_stream(const at::TensorBase &tensor) {
    return current_stream(tensor.device().index());
}

// Does the device use the host's own memory, so that as_cpu works?
OPENXPU_API bool is_host_device(c10::DeviceIndex device);

OPENXPU_API const xpu_device_properties &properties_of(c10::DeviceIndex device);

// What libxpu calls the dtype, XPU_DTYPE_COUNT where it knows none; dtype_of throws NotImplementedError then.
// Types of less than a byte an element are PyTorch's in name only: there each takes a byte. Every operator
// asks for each of its operands: hence a table.
inline xpu_dtype known_dtype(c10::ScalarType type) {
    static constexpr auto known = [] {
        std::array<uint8_t, static_cast<size_t>(c10::ScalarType::NumOptions) + 1> table{};
        for (auto &entry : table) entry = XPU_DTYPE_COUNT;
#define X(name, token, bits, kind, stored, computed, needs, title, ...)                                      \
    if (bits % 8 == 0) table[static_cast<size_t>(c10::ScalarType::title)] = XPU_##name;
#include "xpu/dtype.def"
#undef X
        return table;
    }();
    return static_cast<xpu_dtype>(known[static_cast<size_t>(type)]);
}
inline bool is_known(c10::ScalarType type) { return known_dtype(type) != XPU_DTYPE_COUNT; }
[[noreturn]] OPENXPU_API void refuse_dtype(c10::ScalarType type);
inline xpu_dtype dtype_of(c10::ScalarType type) {
    const auto dtype = known_dtype(type);
    if (C10_UNLIKELY(dtype == XPU_DTYPE_COUNT)) refuse_dtype(type);
    return dtype;
}
// The greatest finite number of a dtype; of a complex one, of its parts.
double highest_of(c10::ScalarType type);
inline xpu_dtype dtype_of(const at::TensorBase &tensor) { return dtype_of(tensor.scalar_type()); }

xpu_scalar scalar_of(const c10::Scalar &scalar);
inline xpu_scalar scalar_of(double value) { return {.dtype = XPU_FLOAT64, .value = {.f = value}}; }
inline xpu_scalar scalar_of(int64_t value) { return {.dtype = XPU_INT64, .value = {.i = value}}; }
inline xpu_scalar scalar_of(bool value) { return {.dtype = XPU_BOOL, .value = {.i = value}}; }
// The element at `data`, a host address.
xpu_scalar scalar_at(c10::ScalarType type, const void *data);

// All operands of a built iterator, outputs first; 0-dimensional CPU inputs by value. The iterator's
// dimensions are taken as they are: coalesced, unless it was told not to. `all` takes every operand for one
// of that dtype, where elements are only moved.
xpu_iter iter_of(at::TensorIteratorBase &iter, std::optional<xpu_dtype> all = std::nullopt);

// Borrows the tensor's sizes and strides: valid as long as the tensor and its shape.
inline xpu_tensor tensor_of(const at::TensorBase &tensor) {
    return {.data = tensor.mutable_data_ptr(),
            .dtype = dtype_of(tensor),
            .dims = static_cast<int>(tensor.dim()),
            .size = tensor.sizes().data(),
            .stride = tensor.strides().data()};
}

// A CPU tensor over the memory of one on a host device: same storage, offset, strides, conjugate and
// negative bits. It keeps the storage alive. Waits for the current stream where the device is asynchronous.
// CPU and undefined tensors are returned as they are. With `resizable` the alias can be resized, and moves to
// other memory then.
OPENXPU_API at::Tensor as_cpu(const at::Tensor &tensor, bool resizable = false);

} // namespace openxpu

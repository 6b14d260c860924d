// Conversion from ATen's types to libxpu's structs. On the path of every eager operation: cheap, and without
// allocation.
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

// Throws an exception with the text of xpu_last_error(). In Python it is torch.OutOfMemoryError,
// NotImplementedError, torch.AcceleratorError or RuntimeError.
[[noreturn]] OPENXPU_API void raise(xpu_status status);
inline void check(xpu_status status) {
    if (C10_UNLIKELY(status != XPU_SUCCESS)) raise(status);
}

// A copy of the text that lives as long as the process, for deferred device errors.
const char *lasting(std::string_view text);

inline c10::DeviceIndex current_device() {
    int device;
    check(xpu_device_current(&device));
    return static_cast<c10::DeviceIndex>(device);
}

// The calling thread's current stream of a device, as in torch.xpu.current_stream().
inline xpu_stream *current_stream(c10::DeviceIndex device) {
    xpu_stream *stream;
    check(xpu_stream_current(device, &stream));
    return stream;
}
inline xpu_stream *current_stream(const at::TensorBase &tensor) {
    return current_stream(tensor.device().index());
}

// True if the device uses host memory, which as_cpu (host_alias.h) requires.
OPENXPU_API bool is_host_device(c10::DeviceIndex device);

OPENXPU_API const xpu_device_properties &properties_of(c10::DeviceIndex device);

// libxpu's dtype, XPU_DTYPE_COUNT if there is none; dtype_of then throws NotImplementedError. PyTorch's
// sub-byte types don't map: their elements take a byte each. A table, as every operator looks up each
// operand.
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
// The largest finite value of a dtype; for complex dtypes, of each part.
double highest_of(c10::ScalarType type);
inline xpu_dtype dtype_of(const at::TensorBase &tensor) { return dtype_of(tensor.scalar_type()); }

xpu_scalar scalar_of(const c10::Scalar &scalar);
inline xpu_scalar scalar_of(double value) { return {.dtype = XPU_FLOAT64, .value = {.f = value}}; }
inline xpu_scalar scalar_of(int64_t value) { return {.dtype = XPU_INT64, .value = {.i = value}}; }
inline xpu_scalar scalar_of(bool value) { return {.dtype = XPU_BOOL, .value = {.i = value}}; }
// The element at `data`, a host address.
xpu_scalar scalar_at(c10::ScalarType type, const void *data);

// All operands of a built iterator, outputs first; 0-dimensional CPU inputs by value. Dimensions are the
// iterator's, coalesced by default. `all` overrides the dtype of all operands, for operations that only
// copy elements.
xpu_iter iter_of(at::TensorIteratorBase &iter, std::optional<xpu_dtype> all = std::nullopt);

// Borrows the tensor's sizes and strides: valid while the tensor lives and keeps its shape.
inline xpu_tensor tensor_of(const at::TensorBase &tensor) {
    return {.data = tensor.mutable_data_ptr(),
            .dtype = dtype_of(tensor),
            .dims = static_cast<int>(tensor.dim()),
            .size = tensor.sizes().data(),
            .stride = tensor.strides().data()};
}

} // namespace openxpu

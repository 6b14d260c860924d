#include "lower.h"

#include <c10/core/DynamicCast.h>

#include <atomic>
#include <mutex>
#include <set>

namespace openxpu {

void raise(xpu_status status) {
    const char *text = xpu_last_error();
    switch (status) {
    case XPU_ERROR_OUT_OF_MEMORY: TORCH_CHECK_WITH(OutOfMemoryError, false, text);
    case XPU_ERROR_NOT_SUPPORTED: TORCH_CHECK_NOT_IMPLEMENTED(false, text);
    case XPU_ERROR_DEVICE_LOST:
        throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, static_cast<int32_t>(status), text);
    case XPU_ERROR_INDEX: TORCH_CHECK_INDEX(false, text);
    case XPU_ERROR_ASSERTION:
    case XPU_ERROR_INVALID_ARGUMENT:
    case XPU_ERROR_NO_DEVICE:
    case XPU_ERROR_BAD_FORK: TORCH_CHECK(false, text);
    default: TORCH_CHECK(false, xpu_status_name(status), ": ", text);
    }
}

const xpu_device_properties &properties_of(c10::DeviceIndex device) {
    const xpu_device_properties *properties;
    check(xpu_device_get_properties(device, &properties));
    return *properties;
}

bool is_host_device(c10::DeviceIndex device) {
    enum : signed char { unknown, no, yes };
    static std::atomic<signed char> answers[64];
    if (device < 0 || device >= 64) return false;
    auto answer = answers[device].load(std::memory_order_relaxed);
    if (answer == unknown) {
        const auto &properties = properties_of(device);
        answer = properties.type == XPU_DEVICE_CPU && properties.host_unified_memory ? yes : no;
        answers[device].store(answer, std::memory_order_relaxed);
    }
    return answer == yes;
}

void refuse_dtype(c10::ScalarType type) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "not implemented for '", type, "' on xpu");
}

double highest_of(c10::ScalarType type) {
    static constexpr double highest[] = {
#define X(name, token, bits, kind, stored, computed, needs, title, lowest, highest) double(highest),
#include "xpu/dtype.def"
#undef X
    };
    return highest[dtype_of(type)];
}

xpu_scalar scalar_of(const c10::Scalar &scalar) {
    if (scalar.isFloatingPoint()) return scalar_of(scalar.toDouble());
    if (scalar.isBoolean()) return scalar_of(scalar.toBool());
    if (scalar.isComplex()) {
        auto c = scalar.toComplexDouble();
        return {.dtype = XPU_COMPLEX128, .value = {.c = {c.real(), c.imag()}}};
    }
    if (scalar.type() == c10::kUInt64) return {.dtype = XPU_UINT64, .value = {.u = scalar.toUInt64()}};
    return scalar_of(scalar.toLong());
}

xpu_scalar scalar_at(c10::ScalarType type, const void *data) {
    switch (type) {
    case c10::kBool: return scalar_of(*static_cast<const uint8_t *>(data) != 0);
    case c10::kUInt64: return {.dtype = XPU_UINT64, .value = {.u = *static_cast<const uint64_t *>(data)}};
    case c10::kComplexFloat:
    case c10::kComplexDouble:
    case c10::kComplexHalf: {
        auto c = c10::fetch_and_cast<c10::complex<double>>(type, data);
        return {.dtype = XPU_COMPLEX128, .value = {.c = {c.real(), c.imag()}}};
    }
    default:
        if (c10::isIntegralType(type, false)) return scalar_of(c10::fetch_and_cast<int64_t>(type, data));
        return scalar_of(c10::fetch_and_cast<double>(type, data));
    }
}

xpu_iter iter_of(at::TensorIteratorBase &iter, std::optional<xpu_dtype> all) {
    xpu_iter result;
    const int operands = iter.ntensors(), dims = iter.ndim();
    TORCH_CHECK_NOT_IMPLEMENTED(operands <= XPU_MAX_OPERANDS && dims <= XPU_MAX_DIMS, "an operation with ",
                                operands, " operands and ", dims, " dimensions; xpu supports up to ",
                                XPU_MAX_OPERANDS, " operands and, after merging dimensions, ", XPU_MAX_DIMS,
                                " dimensions");
    result.outputs = iter.noutputs();
    result.inputs = operands - result.outputs;
    result.dims = dims;
    for (int d = 0; d < dims; d++) result.size[d] = iter.shape()[d];
    for (int i = 0; i < operands; i++) {
        auto &operand = result.operand[i];
        const auto type = iter.dtype(i);
        operand.dtype = all ? *all : dtype_of(type);
        operand.data = iter.data_ptr(i);
        const auto strides = iter.strides(i);
        for (int d = 0; d < dims; d++) operand.stride[d] = strides[d];
        if (i >= result.outputs && iter.is_cpu_scalar(i)) {
            operand.scalar = scalar_at(type, operand.data);
            operand.data = nullptr;
        }
    }
    return result;
}

const char *lasting(std::string_view text) {
    static std::mutex lock; // guards the texts
    static auto &texts = *new std::set<std::string, std::less<>>;
    const std::lock_guard guard(lock);
    return texts.emplace(text).first->c_str();
}

} // namespace openxpu

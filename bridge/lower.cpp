#include "host_memory.h"
#include "host_work.h"
#include "operands.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>

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

at::Tensor dense_for(const at::Tensor &out, c10::ScalarType dtype, at::MemoryFormat format) {
    TORCH_CHECK(out.scalar_type() == dtype, "Expected out tensor to have dtype ", dtype, ", but got ",
                out.scalar_type(), " instead");
    at::assert_no_internal_overlap(out);
    return out.is_contiguous(format) ? out : at::empty(out.sizes(), out.options().memory_format(format));
}

at::Tensor &give(const at::Tensor &value, at::Tensor &out) {
    TORCH_CHECK(out.scalar_type() == value.scalar_type(), "Expected out tensor to have dtype ",
                value.scalar_type(), ", but got ", out.scalar_type(), " instead");
    return give_converted(value, out);
}

at::Tensor &give_converted(const at::Tensor &value, at::Tensor &out) {
    at::native::resize_output(out, value.sizes());
    return out.copy_(value);
}

std::atomic<void (*)(c10::DeviceIndex)> host_work_observer = nullptr;

namespace {

// The context of an alias: a reference to its storage.
void drop_reference(void *storage) {
    c10::raw::intrusive_ptr::decref(static_cast<c10::StorageImpl *>(storage));
}

enum class Hold { storage, nothing };

at::Tensor alias_of(const at::Tensor &tensor, bool written, bool resizable, Hold hold = Hold::storage) {
    if (!tensor.defined() || tensor.is_cpu()) return tensor;
    const auto device = tensor.device().index();
    TORCH_INTERNAL_ASSERT(tensor.is_xpu() && is_host_device(device), "as_cpu of a tensor on ",
                          tensor.device());
    if (hold == Hold::storage)
        check(xpu_stream_refuse_capture(current_stream(device),
                                        "a copy or computation by PyTorch's CPU kernels"));
    if (hold == Hold::storage && !properties_of(device).has_local_exec)
        check(xpu_stream_synchronize(current_stream(device)));

    const auto observe = host_work_observer.load(std::memory_order_relaxed);
    if (C10_UNLIKELY(observe != nullptr) && hold == Hold::storage) observe(device);

    auto *impl = tensor.unsafeGetTensorImpl();
    auto *storage = impl->unsafe_storage().unsafeGetStorageImpl();
    void *const address = written ? storage->mutable_data() : const_cast<void *>(storage->data());
    if (hold == Hold::storage) c10::raw::intrusive_ptr::incref(storage);
    c10::DataPtr data = hold == Hold::storage ? c10::DataPtr(address, storage, drop_reference, c10::kCPU)
                                              : c10::DataPtr(address, c10::kCPU);
    c10::Storage alias(c10::Storage::use_byte_size_t(), storage->sym_nbytes(), std::move(data),
                       resizable ? c10::GetCPUAllocator() : nullptr, resizable);
    auto result = at::detail::make_tensor<c10::TensorImpl>(
        std::move(alias), c10::DispatchKeySet(c10::DispatchKey::CPU), impl->dtype());
    auto *cpu = result.unsafeGetTensorImpl();
    cpu->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
    cpu->_set_conj(tensor.is_conj());
    cpu->_set_neg(tensor.is_neg());
    if (impl->is_wrapped_number()) cpu->set_wrapped_number(true);
    return result;
}

} // namespace

at::Tensor as_cpu(const at::Tensor &tensor, bool resizable) { return alias_of(tensor, true, resizable); }
at::Tensor as_cpu_input(const at::Tensor &tensor) { return alias_of(tensor, false, false); }
at::Tensor borrowed(const at::Tensor &tensor, bool written) {
    return alias_of(tensor, written, false, Hold::nothing);
}

const char *lasting(std::string_view text) {
    static std::mutex lock; // guards the texts
    static auto &texts = *new std::set<std::string, std::less<>>;
    const std::lock_guard guard(lock);
    return texts.emplace(text).first->c_str();
}

} // namespace openxpu

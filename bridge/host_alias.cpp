#include "host_alias.h"

#include <c10/core/CPUAllocator.h>

#include "lower.h"
#include "xpu/graph.h"

namespace openxpu {

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

} // namespace openxpu

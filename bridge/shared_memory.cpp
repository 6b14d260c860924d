#include "shared_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>

#include "lower.h"
#include "xpu/graph.h"
#include "xpu/memory.h"

namespace openxpu {
namespace {

// The context of shared memory is a reference to the CPU storage. No waiting is needed: work of host
// devices is done when the submitting call returns.
void let_go(void *shared) { c10::raw::intrusive_ptr::decref(static_cast<c10::StorageImpl *>(shared)); }

c10::DataPtr data_over(const c10::Storage &shared, c10::DeviceIndex device) {
    auto *impl = shared.unsafeGetStorageImpl();
    TORCH_CHECK(shared.device().is_cpu(), "shared memory must be a CPU storage");
    void *const address = impl->mutable_data();
    c10::raw::intrusive_ptr::incref(impl);
    return {address, impl, let_go, c10::Device(c10::kXPU, device)};
}

} // namespace

void check_shareable(c10::DeviceIndex device) {
    properties_of(device); // which a forked process doesn't get
    TORCH_CHECK(is_host_device(device), "memory of xpu:", static_cast<int>(device),
                " can't be shared between processes, because it is not host memory; send tensor.cpu() and "
                "call .to('xpu') in the receiver");
}

c10::Storage shared_storage_of(const c10::Storage &storage) {
    const auto &data = storage.data_ptr();
    if (data.get_deleter() != let_go) return {};
    return c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
        static_cast<c10::StorageImpl *>(data.get_context())));
}

void move_into_shared(const c10::Storage &storage, const c10::Storage &shared) {
    auto *impl = storage.unsafeGetStorageImpl();
    const auto device = storage.device().index();
    const size_t size = impl->nbytes();
    check_shareable(device);
    TORCH_CHECK(shared.nbytes() == size, "expected a storage of ", size, " bytes, got ", shared.nbytes());
    // A graph contains addresses: it would keep using the old memory, which may then belong to someone
    // else.
    TORCH_CHECK(!size || !xpu_graph_may_use(device, impl->data()),
                "this memory of xpu:", static_cast<int>(device),
                " can't be moved into shared memory: an XPUGraph captured after its allocation may use it. "
                "Call share_memory_() before the capture, or share tensor.clone()");
    const c10::DeviceGuard guard(storage.device());
    auto data = data_over(shared, device);
    check(xpu_memcpy(current_stream(device), data.get(), impl->data(), size, true));
    impl->set_data_ptr(std::move(data)); // a lazy clone is none any more
    impl->set_resizable(false);
}

c10::Storage storage_over(const c10::Storage &shared, c10::DeviceIndex device) {
    check_shareable(device);
    return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), shared.nbytes(), data_over(shared, device),
        c10::GetAllocator(c10::kXPU), /*resizable=*/false));
}

} // namespace openxpu

#include "host_memory.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>
#include <exception>
#include <utility>

#include "allocator.h"
#include "xpu/memory.h"
#include "xpu/ops/gemm.h"

namespace openxpu {
namespace {

// The source of this thread's CPU allocations: the device of this stream, or PyTorch's CPU allocator if
// null.
thread_local xpu_stream *source = nullptr;

c10::Allocator *usual = nullptr;

void free_block(void *block) {
    if (!give_if_ours(block)) usual->raw_deleter()(block);
}

void free_device_block(void *block) { give_memory(block); }

// Wraps PyTorch's CPU allocator. Memory may be freed by any thread at any time: the deleter of raw
// allocations (oneDNN's may outlive the scope) therefore checks which allocator owns the block.
class SwitchingAllocator final : public c10::Allocator {
  public:
    c10::DataPtr allocate(size_t size) override {
        if (C10_LIKELY(source == nullptr)) return usual->allocate(size);
        void *block = size ? take_memory(source, size) : nullptr;
        return {block, block, &free_device_block, c10::Device(c10::kCPU)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return usual->raw_deleter() ? &free_block : nullptr; }
    void copy_data(void *to, const void *from, size_t size) const override {
        usual->copy_data(to, from, size);
    }
};

void install() {
    static const bool done = [] {
        usual = c10::GetCPUAllocator();
        c10::SetCPUAllocator(new SwitchingAllocator, 0xff); // lives as long as the process
        return true;
    }();
    (void)done;
}

} // namespace

bool uses_host_kernels(c10::DeviceIndex device) { return xpu_host_provider_active(device); }

bool is_slow_on_host(c10::ScalarType type) {
    static const bool fast_bfloat16 = [] { /* what PyTorch's products ask themselves */
                                           const auto ask = c10::Dispatcher::singleton().findSchema(
                                               {"mkldnn::_is_mkldnn_bf16_supported", ""});
                                           if (!ask) return false;
                                           torch::jit::Stack answer;
                                           ask->callBoxed(answer);
                                           return answer.back().toBool();
    }();
    return type == c10::kHalf || (type == c10::kBFloat16 && !fast_bfloat16);
}

HostScope::HostScope(c10::DeviceIndex device)
    : device_(device), outer_(source), no_autocast_(c10::DispatchKey::AutocastCPU) {
    install();
    source = current_stream(device);
}

HostScope::~HostScope() { source = outer_; }

OutsideDevice::OutsideDevice() : outer_(std::exchange(source, nullptr)) {}

OutsideDevice::~OutsideDevice() { source = outer_; }

at::Tensor HostScope::adopt(at::Tensor cpu) const {
    if (!cpu.defined() || cpu.is_xpu()) return cpu;
    auto *storage = cpu.storage().unsafeGetStorageImpl();
    const c10::Device device(c10::kXPU, device_);
    c10::Allocator *allocator = c10::GetAllocator(c10::kXPU);
    const size_t size = storage->nbytes();
    c10::DataPtr data;
    if (storage->data_ptr().get_deleter() == &free_device_block) {
        c10::DataPtr block = storage->set_data_ptr(c10::DataPtr(nullptr, c10::Device(c10::kCPU)));
        void *address = block.release_context();
        data = {address, address, &free_device_block, device};
    } else { // made outside any scope, by another thread say
        data = allocator->allocate(size);
        if (size) std::memcpy(data.get(), storage->data(), size);
    }
    c10::Storage owned(c10::Storage::use_byte_size_t(), size, std::move(data), allocator, true);
    auto result = at::detail::make_tensor<c10::TensorImpl>(
        std::move(owned), c10::DispatchKeySet(c10::DispatchKey::XPU), cpu.dtype());
    auto *impl = result.unsafeGetTensorImpl();
    impl->set_sizes_and_strides(cpu.sizes(), cpu.strides(), cpu.storage_offset());
    impl->_set_conj(cpu.is_conj());
    impl->_set_neg(cpu.is_neg());
    return result;
}

namespace {

using Again = std::function<void()>;
thread_local std::exception_ptr failure;

xpu_status call_again(xpu_stream *, const void *again) {
    try {
        (*static_cast<const Again *>(again))();
        return XPU_SUCCESS;
    } catch (...) { return keep_failure(); }
}
void drop_again(void *again) { delete static_cast<Again *>(again); }

} // namespace

void record_on_host(c10::DeviceIndex device, const char *name, std::function<void()> again) {
    check(xpu_graph_host_call(current_stream(device), name, call_again, new Again(std::move(again)),
                              drop_again));
}

xpu_status keep_failure() {
    failure = std::current_exception();
    return XPU_ERROR_INVALID_ARGUMENT;
}
void rethrow_failure() {
    if (failure) std::rethrow_exception(std::exchange(failure, nullptr));
}

} // namespace openxpu

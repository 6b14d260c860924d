#include "allocator.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/AutogradState.h>

#include "history.h"
#include "lower.h"

namespace openxpu {
namespace {

// A block that can't be given back is lost; a destructor has nobody to tell it to.
void give_back(void *pointer) {
    before_free();
    xpu_free(pointer);
}
void give_back_host(void *pointer) { xpu_host_free(pointer); }

// Backward of a host device's tensors runs on the thread that asks for it, as the CPU's does. On a thread of
// autograd's own, OpenMP would have a second team beside the caller's: more threads than processors, which
// then sleep and wake at every operation instead of waiting awake (ResNet trains at a third of the
// speed).
void keep_backward_on_this_thread() {
    c10::AutogradState &state = c10::AutogradState::get_tls_state();
    if (C10_UNLIKELY(state.get_multithreading_enabled())) state.set_multithreading_enabled(false);
}

xpu_stream *stream_of(c10::Stream stream) {
    xpu_stream *result;
    check(xpu_stream_from_id(stream.device_index(), stream.id(), &result));
    return result;
}

c10::CachingDeviceAllocator::Stat to_stat(const xpu_memory_stat &from) {
    c10::CachingDeviceAllocator::Stat stat;
    stat.current = from.current;
    stat.peak = from.peak;
    stat.allocated = from.allocated;
    stat.freed = from.freed;
    return stat;
}

c10::CachingDeviceAllocator::StatArray to_stats(const xpu_memory_stat (&from)[XPU_POOL_KINDS]) {
    c10::CachingDeviceAllocator::StatArray stats;
    for (int i = 0; i < XPU_POOL_KINDS; i++) stats[i] = to_stat(from[i]);
    return stats;
}

struct DeviceAllocator final : c10::DeviceAllocator {
    c10::DataPtr allocate(size_t size) override {
        int device;
        void *pointer = nullptr;
        check(xpu_device_current(&device));
        if (is_host_device(static_cast<c10::DeviceIndex>(device))) keep_backward_on_this_thread();
        if (size) before_allocation();
        if (size) check(xpu_malloc(current_stream(device), size, &pointer));
        return {pointer, pointer, give_back, c10::Device(c10::kXPU, device)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return give_back; }
    void copy_data(void *to, const void *from, size_t size) const override {
        int device;
        check(xpu_memory_device_of(to, &device));
        check(xpu_memcpy(current_stream(device), to, from, size, false));
    }
    bool initialized() override { return xpu_initialized(); }
    void emptyCache(c10::MempoolId_t) override {
        int count;
        check(xpu_device_count(&count));
        for (int device = 0; device < count; device++) check(xpu_memory_empty_cache(device));
    }
    void recordStream(const c10::DataPtr &block, c10::Stream stream) override {
        // Memory that isn't the allocator's (from_blob, DLPack) is its owner's to keep alive.
        if (!block.get() || block.get_deleter() != give_back) return;
        check(xpu_memory_record_stream(block.get(), stream_of(stream)));
    }
    c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
        return device_stats(device);
    }
    void resetAccumulatedStats(c10::DeviceIndex device) override {
        check(xpu_memory_reset_accumulated_stats(device));
    }
    void resetPeakStats(c10::DeviceIndex device) override { check(xpu_memory_reset_peak_stats(device)); }
    std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
        std::pair<size_t, size_t> info;
        check(xpu_memory_info(device, &info.first, &info.second));
        return info;
    }
};

struct HostAllocator final : at::HostAllocator {
    c10::DataPtr allocate(size_t size) override {
        void *pointer = nullptr;
        if (size) check(xpu_host_malloc(size, &pointer));
        return {pointer, pointer, give_back_host, c10::Device(c10::kCPU)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return give_back_host; }
    void copy_data(void *to, const void *from, size_t size) const override {
        default_copy_data(to, from, size);
    }
    bool record_event(void *pointer, void *, c10::Stream stream) override {
        if (!xpu_host_is_pinned(pointer)) return false;
        check(xpu_host_record_stream(pointer, stream_of(stream)));
        return true;
    }
    void empty_cache() override { check(xpu_host_empty_cache()); }
    at::HostStats get_stats() override { return {}; }
    void reset_accumulated_stats() override {}
    void reset_peak_stats() override {}
};

DeviceAllocator device_allocator;
HostAllocator host_allocator;

} // namespace

c10::Allocator *pinned_allocator() { return &host_allocator; }

c10::CachingDeviceAllocator::DeviceStats device_stats(c10::DeviceIndex device) {
    xpu_memory_stats from;
    check(xpu_memory_get_stats(device, &from));
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocation = to_stats(from.allocation);
    stats.segment = to_stats(from.segment);
    stats.active = to_stats(from.active);
    stats.inactive_split = to_stats(from.inactive_split);
    stats.allocated_bytes = to_stats(from.allocated_bytes);
    stats.reserved_bytes = to_stats(from.reserved_bytes);
    stats.active_bytes = to_stats(from.active_bytes);
    stats.inactive_split_bytes = to_stats(from.inactive_split_bytes);
    stats.requested_bytes = to_stats(from.requested_bytes);
    stats.oversize_allocations = to_stat(from.oversize_allocations);
    stats.oversize_segments = to_stat(from.oversize_segments);
    stats.num_alloc_retries = from.num_alloc_retries;
    stats.num_ooms = from.num_ooms;
    stats.num_device_alloc = from.num_device_alloc;
    stats.num_device_free = from.num_device_free;
    stats.num_sync_all_streams = from.num_sync_all_streams;
    stats.max_split_size = from.max_split_size;
    return stats;
}

void register_allocators() {
    c10::SetAllocator(c10::kXPU, &device_allocator);
    at::setHostAllocator(c10::kXPU, &host_allocator);
}

} // namespace openxpu

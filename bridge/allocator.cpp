#include "allocator.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/AutogradState.h>

#include <mutex>
#include <unordered_map>

#include "history.h"
#include "lower.h"
#include "memory_settings.h"
#include "trace.h"

namespace openxpu {
namespace {

// A user's allocator functions that replace libxpu's (torch.xpu.memory.change_current_allocator).
struct Plugged {
    size_t size;
    int device;
    void *queue;
};
xpu_pool_source plugged_source{}; // set at most once, before the first allocation
std::mutex plugged_lock;          // guards the blocks
std::unordered_map<void *, Plugged> plugged_blocks;

void *take_plugged(xpu_stream *stream, size_t size) {
    void *queue;
    check(xpu_stream_native(stream, &queue));
    void *pointer = plugged_source.take(size, xpu_stream_device(stream), queue);
    TORCH_CHECK_WITH(OutOfMemoryError, pointer,
                     "XPU out of memory. The current allocator could not allocate ", size, " bytes.");
    const std::lock_guard guard(plugged_lock);
    plugged_blocks[pointer] = {size, xpu_stream_device(stream), queue};
    return pointer;
}

bool give_plugged(void *pointer) {
    std::unique_lock guard(plugged_lock);
    const auto found = plugged_blocks.find(pointer);
    if (found == plugged_blocks.end()) return false;
    const auto block = found->second;
    plugged_blocks.erase(found);
    guard.unlock();
    plugged_source.give(pointer, block.size, block.device, block.queue);
    return true;
}

// Reports a change of `change` bytes at `pointer` to the profiler (profile_memory=True).
void report(void *pointer, int64_t change, int device) {
    xpu_memory_stats stats;
    if (xpu_memory_get_stats(device, &stats) != XPU_SUCCESS) return;
    c10::reportMemoryUsageToProfiler(
        pointer, change, static_cast<size_t>(stats.allocated_bytes[XPU_POOL_ALL].current),
        static_cast<size_t>(stats.reserved_bytes[XPU_POOL_ALL].current), c10::Device(c10::kXPU, device));
}

// Statistics that a user's allocator doesn't have.
void give_back_host(void *pointer) { xpu_host_free(pointer); }

// Backward on a CPU device runs on the calling thread, like the CPU's. On an autograd thread, OpenMP
// would create a second thread pool besides the caller's. With more threads than cores they sleep and
// wake at every operation instead of spinning, and ResNet trains at a third of the speed.
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
        const auto device = current_device();
        void *pointer = nullptr;
        if (is_host_device(device)) keep_backward_on_this_thread();
        if (size) pointer = take_memory(current_stream(device), size);
        return {pointer, pointer, give_memory, c10::Device(c10::kXPU, device)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return give_memory; }
    void copy_data(void *to, const void *from, size_t size) const override {
        int device;
        check(xpu_memory_device_of(to, &device));
        check(xpu_memcpy(current_stream(device), to, from, size, false));
    }
    bool initialized() override { return xpu_initialized(); }
    void emptyCache(c10::MempoolId_t pool) override {
        int count;
        const uint64_t id[] = {pool.first, pool.second};
        check(xpu_device_count(&count));
        for (int device = 0; device < count; device++) {
            int users = 0;
            if (!pool.first && !pool.second)
                check(xpu_memory_empty_cache(device));
            else if (check(xpu_pool_users(device, id, &users)), users == 0)
                xpu_pool_empty(device, id); // the device need not have it
        }
    }
    void recordStream(const c10::DataPtr &block, c10::Stream stream) override {
        // The owner of foreign memory (from_blob, DLPack) must keep it alive.
        if (!block.get() || block.get_deleter() != give_memory || plugged_source.take) return;
        check(xpu_memory_record_stream(block.get(), stream_of(stream)));
    }
    c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
        return device_stats(device);
    }
    void resetAccumulatedStats(c10::DeviceIndex device) override {
        check_native("statistics");
        check(xpu_memory_reset_accumulated_stats(device));
    }
    void resetPeakStats(c10::DeviceIndex device) override {
        check_native("statistics");
        check(xpu_memory_reset_peak_stats(device));
    }
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

void *take_memory(xpu_stream *stream, size_t size) {
    apply_memory_settings();
    void *pointer;
    if (C10_UNLIKELY(plugged_source.take != nullptr)) {
        pointer = take_plugged(stream, size);
    } else {
        before_allocation();
        check(xpu_malloc(stream, size, &pointer));
        if (C10_UNLIKELY(c10::memoryProfilingEnabled()))
            report(pointer, static_cast<int64_t>(size), xpu_stream_device(stream));
    }
    tell(&Trace::trace_gpu_memory_allocation, pointer);
    return pointer;
}

// A block that can't be freed is leaked; a destructor can't report it.
bool give_if_ours(void *pointer) {
    int device;
    if (C10_LIKELY(plugged_source.take == nullptr) || !give_plugged(pointer)) {
        if (xpu_memory_device_of(pointer, &device) != XPU_SUCCESS) return false;
        before_free();
        void *base;
        size_t size;
        if (C10_UNLIKELY(c10::memoryProfilingEnabled()) &&
            xpu_memory_base_of(pointer, &base, &size) == XPU_SUCCESS)
            report(pointer, -static_cast<int64_t>(size), device);
        xpu_free(pointer);
    }
    tell(&Trace::trace_gpu_memory_deallocation, pointer);
    return true;
}

void give_memory(void *pointer) {
    if (pointer) give_if_ours(pointer);
}

void check_native(const char *what) {
    TORCH_CHECK_NOT_IMPLEMENTED(!plugged_source.take, "a pluggable allocator does not support ", what);
}

void plug_in(xpu_pool_source source) {
    TORCH_CHECK(!plugged_source.take, "Can't swap an already initialized allocator");
    plugged_source = source;
}

c10::Allocator *pinned_allocator() { return &host_allocator; }

c10::CachingDeviceAllocator::DeviceStats device_stats(c10::DeviceIndex device) {
    xpu_memory_stats from;
    check_native("statistics");
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

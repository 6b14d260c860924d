#include "history.h"

#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>

#include "lower.h"

namespace openxpu {
namespace {

std::atomic<bool> on{false};
HistoryOptions options{}; // changes only while no hook is set
std::mutex history_lock;  // guards the two below; taken under the allocator's lock
std::deque<HistoryEntry> entries;
std::map<const void *, Stack> held; // stacks of blocks that are handed out
thread_local Stack pending;         // of the call that is about to enter libxpu

Stack take_stack() { return torch::CapturedTraceback::gather(true, true, options.cpp); }

const void *hook(xpu_trace_action action, int device, void *address, size_t size, int64_t stream,
                 const void *context, void *) {
    std::lock_guard guard(history_lock);
    const void *kept = nullptr;
    Stack stack = pending;
    if (action == XPU_TRACE_ALLOC && stack) {
        kept = stack.get();
        held[kept] = stack;
    } else if (action == XPU_TRACE_FREE_COMPLETED && context) {
        stack = held[context];
        held.erase(context);
    }
    if (options.trace && !(options.skipped >> action & 1)) {
        const auto now = std::chrono::system_clock::now().time_since_epoch();
        entries.push_back({action, device, address, size, stream,
                           std::chrono::duration_cast<std::chrono::microseconds>(now).count(), stack});
        while (entries.size() > options.max_entries) entries.pop_front();
    }
    return kept;
}

int device_count() {
    int count;
    check(xpu_device_count(&count));
    return count;
}

} // namespace

const char *action_name(xpu_trace_action action) {
    switch (action) {
    case XPU_TRACE_ALLOC: return "alloc";
    case XPU_TRACE_FREE_REQUESTED: return "free_requested";
    case XPU_TRACE_FREE_COMPLETED: return "free_completed";
    case XPU_TRACE_SEGMENT_ALLOC: return "segment_alloc";
    case XPU_TRACE_SEGMENT_FREE: return "segment_free";
    case XPU_TRACE_OOM: return "oom";
    default: return "snapshot";
    }
}

void record_history(const HistoryOptions &wanted) {
    const int count = device_count();
    for (int device = 0; device < count; device++) check(xpu_memory_set_hook(device, nullptr, nullptr));
    on = false;
    std::unique_lock guard(history_lock);
    if (wanted.clear || !wanted.enabled) entries.clear();
    options = wanted;
    guard.unlock();
    if (!wanted.enabled) return;
    on = true;
    for (int device = 0; device < count; device++) check(xpu_memory_set_hook(device, hook, nullptr));
}

bool records_history() { return on; }

void before_allocation() {
    if (C10_UNLIKELY(on.load(std::memory_order_relaxed)))
        pending = options.alloc_stacks ? take_stack() : nullptr;
}

void before_free() {
    if (C10_UNLIKELY(on.load(std::memory_order_relaxed)))
        pending = options.free_stacks ? take_stack() : nullptr;
}

unsigned trace_action_bit(std::string_view name) {
    // Memory is never mapped twice: there are no such entries to omit.
    if (name == "segment_map" || name == "segment_unmap") return 0;
    for (int action = XPU_TRACE_ALLOC; action <= XPU_TRACE_OOM; action++)
        if (name == action_name(static_cast<xpu_trace_action>(action))) return 1u << action;
    TORCH_CHECK(false, "Unknown TraceEntry action: ", name);
}

MemorySnapshot take_snapshot(c10::MempoolId_t pool) {
    MemorySnapshot snapshot;
    auto &blocks = snapshot.blocks;
    snapshot.devices = device_count();
    for (int device = 0; device < snapshot.devices; device++)
        check(xpu_memory_visit_blocks(
            device,
            [](const xpu_block_info *block, void *user) {
                static_cast<std::vector<xpu_block_info> *>(user)->push_back(*block);
            },
            &blocks));
    if (pool.first || pool.second)
        std::erase_if(blocks, [&](const xpu_block_info &block) {
            return block.pool[0] != pool.first || block.pool[1] != pool.second;
        });
    std::lock_guard guard(history_lock);
    snapshot.trace.assign(entries.begin(), entries.end());
    for (const auto &[context, stack] : held) snapshot.alive.push_back(stack);
    return snapshot;
}

} // namespace openxpu

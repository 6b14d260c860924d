#include "memory_settings.h"

#include <c10/core/AllocatorConfig.h>

#include <atomic>
#include <limits>

#include "lower.h"
#include "xpu/memory.h"

namespace openxpu {
namespace {

using Settings = c10::CachingAllocator::AcceleratorAllocatorConfig;

std::atomic<bool> settings_applied;

// Some are newer than the oldest supported PyTorch.
template <typename S> size_t large_segment_of() {
    if constexpr (requires { S::large_segment_size(); })
        return S::large_segment_size();
    else
        return 0;
}

void warn_of_idle_settings() {
    if (Settings::use_expandable_segments()) {
        TORCH_WARN_ONCE("expandable_segments has no effect on xpu, whose segments have a fixed size. Use "
                        "max_split_size_mb and garbage_collection_threshold against fragmentation.");
    }
    if (Settings::pinned_use_background_threads()) {
        TORCH_WARN_ONCE("pinned_use_background_threads has no effect on xpu.");
    }
}

void apply_settings() {
    xpu_memory_settings to{};
    const auto split = Settings::max_split_size();
    if (split != std::numeric_limits<size_t>::max()) to.max_split_size = split;
    to.max_rounding = Settings::max_non_split_rounding_size();
    to.large_segment = large_segment_of<Settings>();
    to.garbage_threshold = Settings::garbage_collection_threshold();
    const auto &divisions = Settings::roundup_power2_divisions();
    for (size_t i = 0; i < divisions.size() && i < XPU_POWER2_INTERVALS; i++)
        to.power2_divisions[i] = static_cast<uint32_t>(divisions[i]);
    check(xpu_memory_configure(&to));
    warn_of_idle_settings();
}

} // namespace

void register_memory_settings() {
    auto &hook = Settings::getConfigParserHook();
    // A CUDA build has its own parser.
    Settings::registerDeviceConfigParserHook(
        [before = hook](const std::string &text) {
            if (before) before(text);
            apply_settings();
            settings_applied = true;
        },
        {});
}

void apply_memory_settings() {
    if (C10_LIKELY(settings_applied.load(std::memory_order_relaxed))) return;
    apply_settings();
    settings_applied = true;
}

} // namespace openxpu

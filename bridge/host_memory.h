// Run PyTorch's CPU kernels on the tensors of a host device.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <array>
#include <functional>

#include "export.h"
#include "lower.h"
#include "operands.h"
#include "xpu/graph.h"
#include "xpu/plans.h"

namespace openxpu {

// Do matrix products, convolutions and their like on this device go to PyTorch's CPU kernels?
// OPENXPU_HOST_PROVIDER=0 says no.
bool uses_host_kernels(c10::DeviceIndex device);

// Is it the host's memory and processor, so that PyTorch's CPU kernels may do as a whole what GPUs have
// kernels of libxpu's for?
inline bool works_as_processor(c10::DeviceIndex device) {
    return is_host_device(device) && xpu_plans_for_processor(device);
}

// Are PyTorch's CPU products and convolutions of this dtype slower than those of fp32, so that its tensors
// had better be widened first? So it is for fp16, and for bf16 where the processor has no AVX-512.
bool is_slow_on_host(c10::ScalarType type);

// While it lives, CPU tensors made by this thread lie in `device`'s memory (from its caching allocator:
// warm pages, counted in its statistics), and ATen is called below autograd and CPU autocast. Results
// become tensors of the device by adopt(). Nests.
class HostScope {
  public:
    explicit HostScope(c10::DeviceIndex device);
    ~HostScope();
    HostScope(const HostScope &) = delete;
    HostScope &operator=(const HostScope &) = delete;

    // The CPU tensor as one of the device, without a copy where its memory was taken inside a scope. The
    // CPU tensor must be the storage's only user, and is not to be used any more.
    at::Tensor adopt(at::Tensor cpu) const;

  private:
    c10::DeviceIndex device_;
    xpu_stream *outer_;
    at::AutoDispatchBelowADInplaceOrView below_autograd_;
    c10::impl::ExcludeDispatchKeyGuard no_autocast_;
};

// While it lives inside a HostScope, CPU tensors made by this thread lie where PyTorch puts them: nothing is
// written to the device's memory.
class OutsideDevice {
  public:
    OutsideDevice();
    ~OutsideDevice();
    OutsideDevice(const OutsideDevice &) = delete;
    OutsideDevice &operator=(const OutsideDevice &) = delete;

  private:
    xpu_stream *outer_;
};

// Is what this thread gives to its current stream written down for a graph, and not done?
inline bool is_captured(c10::DeviceIndex device) { return xpu_stream_is_capturing(current_stream(device)); }

// A CPU tensor over the memory of a host device's, which it doesn't keep: for what a graph does again.
OPENXPU_API at::Tensor borrowed(const at::Tensor &tensor, bool written);

// Lets the graph that captures the current stream call `again` in each replay; what that throws is kept for
// who called the replay.
OPENXPU_API void record_on_host(c10::DeviceIndex device, const char *name, std::function<void()> again);

// In a catch clause: keeps the exception, which must not pass through C, for rethrow_failure.
xpu_status keep_failure();
// After a call that failed: throws what was kept by this thread, if anything was.
void rethrow_failure();

// What `compute` makes of CPU tensors, for tensors of a host device. In a capture it runs once over whatever
// is in memory, for the results' shapes, and then in each replay: it must write nothing but its results, nor
// may they depend in shape on what it reads. The capture writes nothing to the device's memory, where other
// graphs may have something. The settings are all else that it needs.
template <size_t Results, size_t Inputs, typename Settings>
std::array<at::Tensor, Results> on_host(
    const char *name, c10::DeviceIndex device, const std::array<at::Tensor, Inputs> &inputs,
    const Settings &settings,
    std::array<at::Tensor, Results> (*compute)(const Settings &, const std::array<at::Tensor, Inputs> &)) {
    const bool captured = is_captured(device);
    const HostScope scope(device);
    std::array<at::Tensor, Inputs> there;
    for (size_t i = 0; i < Inputs; i++)
        there[i] = captured ? borrowed(inputs[i], false) : as_cpu_input(inputs[i]);
    std::array<at::Tensor, Results> results, places;
    if (!captured) {
        results = compute(settings, there);
        for (auto &result : results) result = scope.adopt(std::move(result));
        return results;
    }
    {
        const OutsideDevice elsewhere;
        results = compute(settings, there);
    }
    for (size_t i = 0; i < Results; i++) {
        if (!results[i].defined()) continue;
        results[i] = at::empty_strided(results[i].sizes(), results[i].strides(),
                                       results[i].options().device(c10::Device(c10::kXPU, device)));
        places[i] = borrowed(results[i], true);
    }
    record_on_host(device, name, [=] {
        const HostScope inside(device);
        const auto made = compute(settings, there);
        for (size_t i = 0; i < Results; i++)
            if (places[i].defined()) places[i].copy_(made[i]);
    });
    return results;
}

} // namespace openxpu

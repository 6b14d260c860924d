// Run PyTorch's CPU kernels on the tensors of a CPU device.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <array>
#include <functional>

#include "export.h"
#include "host_alias.h"
#include "lower.h"
#include "xpu/graph.h"
#include "xpu/policy.h"

namespace openxpu {

// True if matrix products, convolutions and similar operators on this device use PyTorch's CPU kernels.
// OPENXPU_HOST_PROVIDER=0 disables that.
bool uses_host_kernels(c10::DeviceIndex device);

// True for a CPU device with the CPU policy: PyTorch's CPU kernels then replace whole operators that have
// libxpu kernels for GPUs.
inline bool works_as_cpu(c10::DeviceIndex device) {
    return is_host_device(device) && xpu_uses_cpu_policy(device);
}

// True if PyTorch's CPU products and convolutions of this dtype are slower than converting to fp32 first:
// for fp16, and for bf16 on CPUs without AVX-512.
bool is_slow_on_host(c10::ScalarType type);

// Scope in which this thread's new CPU tensors are allocated from `device`'s caching allocator (warm
// pages, counted in its statistics), and ATen is called below autograd and CPU autocast. adopt() turns
// results into tensors of the device. Can be nested.
class HostScope {
  public:
    explicit HostScope(c10::DeviceIndex device);
    ~HostScope();
    HostScope(const HostScope &) = delete;
    HostScope &operator=(const HostScope &) = delete;

    // Converts a CPU tensor to one of the device, without a copy if it was allocated inside a scope. The
    // CPU tensor must be the storage's only user, and must not be used afterwards.
    at::Tensor adopt(at::Tensor cpu) const;

  private:
    c10::DeviceIndex device_;
    xpu_stream *outer_;
    at::AutoDispatchBelowADInplaceOrView below_autograd_;
    c10::impl::ExcludeDispatchKeyGuard no_autocast_;
};

// Inside a HostScope: a scope in which this thread's CPU tensors use PyTorch's allocator again, so that
// nothing is written to device memory.
class OutsideDevice {
  public:
    OutsideDevice();
    ~OutsideDevice();
    OutsideDevice(const OutsideDevice &) = delete;
    OutsideDevice &operator=(const OutsideDevice &) = delete;

  private:
    xpu_stream *outer_;
};

// True if this thread's current stream is captured by a graph.
inline bool is_captured(c10::DeviceIndex device) { return xpu_stream_is_capturing(current_stream(device)); }

// Records a call of `again` in the graph that captures the current stream. An exception in a replay is
// rethrown to the caller of the replay.
OPENXPU_API void record_on_host(c10::DeviceIndex device, const char *name, std::function<void()> again);

// In a catch clause: stores the exception for rethrow_failure, as it must not pass through C code.
xpu_status keep_failure();
// After a failed call: rethrows the exception that this thread stored, if any.
void rethrow_failure();

// Runs `compute`, which takes and returns CPU tensors, on tensors of a CPU device; `settings` are its
// other arguments.
// In a capture it runs once on arbitrary data, to get the shapes of the results, and then in each replay.
// It must write only its results, and their shapes must not depend on the data. The capture itself writes
// nothing to device memory, which other graphs may use.
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

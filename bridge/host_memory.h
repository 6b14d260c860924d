// PyTorch's own CPU kernels at work on the tensors of a host device.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "lower.h"

namespace openxpu {

// Do matrix products, convolutions and their like on this device go to PyTorch's CPU kernels?
// OPENXPU_HOST_PROVIDER=0 says no.
bool uses_host_kernels(c10::DeviceIndex device);

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

} // namespace openxpu

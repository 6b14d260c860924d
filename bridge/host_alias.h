// CPU tensors that alias the tensors of a CPU device, for PyTorch's CPU kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>

#include "export.h"

namespace openxpu {

// A CPU tensor that aliases a CPU device's tensor: same storage, offset, strides, conjugate and negative
// bits. It keeps the storage alive. Waits for the current stream of an asynchronous device. CPU and
// undefined tensors are returned unchanged. A `resizable` alias can be resized, which moves it to other
// memory.
OPENXPU_API at::Tensor as_cpu(const at::Tensor &tensor, bool resizable = false);

// as_cpu for a tensor that the CPU kernel only reads.
at::Tensor as_cpu_input(const at::Tensor &tensor);

// A CPU tensor that aliases a CPU device's tensor without keeping its storage alive, for use in replays.
OPENXPU_API at::Tensor borrowed(const at::Tensor &tensor, bool written);

// Called for each tensor that as_cpu and as_cpu_input create: the profiler's while it records, else null.
OPENXPU_API extern std::atomic<void (*)(c10::DeviceIndex)> host_work_observer;

} // namespace openxpu

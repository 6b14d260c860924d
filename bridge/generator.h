// torch.Generator(device="xpu"): a libxpu generator behind PyTorch's interface.
#pragma once

#include <ATen/core/Generator.h>

#include <optional>

#include "export.h"
#include "xpu/random.h"

namespace openxpu {

OPENXPU_API const at::Generator &default_generator(c10::DeviceIndex device);
at::Generator new_generator(c10::DeviceIndex device);

// The libxpu generator for an operator's `generator` argument: that one, or the device's default. Throws
// for a generator of another device type.
xpu_generator *generator_of(const std::optional<at::Generator> &generator, c10::DeviceIndex device);

} // namespace openxpu

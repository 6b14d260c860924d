// Events for torch.xpu._gpu_trace callbacks. Until they are activated (torch._C._activate_gpu_trace), the
// cost is one variable read.
#pragma once

#include <c10/core/impl/GPUTrace.h>

#include "interpreter.h"

namespace openxpu {

using Trace = c10::impl::PyInterpreterVTable;

inline bool traced() { return c10::impl::GPUTrace::get_trace() != nullptr; }

template <class... Kinds, class... Addresses>
void tell(void (Trace::*what)(c10::DeviceType, Kinds...) const, Addresses... of) {
    const auto *listener = c10::impl::GPUTrace::get_trace();
    if (C10_UNLIKELY(listener != nullptr))
        interpreter.call([=] { ((**listener).*what)(c10::kXPU, reinterpret_cast<uintptr_t>(of)...); });
}

} // namespace openxpu

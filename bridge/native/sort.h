// Shared by sorting and counting.
#pragma once

#include "host_memory.h"

namespace openxpu {

// True if PyTorch's CPU kernels sort and count these, on the same memory.
inline bool sorts_on_host(const at::Tensor &self) {
    const auto device = self.device().index();
    return works_as_cpu(device) && !is_captured(device);
}

// Converts their result to the device of `like`.
inline at::Tensor back(const at::Tensor &result, const at::Tensor &like) {
    return result.defined() ? result.to(like.device()) : result;
}
inline std::tuple<at::Tensor, at::Tensor, at::Tensor>
back(const std::tuple<at::Tensor, at::Tensor, at::Tensor> &results, const at::Tensor &like) {
    return {back(std::get<0>(results), like), back(std::get<1>(results), like),
            back(std::get<2>(results), like)};
}

} // namespace openxpu

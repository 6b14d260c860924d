// Shared by factorizations and solvers.
#pragma once

#include <ATen/native/LinearAlgebraUtils.h>

#include "host_memory.h"
#include "operands.h"
#include "xpu/ops/linalg.h"

namespace openxpu {

// True if PyTorch's LAPACK factors and solves these, on the same memory.
inline bool factors_on_host(const at::Tensor &self) { return works_as_cpu(self.device().index()); }

using CpuTensors = std::vector<at::Tensor>;

// Runs `work` on CPU tensors that alias these, or records it in a capture. It writes to the memory of
// `outputs`, which have their final shapes.
template <typename Work>
void lend(const char *name, const CpuTensors &inputs, const CpuTensors &outputs, Work work) {
    const auto device = outputs.front().device().index();
    const bool captured = is_captured(device);
    CpuTensors in, out;
    for (const auto &tensor : inputs) {
        const bool plain = !tensor.is_conj() && !tensor.is_neg();
        TORCH_CHECK(plain || !captured, "operation not permitted when stream is capturing: ", name,
                    " on a conjugate or negative view, which runs on the CPU");
        in.push_back(captured ? borrowed(tensor, false) : as_cpu_input(tensor));
    }
    for (const auto &tensor : outputs) out.push_back(captured ? borrowed(tensor, true) : as_cpu(tensor));
    if (!captured) return work(in, out);
    record_on_host(device, name, [=]() mutable {
        const HostScope scope(device);
        work(in, out);
    });
}

inline at::Tensor column_major(at::IntArrayRef sizes, const at::TensorOptions &options) {
    return at::empty_strided(sizes, at::native::batched_matrix_contiguous_strides(sizes, true), options);
}

// The batch stride, if one stride describes the whole batch.
inline std::optional<int64_t> batch_stride(const at::Tensor &self) {
    std::optional<int64_t> stride;
    int64_t expected = 0;
    for (int64_t d = self.dim() - 3; d >= 0; d--) {
        if (self.size(d) == 1) continue;
        if (stride && self.stride(d) != expected) return std::nullopt;
        if (!stride) stride = self.stride(d);
        expected = self.stride(d) * self.size(d);
    }
    return stride ? stride : 0;
}

// The matrices as stored: the caller handles the conjugate bit.
inline xpu_matrix matrix_of(const at::Tensor &self, void *data) {
    return {.data = data,
            .batch_stride = batch_stride(self).value(),
            .row_stride = self.stride(-2),
            .column_stride = self.stride(-1)};
}

// The tensor, or a copy with a single batch stride; the conjugate bit is preserved.
inline at::Tensor at_one_distance(const at::Tensor &self) {
    const auto resolved = self.resolve_neg();
    return batch_stride(resolved) ? resolved : at::native::cloneBatchedColumnMajor(resolved);
}

// Solves A X = B, with A transposed, conjugated or both on request. `x`, with a single batch stride,
// holds B before and X after; `a` is broadcast to its batch.
struct TriangularKind {
    bool upper, unit, transpose, conjugate;
};
inline void solve_in_place(const at::Tensor &a, const at::Tensor &x, TriangularKind kind) {
    if (x.numel() == 0) return;
    const auto batch = x.sizes().slice(0, x.dim() - 2);
    auto sizes = at::DimVector(batch);
    sizes.append({a.size(-2), a.size(-1)});
    auto matrices = at_one_distance(a.expand(sizes));
    if (kind.transpose) matrices = matrices.mT();
    const xpu_triangular_args args = {.dtype = dtype_of(x),
                                      .upper = kind.upper != kind.transpose,
                                      .unit = kind.unit,
                                      .conjugate = kind.conjugate != matrices.is_conj(),
                                      .batch = c10::multiply_integers(batch),
                                      .n = x.size(-2),
                                      .columns = x.size(-1),
                                      .a = matrix_of(matrices, input_data(matrices)),
                                      .x = matrix_of(x, x.mutable_data_ptr())};
    check(xpu_triangular_solve(current_stream(x), &args));
}

} // namespace openxpu

// Cumulative sums, products and extrema along one dimension.
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_cummax_helper_native.h>
#include <ATen/ops/_cummin_helper_native.h>
#include <ATen/ops/_logcumsumexp_native.h>
#include <ATen/ops/cumprod_native.h>
#include <ATen/ops/cumsum_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "operands.h"
#include "xpu/ops/scan.h"

namespace openxpu {
namespace {

using at::Tensor;

void scan(xpu_scan_op op, const Tensor &self, int64_t dim, const Tensor &values,
          const Tensor *indices = nullptr) {
    at::assert_no_internal_overlap(values);
    if (indices) at::assert_no_internal_overlap(*indices);
    if (self.numel() == 0) return;
    if (self.dim() == 0) return scan(op, self.view({1}), 0, values.view({1}), nullptr);
    const xpu_tensor in = input_of(self), out = tensor_of(values);
    const xpu_tensor index = indices ? tensor_of(*indices) : xpu_tensor{};
    check(xpu_scan(current_stream(self), op, &out, indices ? &index : nullptr, &in,
                   static_cast<int>(at::maybe_wrap_dim(dim, self.dim()))));
}

// Values that keep their meaning when the kernel reads them straight into the type it computes in.
Tensor scanned_as(const Tensor &self, at::ScalarType type) {
    const auto from = self.scalar_type();
    const bool exact = from == type || (at::isIntegralType(from, true) && at::isIntegralType(type, false)) ||
                       (type == at::kFloat && (from == at::kHalf || from == at::kBFloat16));
    return exact ? self : self.to(type);
}

void extremes(xpu_scan_op op, const Tensor &self, const Tensor &values, const Tensor &indices, int64_t dim) {
    if (self.dim() > 0) return scan(op, self, dim, values, &indices);
    values.copy_(self);
    indices.zero_();
}

} // namespace
} // namespace openxpu

namespace at::native {

using namespace openxpu;

TORCH_IMPL_FUNC(cumsum_xpu)(const Tensor &self, int64_t dim, std::optional<ScalarType>,
                            const Tensor &result) {
    scan(XPU_SCAN_SUM, scanned_as(self, result.scalar_type()), dim, result);
}

TORCH_IMPL_FUNC(cumprod_xpu)(const Tensor &self, int64_t dim, std::optional<ScalarType>,
                             const Tensor &result) {
    scan(XPU_SCAN_PROD, scanned_as(self, result.scalar_type()), dim, result);
}

void cummax_helper_xpu(const Tensor &self, Tensor &values, Tensor &indices, int64_t dim) {
    extremes(XPU_SCAN_MAX, self, values, indices, dim);
}

void cummin_helper_xpu(const Tensor &self, Tensor &values, Tensor &indices, int64_t dim) {
    extremes(XPU_SCAN_MIN, self, values, indices, dim);
}

Tensor &logcumsumexp_out_xpu(const Tensor &self, int64_t dim, Tensor &result) {
    dim = maybe_wrap_dim(dim, self.dim());
    resize_output(result, self.sizes());
    scan(XPU_SCAN_LOGSUMEXP, self, dim, result);
    return result;
}

Tensor logcumsumexp_xpu(const Tensor &self, int64_t dim) {
    Tensor result = at::empty_like(self, MemoryFormat::Contiguous);
    return logcumsumexp_out_xpu(self, dim, result);
}

} // namespace at::native

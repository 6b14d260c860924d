// Sorting and what is made of it. Host devices sort with PyTorch's own CPU kernels on the same memory; others
// by xpu_sort. What has no kernel of its own yet (mode, unique, histograms, binary search) runs on the CPU:
// in place on a host device, on copies elsewhere.
#define AT_PER_OPERATOR_HEADERS // the headers of some operators, not of all
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/_unique2_native.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/bincount_native.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/bucketize_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/histc.h>
#include <ATen/ops/histc_native.h>
#include <ATen/ops/isin.h>
#include <ATen/ops/isin_native.h>
#include <ATen/ops/kthvalue.h>
#include <ATen/ops/kthvalue_native.h>
#include <ATen/ops/median.h>
#include <ATen/ops/median_native.h>
#include <ATen/ops/mode.h>
#include <ATen/ops/mode_native.h>
#include <ATen/ops/nanmedian.h>
#include <ATen/ops/nanmedian_native.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/searchsorted_native.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/sort_native.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/topk_native.h>
#include <ATen/ops/unique_consecutive.h>
#include <ATen/ops/unique_consecutive_native.h>
#include <ATen/ops/unique_dim.h>
#include <ATen/ops/unique_dim_consecutive.h>
#include <ATen/ops/unique_dim_consecutive_native.h>
#include <ATen/ops/unique_dim_native.h>

#include <cstdlib>

#include "lower.h"
#include "xpu/ops/sort.h"
#include "xpu/plans.h"

namespace openxpu {
namespace {

using at::Tensor;

bool sorts_on_host(const Tensor &self) {
    const auto device = self.device().index();
    return is_host_device(device) && xpu_plans_for_processor(device);
}

Tensor on_cpu(const Tensor &tensor) {
    if (!tensor.defined() || tensor.is_cpu()) return tensor;
    return is_host_device(tensor.device().index()) ? as_cpu(tensor) : tensor.cpu();
}

void sort_into(const Tensor &self, int64_t dim, bool descending, int64_t first, const Tensor &values,
               const Tensor &indices) {
    if (values.numel() == 0) return;
    if (self.dim() == 0) {
        values.copy_(self);
        indices.zero_();
        return;
    }
    const xpu_tensor in = tensor_of(self), out = tensor_of(values), index = tensor_of(indices);
    check(xpu_sort(current_stream(self), &out, &index, &in,
                   static_cast<int>(at::maybe_wrap_dim(dim, self.dim())), descending, first));
}

// `out` gets what the CPU made of it.
template <typename Compute> Tensor &into(Tensor &out, Compute compute) {
    const Tensor result = compute();
    at::native::resize_output(out, result.sizes());
    return out.copy_(result);
}

Tensor back(const Tensor &result, const Tensor &like) {
    return result.defined() ? result.to(like.device()) : result;
}

std::tuple<Tensor, Tensor, Tensor> back(const std::tuple<Tensor, Tensor, Tensor> &results,
                                        const Tensor &like) {
    return {back(std::get<0>(results), like), back(std::get<1>(results), like),
            back(std::get<2>(results), like)};
}

std::tuple<Tensor &, Tensor &> pair_into(Tensor &values, Tensor &indices,
                                         const std::tuple<Tensor, Tensor> &results) {
    at::native::resize_output(values, std::get<0>(results).sizes());
    at::native::resize_output(indices, std::get<1>(results).sizes());
    values.copy_(std::get<0>(results));
    indices.copy_(std::get<1>(results));
    return {values, indices};
}

} // namespace
} // namespace openxpu

namespace at::native {

using namespace openxpu;

TORCH_IMPL_FUNC(sort_stable_xpu)(const Tensor &self, std::optional<bool> stable, int64_t dim, bool descending,
                                 const Tensor &values, const Tensor &indices) {
    if (!sorts_on_host(self)) return sort_into(self, dim, descending, 0, values, indices);
    Tensor v = as_cpu(values), i = as_cpu(indices);
    at::sort_outf(as_cpu(self), stable, dim, descending, v, i);
}

TORCH_IMPL_FUNC(topk_xpu)(const Tensor &self, int64_t k, int64_t dim, bool largest, bool sorted,
                          const Tensor &values, const Tensor &indices) {
    if (!sorts_on_host(self)) return sort_into(self, dim, largest, 0, values, indices);
    Tensor v = as_cpu(values), i = as_cpu(indices);
    at::topk_outf(as_cpu(self), k, dim, largest, sorted, v, i);
}

std::tuple<Tensor &, Tensor &> kthvalue_out_xpu(const Tensor &self, int64_t k, int64_t dim_, bool keepdim,
                                                Tensor &values, Tensor &indices) {
    const int64_t dim = maybe_wrap_dim(dim_, self.dim(), true);
    if (sorts_on_host(self) || self.dim() == 0 || self.numel() == 0 || k < 1 || k > self.size(dim))
        return pair_into(values, indices, at::kthvalue(on_cpu(self), k, dim_, keepdim));
    DimVector shape(self.sizes());
    shape[dim] = 1;
    Tensor v = at::empty(shape, self.options()), i = at::empty(shape, self.options().dtype(kLong));
    sort_into(self, dim, false, k - 1, v, i);
    return pair_into(values, indices, {keepdim ? v : v.squeeze(dim), keepdim ? i : i.squeeze(dim)});
}

Tensor median_xpu(const Tensor &self) { return back(at::median(on_cpu(self)), self); }
Tensor nanmedian_xpu(const Tensor &self) { return back(at::nanmedian(on_cpu(self)), self); }

std::tuple<Tensor &, Tensor &> median_out_xpu(const Tensor &self, int64_t dim, bool keepdim, Tensor &values,
                                              Tensor &indices) {
    return pair_into(values, indices, at::median(on_cpu(self), dim, keepdim));
}
std::tuple<Tensor &, Tensor &> nanmedian_out_xpu(const Tensor &self, int64_t dim, bool keepdim,
                                                 Tensor &values, Tensor &indices) {
    return pair_into(values, indices, at::nanmedian(on_cpu(self), dim, keepdim));
}

std::tuple<Tensor, Tensor> mode_xpu(const Tensor &self, int64_t dim, bool keepdim) {
    const auto results = at::mode(on_cpu(self), dim, keepdim);
    return {back(std::get<0>(results), self), back(std::get<1>(results), self)};
}

Tensor &searchsorted_out_xpu(const Tensor &sorted_sequence, const Tensor &self, bool out_int32, bool right,
                             std::optional<c10::string_view> side, const std::optional<Tensor> &sorter,
                             Tensor &out) {
    const auto order = sorter ? std::optional<Tensor>(on_cpu(*sorter)) : std::nullopt;
    return into(out, [&] {
        return at::searchsorted(on_cpu(sorted_sequence), on_cpu(self), out_int32, right, side, order);
    });
}
Tensor searchsorted_xpu(const Tensor &sorted_sequence, const Tensor &self, bool out_int32, bool right,
                        std::optional<c10::string_view> side, const std::optional<Tensor> &sorter) {
    Tensor out = at::empty({0}, sorted_sequence.options().dtype(out_int32 ? kInt : kLong));
    return searchsorted_out_xpu(sorted_sequence, self, out_int32, right, side, sorter, out);
}
Tensor &searchsorted_scalar_out_xpu(const Tensor &sorted_sequence, const Scalar &self, bool out_int32,
                                    bool right, std::optional<c10::string_view> side,
                                    const std::optional<Tensor> &sorter, Tensor &out) {
    const auto order = sorter ? std::optional<Tensor>(on_cpu(*sorter)) : std::nullopt;
    return into(
        out, [&] { return at::searchsorted(on_cpu(sorted_sequence), self, out_int32, right, side, order); });
}
Tensor searchsorted_scalar_xpu(const Tensor &sorted_sequence, const Scalar &self, bool out_int32, bool right,
                               std::optional<c10::string_view> side, const std::optional<Tensor> &sorter) {
    Tensor out = at::empty({0}, sorted_sequence.options().dtype(out_int32 ? kInt : kLong));
    return searchsorted_scalar_out_xpu(sorted_sequence, self, out_int32, right, side, sorter, out);
}

Tensor &bucketize_out_xpu(const Tensor &self, const Tensor &boundaries, bool out_int32, bool right,
                          Tensor &out) {
    return into(out, [&] { return at::bucketize(on_cpu(self), on_cpu(boundaries), out_int32, right); });
}
Tensor bucketize_xpu(const Tensor &self, const Tensor &boundaries, bool out_int32, bool right) {
    return back(at::bucketize(on_cpu(self), on_cpu(boundaries), out_int32, right), boundaries);
}
Tensor bucketize_scalar_xpu(const Scalar &self, const Tensor &boundaries, bool out_int32, bool right) {
    return back(at::bucketize(self, on_cpu(boundaries), out_int32, right), boundaries);
}

Tensor histc_xpu(const Tensor &self, int64_t bins, const Scalar &min, const Scalar &max) {
    return back(at::histc(on_cpu(self), bins, min, max), self);
}
Tensor &histc_out_xpu(const Tensor &self, int64_t bins, const Scalar &min, const Scalar &max, Tensor &out) {
    return into(out, [&] { return at::histc(on_cpu(self), bins, min, max); });
}

Tensor bincount_xpu(const Tensor &self, const std::optional<Tensor> &weights, int64_t minlength) {
    const auto weight = weights ? std::optional<Tensor>(on_cpu(*weights)) : std::nullopt;
    return back(at::bincount(on_cpu(self), weight, minlength), self);
}

std::tuple<Tensor, Tensor, Tensor> _unique2_xpu(const Tensor &self, bool sorted, bool return_inverse,
                                                bool return_counts) {
    return back(at::_unique2(on_cpu(self), sorted, return_inverse, return_counts), self);
}
std::tuple<Tensor, Tensor, Tensor> unique_dim_xpu(const Tensor &self, int64_t dim, bool sorted,
                                                  bool return_inverse, bool return_counts) {
    return back(at::unique_dim(on_cpu(self), dim, sorted, return_inverse, return_counts), self);
}
std::tuple<Tensor, Tensor, Tensor> unique_consecutive_xpu(const Tensor &self, bool return_inverse,
                                                          bool return_counts, std::optional<int64_t> dim) {
    return back(at::unique_consecutive(on_cpu(self), return_inverse, return_counts, dim), self);
}
std::tuple<Tensor, Tensor, Tensor> unique_dim_consecutive_xpu(const Tensor &self, int64_t dim,
                                                              bool return_inverse, bool return_counts) {
    return back(at::unique_dim_consecutive(on_cpu(self), dim, return_inverse, return_counts), self);
}

TORCH_IMPL_FUNC(isin_xpu)(const Tensor &elements, const Tensor &test_elements, bool assume_unique,
                          bool invert, const Tensor &out) {
    out.copy_(at::isin(on_cpu(elements), on_cpu(test_elements), assume_unique, invert));
}

} // namespace at::native

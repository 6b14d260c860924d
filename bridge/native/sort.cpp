// sort, topk, kthvalue, median, mode, unique and searchsorted. On CPU devices PyTorch's CPU kernels on the
// same memory; elsewhere libxpu's.
#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/BucketizationUtils.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/_unique2_native.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/bucketize_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
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
#include <ATen/ops/stack.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/topk_native.h>
#include <ATen/ops/unique_consecutive.h>
#include <ATen/ops/unique_consecutive_native.h>
#include <ATen/ops/unique_dim.h>
#include <ATen/ops/unique_dim_consecutive.h>
#include <ATen/ops/unique_dim_consecutive_native.h>
#include <ATen/ops/unique_dim_native.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "native/sort.h"
#include "operands.h"
#include "xpu/ops/search.h"
#include "xpu/ops/select.h"
#include "xpu/ops/sort.h"
#include "xpu/ops/unique.h"
#include "xpu/policy.h"

namespace openxpu {
namespace {

using at::Tensor;

void sort_into(const Tensor &self, int64_t dim, bool descending, int64_t first, const Tensor &values,
               const Tensor &indices) {
    if (values.numel() == 0) return;
    if (self.dim() == 0) {
        values.copy_(self);
        indices.zero_();
        return;
    }
    const xpu_tensor in = input_of(self), out = tensor_of(values), index = tensor_of(indices);
    check(xpu_sort(current_stream(self), &out, &index, &in,
                   static_cast<int>(at::maybe_wrap_dim(dim, self.dim())), descending, first));
}

// Copies the CPU's result to `out`.
template <typename Compute> Tensor &into(Tensor &out, Compute compute) { return give(compute(), out); }

// PyTorch's CPU kernels get no output here, so its checks are repeated.
void check_positions(const Tensor &out, bool out_int32) {
    TORCH_CHECK(
        out.scalar_type() == (out_int32 ? at::kInt : at::kLong),
        "torch.searchsorted(): output tensor's dtype is wrong, it can only be Int(int32) or Long(int64) "
        "depending on whether out_int32 flag is True, but we got output tensor's dtype ",
        out.scalar_type(), " and out_int32 flag is ", (out_int32 ? "True" : "False"));
}

std::tuple<Tensor &, Tensor &> pair_into(Tensor &values, Tensor &indices,
                                         const std::tuple<Tensor, Tensor> &results) {
    return {give(std::get<0>(results), values), give(std::get<1>(results), indices)};
}

// --- on other devices ---

// The rows of a tensor: contiguous, with dimension `dim` last.
Tensor rows_of(const Tensor &self, int64_t dim) {
    return (self.dim() > 1 ? self.movedim(dim, -1) : self).contiguous();
}

// One element of each row, and its position.
std::tuple<Tensor, Tensor> select(const Tensor &self, int64_t dim, bool keepdim, xpu_selection which,
                                  int64_t k) {
    if (self.dim() == 0) return {self.clone(), at::zeros({}, self.options().dtype(at::kLong))};
    const auto rows = rows_of(self, dim);
    auto values = at::empty(rows.sizes().slice(0, rows.dim() - 1), self.options());
    auto indices = at::empty(values.sizes(), values.options().dtype(at::kLong));
    if (values.numel() > 0)
        check(xpu_select(current_stream(self), which, dtype_of(self), rows.const_data_ptr(), values.numel(),
                         rows.size(-1), k, values.mutable_data_ptr(), indices.mutable_data_ptr<int64_t>()));
    return keepdim ? std::tuple(values.unsqueeze(dim), indices.unsqueeze(dim)) : std::tuple(values, indices);
}

std::tuple<Tensor, Tensor> median_of(const Tensor &self, int64_t dim, bool keepdim, xpu_selection which) {
    dim = at::maybe_wrap_dim(dim, self.dim(), true);
    at::native::zero_numel_check_dims(self, dim, "median()");
    return select(self, dim, keepdim, which, 0);
}

Tensor median_of_all(const Tensor &self, xpu_selection which) {
    if (self.numel() == 0) return at::full({}, NAN, self.options().dtype(at::kFloat)).to(self.scalar_type());
    return std::get<0>(select(self.reshape({-1}), 0, false, which, 0));
}

std::tuple<Tensor, Tensor> mode_of(const Tensor &self, int64_t dim, bool keepdim) {
    dim = at::maybe_wrap_dim(dim, self.dim(), true);
    at::native::zero_numel_check_dims(self, dim, "mode()");
    if (self.dim() == 0) return select(self, 0, false, XPU_SELECT_KTH, 0);
    const auto [rows, order] = rows_of(self, dim).sort(/*stable=*/true, -1, false);
    auto values = at::empty(rows.sizes().slice(0, rows.dim() - 1), self.options());
    auto indices = at::empty(values.sizes(), values.options().dtype(at::kLong));
    if (values.numel() > 0)
        check(xpu_mode(current_stream(self), dtype_of(self), rows.const_data_ptr(),
                       order.const_data_ptr<int64_t>(), values.numel(), rows.size(-1),
                       values.mutable_data_ptr(), indices.mutable_data_ptr<int64_t>()));
    return keepdim ? std::tuple(values.unsqueeze(dim), indices.unsqueeze(dim)) : std::tuple(values, indices);
}

// `out` has the dtype asked for; the rest is checked here.
Tensor &search_into(Tensor &out, const Tensor &sequence, const Tensor &values, bool out_int32, bool right,
                    std::optional<c10::string_view> side, const Tensor &sorter) {
    at::native::searchsorted_pre_check(sequence, values, out, out_int32, right, side, sorter);
    at::native::resize_output(out, values.sizes());
    if (values.numel() == 0) return out;
    Tensor new_values, new_sequence, new_sorter; // warns where one has gaps
    at::native::searchsorted_maybe_trim_input_tensors(new_values, new_sequence, new_sorter, values, sequence,
                                                      sorter);
    const Tensor &in = new_sequence.defined() ? new_sequence : sequence,
                 &what = new_values.defined() ? new_values : values,
                 &order = new_sorter.defined() ? new_sorter : sorter;
    const auto places = out.is_contiguous() ? out : at::empty(out.sizes(), out.options());
    check(xpu_search(current_stream(out), dtype_of(in), in.const_data_ptr(), in.size(-1),
                     order.defined() ? order.const_data_ptr<int64_t>() : nullptr, what.const_data_ptr(),
                     what.numel(), in.dim() == 1 ? 0 : what.size(-1), right || (side && *side == "right"),
                     dtype_of(out), places.mutable_data_ptr()));
    return places.is_same(out) ? out : out.copy_(places);
}

// Unique rows among `rows` sorted rows of `width` elements; sorted by `order`, or in memory.
std::tuple<Tensor, Tensor, Tensor> different(const Tensor &data, int64_t rows, int64_t width,
                                             const Tensor &order, bool in_order, bool inverse, bool counts) {
    const auto places = data.options().dtype(at::kLong);
    Tensor back = at::empty({inverse ? rows : 0}, places);
    if (rows == 0) return {at::empty({0, width}, data.options()), back, at::empty({0}, places)};
    auto *stream = current_stream(data);
    const auto type = dtype_of(data);
    const auto *by = order.defined() ? order.const_data_ptr<int64_t>() : nullptr;
    const auto numbers = at::empty({rows}, places);
    check(xpu_unique_ids(stream, type, data.const_data_ptr(), rows, width, by, in_order,
                         numbers.mutable_data_ptr<int64_t>()));
    const auto count = numbers[rows - 1].item<int64_t>() + 1;
    auto out = at::empty({count, width}, data.options());
    auto times = at::empty({counts ? count : 0}, places);
    check(xpu_unique(stream, type, data.const_data_ptr(), rows, width, by, in_order,
                     numbers.const_data_ptr<int64_t>(), count, out.mutable_data_ptr(),
                     inverse ? back.mutable_data_ptr<int64_t>() : nullptr,
                     counts ? times.mutable_data_ptr<int64_t>() : nullptr));
    return {out, back, times};
}

std::tuple<Tensor, Tensor, Tensor> unique_of_all(const Tensor &self, bool sorting, bool inverse,
                                                 bool counts) {
    auto data = self.reshape({-1}).contiguous();
    Tensor order;
    if (sorting && data.numel() > 0) std::tie(data, order) = data.sort(/*stable=*/true, 0, false);
    auto [out, back, times] = different(data, data.numel(), 1, order, true, inverse, counts);
    return {out.view({-1}), inverse ? back.view(self.sizes()) : back, times};
}

std::tuple<Tensor, Tensor, Tensor> unique_of_slices(const Tensor &self, int64_t dim_, bool sorting,
                                                    bool inverse, bool counts) {
    const auto dim = at::maybe_wrap_dim(dim_, self.dim());
    const auto rows = self.size(dim);
    const auto others = self.numel() / std::max<int64_t>(rows, 1);
    if (self.numel() == 0) {
        TORCH_CHECK(rows == 0, "There are 0 sized dimensions, and they aren't selected, so unique cannot be "
                               "applied");
        const auto none = at::empty({0}, self.options().dtype(at::kLong));
        return {at::empty(self.sizes(), self.options()), none, none};
    }
    const auto moved = self.movedim(dim, 0);
    const auto data = moved.contiguous();
    Tensor order;
    if (sorting) {
        order = at::empty({rows}, data.options().dtype(at::kLong));
        check(xpu_sort_rows(current_stream(data), dtype_of(data), data.const_data_ptr(), rows, others,
                            order.mutable_data_ptr<int64_t>()));
    }
    auto [out, back, times] = different(data, rows, others, order, false, inverse, counts);
    at::DimVector sizes(moved.sizes());
    sizes[0] = out.size(0);
    return {out.view(sizes).movedim(0, dim).contiguous(), back, times};
}

} // namespace
} // namespace openxpu

namespace at::native {

using namespace openxpu;

TORCH_IMPL_FUNC(sort_stable_xpu)(const Tensor &self, std::optional<bool> stable, int64_t dim, bool descending,
                                 const Tensor &values, const Tensor &indices) {
    if (!sorts_on_host(self)) return sort_into(self, dim, descending, 0, values, indices);
    Tensor v = as_cpu(values), i = as_cpu(indices);
    at::sort_outf(as_cpu_input(self), stable, dim, descending, v, i);
}

TORCH_IMPL_FUNC(topk_xpu)(const Tensor &self, int64_t k, int64_t dim, bool largest, bool sorted,
                          const Tensor &values, const Tensor &indices) {
    if (!sorts_on_host(self)) return sort_into(self, dim, largest, 0, values, indices);
    Tensor v = as_cpu(values), i = as_cpu(indices);
    at::topk_outf(as_cpu_input(self), k, dim, largest, sorted, v, i);
}

std::tuple<Tensor &, Tensor &> kthvalue_out_xpu(const Tensor &self, int64_t k, int64_t dim_, bool keepdim,
                                                Tensor &values, Tensor &indices) {
    const int64_t dim = maybe_wrap_dim(dim_, self.dim(), true);
    at::assert_no_overlap(self, values);
    if (sorts_on_host(self))
        return pair_into(values, indices, at::kthvalue(as_cpu_input(self), k, dim_, keepdim));
    zero_numel_check_dims(self, dim, "kthvalue()");
    TORCH_CHECK(k >= 1 && k <= (self.dim() > 0 ? self.size(dim) : 1),
                "kthvalue(): selected number k out of range for dimension ", dim);
    return pair_into(values, indices, select(self, dim, keepdim, XPU_SELECT_KTH, k - 1));
}

Tensor median_xpu(const Tensor &self) {
    return sorts_on_host(self) ? back(at::median(as_cpu_input(self)), self)
                               : median_of_all(self, XPU_SELECT_MEDIAN);
}
Tensor nanmedian_xpu(const Tensor &self) {
    return sorts_on_host(self) ? back(at::nanmedian(as_cpu_input(self)), self)
                               : median_of_all(self, XPU_SELECT_NAN_MEDIAN);
}

std::tuple<Tensor &, Tensor &> median_out_xpu(const Tensor &self, int64_t dim, bool keepdim, Tensor &values,
                                              Tensor &indices) {
    return pair_into(values, indices,
                     sorts_on_host(self) ? at::median(as_cpu_input(self), dim, keepdim)
                                         : median_of(self, dim, keepdim, XPU_SELECT_MEDIAN));
}
std::tuple<Tensor &, Tensor &> nanmedian_out_xpu(const Tensor &self, int64_t dim, bool keepdim,
                                                 Tensor &values, Tensor &indices) {
    return pair_into(values, indices,
                     sorts_on_host(self) ? at::nanmedian(as_cpu_input(self), dim, keepdim)
                                         : median_of(self, dim, keepdim, XPU_SELECT_NAN_MEDIAN));
}

std::tuple<Tensor, Tensor> mode_xpu(const Tensor &self, int64_t dim, bool keepdim) {
    if (!sorts_on_host(self)) return mode_of(self, dim, keepdim);
    const auto results = at::mode(as_cpu_input(self), dim, keepdim);
    return {back(std::get<0>(results), self), back(std::get<1>(results), self)};
}

std::tuple<Tensor &, Tensor &> mode_out_xpu(const Tensor &self, int64_t dim, bool keepdim, Tensor &values,
                                            Tensor &indices) {
    return pair_into(values, indices, mode_xpu(self, dim, keepdim));
}

Tensor &searchsorted_out_xpu(const Tensor &sorted_sequence, const Tensor &self, bool out_int32, bool right,
                             std::optional<c10::string_view> side, const std::optional<Tensor> &sorter,
                             Tensor &out) {
    if (!sorts_on_host(sorted_sequence))
        return search_into(out, sorted_sequence, self, out_int32, right, side, sorter.value_or(Tensor()));
    check_positions(out, out_int32);
    const auto order = sorter ? std::optional<Tensor>(as_cpu_input(*sorter)) : std::nullopt;
    return into(out, [&] {
        return at::searchsorted(as_cpu_input(sorted_sequence), as_cpu_input(self), out_int32, right, side,
                                order);
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
    if (!sorts_on_host(sorted_sequence))
        return search_into(out, sorted_sequence, searchsorted_scalar_tensor(self, sorted_sequence.device()),
                           out_int32, right, side, sorter.value_or(Tensor()));
    check_positions(out, out_int32);
    const auto order = sorter ? std::optional<Tensor>(as_cpu_input(*sorter)) : std::nullopt;
    return into(out, [&] {
        return at::searchsorted(as_cpu_input(sorted_sequence), self, out_int32, right, side, order);
    });
}
Tensor searchsorted_scalar_xpu(const Tensor &sorted_sequence, const Scalar &self, bool out_int32, bool right,
                               std::optional<c10::string_view> side, const std::optional<Tensor> &sorter) {
    Tensor out = at::empty({0}, sorted_sequence.options().dtype(out_int32 ? kInt : kLong));
    return searchsorted_scalar_out_xpu(sorted_sequence, self, out_int32, right, side, sorter, out);
}

Tensor &bucketize_out_xpu(const Tensor &self, const Tensor &boundaries, bool out_int32, bool right,
                          Tensor &out) {
    TORCH_CHECK(boundaries.dim() == 1, "bucketize: boundaries tensor must be 1 dimension, but got dim(",
                boundaries.dim(), ")");
    if (!sorts_on_host(boundaries))
        return search_into(out, boundaries, self, out_int32, right, std::nullopt, {});
    check_positions(out, out_int32);
    return into(
        out, [&] { return at::bucketize(as_cpu_input(self), as_cpu_input(boundaries), out_int32, right); });
}
Tensor bucketize_xpu(const Tensor &self, const Tensor &boundaries, bool out_int32, bool right) {
    Tensor out = at::empty({0}, boundaries.options().dtype(out_int32 ? kInt : kLong));
    return bucketize_out_xpu(self, boundaries, out_int32, right, out);
}
Tensor bucketize_scalar_xpu(const Scalar &self, const Tensor &boundaries, bool out_int32, bool right) {
    if (!sorts_on_host(boundaries))
        return bucketize_xpu(searchsorted_scalar_tensor(self, boundaries.device()), boundaries, out_int32,
                             right);
    return back(at::bucketize(self, as_cpu_input(boundaries), out_int32, right), boundaries);
}

std::tuple<Tensor, Tensor, Tensor> _unique2_xpu(const Tensor &self, bool sorted, bool return_inverse,
                                                bool return_counts) {
    if (!sorts_on_host(self)) return unique_of_all(self, true, return_inverse, return_counts);
    return back(at::_unique2(as_cpu_input(self), sorted, return_inverse, return_counts), self);
}
std::tuple<Tensor, Tensor, Tensor> unique_dim_xpu(const Tensor &self, int64_t dim, bool sorted,
                                                  bool return_inverse, bool return_counts) {
    if (!sorts_on_host(self)) return unique_of_slices(self, dim, true, return_inverse, return_counts);
    return back(at::unique_dim(as_cpu_input(self), dim, sorted, return_inverse, return_counts), self);
}
std::tuple<Tensor, Tensor, Tensor> unique_consecutive_xpu(const Tensor &self, bool return_inverse,
                                                          bool return_counts, std::optional<int64_t> dim) {
    if (!sorts_on_host(self))
        return dim ? unique_of_slices(self, *dim, false, return_inverse, return_counts)
                   : unique_of_all(self, false, return_inverse, return_counts);
    return back(at::unique_consecutive(as_cpu_input(self), return_inverse, return_counts, dim), self);
}
std::tuple<Tensor, Tensor, Tensor> unique_dim_consecutive_xpu(const Tensor &self, int64_t dim,
                                                              bool return_inverse, bool return_counts) {
    if (!sorts_on_host(self)) return unique_of_slices(self, dim, false, return_inverse, return_counts);
    return back(at::unique_dim_consecutive(as_cpu_input(self), dim, return_inverse, return_counts), self);
}

TORCH_IMPL_FUNC(isin_xpu)(const Tensor &elements, const Tensor &test_elements, bool assume_unique,
                          bool invert, const Tensor &out) {
    if (!sorts_on_host(out)) {
        const auto type = at::result_type(elements, test_elements);
        const auto sequence = std::get<0>(test_elements.to(type).reshape({-1}).sort());
        const auto values = elements.to(type).contiguous();
        const auto found = out.is_contiguous() ? out : at::empty(out.sizes(), out.options());
        check(xpu_is_member(current_stream(out), dtype_of(type), sequence.const_data_ptr(), sequence.numel(),
                            values.const_data_ptr(), values.numel(), invert, found.mutable_data_ptr()));
        if (!found.is_same(out)) out.copy_(found);
        return;
    }
    out.copy_(at::isin(as_cpu_input(elements), as_cpu_input(test_elements), assume_unique, invert));
}

} // namespace at::native

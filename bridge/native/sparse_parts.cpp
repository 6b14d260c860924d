// Building blocks of sparse operations (sparse_parts.h).
#include "native/sparse_parts.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/sort.h>
#include <c10/util/strides.h>

namespace openxpu {
namespace {

using at::Tensor;

void run_search(const Tensor &sorted, const void *keys, bool upper, const Tensor &positions) {
    const xpu_sparse_search_args args{.dtype = dtype_of(sorted),
                                      .position_dtype = dtype_of(positions),
                                      .sorted = sorted.const_data_ptr(),
                                      .keys = keys,
                                      .positions = positions.mutable_data_ptr(),
                                      .length = sorted.numel(),
                                      .count = positions.numel(),
                                      .upper = upper};
    check(xpu_sparse_search(current_stream(sorted), &args));
}

} // namespace

at::DimVector key_steps(at::IntArrayRef size) { return c10::contiguous_strides(size); }

Tensor keys_of(const Tensor &indices, at::IntArrayRef size, at::IntArrayRef steps) {
    auto keys = at::empty({indices.size(1)}, indices.options());
    const auto given = tensor_of(indices);
    check(xpu_sparse_keys(current_stream(indices), &given, size.data(), steps.data(),
                          keys.mutable_data_ptr<int64_t>()));
    return keys;
}

void check_compressed(const Tensor &starts, const Tensor &columns, int64_t width) {
    const auto given = starts.contiguous(), among = columns.contiguous();
    const auto length = given.size(-1), batch = length ? given.numel() / length : 0;
    TORCH_CHECK(given.scalar_type() == among.scalar_type() && batch * among.size(-1) == among.numel(),
                "sparse tensor: compressed indices ", given.sizes(), " of dtype ", given.scalar_type(),
                " don't fit plain indices ", among.sizes(), " of dtype ", among.scalar_type());
    if (batch == 0) return;
    const xpu_sparse_check_args args{.dtype = dtype_of(given),
                                     .starts = given.const_data_ptr(),
                                     .columns = width < 0 ? nullptr : among.const_data_ptr(),
                                     .batch = batch,
                                     .rows = length - 1,
                                     .count = among.size(-1),
                                     .width = width};
    check(xpu_sparse_check(current_stream(given), &args));
}

Tensor search(const Tensor &sorted, const Tensor &keys, bool upper, at::ScalarType type) {
    const auto given = keys.contiguous(), among = sorted.contiguous();
    auto positions = at::empty(given.sizes(), given.options().dtype(type));
    run_search(among, given.const_data_ptr(), upper, positions);
    return positions;
}

Tensor search_range(const Tensor &sorted, int64_t count, bool upper, at::ScalarType type) {
    auto positions = at::empty({count}, sorted.options().dtype(type));
    run_search(sorted.contiguous(), nullptr, upper, positions);
    return positions;
}

Segments segments_of(const Tensor &keys, bool sorted) {
    Segments result;
    if (sorted)
        result.keys = keys;
    else
        std::tie(result.keys, result.order) = at::sort(keys, /*stable=*/true, 0, false);
    result.first = at::empty(keys.sizes(), keys.options().dtype(at::kBool));
    result.first.narrow(0, 0, std::min<int64_t>(1, keys.numel())).fill_(true);
    if (keys.numel() > 1) {
        auto others = result.first.slice(0, 1);
        at::ne_out(others, result.keys.slice(0, 1), result.keys.slice(0, 0, -1));
    }
    result.starts = at::nonzero(result.first).view({-1});
    return result;
}

Tensor reduce_segments(const Segments &segments, const Tensor &values, xpu_sparse_reduction reduction) {
    const auto from = values.contiguous();
    auto size = values.sizes().vec();
    size[0] = segments.starts.numel();
    auto out = at::empty(size, values.options());
    if (out.numel() == 0) return out;
    const xpu_sparse_reduce_args args{
        .reduction = reduction,
        .dtype = dtype_of(values),
        .values = from.const_data_ptr(),
        .positions = segments.order.defined() ? segments.order.const_data_ptr<int64_t>() : nullptr,
        .starts = segments.starts.const_data_ptr<int64_t>(),
        .out = out.mutable_data_ptr(),
        .segments = size[0],
        .count = from.size(0),
        .width = out.numel() / size[0]};
    check(xpu_sparse_reduce(current_stream(values), &args));
    return out;
}

void sparse_product(const Tensor &out, const Tensor &starts, const Tensor &order, const Tensor &columns,
                    const Tensor &values, const Tensor &dense, const Tensor &in, const at::Scalar &beta,
                    const at::Scalar &alpha) {
    TORCH_CHECK(values.scalar_type() == dense.scalar_type() && values.scalar_type() == out.scalar_type() &&
                    (!in.defined() || in.scalar_type() == out.scalar_type()),
                "sparse matrix product: expected all tensors to have the same dtype, but got ",
                values.scalar_type(), " times ", dense.scalar_type(), ", to ", out.scalar_type());
    TORCH_CHECK(starts.numel() == out.size(0) + 1 && columns.numel() == values.numel() &&
                    starts.scalar_type() == columns.scalar_type(),
                "sparse matrix product: ", starts.numel(), " row starts of dtype ", starts.scalar_type(),
                ", ", columns.numel(), " column indices of dtype ", columns.scalar_type(), " and ",
                values.numel(), " values don't make a matrix of ", out.size(0), " rows");
    if (out.numel() == 0) return;
    auto right = dense.resolve_conj().resolve_neg();
    if (right.stride(1) != 1) right = right.contiguous();
    const auto left = values.resolve_conj().resolve_neg().contiguous(), positions = columns.contiguous();
    const auto added = in.defined() ? in.resolve_conj().resolve_neg() : in;
    const auto target = out.is_contiguous() ? out : at::empty_like(out, at::MemoryFormat::Contiguous);
    const xpu_sparse_product_args args{
        .dtype = dtype_of(out),
        .index_dtype = dtype_of(columns),
        .starts = starts.const_data_ptr(),
        .columns = positions.const_data_ptr(),
        .values = left.const_data_ptr(),
        .dense = right.const_data_ptr(),
        .in = in.defined() ? added.const_data_ptr() : nullptr,
        .positions = order.defined() ? order.const_data_ptr<int64_t>() : nullptr,
        .out = target.mutable_data_ptr(),
        .rows = out.size(0),
        .count = columns.numel(),
        .width = out.size(1),
        .height = dense.size(0),
        .dense_stride = right.stride(0),
        .in_stride = {in.defined() ? added.stride(0) : 0, in.defined() ? added.stride(1) : 0},
        .alpha = scalar_of(alpha),
        .beta = scalar_of(in.defined() ? beta : at::Scalar(0))};
    check(xpu_sparse_product(current_stream(out), &args));
    if (!target.is_same(out)) out.copy_(target);
}

} // namespace openxpu

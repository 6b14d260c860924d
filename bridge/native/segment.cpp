// segment_reduce, with lengths or offsets.
#include "xpu/ops/segment.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/native/ReductionType.h>
#include <ATen/ops/_segment_reduce_backward_native.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/segment_reduce_native.h>
#include <c10/util/accumulate.h>

#include "operands.h"

namespace at::native {

using namespace openxpu;
using openxpu::check;

namespace {

xpu_segment_reduction reduction_of(std::string_view reduce) {
    switch (get_reduction_enum(reduce)) {
    case ReductionType::MAX: return XPU_SEGMENT_MAX;
    case ReductionType::MEAN: return XPU_SEGMENT_MEAN;
    case ReductionType::MIN: return XPU_SEGMENT_MIN;
    case ReductionType::SUM: return XPU_SEGMENT_SUM;
    case ReductionType::PROD: return XPU_SEGMENT_PROD;
    }
    return XPU_SEGMENT_SUM;
}

// What kernels read.
struct ReducedSegments {
    Tensor data, offsets; // contiguous; offsets int64
    xpu_segments args;
    std::vector<int64_t> output; // the result's sizes
};

bool is_given(const std::optional<Tensor> &tensor) { return tensor && tensor->defined(); }

ReducedSegments reduced_segments(const Tensor &data, std::string_view reduce,
                                 const std::optional<Tensor> &lengths, const std::optional<Tensor> &offsets,
                                 int64_t axis, const std::optional<Scalar> &initial) {
    axis = maybe_wrap_dim(axis, data.dim());
    TORCH_CHECK(is_given(lengths) || is_given(offsets),
                "segment_reduce(): Either lengths or offsets must be defined.");
    const bool by_offsets = is_given(offsets);
    const char *name = by_offsets ? "offsets" : "lengths";
    const Tensor &given = by_offsets ? *offsets : *lengths;
    TORCH_CHECK(data.device() == given.device(), "segment_reduce(): data is on ", data.device(), ", ", name,
                " on ", given.device());
    TORCH_CHECK(isIntegralType(given.scalar_type(), false), "segment_reduce(): expected ", name,
                " of integers, got ", given.scalar_type());
    TORCH_CHECK(data.dim() >= given.dim() && axis == given.dim() - 1,
                "segment_reduce(): Expected axis to be the last dimension of ", name, " but got ", axis, ".");
    TORCH_CHECK(given.sizes().slice(0, axis) == data.sizes().slice(0, axis), "segment_reduce(): ", name,
                " of shape ", given.sizes(), " don't fit data of shape ", data.sizes());
    TORCH_CHECK(!by_offsets || given.size(axis) > 0, "segment_reduce(): offsets are empty");

    ReducedSegments s;
    s.data = data.contiguous();
    s.offsets =
        (by_offsets ? given.to(kLong) : at::constant_pad_nd(given.to(kLong).cumsum(-1), {1, 0})).contiguous();
    s.output = data.sizes().vec();
    s.output[axis] = s.offsets.size(-1) - 1;
    s.args = {.outer = c10::multiply_integers(data.sizes().slice(0, axis)),
              .segments = s.output[axis],
              .length = data.size(axis),
              .inner = c10::multiply_integers(data.sizes().slice(axis + 1)),
              .dtype = dtype_of(data),
              .reduction = reduction_of(reduce),
              .offsets = s.offsets.const_data_ptr(),
              .has_initial = initial.has_value(),
              .initial = initial ? initial->toDouble() : 0};
    return s;
}

} // namespace

Tensor segment_reduce_xpu(const Tensor &data, std::string_view reduce, const std::optional<Tensor> &lengths,
                          const std::optional<Tensor> &indices, const std::optional<Tensor> &offsets,
                          int64_t axis, bool unsafe, const std::optional<Scalar> &initial) {
    TORCH_CHECK(!is_given(indices), "segment_reduce(): indices based reduction is not supported yet.");
    const auto s = reduced_segments(data, reduce, lengths, offsets, axis, initial);
    if (!is_given(offsets) && !unsafe && lengths->numel() > 0) {
        TORCH_CHECK(lengths->min().item<int64_t>() >= 0, "lengths contains negative value!");
        TORCH_CHECK(lengths->sum({-1}).eq(s.args.length).all().item<bool>(),
                    "segment_reduce(): Expected all rows of lengths along axis to sum to "
                    "data.size(lengths.dim()-1) when !unsafe.");
    }
    const auto output = at::empty(s.output, data.options());
    check(xpu_segment_forward(current_stream(data), &s.args, s.data.const_data_ptr(),
                              output.mutable_data_ptr()));
    return output;
}

Tensor segment_reduce_backward_xpu(const Tensor &grad, const Tensor &output, const Tensor &data,
                                   std::string_view reduce, const std::optional<Tensor> &lengths,
                                   const std::optional<Tensor> &offsets, int64_t axis,
                                   const std::optional<Scalar> &initial) {
    const auto s = reduced_segments(data, reduce, lengths, offsets, axis, initial);
    TORCH_CHECK(grad.sizes() == output.sizes() && output.sizes() == IntArrayRef(s.output),
                "_segment_reduce_backward: gradient and output have shapes ", grad.sizes(), " and ",
                output.sizes(), ", expected ", s.output);
    const auto g = grad.contiguous(), y = output.contiguous();
    const auto result = at::empty(data.sizes(), data.options());
    check(xpu_segment_backward(current_stream(data), &s.args, g.const_data_ptr(), y.const_data_ptr(),
                               s.data.const_data_ptr(), result.mutable_data_ptr()));
    return result;
}

} // namespace at::native

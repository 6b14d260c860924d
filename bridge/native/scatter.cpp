#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_add_native.h>
#include <ATen/ops/index_reduce_native.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/scatter_add_native.h>
#include <ATen/ops/scatter_native.h>
#include <ATen/ops/scatter_reduce_native.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "native/index.h"

namespace at::native {

using namespace openxpu;
using openxpu::check;

namespace {

// `all`: the index has every dimension of source (scatter), else only `dim` (index_add).
void combine(const Tensor &out, int64_t dim, const Tensor &index, const Tensor &source, xpu_scatter_op op,
             bool all) {
    if (!all && out.dim() <= 1) TORCH_CHECK_INDEX(out.numel() > 0, "index out of range in self");
    check_positions("", out, dim, index, false);
    const auto order = scatter_order();
    const bool moves = op == XPU_SCATTER_SET && order == XPU_ORDER_ANY;
    const auto to = moves ? bits_of(out) : tensor_of(out),
               from = moves ? input_bits_of(source) : input_of(source);
    const auto chooser = input_of(index);
    xpu_fault fault = {};
    check((all ? xpu_scatter : xpu_index_scatter)(current_stream(out), &to, static_cast<int>(dim), &chooser,
                                                  &from, op, order, &fault));
    if (!all && out.dim() <= 1) TORCH_CHECK_INDEX(!fault.state, "index out of range in self");
    TORCH_CHECK(!fault.state, "index ", fault.index, " is out of bounds for dimension ", dim, " with size ",
                fault.extent);
}

// `value` as a tensor of any shape.
Tensor number(const Scalar &value, const Tensor &like, IntArrayRef sizes) {
    return at::full({}, value, like.options()).as_strided(sizes, DimVector(sizes.size(), 0));
}

void scatter(const Tensor &self, int64_t dim, const Tensor &index, const Tensor &source, xpu_scatter_op op,
             const Tensor &out) {
    dim = at::maybe_wrap_dim(dim, self.dim());
    if (!self.is_same(out)) out.copy_(self);
    if (index.numel() == 0) return;
    combine(out, dim, index, source, op, true);
}

// "add" and "multiply".
xpu_scatter_op named(std::string_view reduce) {
    TORCH_CHECK(reduce == "add" || reduce == "multiply", "reduce argument must be either add or multiply.");
    return reduce == "add" ? XPU_SCATTER_ADD : XPU_SCATTER_MUL;
}

// What leaves any number of the dtype as it is.
Scalar neutral(xpu_scatter_op op, ScalarType type) {
    if (op == XPU_SCATTER_ADD) return 0;
    if (op == XPU_SCATTER_MUL) return 1;
    const bool least = op == XPU_SCATTER_MAX;
    if (isFloatingType(type))
        return least ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
    if (type == kBool) return !least;
    switch (type) {
    case kByte: return least ? 0 : static_cast<int64_t>(std::numeric_limits<uint8_t>::max());
    case kChar:
        return static_cast<int64_t>(least ? std::numeric_limits<int8_t>::min()
                                          : std::numeric_limits<int8_t>::max());
    case kShort:
        return static_cast<int64_t>(least ? std::numeric_limits<int16_t>::min()
                                          : std::numeric_limits<int16_t>::max());
    case kInt:
        return static_cast<int64_t>(least ? std::numeric_limits<int32_t>::min()
                                          : std::numeric_limits<int32_t>::max());
    case kUInt16: return least ? 0 : static_cast<int64_t>(std::numeric_limits<uint16_t>::max());
    case kUInt32: return least ? 0 : static_cast<int64_t>(std::numeric_limits<uint32_t>::max());
    case kUInt64: return least ? uint64_t{0} : std::numeric_limits<uint64_t>::max();
    default: return least ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
    }
}

// sum, prod, mean, amax, amin; `all` as above.
void reduce(const Tensor &out, int64_t dim, const Tensor &index, const Tensor &source, std::string_view name,
            bool include_self, bool all) {
    const bool mean = name == "mean";
    const auto op = name == "prod"   ? XPU_SCATTER_MUL
                    : name == "amax" ? XPU_SCATTER_MAX
                    : name == "amin" ? XPU_SCATTER_MIN
                                     : XPU_SCATTER_ADD;
    const auto type = out.scalar_type(), wide = isReducedFloatingType(type) ? kFloat
                                                : isIntegralType(type, false) && out.element_size() < 8
                                                    ? kLong
                                                    : type;
    if (mean && wide != type) { // sums that neither round nor wrap
        const auto sums = out.to(wide);
        reduce(sums, dim, index, source.to(wide), name, include_self, all);
        out.copy_(sums);
        return;
    }
    if (!include_self)
        combine(out, dim, index, number(neutral(op, out.scalar_type()), out, source.sizes()), XPU_SCATTER_SET,
                all);
    combine(out, dim, index, source, op, all);
    if (!mean) return;
    auto counts = at::full(out.sizes(), include_self ? 1 : 0, out.options().dtype(kInt));
    combine(counts, dim, index, number(1, counts, source.sizes()), XPU_SCATTER_ADD, all);
    counts.masked_fill_(counts == 0, 1);
    if (out.is_floating_point() || out.is_complex())
        out.div_(counts);
    else
        out.div_(counts, "floor");
}

} // namespace

TORCH_IMPL_FUNC(scatter_src_out_xpu)
(const Tensor &self, int64_t dim, const Tensor &index, const Tensor &src, const Tensor &out) {
    scatter(self, dim, index, src, XPU_SCATTER_SET, out);
}

TORCH_IMPL_FUNC(scatter_value_out_xpu)
(const Tensor &self, int64_t dim, const Tensor &index, const Scalar &value, const Tensor &out) {
    scatter(self, dim, index, number(value, out, index.sizes()), XPU_SCATTER_SET, out);
}

TORCH_IMPL_FUNC(scatter_reduce_out_xpu)
(const Tensor &self, int64_t dim, const Tensor &index, const Tensor &src, const std::string_view reduce,
 const Tensor &out) {
    scatter(self, dim, index, src, named(reduce), out);
}

TORCH_IMPL_FUNC(scatter_value_reduce_out_xpu)
(const Tensor &self, int64_t dim, const Tensor &index, const Scalar &value, const std::string_view reduce,
 const Tensor &out) {
    scatter(self, dim, index, number(value, out, index.sizes()), named(reduce), out);
}

TORCH_IMPL_FUNC(scatter_add_out_xpu)
(const Tensor &self, int64_t dim, const Tensor &index, const Tensor &src, const Tensor &out) {
    scatter(self, dim, index, src, XPU_SCATTER_ADD, out);
}

TORCH_IMPL_FUNC(scatter_reduce_two_out_xpu)
(const Tensor &self, int64_t dim, const Tensor &index, const Tensor &src, const std::string_view name,
 bool include_self, const Tensor &out) {
    dim = at::maybe_wrap_dim(dim, self.dim());
    if (!self.is_same(out)) out.copy_(self);
    if (index.numel() == 0) return;
    // The walk is over index's shape; src may be larger.
    reduce(out, dim, index, src.as_strided(index.sizes(), src.strides().slice(0, index.dim())), name,
           include_self, true);
}

TORCH_IMPL_FUNC(index_add_out_xpu)
(const Tensor &self, int64_t dim, const Tensor &index, const Tensor &source, const Scalar &alpha,
 const Tensor &result) {
    if (!result.is_same(self)) result.copy_(self);
    if (index.numel() == 0 || source.numel() == 0) return;
    const bool plain = !alpha.isComplex() && alpha.toDouble() == 1.0;
    combine(result, dim, index, plain ? source : source.mul(alpha).to(source.scalar_type()), XPU_SCATTER_ADD,
            false);
}

TORCH_IMPL_FUNC(index_reduce_out_xpu)
(const Tensor &self, int64_t dim, const Tensor &index, const Tensor &source, const std::string_view name,
 bool include_self, const Tensor &result) {
    TORCH_WARN_ONCE("index_reduce() is in beta and the API may change at any time.");
    if (!result.is_same(self)) result.copy_(self);
    if (index.numel() == 0) return;
    if (source.numel() == 0) { // indices are checked nevertheless, as on the CPU
        check_positions("index_reduce(): ", result, maybe_wrap_dim(dim, result.dim()), index, true);
        const auto rows = result.dim() ? result.size(dim) : 1;
        at::index_select(at::zeros({rows}, result.options().dtype(kBool)), 0, index.reshape(-1));
        return;
    }
    reduce(result, dim, index, source, name, include_self, false);
}

} // namespace at::native

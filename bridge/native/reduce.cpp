// Reductions. PyTorch's shape functions have made the outputs; what is left is which dimensions are reduced,
// by what, and from which dtype. Kernels of overloads that the table (src/ops/tables/reduce.def) names are
// written by generate.py.
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/ops/_aminmax_native.h>
#include <ATen/ops/add.h>
#include <ATen/ops/all_native.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/aminmax_native.h>
#include <ATen/ops/any_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/hash_tensor_native.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linalg_vector_norm_native.h>
#include <ATen/ops/max_native.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/min_native.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/nansum_native.h>
#include <ATen/ops/norm_native.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/prod_native.h>
#include <ATen/ops/real.h>
#include <ATen/ops/renorm_native.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/std_mean_native.h>
#include <ATen/ops/std_native.h>
#include <ATen/ops/var_mean_native.h>
#include <ATen/ops/var_native.h>
#include <ATen/ops/where.h>

#include <limits>

#include "operands.h"
#include "reduce.h"

namespace openxpu {
namespace {

using at::IntArrayRef;
using at::OptionalIntArrayRef;
using at::ScalarType;
using at::Tensor;

// `self` over its own shape; the outputs have stride 0 where the mask says that a dimension is reduced.
xpu_iter reduction_iter(const Tensor &self, Outputs outputs, const at::native::DimMask &mask, bool keepdim) {
    const int64_t dims = self.dim();
    xpu_iter iter;
    iter.outputs = static_cast<int>(outputs.size());
    iter.inputs = 1;
    iter.dims = static_cast<int>(dims);
    const int64_t element = self.element_size();
    xpu_operand &in = iter.operand[iter.outputs];
    in.data = input_data(self);
    in.dtype = dtype_of(self);
    for (int64_t d = 0; d < dims; d++) {
        iter.size[dims - 1 - d] = self.size(d);
        in.stride[dims - 1 - d] = self.stride(d) * element;
    }
    int i = 0;
    for (const Tensor &output : outputs) {
        at::assert_no_internal_overlap(output);
        xpu_operand &out = iter.operand[i++];
        out.data = output.mutable_data_ptr();
        out.dtype = dtype_of(output);
        int64_t from = 0;
        for (int64_t d = 0; d < dims; d++) {
            out.stride[dims - 1 - d] = mask[d] ? 0 : output.stride(from) * output.element_size();
            if (keepdim || !mask[d]) from++;
        }
    }
    return iter;
}

// More dimensions than an iteration has: those that stay become one, those that are reduced another.
void reduce_as_matrix(xpu_reduction reduction, const Tensor &self, Outputs outputs,
                      const at::native::DimMask &mask, double parameter) {
    c10::DimVector order;
    int64_t rows = 1;
    for (int64_t d = 0; d < self.dim(); d++)
        if (!mask[d]) order.push_back(d), rows *= self.size(d);
    for (int64_t d = 0; d < self.dim(); d++)
        if (mask[d]) order.push_back(d);
    const auto matrix = self.permute(order).reshape({rows, rows ? self.numel() / rows : 0});
    at::native::DimMask columns;
    columns.set(1);
    std::vector<Tensor> vectors;
    for (const Tensor &output : outputs) vectors.push_back(at::empty({rows}, output.options()));
    const auto iter = vectors.size() == 1 ? reduction_iter(matrix, {vectors[0]}, columns, false)
                                          : reduction_iter(matrix, {vectors[0], vectors[1]}, columns, false);
    check(xpu_reduce(current_stream(self), reduction, &iter, parameter));
    size_t i = 0;
    for (const Tensor &output : outputs) output.copy_(vectors[i++].view(output.sizes()));
}

// `self` such that the kernel, which reads elements straight into the type it computes in, sees what
// self.to(type) holds: the cast itself is left to the kernel wherever it loses nothing.
Tensor as_if_cast(const Tensor &self, ScalarType type) {
    const auto from = self.scalar_type();
    const bool rounds = type == at::kHalf || type == at::kBFloat16 || type == at::kBool;
    const bool truncates = at::isIntegralType(type, true) && !at::isIntegralType(from, true);
    if (from == type || (!rounds && !truncates && !at::isComplexType(type) && !at::isComplexType(from)))
        return self;
    return self.to(type);
}

} // namespace

at::native::DimMask all_dims() { return at::native::DimMask().flip(); }

at::native::DimMask reduced_dims(const Tensor &self, int64_t dim) {
    at::native::DimMask mask;
    if (self.dim() > 0) mask.set(at::maybe_wrap_dim(dim, self.dim()));
    return mask;
}
at::native::DimMask reduced_dims(const Tensor &self, std::optional<int64_t> dim) {
    return dim ? reduced_dims(self, *dim) : all_dims();
}
at::native::DimMask reduced_dims(const Tensor &self, OptionalIntArrayRef dims) {
    return at::native::make_dim_mask(dims, self.dim());
}
at::native::DimMask reduced_dims(const Tensor &self, IntArrayRef dims) {
    return at::native::make_dim_mask(dims, self.dim());
}

void reduce(xpu_reduction reduction, const Tensor &self, Outputs outputs, const at::native::DimMask &mask,
            bool keepdim, double parameter) {
    if (self.scalar_type() == at::kComplexHalf) { // computed in single precision
        const Tensor wide = self.to(at::kComplexFloat), &result = *outputs.begin();
        TORCH_INTERNAL_ASSERT(outputs.size() == 1, "complex numbers have no order");
        if (result.scalar_type() != at::kComplexHalf)
            return reduce(reduction, wide, {result}, mask, keepdim, parameter);
        const Tensor single = at::empty_like(result, at::kComplexFloat);
        reduce(reduction, wide, {single}, mask, keepdim, parameter);
        result.copy_(single);
        return;
    }
    if (self.dim() > XPU_MAX_DIMS) return reduce_as_matrix(reduction, self, outputs, mask, parameter);
    const xpu_iter iter = reduction_iter(self, outputs, mask, keepdim);
    check(xpu_reduce(current_stream(self), reduction, &iter, parameter));
}

void reduce_converted(xpu_reduction reduction, const Tensor &self, Outputs outputs,
                      const at::native::DimMask &mask, bool keepdim) {
    const ScalarType type = outputs.begin()->get().scalar_type();
    const bool of_fractions = reduction == XPU_REDUCE_MEAN || reduction == XPU_REDUCE_NANSUM;
    TORCH_CHECK_NOT_IMPLEMENTED(!of_fractions || !at::isIntegralType(type, true), "\"",
                                reduction == XPU_REDUCE_MEAN ? "mean" : "nansum", "\" not implemented for '",
                                toString(type), "'");
    if (type == at::kBool) reduction = reduction == XPU_REDUCE_PROD ? XPU_REDUCE_ALL : XPU_REDUCE_ANY;
    reduce(reduction, as_if_cast(self, type), outputs, mask, keepdim);
}

Tensor reduced(xpu_reduction reduction, const Tensor &self, const at::native::DimMask &mask, bool keepdim,
               ScalarType dtype) {
    Tensor result =
        at::empty(at::native::shape_from_dim_mask(self, mask, keepdim), self.options().dtype(dtype));
    reduce(reduction, self, {result}, mask, keepdim);
    return result;
}

namespace {

Tensor extreme_of_all(const char *name, xpu_reduction reduction, const Tensor &self) {
    TORCH_CHECK(self.numel() > 0, name,
                "(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
                "reduction dim with the 'dim' argument.");
    Tensor result = at::empty({}, self.options());
    reduce(reduction, self, {result}, all_dims(), false);
    return result;
}

Tensor &extreme_of_all_out(const char *name, xpu_reduction reduction, const Tensor &self, Tensor &out) {
    TORCH_CHECK(self.device() == out.device(), name, "(): Expected all tensors to be on the same device");
    TORCH_CHECK(at::canCast(self.scalar_type(), out.scalar_type()), "result type ", self.scalar_type(),
                " can't be cast to the desired output type ", out.scalar_type());
    const Tensor result = extreme_of_all(name, reduction, self);
    at::native::resize_output(out, {});
    return out.copy_(result);
}

void norm_into(const Tensor &self, double p, OptionalIntArrayRef dims, bool keepdim,
               std::optional<ScalarType> dtype, const Tensor &result) {
    const double inf = std::numeric_limits<double>::infinity();
    const xpu_reduction reduction = p == 0      ? XPU_REDUCE_NORM0
                                    : p == 1    ? XPU_REDUCE_NORM1
                                    : p == 2    ? XPU_REDUCE_NORM2
                                    : p == inf  ? XPU_REDUCE_NORM_MAX
                                    : p == -inf ? XPU_REDUCE_NORM_MIN
                                                : XPU_REDUCE_NORM_P;
    const auto type = dtype.value_or(self.scalar_type());
    const Tensor from = self.is_complex() && at::isComplexType(type) && self.scalar_type() != type
                            ? self.to(type)
                        : at::isComplexType(type) ? self
                                                  : as_if_cast(self, type);
    reduce(reduction, from, {result}, reduced_dims(self, dims), keepdim, p);
}

enum class Moment { var, std };

void warn_of_freedom(const char *name, const Tensor &self, const at::native::DimMask &mask,
                     double correction) {
    int64_t count = 1;
    for (int64_t d = 0; d < self.dim(); d++)
        if (mask[d]) count *= self.size(d);
    if (count <= correction && self.numel() > 0)
        TORCH_WARN(
            name,
            "(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor "
            "(input numel divided by output numel).");
}

void check_moment(const char *name, const Tensor &self) {
    TORCH_CHECK(self.layout() == at::Layout::Strided, name,
                " only supports strided layout, got: ", self.layout());
    TORCH_CHECK(at::isFloatingType(self.scalar_type()) || at::isComplexType(self.scalar_type()), name,
                " only support floating point and complex dtypes");
}

Tensor &moment_out(const char *name, Moment moment, Tensor &result, const Tensor &self,
                   OptionalIntArrayRef dims, const std::optional<at::Scalar> &correction_given,
                   bool keepdim) {
    check_moment(name, self);
    TORCH_CHECK(!at::isIntegralType(result.scalar_type(), true), name, "(): an out tensor of ",
                result.scalar_type(), " can't hold the result");
    const double correction = correction_given.value_or(1).toDouble();
    if (self.is_complex()) { // the variance of a complex number is that of its parts together
        const auto real_type = at::toRealValueType(self.scalar_type());
        Tensor imaginary = at::empty({0}, self.options().dtype(real_type));
        moment_out(name, Moment::var, result, at::real(self), dims, correction_given, keepdim);
        moment_out(name, Moment::var, imaginary, at::imag(self), dims, correction_given, keepdim);
        at::add_out(result, result, imaginary);
        if (moment == Moment::std) at::sqrt_out(result, result);
        return result;
    }
    const auto mask = at::native::make_dim_mask(dims, self.dim());
    at::native::resize_reduction_result(result, self, mask, keepdim, result.scalar_type());
    warn_of_freedom(name, self, mask, correction);
    const Tensor to =
        result.scalar_type() == self.scalar_type() ? result : at::empty_like(result, self.options());
    reduce(moment == Moment::std ? XPU_REDUCE_STD : XPU_REDUCE_VAR, self, {to}, mask, keepdim, correction);
    if (!to.is_same(result)) result.copy_(to);
    return result;
}

Tensor moment_of(const char *name, Moment moment, const Tensor &self, OptionalIntArrayRef dims,
                 const std::optional<at::Scalar> &correction, bool keepdim) {
    check_moment(name, self);
    Tensor result = at::empty({0}, self.options().dtype(at::toRealValueType(self.scalar_type())));
    return moment_out(name, moment, result, self, dims, correction, keepdim);
}

std::tuple<Tensor, Tensor> moment_and_mean(const char *name, Moment moment, const Tensor &self,
                                           OptionalIntArrayRef dims,
                                           const std::optional<at::Scalar> &correction_given, bool keepdim) {
    check_moment(name, self);
    if (self.is_complex())
        return {moment_of(name, moment, self, dims, correction_given, keepdim),
                at::mean(self, dims, keepdim)};
    const double correction = correction_given.value_or(1).toDouble();
    const auto mask = at::native::make_dim_mask(dims, self.dim());
    const auto shape = at::native::shape_from_dim_mask(self, mask, keepdim);
    Tensor result = at::empty(shape, self.options()), mean = at::empty(shape, self.options());
    warn_of_freedom(name, self, mask, correction);
    reduce(moment == Moment::std ? XPU_REDUCE_STD_MEAN : XPU_REDUCE_VAR_MEAN, self, {result, mean}, mask,
           keepdim, correction);
    return {result, mean};
}

} // namespace
} // namespace openxpu

namespace at::native {

using namespace openxpu;

Tensor &nansum_out_xpu(const Tensor &self, OptionalIntArrayRef dim, bool keepdim,
                       std::optional<ScalarType> dtype, Tensor &result) {
    const auto type = get_dtype_from_result(result, dtype);
    const auto mask = make_dim_mask(dim, self.dim());
    TORCH_CHECK(result.scalar_type() == type, "nansum: provided dtype must match dtype of result. Got ",
                toString(result.scalar_type()), " and ", toString(type), ".");
    resize_reduction_result(result, self, mask, keepdim, type);
    reduce_converted(c10::isIntegralType(self.scalar_type(), true) ? XPU_REDUCE_SUM : XPU_REDUCE_NANSUM, self,
                     {result}, mask, keepdim);
    return result;
}

Tensor nansum_xpu(const Tensor &self, OptionalIntArrayRef dim, bool keepdim,
                  std::optional<ScalarType> dtype) {
    const auto type = get_dtype_from_self(self, dtype, true);
    Tensor result = at::empty({0}, self.options().dtype(type));
    return nansum_out_xpu(self, dim, keepdim, dtype, result);
}

Tensor prod_all_xpu(const Tensor &self, std::optional<ScalarType> dtype) {
    Tensor result = at::empty({}, self.options().dtype(get_dtype_from_self(self, dtype, true)));
    reduce_converted(XPU_REDUCE_PROD, self, {result}, all_dims(), false);
    return result;
}

std::tuple<Tensor, Tensor> _aminmax_all_xpu(const Tensor &self) { return at::aminmax(self); }

std::tuple<Tensor, Tensor> _aminmax_dim_xpu(const Tensor &self, int64_t dim, bool keepdim) {
    return at::aminmax(self, dim, keepdim);
}

Tensor max_all_xpu(const Tensor &self) { return extreme_of_all("max", XPU_REDUCE_AMAX, self); }
Tensor min_all_xpu(const Tensor &self) { return extreme_of_all("min", XPU_REDUCE_AMIN, self); }
Tensor &max_all_out_xpu(const Tensor &self, Tensor &out) {
    return extreme_of_all_out("max", XPU_REDUCE_AMAX, self, out);
}
Tensor &min_all_out_xpu(const Tensor &self, Tensor &out) {
    return extreme_of_all_out("min", XPU_REDUCE_AMIN, self, out);
}

TORCH_IMPL_FUNC(any_dims_xpu)(const Tensor &self, OptionalIntArrayRef dim, bool keepdim,
                              const Tensor &result) {
    reduce(XPU_REDUCE_ANY, self, {result}, make_dim_mask(dim, self.dim(), /*allow_empty_dims=*/true),
           keepdim);
}
TORCH_IMPL_FUNC(all_dims_xpu)(const Tensor &self, OptionalIntArrayRef dim, bool keepdim,
                              const Tensor &result) {
    reduce(XPU_REDUCE_ALL, self, {result}, make_dim_mask(dim, self.dim(), /*allow_empty_dims=*/true),
           keepdim);
}
TORCH_IMPL_FUNC(linalg_vector_norm_xpu)(const Tensor &self, const Scalar &ord, OptionalIntArrayRef dim,
                                        bool keepdim, std::optional<ScalarType> dtype, const Tensor &result) {
    norm_into(self, ord.toDouble(), dim, keepdim, dtype, result);
}

// The exclusive or of the elements' bits, those of floating ones as doubles (mode 0, the only one there is).
TORCH_IMPL_FUNC(hash_tensor_xpu)(const Tensor &self, IntArrayRef dim, bool keepdim, int64_t mode,
                                 const Tensor &result) {
    reduce(XPU_REDUCE_HASH, self, {result}, reduced_dims(self, dim), keepdim);
}

TORCH_IMPL_FUNC(norm_xpu)(const Tensor &self, OptionalScalarRef p, IntArrayRef dim, bool keepdim,
                          const Tensor &result) {
    norm_into(self, p.has_value() ? p.get().toDouble() : 2, dim, keepdim, std::nullopt, result);
}

TORCH_IMPL_FUNC(norm_dtype_xpu)(const Tensor &self, OptionalScalarRef p, IntArrayRef dim, bool keepdim,
                                ScalarType dtype, const Tensor &result) {
    norm_into(self, p.has_value() ? p.get().toDouble() : 2, dim, keepdim, dtype, result);
}

Tensor var_xpu(const Tensor &self, OptionalIntArrayRef dim, const std::optional<Scalar> &correction,
               bool keepdim) {
    return moment_of("var", Moment::var, self, dim, correction, keepdim);
}
Tensor &var_out_xpu(const Tensor &self, OptionalIntArrayRef dim, const std::optional<Scalar> &correction,
                    bool keepdim, Tensor &result) {
    return moment_out("var", Moment::var, result, self, dim, correction, keepdim);
}
Tensor std_xpu(const Tensor &self, OptionalIntArrayRef dim, const std::optional<Scalar> &correction,
               bool keepdim) {
    return moment_of("std", Moment::std, self, dim, correction, keepdim);
}
Tensor &std_out_xpu(const Tensor &self, OptionalIntArrayRef dim, const std::optional<Scalar> &correction,
                    bool keepdim, Tensor &result) {
    return moment_out("std", Moment::std, result, self, dim, correction, keepdim);
}
std::tuple<Tensor, Tensor> var_mean_xpu(const Tensor &self, OptionalIntArrayRef dim,
                                        const std::optional<Scalar> &correction, bool keepdim) {
    return moment_and_mean("var_mean", Moment::var, self, dim, correction, keepdim);
}
std::tuple<Tensor, Tensor> std_mean_xpu(const Tensor &self, OptionalIntArrayRef dim,
                                        const std::optional<Scalar> &correction, bool keepdim) {
    return moment_and_mean("std_mean", Moment::std, self, dim, correction, keepdim);
}

// out = self, with each slice along `dim` scaled down to a norm of at most maxnorm.
TORCH_IMPL_FUNC(renorm_xpu)(const Tensor &self, const Scalar &p, int64_t dim, const Scalar &maxnorm,
                            const Tensor &out) {
    DimVector others;
    for (int64_t d = 0; d < self.dim(); d++)
        if (d != maybe_wrap_dim(dim, self.dim())) others.push_back(d);
    const auto type =
        self.scalar_type() == kHalf || self.scalar_type() == kBFloat16 ? kFloat : self.scalar_type();
    const Tensor norms = at::linalg_vector_norm(self, p.toDouble(), others, /*keepdim=*/true, type);
    const Tensor factor =
        at::where(norms.gt(maxnorm), norms.add(1e-7).reciprocal().mul(maxnorm), at::ones_like(norms));
    at::mul_outf(self, factor.to(toRealValueType(self.scalar_type())), const_cast<Tensor &>(out));
}

} // namespace at::native

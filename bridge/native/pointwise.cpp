// Pointwise operators that PyTorch gives no structured shape function: iterator by hand, formula from the
// table. What is not here is written by generate.py.
#include "native/pointwise.h"

#include <ATen/Dispatch_v2.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ScalarOps.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/clamp_native.h>
#include <ATen/ops/bitwise_left_shift.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/pow_native.h>
#include <ATen/ops/result_type.h>

#include "xpu/ops/copy.h"

namespace openxpu {

namespace {

// The dtype that elements of one that no kernel computes are computed in.
c10::ScalarType computed_in(c10::ScalarType type) {
    return type == c10::kComplexHalf ? c10::kComplexFloat : type;
}

void pointwise_widened(at::TensorIteratorBase &iter, c10::ScalarType compute, xpu_pointwise_op op,
                       std::initializer_list<xpu_scalar> scalars) {
    at::TensorIteratorConfig config;
    config
        .set_check_mem_overlap(false) // checked, and outputs are computed apart
        .check_all_same_dtype(false)
        .allow_cpu_scalars(true)
        .resize_outputs(false);
    std::vector<at::Tensor> operands;
    for (int i = 0; i < iter.ntensors(); i++) {
        const auto &tensor = iter.tensor(i);
        const auto type = computed_in(tensor.scalar_type());
        if (type == tensor.scalar_type())
            operands.push_back(tensor);
        else
            operands.push_back(i < iter.noutputs() ? at::empty_like(tensor, type) : tensor.to(type));
    }
    for (int i = 0; i < iter.ntensors(); i++) {
        if (i < iter.noutputs())
            config.add_output(operands[i]);
        else
            config.add_const_input(operands[i]);
    }
    auto widened = config.build();
    pointwise(widened, computed_in(compute), op, scalars);
    for (int i = 0; i < iter.noutputs(); i++)
        if (operands[i].scalar_type() != iter.dtype(i)) iter.tensor(i).copy_(operands[i]);
}

} // namespace

void pointwise(at::TensorIteratorBase &iter, c10::ScalarType compute, xpu_pointwise_op op,
               std::initializer_list<xpu_scalar> scalars) {
    if (iter.numel() == 0) return;
    if (compute == c10::ScalarType::Undefined) compute = iter.dtype(iter.ninputs() > 0 ? iter.noutputs() : 0);
    for (int i = 0; i < iter.ntensors(); i++)
        if (computed_in(iter.dtype(i)) != iter.dtype(i)) return pointwise_widened(iter, compute, op, scalars);
    const xpu_iter lowered = iter_of(iter);
    check(xpu_pointwise(current_stream(iter.device(0).index()), op, dtype_of(compute), &lowered,
                        scalars.begin(), static_cast<int>(scalars.size())));
}

} // namespace openxpu

namespace at::native {

using openxpu::pointwise;
using openxpu::scalar_of;

namespace {

constexpr auto own_dtype = ScalarType::Undefined;
using Scalars = std::initializer_list<xpu_scalar>;

// The iterators that PyTorch's operators use, by what becomes of dtypes.

// out = op(self): one dtype; the result may be cast to a wider `out`.
Tensor &unary(Tensor &out, const Tensor &self, xpu_pointwise_op op, Scalars scalars = {}) {
    auto iter = TensorIterator::unary_op(out, self);
    pointwise(iter, iter.common_dtype(), op, scalars);
    return out;
}

// The same; integers are computed in the default dtype.
Tensor &unary_float(Tensor &out, const Tensor &self, xpu_pointwise_op op, Scalars scalars = {}) {
    auto iter = TensorIterator::unary_float_op(out, self);
    pointwise(iter, iter.common_dtype(), op, scalars);
    return out;
}

Tensor unary(const Tensor &self, xpu_pointwise_op op) {
    Tensor out;
    auto iter = TensorIterator::unary_op(out, self);
    pointwise(iter, iter.common_dtype(), op);
    return iter.output();
}

Tensor unary_float(const Tensor &self, xpu_pointwise_op op, Scalars scalars = {}) {
    Tensor out;
    auto iter = TensorIterator::unary_float_op(out, self);
    pointwise(iter, iter.common_dtype(), op, scalars);
    return iter.output();
}

// out = op(self, other): promoted to a common dtype.
Tensor &binary(Tensor &out, const Tensor &self, const Tensor &other, xpu_pointwise_op op,
               Scalars scalars = {}) {
    auto iter = TensorIterator::borrowing_binary_op(out, self, other);
    pointwise(iter, iter.common_dtype(), op, scalars);
    return out;
}

Tensor binary(const Tensor &self, const Tensor &other, xpu_pointwise_op op, Scalars scalars = {}) {
    Tensor out;
    auto iter = TensorIterator::borrowing_binary_op(out, self, other);
    pointwise(iter, iter.common_dtype(), op, scalars);
    return iter.output();
}

// Like binary, with bool as the result of functional calls.
Tensor &comparison(Tensor &out, const Tensor &self, const Tensor &other, xpu_pointwise_op op) {
    auto iter = TensorIterator::comparison_op(out, self, other);
    pointwise(iter, iter.common_dtype(), op);
    return out;
}

// The result is real where the input is complex, and an `out` of either kind is accepted.
Tensor &complex_to_real(Tensor &out, const Tensor &self, xpu_pointwise_op op, bool integers_to_float) {
    if (!self.is_complex() || out.is_complex())
        return integers_to_float ? unary_float(out, self, op) : unary(out, self, op);
    const auto real = toRealValueType(self.scalar_type());
    TORCH_CHECK(canCast(real, out.scalar_type()), "result type ", real,
                " can't be cast to the desired output type ", out.scalar_type());
    auto iter =
        TensorIteratorConfig().check_all_same_dtype(false).add_output(out).add_const_input(self).build();
    pointwise(iter, self.scalar_type(), op);
    return out;
}

} // namespace

// --- arithmetic -------------------------------------------------------------------------------------

Tensor &abs_out_xpu(const Tensor &self, Tensor &out) {
    return complex_to_real(out, self, XPU_POINTWISE_ABS, false);
}

Tensor &angle_out_xpu(const Tensor &self, Tensor &out) {
    return complex_to_real(out, self, XPU_POINTWISE_ANGLE, true);
}

Tensor angle_xpu(const Tensor &self) {
    if (!self.is_complex()) return unary_float(self, XPU_POINTWISE_ANGLE);
    auto out = at::empty({0}, self.options().dtype(toRealValueType(self.scalar_type())));
    return angle_out_xpu(self, out);
}

Tensor &conj_physical_out_xpu(const Tensor &self, Tensor &out) {
    return unary(out, self, XPU_POINTWISE_CONJ);
}

// PyTorch's own call their CPU kernels' stub, not the operator.
Tensor &conj_physical_xpu_(Tensor &self) {
    return self.is_complex() ? conj_physical_out_xpu(self, self) : self;
}

Tensor conj_physical_xpu(const Tensor &self) {
    if (self.is_conj()) return self.conj().clone();
    return unary(self, XPU_POINTWISE_CONJ);
}

// Two real tensors make a complex one.
static Tensor &make_complex(Tensor &out, const Tensor &a, const Tensor &b, xpu_pointwise_op op) {
    for (const auto &tensor : {a, b})
        TORCH_CHECK(tensor.scalar_type() == kFloat || tensor.scalar_type() == kDouble ||
                        tensor.scalar_type() == kHalf,
                    "Expected both inputs to be Half, Float or Double tensors but got ", a.scalar_type(),
                    " and ", b.scalar_type());
    TORCH_CHECK(a.scalar_type() == b.scalar_type(), "Expected object of scalar type ", a.scalar_type(),
                " but got scalar type ", b.scalar_type(), " for second argument");
    TORCH_CHECK(out.scalar_type() == toComplexType(a.scalar_type()), "Expected object of scalar type ",
                toComplexType(a.scalar_type()), " but got scalar type ", out.scalar_type(),
                " for argument 'out'");
    auto iter = TensorIteratorConfig()
                    .check_all_same_dtype(false)
                    .add_output(out)
                    .add_const_input(a)
                    .add_const_input(b)
                    .build();
    pointwise(iter, a.scalar_type(), op);
    return out;
}

Tensor &complex_out_xpu(const Tensor &real, const Tensor &imag, Tensor &out) {
    return make_complex(out, real, imag, XPU_POINTWISE_COMPLEX);
}

Tensor &polar_out_xpu(const Tensor &abs, const Tensor &angle, Tensor &out) {
    return make_complex(out, abs, angle, XPU_POINTWISE_POLAR);
}

std::tuple<Tensor &, Tensor &> frexp_out_xpu(const Tensor &self, Tensor &mantissa, Tensor &exponent) {
    TORCH_CHECK(isFloatingType(self.scalar_type()), "torch.frexp() only supports floating-point dtypes");
    TORCH_CHECK(mantissa.dtype() == self.dtype(), "torch.frexp() expects mantissa to have dtype ",
                self.dtype(), " but got ", mantissa.dtype());
    TORCH_CHECK(exponent.dtype() == at::kInt, "torch.frexp() expects exponent to have int dtype but got ",
                exponent.dtype());
    auto iter = TensorIteratorConfig()
                    .add_output(mantissa)
                    .add_output(exponent)
                    .add_const_input(self)
                    .check_all_same_dtype(false)
                    .set_check_mem_overlap(true)
                    .build();
    pointwise(iter, self.scalar_type(), XPU_POINTWISE_FREXP);
    return {mantissa, exponent};
}

Tensor &nan_to_num_out_xpu(const Tensor &self, std::optional<double> nan, std::optional<double> posinf,
                           std::optional<double> neginf, Tensor &out) {
    TORCH_CHECK(self.scalar_type() == out.scalar_type(), "nan_to_num: dtype of out: ", out.scalar_type(),
                " should be same as input: ", self.scalar_type());
    if (c10::isIntegralType(self.scalar_type(), /*includeBool=*/true)) return openxpu::give(self, out);
    const double largest = openxpu::highest_of(toRealValueType(self.scalar_type()));
    return unary(out, self, XPU_POINTWISE_NAN_TO_NUM,
                 {scalar_of(nan.value_or(0.0)), scalar_of(posinf.value_or(largest)),
                  scalar_of(neginf.value_or(-largest))});
}

TORCH_IMPL_FUNC(pow_Scalar_out_xpu)(const Scalar &base, const Tensor &exponent, const Tensor &out) {
    if (base.equal(1.0))
        out.fill_(1);
    else
        at::pow_out(const_cast<Tensor &>(out), wrapped_scalar_tensor(base), exponent);
}

Tensor floor_divide_xpu(const Tensor &self, const Tensor &other) { return at::div(self, other, "floor"); }
Tensor &floor_divide_out_xpu(const Tensor &self, const Tensor &other, Tensor &out) {
    return at::div_out(out, self, other, "floor");
}
Tensor &floor_divide_xpu_(Tensor &self, const Tensor &other) {
    return floor_divide_out_xpu(self, other, self);
}

// Integer exponents need no power of two, which may be too large where the result isn't.
static bool is_scaling(const Tensor &self, const Tensor &other) {
    return isFloatingType(self.scalar_type()) && isIntegralType(other.scalar_type(), /*includeBool=*/true);
}
Tensor ldexp_xpu(const Tensor &self, const Tensor &other) {
    return is_scaling(self, other) ? binary(self, other, XPU_POINTWISE_LDEXP)
                                   : at::mul(self, at::pow(2.0, other));
}
Tensor &ldexp_out_xpu(const Tensor &self, const Tensor &other, Tensor &out) {
    return is_scaling(self, other) ? binary(out, self, other, XPU_POINTWISE_LDEXP)
                                   : at::mul_out(out, self, at::pow(2.0, other));
}
Tensor &ldexp_xpu_(Tensor &self, const Tensor &other) { return ldexp_out_xpu(self, other, self); }

Tensor isnan_xpu(const Tensor &self) {
    auto out = at::empty({0}, self.options().dtype(kBool));
    auto iter =
        TensorIteratorConfig().check_all_same_dtype(false).add_output(out).add_const_input(self).build();
    pointwise(iter, self.scalar_type(), XPU_POINTWISE_ISNAN);
    return out;
}

// --- clamp ------------------------------------------------------------------------------------------

TORCH_IMPL_FUNC(clamp_tensor_xpu)
(const Tensor &self, const OptionalTensorRef min, const OptionalTensorRef max, const Tensor &out) {
    const auto op = !max.has_value()   ? XPU_POINTWISE_MAXIMUM
                    : !min.has_value() ? XPU_POINTWISE_MINIMUM
                                       : XPU_POINTWISE_CLAMP_TENSOR;
    pointwise(*this, common_dtype_, op);
}

// --- logic ------------------------------------------------------------------------------------------

Tensor &logical_not_out_xpu(const Tensor &self, Tensor &out) {
    auto iter =
        TensorIteratorConfig().check_all_same_dtype(false).add_output(out).add_const_input(self).build();
    pointwise(iter, self.scalar_type(), XPU_POINTWISE_LOGICAL_NOT);
    return out;
}
Tensor &logical_and_out_xpu(const Tensor &self, const Tensor &other, Tensor &out) {
    return comparison(out, self, other, XPU_POINTWISE_LOGICAL_AND);
}
Tensor &logical_or_out_xpu(const Tensor &self, const Tensor &other, Tensor &out) {
    return comparison(out, self, other, XPU_POINTWISE_LOGICAL_OR);
}
Tensor &logical_xor_out_xpu(const Tensor &self, const Tensor &other, Tensor &out) {
    return comparison(out, self, other, XPU_POINTWISE_LOGICAL_XOR);
}

Tensor lshift_xpu(const Tensor &self, const Tensor &other) { return at::bitwise_left_shift(self, other); }
Tensor lshift_xpu(const Tensor &self, const Scalar &other) { return at::bitwise_left_shift(self, other); }
Tensor &ilshift_xpu(Tensor &self, const Tensor &other) { return self.bitwise_left_shift_(other); }
Tensor &ilshift_xpu(Tensor &self, const Scalar &other) { return self.bitwise_left_shift_(other); }
Tensor rshift_xpu(const Tensor &self, const Tensor &other) { return at::bitwise_right_shift(self, other); }
Tensor rshift_xpu(const Tensor &self, const Scalar &other) { return at::bitwise_right_shift(self, other); }
Tensor &irshift_xpu(Tensor &self, const Tensor &other) { return self.bitwise_right_shift_(other); }
Tensor &irshift_xpu(Tensor &self, const Scalar &other) { return self.bitwise_right_shift_(other); }

// --- where and fills --------------------------------------------------------------------------------

Tensor &where_out_xpu(const Tensor &condition, const Tensor &self, const Tensor &other, Tensor &out) {
    const auto result_type = at::result_type(self, other);
    TORCH_CHECK(out.scalar_type() == result_type, "Expected out type to be ", result_type, " but got ",
                out.scalar_type());
    if (condition.scalar_type() == kByte) {
        TORCH_WARN_ONCE(
            "where received a uint8 condition tensor. This behavior is deprecated and will be removed in "
            "a future version of PyTorch. Use a boolean condition instead.");
    } else {
        TORCH_CHECK(condition.scalar_type() == kBool,
                    "where expected condition to be a boolean tensor, but got a tensor with dtype ",
                    condition.scalar_type());
    }
    // CPU tensors of no dimension go with any device.
    const auto here = [&](const Tensor &x) { return x.is_cpu() && x.dim() == 0 ? x.to(out.device()) : x; };
    auto iter = TensorIteratorConfig()
                    .check_all_same_dtype(false)
                    .add_output(out)
                    .add_owned_const_input(here(condition))
                    .add_owned_const_input(here(self))
                    .add_owned_const_input(here(other))
                    .build();
    pointwise(iter, result_type, XPU_POINTWISE_WHERE);
    return out;
}

Tensor where_xpu(const Tensor &condition, const Tensor &self, const Tensor &other) {
    Device device = condition.device();
    for (const auto *tensor : {&other, &self, &condition})
        if (!tensor->is_cpu() || tensor->dim() > 0) device = tensor->device();
    auto out = at::empty({0}, self.options().dtype(at::result_type(self, other)).device(device));
    return where_out_xpu(condition, self, other, out);
}

// Throws PyTorch's error for a number that `dtype` can't hold.
static void check_fits(const Scalar &value, ScalarType dtype) {
    AT_DISPATCH_V2(dtype, "fill", AT_WRAP([&] { (void)value.to<scalar_t>(); }), kBool, kHalf, kBFloat16,
                   AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES),
                   AT_EXPAND(AT_FLOAT8_TYPES));
}

// `as`: taken for elements of that dtype.
static void fill_elements(const Tensor &self, const xpu_scalar &number, std::optional<xpu_dtype> as) {
    auto iter = TensorIteratorConfig()
                    .set_check_mem_overlap(false) // writing one value everywhere
                    .check_all_same_dtype(false)
                    .add_output(self)
                    .resize_outputs(false)
                    .build();
    if (iter.numel() == 0) return;
    const auto lowered = openxpu::iter_of(iter, as);
    openxpu::check(xpu_fill(openxpu::current_stream(self), &lowered, &number));
}

Tensor &fill_xpu_(Tensor &self, const Scalar &value) {
    if (self.scalar_type() == kComplexHalf) { // No kernel knows the type: its bits are filled in.
        self.view(kInt).fill_(at::empty({}, TensorOptions(kComplexHalf)).fill_(value).view(kInt).item());
        return self;
    }
    check_fits(value, self.scalar_type());
    fill_elements(self, scalar_of(value), std::nullopt);
    return self;
}

Tensor &fill_xpu_(Tensor &self, const Tensor &value) {
    TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ",
                value.dim(), " dimensions.");
    if (self.device() != value.device()) return fill_xpu_(self, value.item());
    return self.copy_(self.is_alias_of(value) ? value.clone() : value);
}

Tensor &zero_xpu_(Tensor &self) {
    if (!isFloat8Type(self.scalar_type()) && self.scalar_type() != kFloat4_e2m1fn_x2)
        return fill_xpu_(self, Scalar(0));
    fill_elements(self, scalar_of(int64_t{0}), XPU_UINT8); // bytes, as some of these have no number 0
    return self;
}

static void check_mask(const Tensor &self, const Tensor &mask) {
    TORCH_CHECK(self.device() == mask.device(),
                "expected self and mask to be on the same device, but got mask on ", mask.device(),
                " and self on ", self.device());
    TORCH_CHECK(mask.scalar_type() == kBool, "masked_fill only supports boolean masks, but got dtype ",
                mask.scalar_type());
}

static void check_mask_in_place(const Tensor &self, const Tensor &mask) {
    check_mask(self, mask);
    if (at::has_internal_overlap(self) == MemOverlap::Yes) {
        TORCH_WARN("Use of masked_fill_ on expanded tensors is deprecated. Please clone() the tensor before "
                   "performing "
                   "this operation. This also applies to advanced indexing e.g. tensor[mask] = scalar");
    }
    at::assert_no_partial_overlap(self, mask);
}

// out = where(mask, value, self); `value` is a number or a tensor of no dimension.
static void masked_fill_into(const Tensor &out, const Tensor &self, const Tensor &mask, const Scalar &value) {
    check_fits(value, self.scalar_type());
    auto iter = TensorIteratorConfig()
                    .set_check_mem_overlap(false)
                    .check_all_same_dtype(false)
                    .resize_outputs(false)
                    .add_output(out)
                    .add_const_input(self)
                    .add_const_input(mask)
                    .build();
    pointwise(iter, self.scalar_type(), XPU_POINTWISE_MASKED_FILL, {scalar_of(value)});
}

static void masked_fill_into(const Tensor &out, const Tensor &self, const Tensor &mask, const Tensor &value) {
    TORCH_CHECK(value.dim() == 0,
                "masked_fill only supports a 0-dimensional value tensor, but got tensor with ", value.dim(),
                " dimension(s).");
    if (value.is_cpu()) return masked_fill_into(out, self, mask, value.item());
    TORCH_CHECK(canCast(value.scalar_type(), self.scalar_type()), "value cannot be converted to type ",
                self.scalar_type(), " without overflow");
    auto iter = TensorIteratorConfig()
                    .set_check_mem_overlap(false)
                    .check_all_same_dtype(false)
                    .resize_outputs(false)
                    .add_output(out)
                    .add_const_input(mask)
                    .add_const_input(value)
                    .add_const_input(self)
                    .build();
    pointwise(iter, self.scalar_type(), XPU_POINTWISE_WHERE);
}

template <class Value>
static Tensor &masked_fill_in_place(Tensor &self, const Tensor &mask, const Value &value) {
    check_mask_in_place(self, mask);
    masked_fill_into(self, self, *expand_inplace(self, mask, "masked_fill_"), value);
    return self;
}

template <class Value>
static Tensor masked_fill_new(const Tensor &self, const Tensor &mask, const Value &value) {
    check_mask(self, mask);
    const auto [mask_, self_] = expand_outplace(mask, self);
    auto out = at::empty_like(*self_);
    masked_fill_into(out, *self_, *mask_, value);
    return out;
}

Tensor &masked_fill_xpu_(Tensor &self, const Tensor &mask, const Scalar &value) {
    return masked_fill_in_place(self, mask, value);
}
Tensor &masked_fill_xpu_(Tensor &self, const Tensor &mask, const Tensor &value) {
    return masked_fill_in_place(self, mask, value);
}
Tensor masked_fill_xpu(const Tensor &self, const Tensor &mask, const Scalar &value) {
    return masked_fill_new(self, mask, value);
}
Tensor masked_fill_xpu(const Tensor &self, const Tensor &mask, const Tensor &value) {
    return masked_fill_new(self, mask, value);
}

// --- activations ------------------------------------------------------------------------------------

Tensor relu_xpu(const Tensor &self) {
    TORCH_CHECK(self.scalar_type() != at::kBool, "Boolean inputs not supported for relu");
    return unary(self, XPU_POINTWISE_RELU);
}
Tensor &relu_xpu_(Tensor &self) {
    TORCH_CHECK(self.scalar_type() != at::kBool, "Boolean inputs not supported for relu");
    return unary(self, self, XPU_POINTWISE_RELU);
}

Tensor &hardtanh_backward_out_xpu(const Tensor &grad_output, const Tensor &self, const Scalar &min_val,
                                  const Scalar &max_val, Tensor &grad_input) {
    return binary(grad_input, grad_output, self, XPU_POINTWISE_HARDTANH_BACKWARD,
                  {scalar_of(min_val), scalar_of(max_val)});
}
Tensor hardtanh_backward_xpu(const Tensor &grad_output, const Tensor &self, const Scalar &min_val,
                             const Scalar &max_val) {
    return binary(grad_output, self, XPU_POINTWISE_HARDTANH_BACKWARD,
                  {scalar_of(min_val), scalar_of(max_val)});
}

Tensor &hardswish_out_xpu(const Tensor &self, Tensor &out) {
    return unary(out, self, XPU_POINTWISE_HARDSWISH);
}
Tensor hardswish_xpu(const Tensor &self) { return unary(self, XPU_POINTWISE_HARDSWISH); }
Tensor &hardswish_xpu_(Tensor &self) { return hardswish_out_xpu(self, self); }

Tensor hardswish_backward_xpu(const Tensor &grad_output, const Tensor &self) {
    return binary(grad_output, self, XPU_POINTWISE_HARDSWISH_BACKWARD);
}

// The buffer is for the CPU's kernel; here the backward computes all from the input.
std::tuple<Tensor &, Tensor &> log_sigmoid_forward_out_xpu(const Tensor &self, Tensor &output,
                                                           Tensor &buffer) {
    unary(output, self, XPU_POINTWISE_LOG_SIGMOID);
    return {output, buffer};
}
std::tuple<Tensor, Tensor> log_sigmoid_forward_xpu(const Tensor &self) {
    return {unary(self, XPU_POINTWISE_LOG_SIGMOID), at::empty({0}, self.options())};
}
Tensor &log_sigmoid_backward_out_xpu(const Tensor &grad_output, const Tensor &self, const Tensor &buffer,
                                     Tensor &grad_input) {
    return binary(grad_input, grad_output, self, XPU_POINTWISE_LOG_SIGMOID_BACKWARD);
}
Tensor log_sigmoid_backward_xpu(const Tensor &grad_output, const Tensor &self, const Tensor &buffer) {
    return binary(grad_output, self, XPU_POINTWISE_LOG_SIGMOID_BACKWARD);
}

Tensor &logit_out_xpu(const Tensor &self, std::optional<double> eps, Tensor &out) {
    return unary_float(out, self, XPU_POINTWISE_LOGIT, {scalar_of(eps.value_or(-1.0))});
}
Tensor logit_xpu(const Tensor &self, std::optional<double> eps) {
    return unary_float(self, XPU_POINTWISE_LOGIT, {scalar_of(eps.value_or(-1.0))});
}
Tensor &logit_xpu_(Tensor &self, std::optional<double> eps) { return logit_out_xpu(self, eps, self); }

Tensor &glu_backward_out_xpu(const Tensor &grad_output, const Tensor &self, int64_t dim, Tensor &grad_input) {
    TORCH_CHECK(self.dim() > 0, "glu does not support 0-dimensional tensors");
    const auto wrapped = maybe_wrap_dim(dim, self.dim());
    const auto size = self.size(wrapped);
    TORCH_CHECK(size % 2 == 0, "Halving dimension must be even, but dimension ", wrapped, " is size ", size);
    at::native::resize_output(grad_input, self.sizes());
    const auto half = size / 2;
    const auto value = self.narrow(wrapped, 0, half), gate = self.narrow(wrapped, half, half);
    const auto grad_value = grad_input.narrow(wrapped, 0, half),
               grad_gate = grad_input.narrow(wrapped, half, half);
    auto iter = TensorIteratorConfig()
                    .add_output(grad_value)
                    .add_output(grad_gate)
                    .add_const_input(grad_output)
                    .add_const_input(value)
                    .add_const_input(gate)
                    .resize_outputs(false)
                    .build();
    pointwise(iter, own_dtype, XPU_POINTWISE_GLU_BACKWARD);
    return grad_input;
}
Tensor glu_backward_xpu(const Tensor &grad_output, const Tensor &self, int64_t dim) {
    auto grad_input = at::empty({0}, self.options());
    return glu_backward_out_xpu(grad_output, self, dim, grad_input);
}

Tensor glu_jvp_xpu(const Tensor &glu, const Tensor &x, const Tensor &dx, int64_t dim) {
    const auto half = glu.size(dim);
    const auto gate = x.narrow(dim, half, half), value_moves = dx.narrow(dim, 0, half),
               gate_moves = dx.narrow(dim, half, half);
    auto result = at::empty_like(glu);
    auto iter = TensorIteratorConfig()
                    .add_output(result)
                    .add_const_input(glu)
                    .add_const_input(gate)
                    .add_const_input(value_moves)
                    .add_const_input(gate_moves)
                    .build();
    pointwise(iter, own_dtype, XPU_POINTWISE_GLU_JVP);
    return result;
}

Tensor mish_backward_xpu(const Tensor &grad_output, const Tensor &self) {
    return binary(grad_output, self, XPU_POINTWISE_MISH_BACKWARD);
}

Tensor standard_gamma_grad_xpu(const Tensor &self, const Tensor &output) {
    return binary(self, output, XPU_POINTWISE_STANDARD_GAMMA_GRAD);
}

Tensor dirichlet_grad_xpu(const Tensor &x, const Tensor &alpha, const Tensor &total) {
    auto result = at::empty({0}, x.options());
    auto iter = TensorIteratorConfig()
                    .add_output(result)
                    .add_const_input(x)
                    .add_const_input(alpha)
                    .add_const_input(total)
                    .build();
    pointwise(iter, own_dtype, XPU_POINTWISE_DIRICHLET_GRAD);
    return result;
}

Tensor prelu_kernel_xpu(const Tensor &self, const Tensor &weight) {
    auto result = at::empty_like(self);
    auto iter =
        TensorIteratorConfig().add_output(result).add_const_input(self).add_const_input(weight).build();
    pointwise(iter, own_dtype, XPU_POINTWISE_PRELU);
    return result;
}

std::tuple<Tensor, Tensor> prelu_kernel_backward_xpu(const Tensor &grad_output, const Tensor &self,
                                                     const Tensor &weight) {
    auto grad_self = at::empty({0}, self.options());
    auto grad_weight = at::empty({0}, weight.options());
    auto iter = TensorIteratorConfig()
                    .add_output(grad_self)
                    .add_output(grad_weight)
                    .add_const_input(self)
                    .add_const_input(weight)
                    .add_const_input(grad_output)
                    .build();
    pointwise(iter, own_dtype, XPU_POINTWISE_PRELU_BACKWARD);
    return {grad_self, grad_weight};
}

} // namespace at::native

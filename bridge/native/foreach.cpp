// torch._foreach_*: lists of tensors in one launch, under PyTorch's conditions: one dtype, one device,
// dense, equal strides, no promotion. Otherwise one tensor at a time, like PyTorch.
#include <ATen/native/ForeachUtils.h>
#include <ATen/ops/_foreach_abs_native.h>
#include <ATen/ops/_foreach_acos_native.h>
#include <ATen/ops/_foreach_add_native.h>
#include <ATen/ops/_foreach_addcdiv_native.h>
#include <ATen/ops/_foreach_addcmul_native.h>
#include <ATen/ops/_foreach_asin_native.h>
#include <ATen/ops/_foreach_atan_native.h>
#include <ATen/ops/_foreach_ceil_native.h>
#include <ATen/ops/_foreach_clamp_max_native.h>
#include <ATen/ops/_foreach_clamp_min_native.h>
#include <ATen/ops/_foreach_copy_native.h>
#include <ATen/ops/_foreach_cos_native.h>
#include <ATen/ops/_foreach_cosh_native.h>
#include <ATen/ops/_foreach_div_native.h>
#include <ATen/ops/_foreach_erf_native.h>
#include <ATen/ops/_foreach_erfc_native.h>
#include <ATen/ops/_foreach_exp_native.h>
#include <ATen/ops/_foreach_expm1_native.h>
#include <ATen/ops/_foreach_floor_native.h>
#include <ATen/ops/_foreach_frac_native.h>
#include <ATen/ops/_foreach_lerp_native.h>
#include <ATen/ops/_foreach_lgamma_native.h>
#include <ATen/ops/_foreach_log10_native.h>
#include <ATen/ops/_foreach_log1p_native.h>
#include <ATen/ops/_foreach_log2_native.h>
#include <ATen/ops/_foreach_log_native.h>
#include <ATen/ops/_foreach_mul_native.h>
#include <ATen/ops/_foreach_neg_native.h>
#include <ATen/ops/_foreach_norm_native.h>
#include <ATen/ops/_foreach_pow_native.h>
#include <ATen/ops/_foreach_reciprocal_native.h>
#include <ATen/ops/_foreach_round_native.h>
#include <ATen/ops/_foreach_rsqrt_native.h>
#include <ATen/ops/_foreach_sigmoid_native.h>
#include <ATen/ops/_foreach_sign_native.h>
#include <ATen/ops/_foreach_sin_native.h>
#include <ATen/ops/_foreach_sinh_native.h>
#include <ATen/ops/_foreach_sqrt_native.h>
#include <ATen/ops/_foreach_sub_native.h>
#include <ATen/ops/_foreach_tan_native.h>
#include <ATen/ops/_foreach_tanh_native.h>
#include <ATen/ops/_foreach_trunc_native.h>
#include <ATen/ops/_foreach_zero_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/SmallVector.h>

#include <cmath>

#include "lower.h"
#include "xpu/ops/foreach.h"

namespace at::native {

using namespace openxpu;
using openxpu::check;

namespace {

// An input or scalar of the operation; exactly one member is set.
struct Operand {
    std::optional<TensorList> tensors = {};
    std::optional<ArrayRef<Scalar>> numbers = {};
    std::optional<Scalar> number = {};
    const Tensor *element = nullptr;
};
Operand list(TensorList tensors) { return {.tensors = tensors}; }
Operand each(ArrayRef<Scalar> numbers) { return {.numbers = numbers}; }
Operand all(const Scalar &number) { return {.number = number}; }
Operand one(const Tensor &element) { return {.element = &element}; }

using Operands = std::initializer_list<Operand>;

// True if all tensors fit a single launch, and the operation supports their dtype.
bool is_fast(xpu_pointwise_op op, ArrayRef<TensorList> lists, ArrayRef<Scalar> scalars = {},
             bool promotes = false) {
    const auto type = lists[0][0].scalar_type();
    if (type == kBool || !lists[0][0].is_xpu() ||
        !(isIntegralType(type, false) || isFloatingType(type) || type == kComplexFloat ||
          type == kComplexDouble) ||
        isFloat8Type(type))
        return false;
    if (type == kComplexDouble && scalars.size() > 1) return false;
    return xpu_pointwise_defined(op, dtype_of(type)) && can_use_fast_route(lists, scalars, promotes);
}

void run(xpu_pointwise_op op, TensorList outputs, Operands operands) {
    const auto dtype = dtype_of(outputs[0]);
    xpu_foreach_operand sources[XPU_FOREACH_OPERANDS];
    const auto count = static_cast<int>(operands.size());
    size_t width = 3;
    int k = 0;
    for (const auto &operand : operands) {
        auto &source = sources[k++];
        if (operand.tensors) {
            source.source = XPU_FOREACH_TENSORS;
            width++;
        } else if (operand.numbers) {
            source.source = XPU_FOREACH_SCALARS;
            width++;
        } else if (operand.element) {
            source.source = XPU_FOREACH_ELEMENT;
            source.element = operand.element->const_data_ptr();
        } else {
            source.source = XPU_FOREACH_SCALAR;
            source.value = scalar_of(*operand.number);
        }
    }
    c10::SmallVector<uint64_t, 512> rows(outputs.size() * width);
    auto *word = rows.data();
    for (size_t i = 0; i < outputs.size(); i++) {
        *word++ = reinterpret_cast<uint64_t>(outputs[i].mutable_data_ptr());
        for (const auto &operand : operands) {
            if (operand.tensors)
                *word++ = reinterpret_cast<uint64_t>((*operand.tensors)[i].const_data_ptr());
            else if (operand.numbers) {
                const auto number = scalar_of((*operand.numbers)[i]);
                *word++ = xpu_foreach_scalar_word(dtype, &number);
            }
        }
        *word++ = static_cast<uint64_t>(outputs[i].numel());
        word++;
    }
    check(xpu_foreach(current_stream(outputs[0]), op, dtype, sources, count, rows.data(),
                      static_cast<int64_t>(outputs.size())));
}

// Increments the version counters, by which autograd detects in-place changes; for lists no caller does.
void run_in_place(xpu_pointwise_op op, TensorList self, Operands operands) {
    run(op, self, operands);
    for (const auto &tensor : self) tensor.unsafeGetTensorImpl()->bump_version();
}

std::vector<Tensor> run_new(xpu_pointwise_op op, TensorList self, Operands operands) {
    std::vector<Tensor> outputs;
    outputs.reserve(self.size());
    for (const auto &tensor : self) outputs.push_back(at::empty_like(tensor));
    run(op, outputs, operands);
    return outputs;
}

// A 0-dimensional tensor as an operand: by address if it is on the device with the right dtype.
bool is_element(const Tensor &tensor, TensorList self) {
    return tensor.dim() == 0 && tensor.device() == self[0].device() &&
           tensor.scalar_type() == self[0].scalar_type();
}

} // namespace

#define XPU_UNARY(name, OP, promotes)                                                                        \
    std::vector<Tensor> foreach_##name##_xpu(TensorList self) {                                              \
        check_foreach_api_restrictions(self);                                                                \
        if ((XPU_POINTWISE_##OP == XPU_POINTWISE_ABS && self[0].is_complex()) ||                             \
            !is_fast(XPU_POINTWISE_##OP, {self}, {}, promotes))                                              \
            return foreach_tensor_##name##_slow(self);                                                       \
        return run_new(XPU_POINTWISE_##OP, self, {list(self)});                                              \
    }                                                                                                        \
    void foreach_##name##_xpu_(TensorList self) {                                                            \
        check_foreach_api_restrictions(self);                                                                \
        if ((XPU_POINTWISE_##OP == XPU_POINTWISE_ABS && self[0].is_complex()) ||                             \
            !is_fast(XPU_POINTWISE_##OP, {self}, {}, promotes))                                              \
            return foreach_tensor_##name##_slow_(self);                                                      \
        run_in_place(XPU_POINTWISE_##OP, self, {list(self)});                                                \
    }

XPU_UNARY(acos, ACOS, true)
XPU_UNARY(asin, ASIN, true)
XPU_UNARY(atan, ATAN, true)
XPU_UNARY(cos, COS, true)
XPU_UNARY(cosh, COSH, true)
XPU_UNARY(erf, ERF, true)
XPU_UNARY(erfc, ERFC, true)
XPU_UNARY(exp, EXP, true)
XPU_UNARY(expm1, EXPM1, true)
XPU_UNARY(lgamma, LGAMMA, true)
XPU_UNARY(log, LOG, true)
XPU_UNARY(log10, LOG10, true)
XPU_UNARY(log1p, LOG1P, true)
XPU_UNARY(log2, LOG2, true)
XPU_UNARY(reciprocal, RECIPROCAL, true)
XPU_UNARY(rsqrt, RSQRT, true)
XPU_UNARY(sigmoid, SIGMOID, true)
XPU_UNARY(sin, SIN, true)
XPU_UNARY(sinh, SINH, true)
XPU_UNARY(sqrt, SQRT, true)
XPU_UNARY(tan, TAN, true)
XPU_UNARY(tanh, TANH, true)
XPU_UNARY(abs, ABS, false)
XPU_UNARY(ceil, CEIL, false)
XPU_UNARY(floor, FLOOR, false)
XPU_UNARY(frac, FRAC, false)
XPU_UNARY(neg, NEG, false)
XPU_UNARY(round, ROUND, false)
XPU_UNARY(sign, SIGN, false)
XPU_UNARY(trunc, TRUNC, false)

// Defines NAME and NAME_. ARGUMENTS: parameters after self; PASSED: the same, as passed to the slow
// kernels.
#define XPU_BOTH(NAME, SLOW, ARGUMENTS, PASSED, CHECKED, OP, FAST, OPERANDS)                                 \
    std::vector<Tensor> foreach_##NAME##_xpu ARGUMENTS {                                                     \
        check_foreach_api_restrictions CHECKED;                                                              \
        if (!(FAST)) return SLOW PASSED;                                                                     \
        return run_new(XPU_POINTWISE_##OP, self, XPU_LIST OPERANDS);                                         \
    }                                                                                                        \
    void foreach_##NAME##_xpu_ ARGUMENTS {                                                                   \
        check_foreach_api_restrictions CHECKED;                                                              \
        if (!(FAST)) return SLOW##_ PASSED;                                                                  \
        run_in_place(XPU_POINTWISE_##OP, self, XPU_LIST OPERANDS);                                           \
    }
#define XPU_LIST(...) {__VA_ARGS__}
#define XPU_FAST(OP, ...) is_fast(XPU_POINTWISE_##OP, __VA_ARGS__)

// a op scalar, a op b, a op scalars[i]; EXTRA is the additional scalar of add and sub.
#define XPU_BINARY(name, OP, promotes, ...)                                                                  \
    XPU_BOTH(name##_scalar, foreach_tensor_##name##_scalar_kernel_slow,                                      \
             (TensorList self, const Scalar &scalar), (self, scalar), (self), OP,                            \
             XPU_FAST(OP, {self}, {scalar}, promotes), (list(self), all(scalar) __VA_OPT__(, ) __VA_ARGS__)) \
    XPU_BOTH(name##_scalarlist, foreach_tensor_##name##_scalarlist_kernel_slow,                              \
             (TensorList self, ArrayRef<Scalar> scalars), (self, scalars), (self, scalars), OP,              \
             XPU_FAST(OP, {self}, scalars, promotes),                                                        \
             (list(self), each(scalars) __VA_OPT__(, ) __VA_ARGS__))

XPU_BINARY(add, ADD, false, all(1))
XPU_BINARY(sub, SUB, false, all(1))
XPU_BINARY(mul, MUL, false)
XPU_BINARY(div, DIV, true)
XPU_BINARY(clamp_max, MINIMUM, false)
XPU_BINARY(clamp_min, MAXIMUM, false)

XPU_BOTH(add_list, foreach_tensor_add_list_kernel_slow,
         (TensorList self, TensorList other, const Scalar &alpha), (self, other, alpha), (self, other), ADD,
         (XPU_FAST(ADD, {self, other}, {alpha})), (list(self), list(other), all(alpha)))
XPU_BOTH(sub_list, foreach_tensor_sub_list_kernel_slow,
         (TensorList self, TensorList other, const Scalar &alpha), (self, other, alpha), (self, other), SUB,
         (XPU_FAST(SUB, {self, other}, {alpha})), (list(self), list(other), all(alpha)))
#define XPU_BINARY_LIST(name, OP, promotes)                                                                  \
    XPU_BOTH(name##_list, foreach_tensor_##name##_list_kernel_slow, (TensorList self, TensorList other),     \
             (self, other), (self, other), OP, (XPU_FAST(OP, {self, other}, {}, promotes)),                  \
             (list(self), list(other)))
XPU_BINARY_LIST(mul, MUL, false)
XPU_BINARY_LIST(div, DIV, true)
XPU_BINARY_LIST(clamp_max, MINIMUM, false)
XPU_BINARY_LIST(clamp_min, MAXIMUM, false)

XPU_BOTH(add_tensor, foreach_tensor_add_tensor_kernel_slow,
         (TensorList self, const Tensor &other, const Scalar &alpha), (self, other, alpha), (self), ADD,
         (is_element(other, self) && XPU_FAST(ADD, {self}, {alpha})), (list(self), one(other), all(alpha)))
XPU_BOTH(mul_tensor, foreach_tensor_mul_tensor_kernel_slow, (TensorList self, const Tensor &other),
         (self, other), (self), MUL, (is_element(other, self) && XPU_FAST(MUL, {self})),
         (list(self), one(other)))
XPU_BOTH(div_tensor, foreach_tensor_div_tensor_kernel_slow, (TensorList self, const Tensor &other),
         (self, other), (self), DIV, (is_element(other, self) && XPU_FAST(DIV, {self}, {}, true)),
         (list(self), one(other)))

#define XPU_TERNARY(name, OP, integers)                                                                      \
    XPU_BOTH(name##_scalar, foreach_tensor_##name##_scalar_slow,                                             \
             (TensorList self, TensorList tensors1, TensorList tensors2, const Scalar &value),               \
             (self, tensors1, tensors2, value), (self, tensors1, tensors2), OP,                              \
             (XPU_FAST(OP, {self, tensors1, tensors2}, {value}, !(integers))),                               \
             (list(self), list(tensors1), list(tensors2), all(value)))                                       \
    XPU_BOTH(name##_scalarlist, foreach_tensor_##name##_scalarlist_slow,                                     \
             (TensorList self, TensorList tensors1, TensorList tensors2, ArrayRef<Scalar> scalars),          \
             (self, tensors1, tensors2, scalars), (self, tensors1, tensors2, scalars), OP,                   \
             (XPU_FAST(OP, {self, tensors1, tensors2}, scalars, !(integers))),                               \
             (list(self), list(tensors1), list(tensors2), each(scalars)))                                    \
    std::vector<Tensor> foreach_##name##_tensor_xpu(TensorList self, TensorList tensors1,                    \
                                                    TensorList tensors2, const Tensor &scalars) {            \
        const auto numbers = convert_tensor_to_scalar_list(scalars, static_cast<int64_t>(self.size()));      \
        return foreach_##name##_scalarlist_xpu(self, tensors1, tensors2, numbers);                           \
    }                                                                                                        \
    void foreach_##name##_tensor_xpu_(TensorList self, TensorList tensors1, TensorList tensors2,             \
                                      const Tensor &scalars) {                                               \
        const auto numbers = convert_tensor_to_scalar_list(scalars, static_cast<int64_t>(self.size()));      \
        foreach_##name##_scalarlist_xpu_(self, tensors1, tensors2, numbers);                                 \
    }
XPU_TERNARY(addcmul, ADDCMUL, true)
XPU_TERNARY(addcdiv, ADDCDIV, false)

XPU_BOTH(lerp_list, foreach_tensor_ternary_lerp_slow,
         (TensorList self, TensorList tensors1, TensorList weights), (self, tensors1, weights),
         (self, tensors1, weights), LERP, (XPU_FAST(LERP, {self, tensors1, weights}, {}, true)),
         (list(self), list(tensors1), list(weights)))
XPU_BOTH(lerp_scalar, foreach_tensor_lerp_list_kernel_slow,
         (TensorList self, TensorList tensors1, const Scalar &weight), (self, tensors1, weight),
         (self, tensors1), LERP_SCALAR, (XPU_FAST(LERP_SCALAR, {self, tensors1}, {weight}, true)),
         (list(self), list(tensors1), all(weight)))
XPU_BOTH(lerp_scalarlist, foreach_tensor_lerp_scalarlist_kernel_slow,
         (TensorList self, TensorList tensors1, ArrayRef<Scalar> scalars), (self, tensors1, scalars),
         (self, tensors1, scalars), LERP_SCALAR, (XPU_FAST(LERP_SCALAR, {self, tensors1}, scalars, true)),
         (list(self), list(tensors1), each(scalars)))

// Integers have special rules for negative exponents: one tensor at a time.
XPU_BOTH(pow_list, foreach_tensor_pow_list_kernel_slow, (TensorList self, TensorList exponent),
         (self, exponent), (self, exponent), POW, (XPU_FAST(POW, {self, exponent}, {}, true)),
         (list(self), list(exponent)))
XPU_BOTH(pow_scalar, foreach_tensor_pow_scalar_kernel_slow, (TensorList self, const Scalar &exponent),
         (self, exponent), (self), POW_SCALAR, XPU_FAST(POW_SCALAR, {self}, {exponent}, true),
         (list(self), all(exponent)))
XPU_BOTH(pow_scalarlist, foreach_tensor_pow_scalarlist_kernel_slow,
         (TensorList self, ArrayRef<Scalar> exponent), (self, exponent), (self, exponent), POW_SCALAR,
         XPU_FAST(POW_SCALAR, {self}, exponent, true), (list(self), each(exponent)))

std::vector<Tensor> foreach_scalar_pow_xpu(const Scalar &self, TensorList exponent) {
    check_foreach_api_restrictions(exponent);
    if (!is_fast(XPU_POINTWISE_POW, {exponent}, {self}, true))
        return foreach_scalar_pow_list_kernel_slow(self, exponent);
    return run_new(XPU_POINTWISE_POW, exponent, {all(self), list(exponent)});
}

void foreach_zero_xpu_(TensorList self) {
    check_foreach_api_restrictions(self);
    if (!is_fast(XPU_POINTWISE_MUL, {self})) return foreach_tensor_zero_slow_(self);
    run_in_place(XPU_POINTWISE_MUL, self, {all(0), all(0)});
}

void foreach_copy_xpu_(TensorList self, TensorList src, bool non_blocking) {
    check_foreach_api_restrictions(self, src);
    if (!is_fast(XPU_POINTWISE_COPY, {self, src}))
        return foreach_tensor_copy_list_kernel_slow_(self, src, non_blocking);
    run_in_place(XPU_POINTWISE_COPY, self, {list(src)});
}

std::vector<Tensor> foreach_norm_xpu(TensorList self, const Scalar &ord, std::optional<ScalarType> dtype) {
    check_foreach_api_restrictions(self);
    const double p = ord.isIntegral(false) || ord.isFloatingPoint() ? ord.to<double>() : -1;
    const int order = p == 1 ? 1 : p == 2 ? 2 : std::isinf(p) && p > 0 ? 0 : -1;
    const auto type = self[0].scalar_type();
    const bool empty_maximum =
        order == 0 && std::any_of(self.begin(), self.end(), [](const Tensor &x) { return x.numel() == 0; });
    if (order < 0 || empty_maximum || !isFloatingType(type) || dtype.value_or(type) != type ||
        !is_fast(XPU_POINTWISE_ABS, {self}))
        return foreach_tensor_norm_slow(self, ord, dtype);

    const auto results = at::empty({static_cast<int64_t>(self.size())}, self[0].options());
    auto *result = static_cast<char *>(results.mutable_data_ptr());
    c10::SmallVector<xpu_norm_row, 64> rows(self.size());
    std::vector<Tensor> outputs;
    outputs.reserve(self.size());
    for (size_t i = 0; i < self.size(); i++) {
        rows[i] = {.tensor = self[i].const_data_ptr(),
                   .result = result + i * results.element_size(),
                   .count = self[i].numel()};
        outputs.push_back(results.select(0, static_cast<int64_t>(i)));
    }
    const auto count = static_cast<int64_t>(rows.size());
    const auto bytes =
        static_cast<int64_t>(xpu_foreach_norm_scratch(self[0].device().index(), rows.data(), count));
    const auto scratch = at::empty({bytes}, self[0].options().dtype(kByte));
    check(xpu_foreach_norm(current_stream(self[0]), dtype_of(type), order, rows.data(), count,
                           scratch.mutable_data_ptr()));
    return outputs;
}

} // namespace at::native

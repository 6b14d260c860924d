// mm, addmm, bmm, baddbmm, addmv, dot and related operators, and PyTorch's fused linear operators
// (mkldnn::_linear_…), with xpu_gemm. Transposed operands are passed as strides.
#include <ATen/Context.h>
#include <ATen/Dispatch.h>
#include <ATen/ExpandUtils.h>
#include <ATen/cpu/Utils.h>
#include <ATen/record_function.h>
#include <ATen/ops/_addmm_activation_native.h>
#include <ATen/ops/_compute_linear_combination_native.h>
#include <ATen/ops/_int_mm.h>
#include <ATen/ops/_int_mm_native.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/_efficientzerotensor.h>
#include <ATen/ops/addmm_native.h>
#include <ATen/ops/addmv_native.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/baddbmm_native.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/bmm_native.h>
#include <ATen/ops/dot_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mm_native.h>
#include <ATen/ops/vdot_native.h>
#include <torch/library.h>

#include "../host_gemm.h"
#include "../host_memory.h"
#include "../operands.h"
#include "post_ops.h"
#include "gemm.h"
#include "xpu/ops/gemm.h"

namespace {

using at::Scalar;
using at::Tensor;

// The last two dimensions are rows and columns; a third before them is the batch.
xpu_matrix matrix_at(void *data, const Tensor &t) {
    const auto strides = t.strides();
    const auto n = strides.size();
    return {data, n > 2 ? strides[0] : 0, strides[n - 2], strides[n - 1]};
}
xpu_matrix matrix_of(const Tensor &t) { return matrix_at(openxpu::input_data(t), t); }
xpu_matrix column_of(const Tensor &t) { return {openxpu::input_data(t), 0, t.stride(0), 0}; }
xpu_matrix row_of(const Tensor &t) { return {openxpu::input_data(t), 0, 0, t.stride(0)}; }

// tf32 setting, as in PyTorch's XPU build: torch.set_float32_matmul_precision("high") or "medium",
// torch.backends.mkldnn.matmul.fp32_precision.
xpu_status submit(const Tensor &out, const xpu_gemm_args &args) {
    xpu_stream *stream = openxpu::current_stream(out);
    // Host libraries query the precision themselves if needed.
    if (args.dtype == XPU_FLOAT32 && !xpu_host_provider_active(xpu_stream_device(stream))) {
        const auto precision =
            at::globalContext().float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL);
        if (precision == at::Float32Precision::TF32 || precision == at::Float32Precision::BF16)
            return xpu_gemm_tf32(stream, &args);
    }
    return xpu_gemm(stream, &args);
}

void matrix_product(const Tensor &a, const Tensor &b, const Tensor &out, const Tensor *addend = nullptr,
                    const Scalar &beta = 0, const Scalar &alpha = 1, const xpu_post_ops &post_ops = {},
                    const Tensor *other = nullptr) {
    TORCH_CHECK(a.scalar_type() == b.scalar_type(),
                "expected m1 and m2 to have the same dtype, but got: ", a.dtype().name(),
                " != ", b.dtype().name());
    c10::MaybeOwned<Tensor> expanded;
    if (addend) expanded = at::expand_size(*addend, out.sizes(), "addmm");
    if (out.numel() == 0) return;
    const auto last = a.dim() - 1;
    xpu_gemm_args args{.dtype = openxpu::dtype_of(out),
                       .epilogue = post_ops.epilogue,
                       .conjugate_a = a.is_conj(),
                       .conjugate_b = b.is_conj(),
                       .batch = last == 2 ? out.size(0) : 1,
                       .m = out.size(last - 1),
                       .n = out.size(last),
                       .k = a.size(last),
                       .a = matrix_of(a),
                       .b = matrix_of(b),
                       .out = matrix_at(out.mutable_data_ptr(), out),
                       .alpha = openxpu::scalar_of(alpha),
                       .beta = openxpu::scalar_of(beta),
                       .combine = post_ops.combine,
                       .epilogue_scalar = {post_ops.scalar[0], post_ops.scalar[1]}};
    if (other) args.other = matrix_of(*other);
    if (addend) {
        TORCH_CHECK(addend->scalar_type() == out.scalar_type(),
                    "self and mat2 must have the same dtype, but got ", addend->scalar_type(), " and ",
                    out.scalar_type());
        if (expanded->is_conj()) expanded = c10::MaybeOwned<Tensor>::owned(expanded->resolve_conj());
        args.c = matrix_of(*expanded);
    }
    openxpu::check_product(submit(out, args));
}

void check_vectors(const Tensor &self, const Tensor &other) {
    TORCH_CHECK(self.dim() == 1 && other.dim() == 1, "1D tensors expected, but got ", self.dim(), "D and ",
                other.dim(), "D tensors");
    TORCH_CHECK(self.scalar_type() == other.scalar_type(),
                "dot : expected both vectors to have same dtype, but found ", self.scalar_type(), " and ",
                other.scalar_type());
    TORCH_CHECK(self.numel() == other.numel(), "inconsistent tensor size, expected tensor [", self.numel(),
                "] and src [", other.numel(), "] to have the same number of elements, but got ", self.numel(),
                " and ", other.numel(), " elements respectively");
    TORCH_CHECK(self.device() == other.device(),
                "Expected all tensors to be on the same device. Found: ", self.device(), ", ",
                other.device());
}

Tensor inner_product(const Tensor &self, const Tensor &other, bool conjugate) {
    check_vectors(self, other);
    if (self._is_zerotensor() || other._is_zerotensor()) // have no memory
        return at::_efficientzerotensor({}, self.options());
    Tensor out = at::empty({}, self.options());
    const xpu_gemm_args args{.dtype = openxpu::dtype_of(self),
                             .conjugate_a = self.is_conj() != (conjugate && self.is_complex()),
                             .conjugate_b = other.is_conj(),
                             .batch = 1,
                             .m = 1,
                             .n = 1,
                             .k = self.numel(),
                             .a = row_of(self),
                             .b = column_of(other),
                             .out = {out.mutable_data_ptr(), 0, 1, 1},
                             .alpha = openxpu::scalar_of(int64_t{1}),
                             .beta = openxpu::scalar_of(int64_t{0})};
    openxpu::check_product(xpu_gemm(openxpu::current_stream(self), &args));
    return out;
}

// out = post_ops(x w.t() + bias) over all rows of x; `other` is the operand of the binary post-op.
Tensor linear(const Tensor &x, const Tensor &w, const std::optional<Tensor> &bias,
              const xpu_post_ops &post_ops, const Tensor *other = nullptr) {
    TORCH_CHECK(x.dim() > 0 && w.dim() == 2,
                "linear: expected an input with dimensions and a 2D weight, but got ", x.dim(), "D and ",
                w.dim(), "D tensors");
    const int64_t k = x.size(-1), n = w.size(0);
    const auto rows =
        x.dim() == 2
            ? x
            : x.reshape({k ? x.numel() / k : c10::multiply_integers(x.sizes().slice(0, x.dim() - 1)), k});
    TORCH_CHECK(k == w.size(1), "mat1 and mat2 shapes cannot be multiplied (", rows.size(0), "x", k, " and ",
                w.size(1), "x", n, ")");
    auto sizes = x.sizes().vec();
    sizes.back() = n;
    const Tensor out = at::empty(sizes, x.options()), all = out.view({rows.size(0), n});
    c10::MaybeOwned<Tensor> combined;
    Tensor flat;
    if (other) {
        TORCH_CHECK(other->scalar_type() == x.scalar_type(),
                    "linear: expected the post-op's operand to have dtype ", x.scalar_type(), ", but got ",
                    other->scalar_type());
        combined = at::expand_size(*other, sizes);
        flat = combined->reshape(all.sizes());
    }
    const bool biased = bias && bias->defined();
    matrix_product(rows, w.t(), all, biased ? &*bias : nullptr, biased ? 1 : 0, 1, post_ops,
                   other ? &flat : nullptr);
    return out;
}

Tensor linear_pointwise(const Tensor &x, const Tensor &w, const std::optional<Tensor> &bias,
                        std::string_view unary, openxpu::Scalars scalars,
                        std::optional<std::string_view> algorithm) {
    return linear(x, w, bias, openxpu::post_ops_of(unary, scalars, algorithm));
}

Tensor linear_pointwise_binary(const Tensor &x, const Tensor &other, const Tensor &w,
                               const std::optional<Tensor> &bias, std::string_view binary) {
    TORCH_CHECK(other.dim() == x.dim(),
                "linear_binary_run expects the dimension of output and other tensor to be the same");
    return linear(x, w, bias, {.combine = openxpu::combine_of(binary)}, &other);
}

// fp16 and bf16 products with an fp32 result: PyTorch's rule for `out_dtype`.
void check_out_dtype(const Tensor &self, c10::ScalarType out_dtype) {
    TORCH_CHECK(out_dtype == self.scalar_type() ||
                    (out_dtype == at::kFloat &&
                     (self.scalar_type() == at::kHalf || self.scalar_type() == at::kBFloat16)),
                "out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs");
}

// On CPUs without int8 instructions PyTorch uses a plain loop, 50 times slower than fp64, in which all
// sums are exact.
Tensor int8_on_host(const Tensor &self, const Tensor &mat2) {
    const openxpu::HostScope scope(self.device().index());
    const Tensor a = openxpu::as_cpu_input(self), b = openxpu::as_cpu_input(mat2);
    if (at::cpu::is_avx512_vnni_supported()) return at::_int_mm(a, b);
    return at::mm(a.to(at::kDouble), b.to(at::kDouble)).to(at::kLong);
}

void check_int8(const Tensor &self, const Tensor &mat2) {
    TORCH_CHECK(self.dim() == 2, "Expected self to be of dimension 2 but got ", self.dim());
    TORCH_CHECK(mat2.dim() == 2, "Expected mat2 to be of dimension 2 but got ", mat2.dim());
    TORCH_CHECK(self.size(1) == mat2.size(0), "self.size(1) needs to match mat2.size(0) but got ",
                self.size(1), " and ", mat2.size(0));
    TORCH_CHECK(self.scalar_type() == at::kChar, "Expected self dtype to be of type int8 but got ",
                self.scalar_type());
    TORCH_CHECK(mat2.scalar_type() == at::kChar, "Expected mat2 dtype to be of type int8 but got ",
                mat2.scalar_type());
}

} // namespace

namespace openxpu {
namespace {

// Autograd and autocast may be active; compiled code runs below them.
bool is_dense(const Tensor &tensor, const Tensor &out, int64_t dims) {
    constexpr c10::DispatchKeySet dense(c10::DispatchKey::XPU);
    constexpr auto above = c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;
    return tensor.key_set() - above == dense && tensor.dim() == dims && tensor.dtype() == out.dtype() &&
           tensor.device() == out.device();
}

bool fits(const Tensor &out, const Tensor &a, const Tensor &b, int64_t dims) {
    if (!is_dense(out, out, dims) || !is_dense(a, out, dims) || !is_dense(b, out, dims)) return false;
    const auto to = out.sizes(), left = a.sizes(), right = b.sizes();
    const auto rows = dims - 2, columns = dims - 1;
    return to[rows] == left[rows] && to[columns] == right[columns] && left[columns] == right[rows] &&
           (dims == 2 || (to[0] == left[0] && to[0] == right[0])) &&
           out.device().index() == current_device() &&
           !at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
}

} // namespace

bool mm_out(const Tensor &out, const Tensor &a, const Tensor &b) {
    if (!fits(out, a, b, 2)) return false;
    matrix_product(a, b, out);
    return true;
}
bool bmm_out(const Tensor &out, const Tensor &a, const Tensor &b) {
    if (!fits(out, a, b, 3)) return false;
    matrix_product(a, b, out);
    return true;
}
bool addmm_out(const Tensor &out, const Tensor &addend, const Tensor &a, const Tensor &b, const Scalar &beta,
               const Scalar &alpha) {
    if (!fits(out, a, b, 2) || !is_dense(addend, out, addend.dim())) return false;
    matrix_product(a, b, out, &addend, beta, alpha);
    return true;
}

} // namespace openxpu

namespace at::native {

TORCH_IMPL_FUNC(mm_out_xpu)(const Tensor &self, const Tensor &mat2, const Tensor &result) {
    matrix_product(self, mat2, result);
}

TORCH_IMPL_FUNC(bmm_out_xpu)(const Tensor &self, const Tensor &mat2, const Tensor &result) {
    matrix_product(self, mat2, result);
}

TORCH_IMPL_FUNC(addmm_out_xpu)
(const Tensor &self, const Tensor &mat1, const Tensor &mat2, const Scalar &beta, const Scalar &alpha,
 const Tensor &result) {
    matrix_product(mat1, mat2, result, &self, beta, alpha);
}

TORCH_IMPL_FUNC(addmm_activation_out_xpu)
(const Tensor &self, const Tensor &mat1, const Tensor &mat2, const Scalar &beta, const Scalar &alpha,
 bool use_gelu, const Tensor &result) {
    matrix_product(mat1, mat2, result, &self, beta, alpha,
                   {.epilogue = use_gelu ? XPU_EPILOGUE_GELU : XPU_EPILOGUE_RELU});
}

TORCH_IMPL_FUNC(baddbmm_out_xpu)
(const Tensor &self, const Tensor &batch1, const Tensor &batch2, const Scalar &beta, const Scalar &alpha,
 const Tensor &result) {
    matrix_product(batch1, batch2, result, &self, beta, alpha);
}

TORCH_IMPL_FUNC(addmv_out_xpu)
(const Tensor &self, const Tensor &mat, const Tensor &vec, const Scalar &beta, const Scalar &alpha,
 const Tensor &result) {
    TORCH_CHECK(mat.scalar_type() == vec.scalar_type() && self.scalar_type() == mat.scalar_type(),
                "expected self, mat and vec to have the same dtype, but got: ", self.dtype().name(), ", ",
                mat.dtype().name(), " and ", vec.dtype().name());
    if (result.numel() == 0) return;
    const auto addend = at::expand_size(self, result.sizes(), "addmv");
    const xpu_gemm_args args{.dtype = openxpu::dtype_of(result),
                             .conjugate_a = mat.is_conj(),
                             .conjugate_b = vec.is_conj(),
                             .batch = 1,
                             .m = mat.size(0),
                             .n = 1,
                             .k = mat.size(1),
                             .a = matrix_of(mat),
                             .b = column_of(vec),
                             .c = column_of(*addend),
                             .out = {result.mutable_data_ptr(), 0, result.stride(0), 0},
                             .alpha = openxpu::scalar_of(alpha),
                             .beta = openxpu::scalar_of(beta)};
    openxpu::check_product(xpu_gemm(openxpu::current_stream(result), &args));
}

Tensor dot_xpu(const Tensor &self, const Tensor &other) { return inner_product(self, other, false); }
Tensor vdot_xpu(const Tensor &self, const Tensor &other) { return inner_product(self, other, true); }

Tensor mm_dtype_xpu(const Tensor &self, const Tensor &mat2, ScalarType out_dtype) {
    check_out_dtype(self, out_dtype);
    return at::mm(self.to(out_dtype), mat2.to(out_dtype));
}
Tensor &mm_dtype_out_xpu(const Tensor &self, const Tensor &mat2, ScalarType out_dtype, Tensor &out) {
    check_out_dtype(self, out_dtype);
    return at::mm_out(out, self.to(out_dtype), mat2.to(out_dtype));
}
Tensor bmm_dtype_xpu(const Tensor &self, const Tensor &mat2, ScalarType out_dtype) {
    check_out_dtype(self, out_dtype);
    return at::bmm(self.to(out_dtype), mat2.to(out_dtype));
}
Tensor &bmm_dtype_out_xpu(const Tensor &self, const Tensor &mat2, ScalarType out_dtype, Tensor &out) {
    check_out_dtype(self, out_dtype);
    return at::bmm_out(out, self.to(out_dtype), mat2.to(out_dtype));
}
Tensor addmm_dtype_xpu(const Tensor &self, const Tensor &mat1, const Tensor &mat2, ScalarType out_dtype,
                       const Scalar &beta, const Scalar &alpha) {
    check_out_dtype(mat1, out_dtype);
    return at::addmm(self.to(out_dtype), mat1.to(out_dtype), mat2.to(out_dtype), beta, alpha);
}
Tensor &addmm_dtype_out_xpu(const Tensor &self, const Tensor &mat1, const Tensor &mat2, ScalarType out_dtype,
                            const Scalar &beta, const Scalar &alpha, Tensor &out) {
    check_out_dtype(mat1, out_dtype);
    return at::addmm_out(out, self.to(out_dtype), mat1.to(out_dtype), mat2.to(out_dtype), beta, alpha);
}
Tensor baddbmm_dtype_xpu(const Tensor &self, const Tensor &batch1, const Tensor &batch2, ScalarType out_dtype,
                         const Scalar &beta, const Scalar &alpha) {
    check_out_dtype(batch1, out_dtype);
    return at::baddbmm(self.to(out_dtype), batch1.to(out_dtype), batch2.to(out_dtype), beta, alpha);
}
Tensor &baddbmm_dtype_out_xpu(const Tensor &self, const Tensor &batch1, const Tensor &batch2,
                              ScalarType out_dtype, const Scalar &beta, const Scalar &alpha, Tensor &out) {
    check_out_dtype(batch1, out_dtype);
    return at::baddbmm_out(out, self.to(out_dtype), batch1.to(out_dtype), batch2.to(out_dtype), beta, alpha);
}

Tensor &int_mm_out_xpu(const Tensor &self, const Tensor &mat2, Tensor &result) {
    check_int8(self, mat2);
    TORCH_CHECK(result.scalar_type() == kInt, "Expected result dtype to be of type kInt but got ",
                result.scalar_type());
    TORCH_CHECK(result.dim() == 2, "Expected result to be of dimension 2 but got ", result.dim());
    TORCH_CHECK(result.size(0) == self.size(0), "Expected result.size(0) to be ", self.size(0), " but got ",
                result.size(0));
    TORCH_CHECK(result.size(1) == mat2.size(1), "Expected result.size(1) to be ", mat2.size(1), " but got ",
                result.size(1));
    if (result.numel() == 0) return result;
    if (openxpu::uses_host_kernels(self.device().index()) && !openxpu::is_captured(self.device().index())) {
        openxpu::as_cpu(result).copy_(int8_on_host(self, mat2));
        return result;
    }
    const xpu_gemm_args args{.dtype = XPU_INT32,
                             .batch = 1,
                             .m = self.size(0),
                             .n = mat2.size(1),
                             .k = self.size(1),
                             .a = matrix_of(self),
                             .b = matrix_of(mat2),
                             .out = matrix_at(result.mutable_data_ptr(), result),
                             .alpha = openxpu::scalar_of(int64_t{1}),
                             .beta = openxpu::scalar_of(int64_t{0})};
    const xpu_quant_params bytes{.dtype = XPU_INT8};
    openxpu::check(xpu_gemm_quantized(openxpu::current_stream(result), &args, &bytes, &bytes));
    return result;
}
Tensor int_mm_xpu(const Tensor &self, const Tensor &mat2) {
    check_int8(self, mat2);
    Tensor result = at::empty({self.size(0), mat2.size(1)}, self.options().dtype(kInt));
    return int_mm_out_xpu(self, mat2, result);
}

// out[n] = the sum of coefficients[n][m] * input[m]; accumulated into a passed tensor, as on the CPU.
Tensor compute_linear_combination_xpu(const Tensor &input, const Tensor &coefficients) {
    TORCH_CHECK(input.dim() > 0 && input.numel() > 0, "Empty tensor not supported");
    TORCH_CHECK(coefficients.dim() == 2 && coefficients.size(1) == input.size(0),
                "_compute_linear_combination: coefficients of shape ", coefficients.sizes(),
                " don't fit an input of shape ", input.sizes());
    auto shape = input.sizes().vec();
    shape[0] = coefficients.size(0);
    return at::matmul(coefficients, input.reshape({input.size(0), -1})).view(shape);
}
Tensor &compute_linear_combination_xpu_out(const Tensor &input, const Tensor &coefficients, Tensor &out) {
    return out.add_(compute_linear_combination_xpu(input, coefficients));
}

} // namespace at::native

TORCH_LIBRARY_IMPL(mkldnn, XPU, m) {
    m.impl("_linear_pointwise", linear_pointwise);
    m.impl("_linear_pointwise.binary", linear_pointwise_binary);
}

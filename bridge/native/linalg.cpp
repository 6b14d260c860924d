// Decompositions, solvers and Fourier transforms that are PyTorch's CPU kernels everywhere: on host devices
// LAPACK and MKL on the same memory. LU is in lu.cpp,
// Cholesky in cholesky.cpp.
#include <ATen/native/Resize.h>
#include <ATen/ops/_fft_c2c.h>
#include <ATen/ops/_fft_r2c.h>
#include <torch/library.h>

#include "../fallback.h"

namespace {

constexpr const char *operators[] = {
    // decompositions
    "linalg_ldl_factor_ex", "linalg_ldl_factor_ex.out", "linalg_qr", "linalg_qr.out", "geqrf", "geqrf.a",
    "linalg_householder_product", "linalg_householder_product.out", "ormqr", "ormqr.out", "_linalg_svd",
    "_linalg_svd.U", "_linalg_eigh", "_linalg_eigh.eigenvalues", "linalg_eig", "linalg_eig.out",
    "_linalg_eigvals",
    // solvers
    "linalg_ldl_solve", "linalg_ldl_solve.out", "linalg_lstsq.out", "linalg_matrix_exp"};

constexpr const char *transforms[] = {"_fft_c2c", "_fft_c2c.out", "_fft_r2c.out", "_fft_c2r", "_fft_c2r.out"};

// Halves are transformed in single precision, whatever their size.
void transform(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
    at::Tensor self = stack->at(stack->size() - op.schema().arguments().size()).toTensor(), out;
    if (self.scalar_type() != at::kHalf && self.scalar_type() != at::kComplexHalf)
        return openxpu::run_on_host(op, stack);
    const bool to_out = !op.schema().overload_name().empty();
    if (to_out) out = torch::jit::pop(*stack).toTensor();
    const auto plain = c10::Dispatcher::singleton().findSchemaOrThrow(op.schema().name().c_str(), "");
    stack->at(stack->size() - plain.schema().arguments().size()) =
        self.to(self.is_complex() ? at::kComplexFloat : at::kFloat);
    plain.callBoxed(stack);
    const at::Tensor result = torch::jit::pop(*stack).toTensor();
    const auto halves = result.to(result.is_complex() ? at::kComplexHalf : at::kHalf);
    if (to_out) at::native::resize_output(out, halves.sizes());
    torch::jit::push(*stack, to_out ? out.copy_(halves) : halves);
}

// By its last dimension, then the others: strides are those that torch.compile foresees for xpu.
at::Tensor fft_r2c(const at::Tensor &self, at::IntArrayRef dim, int64_t normalization, bool onesided) {
    if (self.scalar_type() == at::kHalf)
        return at::_fft_r2c(self.to(at::kFloat), dim, normalization, onesided).to(at::kComplexHalf);
    if (dim.size() > 1 && onesided)
        return at::_fft_c2c(at::_fft_r2c(self, dim.back(), normalization, true), dim.slice(0, dim.size() - 1),
                            normalization, true);
    static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_fft_r2c", "");
    torch::jit::Stack stack{self, dim, normalization, onesided};
    openxpu::run_on_host(op, &stack);
    const auto out = stack.front().toTensor();
    return dim.size() == 1 ? out : out.contiguous();
}

} // namespace

TORCH_LIBRARY_IMPL(aten, XPU, m) {
    for (const char *name : operators)
        m.impl(name, torch::CppFunction::makeFromBoxedFunction<&openxpu::run_on_host>());
    for (const char *name : transforms) m.impl(name, torch::CppFunction::makeFromBoxedFunction<&transform>());
    m.impl("_fft_r2c", fft_r2c);
}

// Cholesky factorization, and solving and inverting with it. On CPU devices PyTorch's LAPACK on the same
// memory.
#include <ATen/TensorOperators.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_cholesky_solve_helper.h>
#include <ATen/ops/_cholesky_solve_helper_native.h>
#include <ATen/ops/_linalg_check_errors.h>
#include <ATen/ops/cholesky.h>
#include <ATen/ops/cholesky_inverse.h>
#include <ATen/ops/cholesky_inverse_native.h>
#include <ATen/ops/cholesky_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/linalg_cholesky_ex.h>
#include <ATen/ops/linalg_cholesky_ex_native.h>

#include "native/linalg.h"

namespace openxpu {
namespace {

using at::Tensor;

// `factors`, column-major, has A before and L or U after.
void factor(const Tensor &factors, bool upper, const Tensor &info) {
    const auto lower = upper ? factors.mT() : factors;
    const xpu_factor_args args = {.dtype = dtype_of(factors),
                                  .batch = at::native::batchCount(factors),
                                  .m = factors.size(-1),
                                  .a = matrix_of(lower, lower.mutable_data_ptr()),
                                  .info = info.mutable_data_ptr<int32_t>()};
    check(xpu_cholesky(current_stream(factors), &args));
    upper ? factors.triu_() : factors.tril_();
}

// X of L L^H X = B or U^H U X = B, in place.
void solve_by_factor(const Tensor &factors, bool upper, const Tensor &x) {
    solve_in_place(factors, x, {upper, false, upper, upper});
    solve_in_place(factors, x, {upper, false, !upper, !upper});
}

// Each matrix's first number on the diagonal that is 0, from 1 on, or 0.
Tensor first_zero(const Tensor &factors) {
    const auto zero = factors.diagonal(0, -2, -1).eq(0).to(at::kInt);
    return (zero.argmax(-1) + 1).mul_(zero.amax(-1)).to(at::kInt);
}

// As these operators have it, `out` may have a dtype that the result can be cast to.
Tensor &into(const char *name, const Tensor &result, Tensor &out) {
    TORCH_CHECK(at::canCast(result.scalar_type(), out.scalar_type()), name,
                ": Expected result to be safely "
                "castable from ",
                result.scalar_type(), " dtype, but got result with dtype ", out.scalar_type());
    return give_converted(result, out);
}

} // namespace
} // namespace openxpu

namespace at::native {

using namespace openxpu;
using openxpu::check;

TORCH_IMPL_FUNC(linalg_cholesky_ex_xpu)(const Tensor &A, bool upper, bool check_errors, const Tensor &L,
                                        const Tensor &info) {
    if (factors_on_host(A))
        return lend("cholesky", {A}, {L, info}, [=](auto &in, auto &out) {
            at::linalg_cholesky_ex_outf(in[0], upper, check_errors, out[0], out[1]);
        });
    if (L.numel() == 0) {
        info.zero_();
        return;
    }
    if (!L.is_same(A)) L.copy_(A);
    factor(L, upper, info);
    if (check_errors) at::_linalg_check_errors(info, "linalg.cholesky_ex", A.dim() == 2);
}

Tensor cholesky_xpu(const Tensor &self, bool upper) {
    if (self.numel() == 0) return at::empty_like(self, MemoryFormat::Contiguous);
    squareCheckInputs(self, "cholesky");
    const auto factors = column_major(self.sizes(), self.options());
    if (factors_on_host(self)) {
        lend("cholesky", {self}, {factors},
             [=](auto &in, auto &out) { at::cholesky_outf(in[0], upper, out[0]); });
        return factors;
    }
    factors.copy_(self);
    const auto info = at::empty(self.sizes().slice(0, self.dim() - 2), self.options().dtype(kInt));
    factor(factors, upper, info);
    at::_linalg_check_errors(info, "cholesky", self.dim() == 2);
    return factors;
}

Tensor &cholesky_out_xpu(const Tensor &self, bool upper, Tensor &result) {
    return into("cholesky", cholesky_xpu(self, upper), result);
}

Tensor _cholesky_solve_helper_xpu(const Tensor &self, const Tensor &A, bool upper) {
    const auto x = column_major(self.sizes(), self.options());
    if (factors_on_host(self)) {
        lend("cholesky_solve", {self, A}, {x},
             [=](auto &in, auto &out) { out[0].copy_(at::_cholesky_solve_helper(in[0], in[1], upper)); });
        return x;
    }
    x.copy_(self);
    solve_by_factor(A, upper, x);
    return x;
}

Tensor cholesky_inverse_xpu(const Tensor &self, bool upper) {
    squareCheckInputs(self, "cholesky_inverse");
    const auto inverse = column_major(self.sizes(), self.options());
    if (self.numel() == 0) return inverse;
    if (factors_on_host(self)) {
        lend("cholesky_inverse", {self}, {inverse},
             [=](auto &in, auto &out) { at::cholesky_inverse_outf(in[0], upper, out[0]); });
        return inverse;
    }
    inverse.zero_();
    inverse.diagonal(0, -2, -1).fill_(1);
    solve_by_factor(self, upper, inverse);
    at::_linalg_check_errors(first_zero(self), "cholesky_inverse", self.dim() == 2);
    return inverse;
}

Tensor &cholesky_inverse_out_xpu(const Tensor &self, bool upper, Tensor &result) {
    return into("cholesky_inverse", cholesky_inverse_xpu(self, upper), result);
}

} // namespace at::native

// LU factorization, solving and determinants with it, and triangular systems. On CPU devices PyTorch's
// LAPACK on the same memory.
#include <ATen/native/Resize.h>
#include <ATen/ops/_linalg_check_errors.h>
#include <ATen/ops/_linalg_det.h>
#include <ATen/ops/_linalg_det_native.h>
#include <ATen/ops/_linalg_slogdet.h>
#include <ATen/ops/_linalg_slogdet_native.h>
#include <ATen/ops/_linalg_solve_ex.h>
#include <ATen/ops/_linalg_solve_ex_native.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/linalg_inv_ex.h>
#include <ATen/ops/linalg_inv_ex_native.h>
#include <ATen/ops/linalg_lu.h>
#include <ATen/ops/linalg_lu_factor_ex.h>
#include <ATen/ops/linalg_lu_factor_ex_native.h>
#include <ATen/ops/linalg_lu_native.h>
#include <ATen/ops/linalg_lu_solve.h>
#include <ATen/ops/linalg_lu_solve_native.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/linalg_solve_triangular_native.h>
#include <ATen/ops/lu_unpack.h>
#include <ATen/ops/lu_unpack_native.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/triangular_solve.h>
#include <ATen/ops/triangular_solve_native.h>
#include <c10/util/accumulate.h>

#include "native/linalg.h"

namespace openxpu {
namespace {

using at::Tensor;

// PyTorch factors the matrices of a batch in parallel. After torch.set_num_threads, MKL starts threads in
// each of its threads for matrices above about 128 x 128, or with thousands of rows. PyTorch 2.13 then
// hangs or returns wrong pivots. Such matrices are passed one at a time.
bool one_by_one(const Tensor &a) {
    constexpr int64_t most = 100 * 100;
    return at::native::batchCount(a) > 1 && a.size(-2) * a.size(-1) > most;
}

// True if PyTorch's LAPACK runs the whole operator, factorization included.
bool whole_on_host(const Tensor &a) { return factors_on_host(a) && !one_by_one(a); }

void factor_on_host(const Tensor &a, bool pivot, const Tensor &lu, const Tensor &pivots, const Tensor &info) {
    lend("lu_factor", {a}, {lu, pivots, info}, [=](auto &in, auto &out) {
        at::linalg_lu_factor_ex_outf(in[0], pivot, false, out[0], out[1], out[2]);
    });
}

// `lu` is column-major, `pivots` and `info` are contiguous.
void factor(const Tensor &a, bool pivot, const Tensor &lu, const Tensor &pivots, const Tensor &info) {
    if (factors_on_host(a)) {
        if (!one_by_one(a)) return factor_on_host(a, pivot, lu, pivots, info);
        const auto matrices = a.flatten(0, -3), factors = lu.view({-1, lu.size(-2), lu.size(-1)});
        const auto rows = pivots.view({-1, pivots.size(-1)}), failed = info.view(-1);
        for (int64_t i = 0; i < matrices.size(0); i++)
            factor_on_host(matrices[i], pivot, factors[i], rows[i], failed[i]);
        return;
    }
    if (a.numel() == 0) {
        info.zero_();
        return;
    }
    if (!lu.is_same(a)) lu.copy_(a);
    const xpu_factor_args args = {.dtype = dtype_of(lu),
                                  .batch = at::native::batchCount(lu),
                                  .m = lu.size(-2),
                                  .n = lu.size(-1),
                                  .a = matrix_of(lu, lu.mutable_data_ptr()),
                                  .info = info.mutable_data_ptr<int32_t>()};
    check(xpu_lu_factor(current_stream(lu), &args, pivot, pivots.mutable_data_ptr<int32_t>()));
}

// Row numbers [batch, rows]: see xpu_lu_permutation.
Tensor permutation_of(const Tensor &given, int64_t rows, bool inverse, const char *complaint) {
    const auto pivots = given.contiguous();
    auto sizes = pivots.sizes().vec();
    sizes.back() = rows;
    auto permutation = at::empty(sizes, pivots.options().dtype(at::kLong));
    xpu_fault fault = {};
    check(xpu_lu_permutation(current_stream(pivots), pivots.const_data_ptr<int32_t>(),
                             c10::multiply_integers(pivots.sizes().slice(0, pivots.dim() - 1)),
                             pivots.size(-1), rows, inverse, permutation.mutable_data_ptr<int64_t>(),
                             &fault));
    TORCH_CHECK(!fault.state, complaint);
    return permutation;
}

Tensor permuted(const Tensor &x, const Tensor &permutation) {
    return at::gather(x, -2, permutation.unsqueeze(-1).expand_as(x));
}

// For complex systems solved from the right, PyTorch's kernel returns X as a conjugate view.
void resolve(Tensor &x) {
    if (!x.is_conj()) return;
    x._set_conj(false);
    x.conj_physical_();
}

// Solves A X = B or, without `left`, X A = B, with A^H instead of A if `adjoint`. `result` receives X and
// may be B.
void solve_by_lu(const Tensor &lu, const Tensor &pivots, const Tensor &b, bool left, bool adjoint,
                 const Tensor &result) {
    if (factors_on_host(lu))
        return lend("lu_solve", {lu, pivots, b}, {result}, [=](auto &in, auto &out) {
            at::linalg_lu_solve_outf(in[0], in[1], in[2], left, adjoint, out[0]);
            resolve(out[0]);
        });
    if (result.numel() == 0) return;
    if (!batch_stride(result)) {
        const auto dense = column_major(result.sizes(), result.options());
        solve_by_lu(lu, pivots, b, left, adjoint, dense);
        result.copy_(dense);
        return;
    }
    const auto x = left ? result : result.mT(); // X A = B is A^T X^T = B^T
    const bool transpose = left == adjoint;
    const auto given = b.expand(result.sizes());
    const auto permutation = permutation_of(
        pivots, x.size(-2), transpose,
        "Pivots given to lu_solve must all be greater or equal to 1 and not exceed LU.size(-2). Did you "
        "properly pass the result of lu_factor?");
    const TriangularKind lower = {false, true, transpose, adjoint}, upper = {true, false, transpose, adjoint};
    if (transpose) {
        if (!result.is_same(b)) result.copy_(given);
        solve_in_place(lu, x, upper);
        solve_in_place(lu, x, lower);
        x.copy_(permuted(x, permutation));
    } else {
        x.copy_(permuted(left ? given : given.mT(), permutation));
        solve_in_place(lu, x, lower);
        solve_in_place(lu, x, upper);
    }
}

// 1 or -1: the determinant of P.
Tensor sign_of(const Tensor &pivots) {
    const auto in_place = at::arange(1, pivots.size(-1) + 1, pivots.options());
    return in_place.ne(pivots).sum(-1).remainder(2).mul_(-2).add_(1);
}

// For a row-major matrix, factors its transpose, which needs no copy; the gradient formulas account for
// it.
void factor_for_determinant(const Tensor &a, const Tensor &lu, const Tensor &pivots) {
    const auto info = at::empty(a.sizes().slice(0, a.dim() - 2), a.options().dtype(at::kInt));
    factor(a.is_contiguous() && !a.is_complex() ? a.mT() : a, true, lu, pivots, info);
}

void unpack(const Tensor &lu, const Tensor &pivots, bool data, bool permutation, const Tensor &p,
            const Tensor &l, const Tensor &u) {
    const auto m = lu.size(-2), n = lu.size(-1), k = std::min(m, n);
    if (data) {
        u.copy_(lu.narrow(-2, 0, k).triu());
        l.copy_(lu.narrow(-1, 0, k).tril());
        l.diagonal(0, -2, -1).fill_(1);
    }
    if (permutation) {
        p.zero_();
        if (p.numel() > 0)
            p.scatter_(-2,
                       permutation_of(pivots, m, false,
                                      "pivots passed to lu_unpack must be between 1 and LU.size(-2) "
                                      "inclusive. Did you properly pass the result of lu_factor?")
                           .unsqueeze(-2),
                       1);
    }
}

// X of a system whose shapes fit.
void solve_triangle(const Tensor &a, const Tensor &b, bool left, TriangularKind kind, const Tensor &out) {
    const bool fits =
        batch_stride(out) && !out.is_conj() && !out.is_neg() && !out.is_alias_of(a) && !out.is_alias_of(b);
    const auto x = fits ? out : column_major(out.sizes(), out.options());
    if (factors_on_host(a)) {
        lend("solve_triangular", {a, b}, {x}, [=](auto &in, auto &to) {
            at::linalg_solve_triangular_outf(in[0], in[1], kind.upper, left, kind.unit, to[0]);
        });
    } else {
        x.copy_(b);
        if (!left) kind.transpose = !kind.transpose;
        solve_in_place(a, left ? x : x.mT(), kind);
    }
    deliver(x, out);
}

} // namespace
} // namespace openxpu

namespace at::native {

using namespace openxpu;
using openxpu::check;

TORCH_IMPL_FUNC(linalg_lu_factor_ex_xpu)(const Tensor &A, bool pivot, bool check_errors, const Tensor &LU,
                                         const Tensor &pivots, const Tensor &info) {
    factor(A, pivot, LU, pivots, info);
    if (check_errors) at::_linalg_check_errors(info, "torch.linalg.lu_factor_ex", A.dim() == 2);
}

TORCH_IMPL_FUNC(linalg_lu_solve_xpu)(const Tensor &LU, const Tensor &pivots, const Tensor &B, bool left,
                                     bool adjoint, const Tensor &result) {
    solve_by_lu(LU, pivots, B, left, adjoint, result);
}

TORCH_IMPL_FUNC(_linalg_solve_ex_xpu)(const Tensor &A, const Tensor &B, bool left, bool check_errors,
                                      const Tensor &result, const Tensor &LU, const Tensor &pivots,
                                      const Tensor &info) {
    if (whole_on_host(A))
        return lend("solve", {A, B}, {result, LU, pivots, info}, [=](auto &in, auto &out) {
            at::_linalg_solve_ex_outf(in[0], in[1], left, check_errors, out[0], out[1], out[2], out[3]);
            resolve(out[0]);
        });
    factor(A, true, LU, pivots, info);
    if (check_errors) at::_linalg_check_errors(info, "torch.linalg.solve_ex", A.dim() == 2);
    const bool is_vector = linalg_solve_is_vector_rhs(LU, B);
    solve_by_lu(LU, pivots, is_vector ? B.unsqueeze(-1) : B, left, false,
                is_vector ? result.unsqueeze(-1) : result);
}

TORCH_IMPL_FUNC(linalg_inv_ex_xpu)(const Tensor &A, bool check_errors, const Tensor &result,
                                   const Tensor &info) {
    if (whole_on_host(A))
        return lend("inv", {A}, {result, info}, [=](auto &in, auto &out) {
            at::linalg_inv_ex_outf(in[0], check_errors, out[0], out[1]);
        });
    const auto lu = column_major(A.sizes(), A.options());
    const auto pivots = at::empty(A.sizes().slice(0, A.dim() - 1), A.options().dtype(kInt));
    factor(A, true, lu, pivots, info);
    result.zero_();
    result.diagonal(0, -2, -1).fill_(1);
    solve_by_lu(lu, pivots, result, true, false, result);
    if (check_errors) at::_linalg_check_errors(info, "linalg.inv_ex", A.dim() == 2);
}

TORCH_IMPL_FUNC(_linalg_det_xpu)(const Tensor &A, const Tensor &result, const Tensor &LU,
                                 const Tensor &pivots) {
    if (whole_on_host(A))
        return lend("det", {A}, {result, LU, pivots},
                    [=](auto &in, auto &out) { at::_linalg_det_outf(in[0], out[0], out[1], out[2]); });
    factor_for_determinant(A, LU, pivots);
    at::mul_out(const_cast<Tensor &>(result), LU.diagonal(0, -2, -1).prod(-1), sign_of(pivots));
}

TORCH_IMPL_FUNC(_linalg_slogdet_xpu)(const Tensor &A, const Tensor &sign, const Tensor &logabsdet,
                                     const Tensor &LU, const Tensor &pivots) {
    if (whole_on_host(A))
        return lend("slogdet", {A}, {sign, logabsdet, LU, pivots}, [=](auto &in, auto &out) {
            at::_linalg_slogdet_outf(in[0], out[0], out[1], out[2], out[3]);
        });
    factor_for_determinant(A, LU, pivots);
    const auto diagonal = LU.diagonal(0, -2, -1);
    at::mul_out(const_cast<Tensor &>(sign), diagonal.sgn().prod(-1), sign_of(pivots));
    at::sum_out(const_cast<Tensor &>(logabsdet), diagonal.abs().log_(), -1);
}

TORCH_IMPL_FUNC(lu_unpack_xpu)(const Tensor &LU, const Tensor &pivots, bool unpack_data, bool unpack_pivots,
                               const Tensor &P, const Tensor &L, const Tensor &U) {
    if (unpack_pivots) {
        auto expected = LU.sizes().slice(0, LU.dim() - 2).vec();
        expected.push_back(std::min(LU.size(-2), LU.size(-1)));
        TORCH_CHECK(pivots.sizes() == IntArrayRef(expected), "lu_unpack: expected pivots of shape ",
                    IntArrayRef(expected), " for LU of shape ", LU.sizes(), ", but got ", pivots.sizes());
    }
    if (!factors_on_host(LU)) return unpack(LU, pivots, unpack_data, unpack_pivots, P, L, U);
    lend("lu_unpack", {LU, pivots}, {P, L, U}, [=](auto &in, auto &out) {
        at::lu_unpack_outf(in[0], in[1], unpack_data, unpack_pivots, out[0], out[1], out[2]);
    });
}

TORCH_IMPL_FUNC(linalg_lu_xpu)(const Tensor &A, bool pivot, const Tensor &P, const Tensor &L,
                               const Tensor &U) {
    if (whole_on_host(A))
        return lend("lu", {A}, {P, L, U},
                    [=](auto &in, auto &out) { at::linalg_lu_outf(in[0], pivot, out[0], out[1], out[2]); });
    const auto [lu, pivots, info] = at::linalg_lu_factor_ex(A, pivot, false);
    unpack(lu, pivots, true, pivot, P, L, U);
}

Tensor &linalg_solve_triangular_out_xpu(const Tensor &A, const Tensor &B, bool upper, bool left,
                                        bool unitriangular, Tensor &out) {
    checkInputsSolver(A, B, left, "linalg.solve_triangular");
    TORCH_CHECK(out.scalar_type() == A.scalar_type(), "expected scalar type ", A.scalar_type(), " but found ",
                out.scalar_type());
    const auto [b, a] = _linalg_broadcast_batch_dims(B, A, nullptr);
    if (resize_output_check(out, b.sizes())) {
        out.resize_(b.mT().sizes(), MemoryFormat::Contiguous);
        out.transpose_(-2, -1);
    }
    solve_triangle(a, b, left, {upper, unitriangular, false, false}, out);
    return out;
}

Tensor linalg_solve_triangular_xpu(const Tensor &A, const Tensor &B, bool upper, bool left,
                                   bool unitriangular) {
    Tensor out = at::empty({0}, A.options());
    linalg_solve_triangular_out_xpu(A, B, upper, left, unitriangular, out);
    return out;
}

TORCH_IMPL_FUNC(triangular_solve_xpu)(const Tensor &self, const Tensor &A, bool upper, bool transpose,
                                      bool unitriangular, const Tensor &result, const Tensor &clone_A) {
    if (factors_on_host(self))
        return lend("triangular_solve", {self, A}, {result, clone_A}, [=](auto &in, auto &out) {
            at::triangular_solve_outf(in[0], in[1], upper, transpose, unitriangular, out[0], out[1]);
        });
    const auto [b, a] = _linalg_broadcast_batch_dims(self, A, nullptr);
    clone_A.copy_(a);
    solve_triangle(a, b, true, {upper, unitriangular, transpose, false}, result);
}

} // namespace at::native

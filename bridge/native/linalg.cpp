// Decompositions and solvers that run as PyTorch's CPU kernels everywhere; on CPU devices LAPACK on the
// same memory. LU is in lu.cpp, Cholesky in cholesky.cpp.
#include <torch/library.h>

#include "../fallback.h"
#include "../host_memory.h"

namespace {

constexpr const char *operators[] = {// decompositions
                                     "linalg_ldl_factor_ex", "linalg_ldl_factor_ex.out", "linalg_qr",
                                     "linalg_qr.out", "geqrf", "geqrf.a", "linalg_householder_product",
                                     "linalg_householder_product.out", "ormqr", "ormqr.out", "_linalg_svd",
                                     "_linalg_svd.U", "_linalg_eigh", "_linalg_eigh.eigenvalues",
                                     "linalg_eig", "linalg_eig.out", "_linalg_eigvals",
                                     // solvers
                                     "linalg_lstsq.out", "linalg_matrix_exp"};

// As ldl_factor returns them: row numbers from 1 on, or, negative, two of them.
bool are_ldl_pivots(const int32_t *pivots, int64_t count) {
    for (int64_t k = 0; k < count; k++) {
        if (pivots[k] == 0 || pivots[k] > count || pivots[k] < -count) return false;
        if (pivots[k] > 0) continue;
        k++;
        if (k == count || pivots[k] >= 0 || pivots[k] < -count) return false;
    }
    return true;
}

// LAPACK trusts the pivots.
void ldl_solve(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
    const auto pivots = torch::jit::peek(*stack, 1, op.schema().arguments().size()).toTensor();
    if (pivots.scalar_type() == at::kInt && pivots.numel() > 0 &&
        !openxpu::is_captured(pivots.device().index())) {
        const auto host = pivots.cpu().contiguous();
        const auto count = host.size(-1);
        for (int64_t i = 0; i < host.numel(); i += count)
            TORCH_CHECK(are_ldl_pivots(host.const_data_ptr<int32_t>() + i, count),
                        "linalg.ldl_solve: expected the pivots of ldl_factor, between 1 and ", count,
                        ", or pairs of negative ones");
    }
    openxpu::run_on_host(op, stack);
}

} // namespace

TORCH_LIBRARY_IMPL(aten, XPU, m) {
    for (const char *name : operators)
        m.impl(name, torch::CppFunction::makeFromBoxedFunction<&openxpu::run_on_host>());
    for (const char *name : {"linalg_ldl_solve", "linalg_ldl_solve.out"})
        m.impl(name, torch::CppFunction::makeFromBoxedFunction<&ldl_solve>());
}

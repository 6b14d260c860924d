// Decompositions and solvers that run as PyTorch's CPU kernels everywhere; on host devices LAPACK on the
// same memory. LU is in lu.cpp, Cholesky in cholesky.cpp.
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

} // namespace

TORCH_LIBRARY_IMPL(aten, XPU, m) {
    for (const char *name : operators)
        m.impl(name, torch::CppFunction::makeFromBoxedFunction<&openxpu::run_on_host>());
}

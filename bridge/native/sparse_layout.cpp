// The indices of sparse layouts: a number for each element (COO), or where each row begins (CSR).
#define AT_PER_OPERATOR_HEADERS // the headers of some operators, not of all
#include <ATen/ops/_convert_indices_from_coo_to_csr_native.h>
#include <ATen/ops/_convert_indices_from_csr_to_coo_native.h>
#include <ATen/ops/_validate_compressed_sparse_indices.h>
#include <ATen/ops/_validate_compressed_sparse_indices_native.h>
#include <ATen/ops/arange.h>

#include "native/sparse_parts.h"

namespace at::native {

using namespace openxpu;

TORCH_IMPL_FUNC(convert_indices_from_coo_to_csr_xpu)
(const Tensor &self, int64_t size, bool out_int32, const Tensor &out) {
    // Row r begins where the first element is whose row is r or more.
    out.copy_(search_range(self, size + 1, false, out_int32 ? kInt : kLong));
}

TORCH_IMPL_FUNC(convert_indices_from_csr_to_coo_xpu)
(const Tensor &crow_indices, const Tensor &col_indices, bool out_int32, bool transpose, const Tensor &out) {
    // One matrix of the batch after the other; out is [dimensions][elements of all].
    const auto starts = crow_indices.reshape({-1, crow_indices.size(-1)});
    const auto columns = col_indices.reshape({starts.size(0), -1});
    const auto batch = starts.size(0), count = columns.size(1), dims = out.size(0);
    auto rows = out.select(0, transpose ? dims - 1 : dims - 2).view({batch, count});
    out.select(0, transpose ? dims - 2 : dims - 1).copy_(columns.reshape({-1}));
    // Element i is in the row before the first that begins after it.
    for (int64_t b = 0; b < batch; b++)
        rows.select(0, b).copy_(
            search_range(starts.select(0, b).slice(0, 1), count, true, out_int32 ? kInt : kLong));
    int64_t below = count;
    for (auto d = dims - 3; d >= 0; d--) { // the matrix's place in the batch
        const auto size = crow_indices.size(d);
        const auto places = at::arange(batch * count, out.options().dtype(kLong));
        out.select(0, d).copy_(places.div(below, "floor").remainder(size));
        below *= size;
    }
}

void validate_compressed_sparse_indices_xpu(bool is_crow, const Tensor &compressed_idx,
                                            const Tensor &plain_idx, int64_t cdim, int64_t dim, int64_t nnz) {
    const auto host = [](const Tensor &x) {
        return is_host_device(x.device().index()) ? as_cpu(x) : x.cpu();
    };
    at::_validate_compressed_sparse_indices(is_crow, host(compressed_idx), host(plain_idx), cdim, dim, nnz);
}

} // namespace at::native

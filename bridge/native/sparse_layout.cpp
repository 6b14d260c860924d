// Conversion between the index formats of sparse layouts: one index per element (COO) or row offsets (CSR),
// and checks of indices. Conversions run on the current stream; checks read results and therefore wait for
// the device.
#include <ATen/ops/_convert_indices_from_coo_to_csr_native.h>
#include <ATen/ops/_convert_indices_from_csr_to_coo_native.h>
#include <ATen/ops/_validate_compressed_sparse_indices.h>
#include <ATen/ops/_validate_compressed_sparse_indices_native.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/sparse_coo_tensor_native.h>
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <torch/library.h>

#include "host_alias.h"
#include "native/sparse_parts.h"

namespace at::native {

using namespace openxpu;

TORCH_IMPL_FUNC(convert_indices_from_coo_to_csr_xpu)
(const Tensor &self, int64_t size, bool out_int32, const Tensor &out) {
    // Row r starts at the first element whose row is at least r.
    out.copy_(search_range(self, size + 1, false, out_int32 ? kInt : kLong));
}

TORCH_IMPL_FUNC(convert_indices_from_csr_to_coo_xpu)
(const Tensor &crow_indices, const Tensor &col_indices, bool out_int32, bool transpose, const Tensor &out) {
    // out is [dimensions][elements of all matrices], one matrix of the batch after the other.
    const auto starts = crow_indices.reshape({-1, crow_indices.size(-1)});
    const auto columns = col_indices.reshape({starts.size(0), -1});
    const auto batch = starts.size(0), count = columns.size(1), dims = out.size(0);
    check_compressed(starts, columns);
    auto rows = out.select(0, transpose ? dims - 1 : dims - 2).view({batch, count});
    out.select(0, transpose ? dims - 2 : dims - 1).copy_(columns.reshape({-1}));
    // Element i is in the row before the first row that starts behind it.
    for (int64_t b = 0; b < batch; b++)
        rows.select(0, b).copy_(
            search_range(starts.select(0, b).slice(0, 1), count, true, out_int32 ? kInt : kLong));
    int64_t below = count;
    for (auto d = dims - 3; d >= 0; d--) { // the matrix's batch index
        const auto size = crow_indices.size(d);
        const auto positions = at::arange(batch * count, out.options().dtype(kLong));
        out.select(0, d).copy_(positions.div(below, "floor").remainder(size));
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

namespace openxpu {
namespace {

using at::Tensor;

// Off unless requested. PyTorch 2.13 returns an optional here, which distinguishes "not set" from "off".
bool checks_invariants() {
    return std::optional<bool>(at::globalContext().checkSparseTensorInvariants()).value_or(false);
}

// PyTorch's check of is_coalesced uses a dispatch table without an xpu entry. PyTorch does all other checks;
// this function does that one.
Tensor checked_coo_tensor(const Tensor &indices, const Tensor &values, at::IntArrayRef size,
                          std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                          std::optional<at::Device> device, std::optional<bool> pin_memory,
                          std::optional<bool> is_coalesced) {
    const auto result =
        at::native::sparse_coo_tensor(indices, values, size, dtype, layout, device, pin_memory, std::nullopt);
    if (!is_coalesced) return result;
    if (*is_coalesced && checks_invariants() && result._nnz() > 1) {
        const auto sparse_size = result.sizes().slice(0, result.sparse_dim());
        const auto keys = keys_of(result._indices(), sparse_size, key_steps(sparse_size));
        TORCH_CHECK(keys.slice(0, 1).gt(keys.slice(0, 0, -1)).all().item<bool>(),
                    "cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor");
    }
    // Set the flag directly, because the operator that sets it has no derivative.
    static_cast<at::SparseTensorImpl *>(result.unsafeGetTensorImpl())->set_coalesced(*is_coalesced);
    return result;
}

} // namespace

// Autograd differentiates the operators inside.
TORCH_LIBRARY_IMPL(aten, AutogradXPU, m) { m.impl("sparse_coo_tensor.indices_size", checked_coo_tensor); }
TORCH_LIBRARY_IMPL(aten, XPU, m) { m.impl("sparse_coo_tensor.indices_size", checked_coo_tensor); }

} // namespace openxpu

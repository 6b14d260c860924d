// Compressed sparse layouts: CSR and CSC, and the BSR and BSC operations that convert to them. Composed of
// dense operators and of libxpu's kernels on keys (sparse_parts.h), on the current stream. Batches and dense
// dimensions throw NotImplementedError.
#include <ATen/ExpandUtils.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_convert_indices_from_csr_to_coo.h>
#include <ATen/ops/_sparse_csr_prod_native.h>
#include <ATen/ops/_sparse_csr_sum_native.h>
#include <ATen/ops/_sparse_csr_tensor_unsafe.h>
#include <ATen/ops/_sparse_sparse_matmul.h>
#include <ATen/ops/_to_dense_native.h>
#include <ATen/ops/_to_sparse_bsc_native.h>
#include <ATen/ops/_to_sparse_bsr_native.h>
#include <ATen/ops/_to_sparse_csc_native.h>
#include <ATen/ops/_to_sparse_csr_native.h>
#include <ATen/ops/_to_sparse_native.h>
#include <ATen/ops/add.h>
#include <ATen/ops/add_native.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/addmm_native.h>
#include <ATen/ops/addmv_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/sparse_sampled_addmm_native.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/sum_native.h>
#include <ATen/ops/triangular_solve_native.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

#include "native/sparse_parts.h"
#include "operands.h"

namespace at::native {

using namespace openxpu;

namespace {

// Does the layout compress rows (CSR, BSR) rather than columns (CSC, BSC)?
bool by_rows(Layout layout) { return layout == kSparseCsr || layout == kSparseBsr; }

bool in_blocks(Layout layout) { return layout == kSparseBsr || layout == kSparseBsc; }

// Does the conversion change between row and column compression? It then goes through coordinates. Conversion
// from blocks to elements is left to PyTorch, which raises its error.
bool swaps_major_order(const Tensor &self, Layout to) {
    if (by_rows(self.layout()) == by_rows(to) || (in_blocks(self.layout()) && !in_blocks(to))) return false;
    TORCH_CHECK_NOT_IMPLEMENTED(self.dim() == 2, "conversion from ", self.layout(), " to ", to,
                                ": xpu doesn't support batches or dense dimensions");
    return true;
}

// PyTorch's own conversions trust indices, those to blocks on the host.
void check_indices(const Tensor &self) {
    const bool rows = by_rows(self.layout());
    auto width = self.size(self.dim() - self.dense_dim() - (rows ? 1 : 2));
    if (in_blocks(self.layout())) width /= std::max<int64_t>(1, sparse_csr::getBlockSize(self)[rows ? 1 : 0]);
    check_compressed(rows ? self.crow_indices() : self.ccol_indices(),
                     rows ? self.col_indices() : self.row_indices(), width);
}

Tensor coo_of(const Tensor &self) { return self.is_sparse() ? self : self.to_sparse(); }

Tensor csr_of(const Tensor &self) {
    return self.layout() == kSparseCsr ? self : coo_of(self).to_sparse_csr();
}

Tensor &assign(const Tensor &from, Tensor &out) {
    const auto result = out.layout() == kSparseCsr   ? coo_of(from).to_sparse_csr()
                        : out.layout() == kSparseCsc ? coo_of(from).to_sparse_csc()
                                                     : Tensor();
    TORCH_CHECK_NOT_IMPLEMENTED(result.defined(), "xpu can't write results of layout ", out.layout());
    const bool rows = by_rows(out.layout());
    static_cast<SparseCsrTensorImpl *>(out.unsafeGetTensorImpl())
        ->set_member_tensors(rows ? result.crow_indices() : result.ccol_indices(),
                             rows ? result.col_indices() : result.row_indices(),
                             result.values().to(out.scalar_type()), result.sizes());
    return out;
}

void check_matrix(const Tensor &x) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        x.dim() == 2,
        "products of sparse compressed tensors on xpu don't support batches or dense dimensions");
}

// Sum or product of a CSR matrix's elements along `dims`, which keep size 1.
Tensor reduce_csr(const Tensor &self, IntArrayRef dims, bool keepdim, ScalarType type,
                  xpu_sparse_reduction reduction) {
    TORCH_CHECK(keepdim, "reduction operations on CSR tensors with keepdim=False is unsupported");
    check_matrix(self);
    const bool all = dims.empty();
    bool reduced[2] = {all, all};
    for (const auto dim : dims) reduced[maybe_wrap_dim(dim, 2)] = true;
    const auto indices = at::_convert_indices_from_csr_to_coo(self.crow_indices(), self.col_indices());
    const auto type_of_indices = indices.scalar_type();
    // As on the CPU, integer dtypes give int64, whatever `type` is.
    const auto computed = isIntegralType(type, /*includeBool=*/false) ? kLong : type;
    const auto elements = self.values().to(type).to(computed);
    const int64_t rows = reduced[0] ? 1 : self.size(0), width = reduced[1] ? 1 : self.size(1);
    // The key of an element is the row and column of its result.
    const auto keys =
        openxpu::keys_of(indices.to(kLong), self.sizes(), {reduced[0] ? 0 : width, reduced[1] ? 0 : 1});
    const auto segments = segments_of(keys, reduced[1]);
    const auto found = segments.keys.index_select(0, segments.starts);
    const auto row = found.div(std::max<int64_t>(1, width), "floor"), column = found.sub(row.mul(width));
    const auto result = !(reduced[0] && reduced[1]) || found.numel() == 0
                            ? reduce_segments(segments, elements, reduction)
                            : (reduction == XPU_SPARSE_SUM ? elements.sum() : elements.prod()).view({1});
    return at::_sparse_csr_tensor_unsafe(search_range(row, rows + 1, false, type_of_indices),
                                         column.to(type_of_indices), result, {rows, width},
                                         self.options().dtype(computed));
}

// Dot products of row r of `left` and row c of `right` for each pair (r, c). Processed in chunks, to bound
// the memory of the gathered rows.
Tensor products_of_rows(const Tensor &left, const Tensor &right, const Tensor &rows, const Tensor &columns) {
    const int64_t step = std::max<int64_t>(1, (int64_t{1} << 24) / std::max<int64_t>(1, left.size(1)));
    auto products = at::empty({rows.numel()}, left.options());
    for (int64_t begin = 0; begin < rows.numel(); begin += step) {
        const int64_t end = std::min(begin + step, rows.numel());
        auto some = products.slice(0, begin, end);
        at::sum_out(some,
                    left.index_select(0, rows.slice(0, begin, end))
                        .mul_(right.index_select(0, columns.slice(0, begin, end))),
                    IntArrayRef{1});
    }
    return products;
}

} // namespace

Tensor sum_csr_xpu(const Tensor &self, IntArrayRef dim, bool keepdim, std::optional<ScalarType> dtype) {
    return reduce_csr(self, dim, keepdim, dtype.value_or(self.scalar_type()), XPU_SPARSE_SUM);
}

Tensor prod_csr_xpu(const Tensor &self, IntArrayRef dim, bool keepdim, std::optional<ScalarType> dtype) {
    return reduce_csr(self, dim, keepdim, dtype.value_or(self.scalar_type()), XPU_SPARSE_PRODUCT);
}

// out = beta self + alpha (mat1 mat2) at self's elements; self's pattern broadcasts over a batch of products.
Tensor &sampled_addmm_out_csr_xpu(const Tensor &self, const Tensor &mat1, const Tensor &mat2,
                                  const Scalar &beta, const Scalar &alpha, Tensor &out) {
    const char *name = "torch.sparse.sampled_addmm: ";
    TORCH_CHECK(mat1.layout() == kStrided, name, "Expected mat1 to have strided layout, but got ",
                mat1.layout());
    TORCH_CHECK(mat2.layout() == kStrided, name, "Expected mat2 to have strided layout, but got ",
                mat2.layout());
    TORCH_CHECK(out.layout() == kSparseCsr, name, "Expected result to have sparse csr layout, but got ",
                out.layout());
    for (const auto &[other, called] : {std::pair{&mat1, "mat1"}, {&mat2, "mat2"}, {&out, "result"}})
        TORCH_CHECK(self.scalar_type() == other->scalar_type(), name, "Expected self and ", called,
                    " to have the same dtype, but got ", self.scalar_type(), " and ", other->scalar_type());
    TORCH_CHECK(mat1.dim() >= 2, name, "Expected mat1 to be a matrix, got ", mat1.dim(), "-D tensor");
    TORCH_CHECK(mat2.dim() >= 2, name, "Expected mat2 to be a matrix, got ", mat2.dim(), "-D tensor");
    const auto batch = mat1.sizes().slice(0, mat1.dim() - 2);
    TORCH_CHECK(mat2.sizes().slice(0, mat2.dim() - 2).equals(batch), name,
                "Expected mat1 and mat2 to have the same batch size, but got ", mat1.sizes(), " and ",
                mat2.sizes());
    const bool shared = self.dim() == 2 && !batch.empty();
    TORCH_CHECK(shared || self.sizes().slice(0, self.dim() - 2).equals(batch), name,
                "Expected self and mat1 to have the same batch size, but got ", self.sizes(), " and ",
                mat1.sizes());
    const auto m = mat1.size(-2), k = mat1.size(-1), n = mat2.size(-1);
    TORCH_CHECK(k == mat2.size(-2), name, "mat1 and mat2 shapes cannot be multiplied (", m, "x", k, " and ",
                mat2.size(-2), "x", n, ")");
    TORCH_CHECK(self.size(-2) == m, name, "self.shape[-2] must match mat1.shape[-2]");
    TORCH_CHECK(self.size(-1) == n, name, "self.shape[-1] must match mat2.shape[-1]");

    const auto over_batch = [&](const Tensor &x) {
        auto size = batch.vec();
        size.push_back(x.size(-1));
        return shared ? x.expand(size) : x;
    };
    const auto crow = over_batch(self.crow_indices()).contiguous();
    const auto col = over_batch(self.col_indices()).contiguous();
    auto elements = over_batch(self.values());
    elements = beta.toComplexDouble() == 0.0 ? at::zeros_like(elements, MemoryFormat::Contiguous)
                                             : elements.mul(beta).contiguous();
    if (elements.numel() && k) {
        const auto indices = at::_convert_indices_from_csr_to_coo(crow, col).to(kLong);
        // Row and column of each element among those of all matrices of the batch.
        auto size = DimVector(batch);
        size.append({m, n});
        auto of_rows = key_steps(DimVector(size.begin(), size.end() - 1)), of_columns = of_rows;
        for (auto &step : of_columns) step = step / std::max<int64_t>(1, m) * n;
        of_rows.push_back(0);
        of_columns.back() = 0;
        of_columns.push_back(1);
        elements.view({-1}).add_(products_of_rows(mat1.reshape({-1, k}), mat2.mT().reshape({-1, k}),
                                                  openxpu::keys_of(indices, size, of_rows),
                                                  openxpu::keys_of(indices, size, of_columns)),
                                 alpha);
    }
    auto sizes = batch.vec();
    sizes.insert(sizes.end(), {m, n});
    const bool own = out.is_same(self) && !shared;
    static_cast<SparseCsrTensorImpl *>(out.unsafeGetTensorImpl())
        ->set_member_tensors(own ? crow : crow.clone(), own ? col : col.clone(), elements, sizes);
    return out;
}

Tensor sampled_addmm_csr_xpu(const Tensor &self, const Tensor &mat1, const Tensor &mat2, const Scalar &beta,
                             const Scalar &alpha) {
    auto out = at::empty({0, 0}, self.options());
    return sampled_addmm_out_csr_xpu(self, mat1, mat2, beta, alpha, out);
}

Tensor compressed_to_csr_xpu(const Tensor &self, std::optional<int64_t> dense_dim) {
    return swaps_major_order(self, kSparseCsr) ? self.to_sparse().to_sparse_csr(dense_dim)
                                               : sparse_compressed_to_sparse_csr(self, dense_dim);
}

Tensor compressed_to_csc_xpu(const Tensor &self, std::optional<int64_t> dense_dim) {
    return swaps_major_order(self, kSparseCsc) ? self.to_sparse().to_sparse_csc(dense_dim)
                                               : sparse_compressed_to_sparse_csc(self, dense_dim);
}

Tensor compressed_to_bsr_xpu(const Tensor &self, IntArrayRef blocksize, std::optional<int64_t> dense_dim) {
    if (swaps_major_order(self, kSparseBsr)) return self.to_sparse().to_sparse_bsr(blocksize, dense_dim);
    check_indices(self);
    return sparse_compressed_to_sparse_bsr(self, blocksize, dense_dim);
}

Tensor compressed_to_bsc_xpu(const Tensor &self, IntArrayRef blocksize, std::optional<int64_t> dense_dim) {
    if (swaps_major_order(self, kSparseBsc)) return self.to_sparse().to_sparse_bsc(blocksize, dense_dim);
    check_indices(self);
    return sparse_compressed_to_sparse_bsc(self, blocksize, dense_dim);
}

Tensor compressed_to_sparse_xpu(const Tensor &self, std::optional<Layout> layout,
                                OptionalIntArrayRef blocksize, std::optional<int64_t> dense_dim) {
    const auto to = layout.value_or(kSparse);
    const bool compressed = by_rows(to) || to == kSparseCsc || to == kSparseBsc;
    check_indices(self);
    if (!compressed || in_blocks(to) != blocksize.has_value())
        return sparse_compressed_to_sparse(self, layout, blocksize, dense_dim);
    switch (to) {
    case kSparseCsr: return compressed_to_csr_xpu(self, dense_dim);
    case kSparseCsc: return compressed_to_csc_xpu(self, dense_dim);
    case kSparseBsr: return compressed_to_bsr_xpu(self, *blocksize, dense_dim);
    default: return compressed_to_bsc_xpu(self, *blocksize, dense_dim);
    }
}

Tensor compressed_to_dense_xpu(const Tensor &self, std::optional<ScalarType> dtype,
                               std::optional<bool> masked_grad) {
    check_indices(self);
    return sparse_compressed_to_dense(self, dtype, masked_grad);
}

Tensor &addmm_out_sparse_csr_xpu(const Tensor &self, const Tensor &mat1, const Tensor &mat2,
                                 const Scalar &beta, const Scalar &alpha, Tensor &out) {
    check_matrix(mat1);
    check_matrix(mat2);
    TORCH_CHECK(mat1.size(1) == mat2.size(0), "mat1 and mat2 shapes cannot be multiplied (", mat1.size(0),
                "x", mat1.size(1), " and ", mat2.size(0), "x", mat2.size(1), ")");
    const auto rows = mat1.size(0), columns = mat2.size(1);
    const bool left = mat1.layout() != kStrided, right = mat2.layout() != kStrided;
    if (out.layout() != kStrided || (left && right)) {
        TORCH_CHECK_NOT_IMPLEMENTED(left && right, "addmm: the product of ", mat1.layout(), " and ",
                                    mat2.layout(), " on xpu can't be a ", out.layout(), " tensor");
        auto product = at::_sparse_sparse_matmul(coo_of(mat1), coo_of(mat2)).mul(alpha);
        const bool added = beta.toComplexDouble() != 0.0;
        if (out.layout() != kStrided)
            return assign(added ? coo_of(self).mul(beta).add(product) : product, out);
        const auto sum = added ? self.expand({rows, columns}).mul(beta).add(product) : product.to_dense();
        at::native::resize_output(out, {rows, columns});
        return out.copy_(sum);
    }
    TORCH_CHECK(self.layout() == kStrided, "addmm: expected 'self' to be strided, but got ", self.layout());
    const auto added = *expand_size(self, {rows, columns}, "addmm_out");
    if (!out.is_same(self)) at::native::resize_output(out, {rows, columns});
    if (left) {
        const auto lines = csr_of(mat1);
        sparse_product(out, lines.crow_indices().contiguous(), {}, lines.col_indices(), lines.values(), mat2,
                       added, beta, alpha);
        return out;
    }
    // Compute the transposed product, because columns of mat2 are rows of its transpose.
    const auto lines = mat2.layout() == kSparseCsc ? mat2 : coo_of(mat2).to_sparse_csc();
    auto transposed = at::empty({columns, rows}, out.options());
    sparse_product(transposed, lines.ccol_indices().contiguous(), {}, lines.row_indices(), lines.values(),
                   mat1.t(), added.t(), beta, alpha);
    return out.copy_(transposed.t());
}

Tensor &addmv_out_sparse_csr_xpu(const Tensor &self, const Tensor &mat, const Tensor &vec, const Scalar &beta,
                                 const Scalar &alpha, Tensor &out) {
    TORCH_CHECK(mat.dim() == 2 && vec.dim() == 1 && mat.size(1) == vec.size(0),
                "addmv: expected a matrix and a vector of matching sizes, got ", mat.sizes(), " and ",
                vec.sizes());
    const auto added = *expand_size(self, {mat.size(0)}, "addmv");
    const auto product = at::addmm(added.unsqueeze(1), mat, vec.unsqueeze(1), beta, alpha).squeeze(1);
    return openxpu::give_converted(product, out);
}

Tensor &add_out_sparse_csr_xpu(const Tensor &self, const Tensor &other, const Scalar &alpha, Tensor &out) {
    TORCH_CHECK(self.sizes().equals(other.sizes()),
                "torch.add: Expected input tensors to have the same shape, but got ", self.sizes(), " and ",
                other.sizes());
    if (self.layout() == kStrided) return at::add_out(out, self, coo_of(other), alpha);
    if (other.layout() == kStrided) {
        TORCH_CHECK(out.layout() == kStrided,
                    "torch.add: the result of a sparse and a dense tensor must be dense");
        const auto sum = at::add(other.mul(alpha), coo_of(self));
        return openxpu::give_converted(sum, out);
    }
    return assign(at::add(coo_of(self), coo_of(other), alpha), out);
}

// Solves with the dense matrix. As in PyTorch, a matrix without entries is singular and gives NaN.
std::tuple<Tensor &, Tensor &> triangular_solve_out_sparse_csr_xpu(const Tensor &self, const Tensor &A,
                                                                   bool upper, bool transpose,
                                                                   bool unitriangular, Tensor &X, Tensor &M) {
    check_matrix(A);
    TORCH_CHECK(self.layout() == kStrided && X.layout() == kStrided,
                "triangular_solve: the right-hand side and the result of a sparse matrix must be strided");
    resize_output(X, self.sizes());
    if (X.numel() == 0) return {X, M};
    if (A._nnz() == 0) {
        X.fill_(NAN);
        return {X, M};
    }
    const Tensor dense = A.to_dense();
    at::linalg_solve_triangular_out(X, transpose ? dense.mT() : dense, self, upper != transpose, true,
                                    unitriangular);
    return {X, M};
}

} // namespace at::native

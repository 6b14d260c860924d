// Sparse COO tensors: operators that PyTorch leaves to device backends. They are composed of dense operators
// on indices and values, and of libxpu's kernels on keys (sparse_parts.h). Work is submitted to the current
// stream; operators whose number of elements depends on data wait for the device. Error texts are those of
// PyTorch's CPU and CUDA backends.
#include <ATen/ExpandUtils.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_coalesce_native.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/_sparse_broadcast_to_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors.h>
#include <ATen/ops/_sparse_log_softmax_backward_data_native.h>
#include <ATen/ops/_sparse_log_softmax_native.h>
#include <ATen/ops/_sparse_mask_projection_native.h>
#include <ATen/ops/_sparse_softmax_backward_data_native.h>
#include <ATen/ops/_sparse_softmax_native.h>
#include <ATen/ops/_sparse_sparse_matmul_native.h>
#include <ATen/ops/_sparse_sum_backward_native.h>
#include <ATen/ops/add_native.h>
#include <ATen/ops/addmm_native.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm_native.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/copy_sparse_to_sparse.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/hspmm_native.h>
#include <ATen/ops/index_select_native.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/mul_native.h>
#include <ATen/ops/resize_as_sparse.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/sparse_mask_native.h>
#include <ATen/ops/sspaddmm_native.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/util/irange.h>

#include "native/sparse_parts.h"

namespace at::native {

// Exported by PyTorch, but not declared in any header of its wheel.
TORCH_API Tensor &_mul_dense_sparse_out(const Tensor &dense, const Tensor &sparse, Tensor &out);
TORCH_API Tensor &_mul_sparse_sparse_zero_dim_out(const Tensor &zero_dim, const Tensor &other, Tensor &out);

using namespace openxpu;
using openxpu::check;

namespace {

SparseTensorImpl *impl_of(const Tensor &self) {
    return static_cast<SparseTensorImpl *>(self.unsafeGetTensorImpl());
}

// Sizes of the sparse dimensions.
IntArrayRef sparse_sizes(const Tensor &self) { return self.sizes().slice(0, self.sparse_dim()); }

Tensor keys_of(const Tensor &self) {
    const auto size = sparse_sizes(self);
    return openxpu::keys_of(self._indices(), size, key_steps(size));
}

// A sparse tensor with the sizes and the dtype of `values`.
Tensor make(const Tensor &like, IntArrayRef sizes, const Tensor &indices, const Tensor &values,
            bool coalesced = false) {
    return at::_sparse_coo_tensor_with_dims_and_tensors(
        indices.size(0), values.dim() - 1, sizes, indices, values,
        like.options().layout(kSparse).dtype(values.scalar_type()), coalesced);
}

Tensor &assign(Tensor &out, int64_t sparse_dim, IntArrayRef sizes, const Tensor &indices,
               const Tensor &values, bool coalesced) {
    auto *impl = impl_of(out);
    const auto dense_dim = static_cast<int64_t>(sizes.size()) - sparse_dim;
    if (impl->sparse_dim() != sparse_dim || impl->dense_dim() != dense_dim || !out.sizes().equals(sizes))
        impl->raw_resize_(sparse_dim, dense_dim, sizes);
    impl->set_indices_and_values_unsafe(indices, values.to(out.scalar_type()));
    impl->set_coalesced(coalesced);
    return out;
}

ScalarType common_type(const Tensor &self, const Tensor &other, const Tensor &out, const char *name) {
    const auto type = at::result_type(self, other);
    TORCH_CHECK(canCast(type, out.scalar_type()), "Can't convert result type ", type, " to output ",
                out.scalar_type(), " in ", name, " operation");
    return type;
}

// Reshapes a tensor [nnz] so that it broadcasts with values [nnz][…].
Tensor along_values(const Tensor &per_element, const Tensor &values) {
    auto shape = DimVector(values.dim(), 1);
    shape[0] = per_element.numel();
    return per_element.view(shape);
}

// The values of `from` (coalesced) at each of `keys`; zero for keys that it does not have.
Tensor values_at(const Tensor &from, const Tensor &from_keys, const Tensor &keys) {
    const auto values = from._values();
    if (from._nnz() == 0) {
        auto shape = values.sizes().vec();
        shape[0] = keys.numel();
        return at::zeros(shape, values.options());
    }
    const auto place = search(from_keys, keys).clamp_max_(from._nnz() - 1);
    const auto missing = from_keys.index_select(0, place).ne(keys);
    return values.index_select(0, place).masked_fill_(along_values(missing, values), 0);
}

// Concatenates runs of `counts` consecutive positions starting at `begins`; returns positions and run
// indices.
struct SegmentPositions {
    Tensor run, place;
};
SegmentPositions join(const Tensor &begins, const Tensor &counts) {
    const auto ends = counts.cumsum(0);
    const int64_t total = ends.numel() ? ends[-1].item<int64_t>() : 0;
    SegmentPositions result;
    result.run = search_range(ends, total, /*upper=*/true);
    const auto shift = begins.sub(ends.sub(counts));
    result.place = at::arange(total, begins.options()).add_(shift.index_select(0, result.run));
    return result;
}

} // namespace

Tensor coalesce_sparse_xpu(const Tensor &self) {
    if (self._nnz() < 2) return self.clone()._coalesced_(true);
    const auto segments = segments_of(keys_of(self));
    const auto chosen = segments.order.index_select(0, segments.starts);
    return make(self, self.sizes(), self._indices().index_select(1, chosen),
                reduce_segments(segments, self._values()), true);
}

// --- elementwise sums and products ---

namespace {

Tensor &add_dense_sparse(const Tensor &dense, const Tensor &other, const Scalar &alpha, Tensor &out) {
    TORCH_CHECK(!out.is_sparse(), "add: expected 'out' to be a dense tensor");
    TORCH_CHECK(dense.sizes().equals(other.sizes()),
                "add: expected 'self' and 'other' to have same size, but self has size ", dense.sizes(),
                " while other has size ", other.sizes(),
                " (FYI: dense-sparse addition does not currently support broadcasting)");
    const auto type = common_type(dense, other, out, "add");
    if (!out.is_same(dense)) at::native::resize_output(out, dense.sizes());
    const auto sparse = other.coalesce();
    if (sparse._nnz() == 0 || out.numel() == 0) return out.is_same(dense) ? out : out.copy_(dense);
    const bool direct = out.scalar_type() == type && out.is_contiguous();
    auto sum = direct ? out : at::empty(dense.sizes(), out.options().dtype(type));
    if (!sum.is_same(dense)) sum.copy_(dense);
    const auto positions = sparse.sparse_dim() == 1 ? sparse._indices().select(0, 0) : keys_of(sparse);
    const auto values = sparse._values().to(type);
    auto row = values.sizes().vec();
    row[0] = c10::multiply_integers(sparse_sizes(sparse));
    const auto rows = sum.view(row);
    // Positions are unique, so no two additions collide.
    rows.index_copy_(0, positions, rows.index_select(0, positions).add_(values, alpha));
    return direct ? out : out.copy_(sum);
}

} // namespace

Tensor &add_out_sparse_xpu(const Tensor &self, const Tensor &other, const Scalar &alpha, Tensor &out) {
    TORCH_CHECK(other.is_sparse(), "add(sparse, dense) is not supported. Use add(dense, sparse) instead.");
    if (!self.is_sparse()) return add_dense_sparse(self, other, alpha, out);
    TORCH_CHECK(out.is_sparse(), "add: expected 'out' to be a sparse tensor");
    TORCH_CHECK(self.sizes().equals(other.sizes()),
                "add: expected sizes of 'self' and 'other' to match, but ", self.sizes(),
                " != ", other.sizes());
    const auto type = common_type(self, other, out, "add");
    if (other._nnz() == 0) return at::copy_sparse_to_sparse_(out, self);
    auto scaled = other._values().to(type);
    if (alpha.isComplex() || alpha.toDouble() != 1) scaled = scaled.mul(alpha);
    if (self._nnz() == 0)
        return assign(out, other.sparse_dim(), other.sizes(), other._indices().clone(),
                      scaled.is_same(other._values()) ? scaled.clone() : scaled, other.is_coalesced());
    TORCH_CHECK(self.sparse_dim() == other.sparse_dim(),
                "add: expected 'self' and 'other' to have same density, but 'self' has ", self.sparse_dim(),
                " sparse dimensions while 'other' has ", other.sparse_dim(), " sparse dimensions");
    const auto sum = make(out, self.sizes(), at::cat({self._indices(), other._indices()}, 1),
                          at::cat({self._values().to(type), scaled}, 0));
    // Coalesce when there are more elements than positions, so that repeated sums do not grow without bound.
    const auto kept = sum._nnz() > sum.numel() ? sum.coalesce() : sum;
    return assign(out, self.sparse_dim(), self.sizes(), kept._indices(), kept._values(), kept.is_coalesced());
}

Tensor &mul_out_sparse_xpu(const Tensor &self, const Tensor &other, Tensor &out) {
    if (!other.is_sparse()) return _mul_dense_sparse_out(other, self, out);
    if (!self.is_sparse()) return _mul_dense_sparse_out(self, other, out);
    if (other.dim() == 0) return _mul_sparse_sparse_zero_dim_out(other, self, out);
    if (self.dim() == 0) return _mul_sparse_sparse_zero_dim_out(self, other, out);
    const auto type = common_type(self, other, out, "mul");
    TORCH_CHECK(self.dim() == other.dim() && self.sparse_dim() == other.sparse_dim() &&
                    sparse_sizes(self).equals(sparse_sizes(other)),
                "mul(): expects sparse inputs with equal dimensionality, number of sparse dimensions, and "
                "shape of sparse dimensions");
    auto sizes = infer_size(self.sizes(), other.sizes());
    if (sizes == self.sizes() && (self._nnz() == 0 || other._nnz() == 0)) {
        at::resize_as_sparse_(out, self);
        return out.zero_();
    }
    // Look up the elements of the tensor with fewer elements in the other.
    auto few = self.coalesce(), many = other.coalesce();
    if (few._nnz() > many._nnz()) std::swap(few, many);
    const auto keys = keys_of(few), among = keys_of(many);
    const auto place = search(among, keys).clamp_max_(std::max<int64_t>(many._nnz() - 1, 0));
    const auto met =
        (few._nnz() ? among.index_select(0, place).eq(keys) : keys.to(kBool)).nonzero().view({-1});
    const auto values = at::mul(few._values().to(type).index_select(0, met),
                                many._values().to(type).index_select(0, place.index_select(0, met)));
    return assign(out, self.sparse_dim(), sizes, few._indices().index_select(1, met), values, true);
}

// --- masks, broadcasting and selection ---

Tensor sparse_mask_xpu(const Tensor &self, const Tensor &mask) {
    if (!self.is_sparse()) return at::native::sparse_mask(self, mask);
    TORCH_CHECK(mask.sizes().equals(self.sizes()),
                "sparse_mask(): operands have incompatible sizes; self has size ", self.sizes(),
                " but mask has size ", mask.sizes());
    if (self.is_same(mask)) return self;
    TORCH_CHECK(self.sparse_dim() == mask.sparse_dim(),
                "sparse_mask(): the number of sparse dimensions in `self` should match that of the `mask`. "
                "Got `self.sparse_dim() == ",
                self.sparse_dim(), "` != `mask.sparse_dim() == ", mask.sparse_dim(), "`.");
    const auto from = self.coalesce();
    return make(self, mask.sizes(), mask._indices().clone(), values_at(from, keys_of(from), keys_of(mask)),
                mask.is_coalesced());
}

Tensor sparse_mask_projection_xpu(const Tensor &self, const Tensor &mask, bool accumulate_matches) {
    TORCH_CHECK(mask.sizes().equals(self.sizes()),
                "_sparse_mask_projection(): operands have incompatible sizes; self has size ", self.sizes(),
                " but mask has size ", mask.sizes());
    TORCH_CHECK(self.sparse_dim() == mask.sparse_dim(),
                "_sparse_mask_projection(): the number of sparse dimensions in `self` should match that of "
                "the `mask`. Got `self.sparse_dim() == ",
                self.sparse_dim(), "` != `mask.sparse_dim() == ", mask.sparse_dim(), "`.");
    const auto among = segments_of(keys_of(mask), mask.is_coalesced()).keys, keys = keys_of(self);
    auto matches = search(among, keys, true).sub_(search(among, keys));
    if (!accumulate_matches) matches.clamp_max_(1);
    const auto values = self._values();
    return make(self, self.sizes(), self._indices().clone(),
                at::mul(values, along_values(matches.to(values.scalar_type()), values)), self.is_coalesced());
}

Tensor sparse_broadcast_to_xpu(const Tensor &self, IntArrayRef size) {
    const auto more = static_cast<int64_t>(size.size()) - self.dim(), old_dim = self.sparse_dim();
    const auto sparse_dim = old_dim + more;
    TORCH_CHECK(more >= 0, "sparse_broadcast_to(): the size has fewer dimensions than the tensor");
    for (const auto d : c10::irange(self.dim()))
        TORCH_CHECK(self.size(d) == size[d + more] || self.size(d) == 1, "The expanded size of the tensor (",
                    size[d + more], ") must match the existing size (", self.size(d), ")");
    // [nnz, expanded sparse dimensions …]: every element is repeated at each position of the dimensions that
    // are new or had size 1.
    DimVector shape{self._nnz()}, along(sparse_dim, 0);
    for (const auto d : c10::irange(sparse_dim))
        if (d < more || self.size(d - more) != size[d]) {
            along[d] = static_cast<int64_t>(shape.size());
            shape.push_back(size[d]);
        }
    const auto given = self._indices();
    std::vector<Tensor> rows;
    for (const auto d : c10::irange(sparse_dim)) {
        DimVector place(shape.size(), 1);
        place[along[d]] = shape[along[d]];
        const auto row = along[d] ? at::arange(size[d], given.options()) : given.select(0, d - more);
        rows.push_back(row.reshape(place).expand(shape).reshape(-1));
    }
    auto values_shape = shape;
    DimVector value(shape.size(), 1), flat{c10::multiply_integers(shape)};
    value[0] = shape[0];
    for (const auto d : c10::irange(self.dense_dim())) {
        value.push_back(self.size(old_dim + d));
        values_shape.push_back(size[sparse_dim + d]);
        flat.push_back(size[sparse_dim + d]);
    }
    const auto values = self._values().reshape(value).expand(values_shape).reshape(flat);
    const auto indices = rows.empty() ? given.clone() : at::stack(rows);
    const auto result = make(self, size, indices, values, self.is_coalesced() && shape.size() == 1);
    return self.is_coalesced() ? result.coalesce() : result;
}

Tensor index_select_sparse_xpu(const Tensor &self, int64_t dim, const Tensor &index) {
    TORCH_CHECK_INDEX(self.dim() != 0, "index_select() cannot be applied to a 0-dim tensor.");
    TORCH_CHECK_INDEX(index.dim() == 1 && index.scalar_type() == kLong && index.layout() == kStrided,
                      "index_select() argument index must be 1-D strided (non-sparse) long-tensor.");
    dim = maybe_wrap_dim(dim, self.dim());
    const auto size = self.size(dim);
    const auto outside = index.lt(-size).logical_or_(index.ge(size));
    TORCH_CHECK_INDEX(!outside.any().item<bool>(),
                      "index_select(): index contains a number that is out of range for tensor of size ",
                      self.sizes(), " at dimension ", dim);
    const auto chosen = at::where(index.lt(0), index.add(size), index);
    auto sizes = self.sizes().vec();
    sizes[dim] = index.numel();
    const auto indices = self._indices(), values = self._values();
    if (dim >= self.sparse_dim())
        return make(self, sizes, indices.clone(), values.index_select(dim - self.sparse_dim() + 1, chosen),
                    self.is_coalesced());
    // The elements of each selected slice, in the order of `index`.
    const auto elements = segments_of(indices.select(0, dim).contiguous());
    const auto begins = search(elements.keys, chosen);
    const auto found = join(begins, search(elements.keys, chosen, true).sub_(begins));
    const auto place = elements.order.index_select(0, found.place);
    auto result = indices.index_select(1, place);
    result.select(0, dim).copy_(found.run);
    return make(self, sizes, result, values.index_select(0, place));
}

// --- matrix products ---

namespace {

void check_matrix(const char *name, const Tensor &sparse) {
    TORCH_CHECK(sparse.sparse_dim() == 2, name, ": 2D tensor expected, got ", sparse.sparse_dim(),
                " sparse dimensions");
    TORCH_CHECK(sparse.dense_dim() == 0, name, ": scalar values expected, got ", sparse.dense_dim(),
                "D values");
}

void check_height(const char *name, const Tensor &sparse, const Tensor &dense) {
    TORCH_CHECK(dense.dim() == 2, name, ": 2D tensor expected, got ", dense.dim(), "D tensor");
    TORCH_CHECK(dense.size(0) == sparse.size(1), name, ": Argument #3 (dense): Expected dim 0 size ",
                sparse.size(1), ", got ", dense.size(0));
}

Tensor &addmm_into(Tensor &out, const Tensor &self, const Tensor &mat1, const Tensor &mat2,
                   const Scalar &beta, const Scalar &alpha) {
    TORCH_CHECK(mat1.is_sparse() && !mat2.is_sparse(),
                "addmm: of a sparse product the first matrix is sparse and the second dense");
    TORCH_CHECK(!self.is_sparse() && !out.is_sparse(), "addmm: expected 'self' and 'out' to be dense");
    check_matrix("addmm", mat1);
    check_height("addmm", mat1, mat2);
    const auto rows = mat1.size(0), columns = mat2.size(1);
    TORCH_CHECK(self.dim() == 2 && self.size(0) == rows && self.size(1) == columns,
                "addmm: Argument #1 (t): Expected size [", rows, ", ", columns, "], got ", self.sizes());
    at::native::resize_output(out, {rows, columns});
    const auto indices = mat1._indices();
    const auto lines = segments_of(indices.select(0, 0).contiguous(), mat1.is_coalesced());
    sparse_product(out, search_range(lines.keys, rows + 1, false), lines.order, indices.select(0, 1),
                   mat1._values(), mat2, self, beta, alpha);
    return out;
}

} // namespace

Tensor &addmm_out_sparse_xpu(const Tensor &self, const Tensor &mat1, const Tensor &mat2, const Scalar &beta,
                             const Scalar &alpha, Tensor &out) {
    return addmm_into(out, *expand_size(self, {mat1.size(0), mat2.size(1)}, "addmm_out"), mat1, mat2, beta,
                      alpha);
}

Tensor addmm_sparse_xpu(const Tensor &self, const Tensor &mat1, const Tensor &mat2, const Scalar &beta,
                        const Scalar &alpha) {
    auto out = at::empty({0}, self.options());
    return addmm_out_sparse_xpu(self, mat1, mat2, beta, alpha, out);
}

Tensor &addmm_sparse_xpu_(Tensor &self, const Tensor &mat1, const Tensor &mat2, const Scalar &beta,
                          const Scalar &alpha) {
    return addmm_into(self, self, mat1, mat2, beta, alpha);
}

// Computes the batch as one product: the block-diagonal matrix of the sparse factors times the stacked dense
// ones.
Tensor &bmm_out_sparse_xpu(const Tensor &self, const Tensor &mat2, Tensor &out) {
    TORCH_CHECK(self.is_sparse(), "bmm_sparse: Tensor 'self' must be sparse");
    TORCH_CHECK(!mat2.is_sparse(), "bmm_sparse: Tensor 'mat2' must be dense");
    TORCH_CHECK(self.dense_dim() == 0, "bmm_sparse: Tensor 'self' must have 0 dense dims, but has ",
                self.dense_dim());
    TORCH_CHECK(self.sparse_dim() == 3, "bmm_sparse: Tensor 'self' must have 3 sparse dims, but has ",
                self.sparse_dim());
    TORCH_CHECK(mat2.dim() == 3, "bmm_sparse: Tensor 'mat2' must have 3 dims, but has ", mat2.dim());
    TORCH_CHECK(self.size(0) == mat2.size(0), "bmm_sparse: 'self.size(0)' and 'mat2.size(0)' must match");
    TORCH_CHECK(self.size(2) == mat2.size(1), "bmm_sparse: 'self.size(2)' and 'mat2.size(1)' must match");
    const auto batch = self.size(0), rows = self.size(1), inner = self.size(2), columns = mat2.size(2);
    at::native::resize_output(out, {batch, rows, columns});
    const auto indices = self._indices();
    const auto lines =
        segments_of(openxpu::keys_of(indices, self.sizes(), {rows, 1, 0}), self.is_coalesced());
    const auto result = out.is_contiguous() ? out : at::empty(out.sizes(), out.options());
    sparse_product(result.view({batch * rows, columns}), search_range(lines.keys, batch * rows + 1, false),
                   lines.order, openxpu::keys_of(indices, self.sizes(), {inner, 0, 1}), self._values(),
                   mat2.reshape({batch * inner, columns}), {}, 0, 1);
    if (!result.is_same(out)) out.copy_(result);
    return out;
}

Tensor bmm_sparse_xpu(const Tensor &self, const Tensor &mat2) {
    auto out = at::empty({0}, mat2.options());
    return bmm_out_sparse_xpu(self, mat2, out);
}

Tensor sparse_sparse_matmul_xpu(const Tensor &self, const Tensor &other) {
    TORCH_CHECK(self.dim() == 2 && other.dim() == 2, "sparse_mm: 2D tensors expected, got ", self.dim(),
                "D and ", other.dim(), "D");
    check_matrix("sparse_mm", self);
    check_matrix("sparse_mm", other);
    TORCH_CHECK(self.size(1) == other.size(0), "mat1 and mat2 shapes cannot be multiplied (", self.size(0),
                "x", self.size(1), " and ", other.size(0), "x", other.size(1), ")");
    TORCH_CHECK(self.scalar_type() == other.scalar_type(), "mat1 dtype ", self.scalar_type(),
                " does not match mat2 dtype ", other.scalar_type());
    // Pair each element of the first factor with the matching row of the second; coalesce adds the products.
    const auto left = self.coalesce(), right = other.coalesce();
    const auto rows = right._indices().select(0, 0), columns = left._indices().select(0, 1);
    const auto begins = search(rows, columns);
    const auto met = join(begins, search(rows, columns, true).sub_(begins));
    return make(self, {self.size(0), other.size(1)},
                at::stack({left._indices().select(0, 0).index_select(0, met.run),
                           right._indices().select(0, 1).index_select(0, met.place)}),
                left._values().index_select(0, met.run).mul_(right._values().index_select(0, met.place)))
        .coalesce();
}

namespace {

// The rows of the product sparse × dense that can be nonzero.
struct ProductRows {
    Tensor number, values;
};
ProductRows rows_of_product(const char *name, const Tensor &sparse, const Tensor &dense,
                            const Scalar &alpha) {
    check_matrix(name, sparse);
    check_height(name, sparse, dense);
    const auto left = sparse.coalesce();
    const auto lines = segments_of(left._indices().select(0, 0).contiguous(), true);
    auto values = at::empty({lines.starts.numel(), dense.size(1)}, dense.options());
    const auto end = at::full({1}, left._nnz(), lines.starts.options());
    sparse_product(values, at::cat({lines.starts, end}), {}, left._indices().select(0, 1), left._values(),
                   dense, {}, 0, alpha);
    return {lines.keys.index_select(0, lines.starts), values};
}

} // namespace

Tensor &hspmm_out_sparse_xpu(const Tensor &mat1, const Tensor &mat2, Tensor &out) {
    const auto rows = rows_of_product("hspmm", mat1, mat2, 1);
    return assign(out, 1, {mat1.size(0), mat2.size(1)}, rows.number.unsqueeze(0), rows.values, true);
}

Tensor hspmm_sparse_xpu(const Tensor &mat1, const Tensor &mat2) {
    auto out = at::empty({0}, mat1.options());
    return hspmm_out_sparse_xpu(mat1, mat2, out);
}

Tensor &sspaddmm_out_sparse_xpu(const Tensor &self, const Tensor &mat1, const Tensor &mat2,
                                const Scalar &beta, const Scalar &alpha, Tensor &out) {
    const auto rows = rows_of_product("sspaddmm", mat1, mat2, alpha);
    const auto height = mat1.size(0), width = mat2.size(1), count = rows.number.numel();
    auto indices = at::empty({2, count, width}, mat1._indices().options());
    indices.select(0, 0).copy_(rows.number.unsqueeze(1));
    indices.select(0, 1).copy_(at::arange(width, indices.options()));
    indices = indices.view({2, count * width});
    auto values = rows.values.view({count * width});
    if (self._nnz()) {
        TORCH_CHECK(self.size(0) == height && self.size(1) == width, "sspaddmm: Argument #1: Expected size [",
                    height, ", ", width, "], got ", self.sizes());
        indices = at::cat({self._indices(), indices}, 1);
        values = at::cat({self._values().mul(beta).to(values.scalar_type()), values}, 0);
    }
    return assign(out, 2, {height, width}, indices, values, false);
}

// --- sums and softmax ---

Tensor sparse_sum_backward_xpu(const Tensor &grad, const Tensor &self, IntArrayRef dims) {
    const auto input = self.coalesce();
    const auto sparse_dim = input.sparse_dim();
    const auto summed = dim_list_to_bitset(dims, input.dim());
    // Give the gradient's values size 1 in each dense dimension that was summed.
    auto shape = input._values().sizes().vec();
    auto with_ones = shape;
    DimVector kept;
    for (const auto d : c10::irange(input.dim())) {
        if (d >= sparse_dim && summed[d]) with_ones[d - sparse_dim + 1] = 1;
        if (d < sparse_dim && !summed[d]) kept.push_back(d);
    }
    Tensor values;
    if (kept.empty()) {
        TORCH_CHECK(!grad.is_sparse(), "_sparse_sum_backward: expected grad to be dense since all sparse "
                                       "dims are summed");
        with_ones[0] = 1;
        values = grad.reshape(with_ones).expand(shape).clone(at::MemoryFormat::Contiguous);
    } else {
        TORCH_CHECK(grad.is_sparse(), "_sparse_sum_backward: expected grad to be sparse, but got dense");
        const auto from = grad.coalesce();
        DimVector sizes;
        for (const auto d : kept) sizes.push_back(input.size(d));
        const auto among = key_steps(sizes);
        DimVector steps(sparse_dim, 0);
        for (const auto i : c10::irange(kept.size())) steps[kept[i]] = among[i];
        values = values_at(from, openxpu::keys_of(from._indices(), sizes, among),
                           openxpu::keys_of(input._indices(), sparse_sizes(input), steps));
        values = values.reshape(with_ones).expand(shape).clone(at::MemoryFormat::Contiguous);
    }
    return make(input, input.sizes(), input._indices().clone(), values, true);
}

namespace {

// Groups of elements that softmax along `dim` normalizes together, and the group index of each element.
struct Groups {
    Segments segments;
    Tensor number;
};
Groups groups_along(const Tensor &self, int64_t dim) {
    const auto size = sparse_sizes(self);
    auto steps = key_steps(size);
    steps[dim] = 0;
    Groups groups{segments_of(openxpu::keys_of(self._indices(), size, steps)), {}};
    const auto sorted = groups.segments.first.cumsum(0).sub_(1);
    groups.number = at::empty_like(sorted).index_copy_(0, groups.segments.order, sorted);
    return groups;
}

Tensor softmax(const Tensor &self, int64_t dim, bool half_to_float, bool logarithm) {
    TORCH_CHECK(!half_to_float, "softmax with half to float conversion is not supported for sparse tensors");
    const auto input = self.coalesce();
    dim = maybe_wrap_dim(dim, input.dim());
    auto values = input._values();
    if (input._nnz() == 0) {
        values = values.clone();
    } else if (dim >= input.sparse_dim()) {
        const auto along = dim - input.sparse_dim() + 1;
        values = logarithm ? at::_log_softmax(values, along, false) : at::_softmax(values, along, false);
    } else {
        const auto groups = groups_along(input, dim);
        const auto per_element = [&](const Tensor &x) { return x.index_select(0, groups.number); };
        values = values.sub(per_element(reduce_segments(groups.segments, values, XPU_SPARSE_MAX)));
        const auto powers = values.exp();
        const auto sums = per_element(reduce_segments(groups.segments, powers));
        values = logarithm ? values.sub_(sums.log()) : powers.div(sums);
    }
    return make(input, input.sizes(), input._indices().clone(), values, true);
}

Tensor softmax_backward(const Tensor &grad, const Tensor &result, int64_t dim, bool logarithm) {
    const auto from = grad.coalesce(), output = result.coalesce();
    dim = maybe_wrap_dim(dim, output.dim());
    const auto out = output._values();
    Tensor values;
    if (output._nnz() == 0) {
        values = out.clone();
    } else {
        const auto given = values_at(from, keys_of(from), keys_of(output));
        if (dim >= output.sparse_dim()) {
            const auto along = dim - output.sparse_dim() + 1;
            values = logarithm ? at::_log_softmax_backward_data(given, out, along, out.scalar_type())
                               : at::_softmax_backward_data(given, out, along, out.scalar_type());
        } else {
            const auto groups = groups_along(output, dim);
            const auto sums = reduce_segments(groups.segments, logarithm ? given : given.mul(out))
                                  .index_select(0, groups.number);
            values = logarithm ? given.sub(sums.mul_(out.exp())) : given.sub(sums).mul_(out);
        }
    }
    return make(output, output.sizes(), output._indices().clone(), values, true);
}

} // namespace

Tensor softmax_sparse_xpu(const Tensor &self, int64_t dim, bool half_to_float) {
    return softmax(self, dim, half_to_float, false);
}

Tensor log_softmax_sparse_xpu(const Tensor &self, int64_t dim, bool half_to_float) {
    return softmax(self, dim, half_to_float, true);
}

Tensor softmax_backward_sparse_xpu(const Tensor &grad, const Tensor &output, int64_t dim, const Tensor &) {
    return softmax_backward(grad, output, dim, false);
}

Tensor log_softmax_backward_sparse_xpu(const Tensor &grad, const Tensor &output, int64_t dim,
                                       const Tensor &) {
    return softmax_backward(grad, output, dim, true);
}

} // namespace at::native

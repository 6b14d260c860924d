#include "native/index.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/IndexingUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorAdvancedIndexing.h>
#include <ATen/native/TensorAdvancedIndexingUtils.h>
#include <ATen/ops/_index_put_impl_native.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gather_native.h>
#include <ATen/ops/index.h>
#include <ATen/ops/index_copy_native.h>
#include <ATen/ops/index_fill_native.h>
#include <ATen/ops/index_native.h>
#include <ATen/ops/index_select_native.h>
#include <ATen/ops/masked_scatter_native.h>
#include <ATen/ops/masked_select_native.h>
#include <ATen/ops/nonzero_native.h>
#include <ATen/ops/nonzero_static_native.h>
#include <ATen/ops/put_native.h>
#include <ATen/ops/take_native.h>

namespace openxpu {

xpu_scatter_order scatter_order() {
    return at::globalContext().deterministicAlgorithms() ? XPU_ORDER_FIXED : XPU_ORDER_ANY;
}

namespace {

// The iterator's operands for copying: output and input with a dtype of their size, index tensors int64.
xpu_iter moving_iter(at::TensorIteratorBase &iter, bool values) {
    TORCH_CHECK_NOT_IMPLEMENTED(iter.ntensors() <= 2 + XPU_MAX_INDICES, "indexing with more than ",
                                XPU_MAX_INDICES, " index tensors on xpu");
    xpu_iter result;
    result.outputs = 1;
    result.inputs = iter.ntensors() - 1;
    result.dims = iter.ndim();
    TORCH_CHECK_NOT_IMPLEMENTED(result.dims <= XPU_MAX_DIMS, "indexing over more than ", XPU_MAX_DIMS,
                                " dimensions on xpu");
    for (int d = 0; d < result.dims; d++) result.size[d] = iter.shape()[d];
    for (int i = 0; i < iter.ntensors(); i++) {
        auto &operand = result.operand[i];
        operand.data = iter.data_ptr(i);
        operand.dtype = i >= 2 || values ? dtype_of(iter.dtype(i)) : bits_dtype(iter.tensor_base(i));
        const auto strides = iter.strides(i);
        for (int d = 0; d < result.dims; d++) operand.stride[d] = strides[d];
    }
    return result;
}

xpu_indexed indexed_of(at::IntArrayRef sizes, at::IntArrayRef strides) {
    xpu_indexed result = {.count = static_cast<int>(sizes.size()), .wrap = true};
    TORCH_CHECK_NOT_IMPLEMENTED(result.count <= XPU_MAX_INDICES, "indexing with more than ", XPU_MAX_INDICES,
                                " index tensors on xpu");
    for (int k = 0; k < result.count; k++) result.extent[k] = sizes[k], result.stride[k] = strides[k];
    return result;
}

void check_fault(const xpu_fault &fault) {
    TORCH_CHECK_INDEX(!fault.state, "index ", fault.index, " is out of bounds for dimension ", fault.which,
                      " with size ", fault.extent);
}

// An iteration over flat offsets `positions`: into the tensor `flat`, with `other` of the same shape as
// positions.
xpu_iter flat_iter(const at::Tensor &flat, const at::Tensor &other, const at::Tensor &positions,
                   bool flat_is_out, xpu_indexed *indexed) {
    // The indexed tensor has stride 0 in all dimensions.
    const auto still = flat.as_strided(positions.sizes(), c10::DimVector(positions.dim(), 0));
    auto config = at::TensorIteratorConfig();
    config.set_check_mem_overlap(false).check_all_same_dtype(false).resize_outputs(false);
    if (flat_is_out)
        config.add_output(still).add_const_input(other);
    else
        config.add_output(other).add_const_input(still);
    auto iter = config.add_const_input(positions).build();
    const int64_t extent = flat.numel(), step = flat.element_size();
    *indexed = indexed_of({extent}, {step});
    return moving_iter(iter, true);
}

} // namespace

void check_positions(const char *op, const at::Tensor &out, int64_t dim, const at::Tensor &index,
                     bool as_index) {
    if (out.dim() == 0 || out.size(dim) > 0 || index.numel() == 0) return;
    const auto message = [&] {
        return c10::str(op, "index ", index.flatten()[0].item<int64_t>(), " is out of bounds for dimension ",
                        dim, " with size 0");
    };
    TORCH_CHECK_INDEX(!as_index, message());
    TORCH_CHECK(false, message());
}

void put_flat(const at::Tensor &out, const at::Tensor &positions, const at::Tensor &source, bool accumulate,
              xpu_fault *fault) {
    xpu_indexed indexed;
    auto iter = flat_iter(out, source, positions, true, &indexed);
    auto *stream = current_stream(out);
    if (accumulate) {
        check(xpu_index_accumulate(stream, &iter, &indexed, XPU_SCATTER_ADD, scatter_order(), fault));
    } else if (at::globalContext().deterministicAlgorithms()) {
        check(xpu_index_accumulate(stream, &iter, &indexed, XPU_SCATTER_SET, XPU_ORDER_FIXED, fault));
    } else {
        iter.operand[0].dtype = iter.operand[1].dtype = bits_dtype(out);
        check(xpu_index_put(stream, &iter, &indexed, fault));
    }
}

} // namespace openxpu

namespace at::native {

using namespace openxpu;
using openxpu::check;

// Needed by make_info and not exported by libtorch: the indexed dimensions of `source` become one group with
// stride 0, and index tensors are expanded to the same number of dimensions.
AdvancedIndex::AdvancedIndex(const Tensor &source, TensorList indices_list) {
    const auto element = source.element_size();
    int64_t before = 0, after = 0, chosen = 0;
    IntArrayRef replacement;
    for (size_t d = 0; d < indices_list.size(); d++) {
        if (!indices_list[d].defined()) {
            (chosen == 0 ? before : after)++;
            continue;
        }
        chosen++;
        replacement = indices_list[d].sizes();
        indexed_sizes.push_back(source.size(static_cast<int64_t>(d)));
        indexed_strides.push_back(source.stride(static_cast<int64_t>(d)) * element);
    }
    TORCH_CHECK_INDEX(std::find(indexed_sizes.begin(), indexed_sizes.end(), 0) == indexed_sizes.end() ||
                          std::find(replacement.begin(), replacement.end(), 0) != replacement.end(),
                      "index is out of bounds for dimension with size 0");
    dims_before = before;
    dims_after = after;

    DimVector shape(source.sizes().slice(0, before)), strides(source.strides().slice(0, before));
    shape.append(replacement.begin(), replacement.end());
    strides.append(replacement.size(), 0);
    for (auto d = before + chosen; d < source.dim(); d++)
        shape.push_back(source.size(d)), strides.push_back(source.stride(d));
    src = source.as_strided(shape, strides);

    DimVector spread(before, 1);
    spread.append(replacement.begin(), replacement.end());
    spread.append(after, 1);
    for (const auto &index : indices_list)
        if (index.defined()) indices.push_back(index.reshape(spread));
}

TORCH_IMPL_FUNC(index_out_xpu)
(const Tensor &self, DimVector sizes, DimVector strides, const Tensor &result) {
    if (numel() == 0) return;
    const auto iter = moving_iter(*this, false);
    const auto indexed = indexed_of(sizes, strides);
    xpu_fault fault = {};
    check(xpu_index_get(current_stream(result), &iter, &indexed, &fault));
    check_fault(fault);
}

Tensor &index_put_impl_xpu_(Tensor &self, const torch::List<std::optional<Tensor>> &indices,
                            const Tensor &value, const bool accumulate, const bool unsafe) {
    TORCH_CHECK_INDEX(indices.size() <= static_cast<size_t>(self.dim()),
                      "too many indices for tensor of dimension ", self.dim(), " (got ", indices.size(), ")");
    if (at::has_internal_overlap(self) == MemOverlap::Yes)
        TORCH_WARN("Use of index_put_ on expanded tensors is deprecated. Please clone() the tensor before "
                   "performing "
                   "this operation. This also applies to advanced indexing e.g. tensor[indices] = tensor");
    if (!accumulate) {
        const auto [possible, mask] = canDispatchToMaskedFill(self, indices, value);
        if (possible) return self.masked_fill_(mask, value.item());
    } else if (isFloat8Type(self.scalar_type()) && value.scalar_type() == self.scalar_type()) {
        // No kernel adds this dtype: summed in fp32 and rounded once.
        auto sums = self.to(kFloat);
        index_put_impl_xpu_(sums, indices, value.to(kFloat), true, unsafe);
        return self.copy_(sums);
    }
    auto source = value;
    if (value.device() != self.device() && value.numel() == 1 && value.dim() == 0)
        source = value.to(self.device());
    at::assert_no_overlap(self, value);
    for (const std::optional<Tensor> &index : indices)
        if (index.has_value()) at::assert_no_overlap(self, *index);

    auto info = make_info(self, indices);
    TORCH_CHECK(is_expandable_to(source.sizes(), info.src.sizes()), "shape mismatch: value tensor of shape ",
                source.sizes(), " cannot be broadcast to indexing result of shape ", info.src.sizes());
    TORCH_CHECK(source.scalar_type() == info.src.scalar_type(),
                "Index put requires the source and destination dtypes match, got ", info.src.scalar_type(),
                " for the destination and ", source.scalar_type(), " for the source.");
    auto config = TensorIteratorConfig();
    config.set_check_mem_overlap(false).resize_outputs(false).check_all_same_dtype(false);
    config.add_output(info.src).add_const_input(source);
    for (const auto &index : info.indices) config.add_const_input(index);
    auto iter = config.build();
    if (iter.numel() == 0) return self;

    const auto indexed = indexed_of(info.indexed_sizes, info.indexed_strides);
    const bool deterministic = globalContext().deterministicAlgorithms();
    const bool combines = accumulate || deterministic;
    const auto operands = moving_iter(iter, combines);
    xpu_fault fault = {};
    auto *stream = current_stream(self);
    if (combines)
        check(xpu_index_accumulate(stream, &operands, &indexed,
                                   accumulate ? XPU_SCATTER_ADD : XPU_SCATTER_SET, scatter_order(),
                                   unsafe ? nullptr : &fault));
    else
        check(xpu_index_put(stream, &operands, &indexed, unsafe ? nullptr : &fault));
    check_fault(fault);
    return self;
}

// --- one dimension ---

Tensor &index_select_out_xpu(const Tensor &self, int64_t dim, const Tensor &index, Tensor &result) {
    dim = maybe_wrap_dim(dim, self);
    const auto count = index.numel();
    TORCH_CHECK_INDEX(index.dim() <= 1, "Index is supposed to be a vector, but got dim: ", index.dim(),
                      " with type: ", index.scalar_type(), " and size: ", index.sizes());
    TORCH_CHECK(!(self.dim() == 0 && count != 1),
                "index_select(): Index to scalar can have only 1 value, got ", count, " value(s)");
    TORCH_CHECK(index.scalar_type() == kLong || index.scalar_type() == kInt,
                "index_select(): Expected dtype int32 or int64 for index");
    TORCH_CHECK(self.scalar_type() == result.scalar_type(),
                "index_select(): self and result must have the same scalar type");
    TORCH_CHECK(dim == 0 || dim < self.dim(), "index_select(): Indexing dim ", dim,
                " is out of bounds of tensor");
    TORCH_CHECK(self.device() == index.device(),
                "Expected all tensors to be on the same device, but got index is on ", index.device(),
                ", different from other tensors on ", self.device(),
                " (when checking argument in method wrapper_XPU_index_select)");
    at::assert_no_internal_overlap(result);
    at::assert_no_overlap(result, self);
    at::assert_no_overlap(result, index);
    DimVector sizes(self.sizes());
    if (self.dim() > 0) sizes[dim] = count;
    at::native::resize_output(result, sizes);
    if (result.numel() == 0) return result;
    TORCH_CHECK_INDEX(self.numel() > 0, "index out of range in self");

    const auto out = bits_of(result), in = input_bits_of(self), chooser = input_of(index);
    xpu_fault fault = {};
    check(xpu_index_select(current_stream(self), &out, &in, static_cast<int>(dim), &chooser, &fault));
    TORCH_CHECK_INDEX(!fault.state, "index out of range in self");
    return result;
}

Tensor index_select_xpu(const Tensor &self, int64_t dim, const Tensor &index) {
    auto result = at::empty({0}, self.options());
    return index_select_out_xpu(self, dim, index, result);
}

TORCH_IMPL_FUNC(gather_out_xpu)
(const Tensor &self, int64_t dim, const Tensor &index, bool sparse_grad, const Tensor &result) {
    if (index.numel() == 0) return;
    dim = at::maybe_wrap_dim(dim, self.dim());
    check_positions("", self, dim, index, false);
    const auto out = bits_of(result), in = input_bits_of(self), chooser = input_of(index);
    xpu_fault fault = {};
    check(xpu_gather(current_stream(result), &out, &in, static_cast<int>(dim), &chooser, &fault));
    TORCH_CHECK(!fault.state, "index ", fault.index, " is out of bounds for dimension ", dim, " with size ",
                fault.extent);
}

TORCH_IMPL_FUNC(index_copy_out_xpu)
(const Tensor &self, int64_t dim, const Tensor &index, const Tensor &source, const Tensor &result) {
    if (!result.is_same(self)) result.copy_(self);
    if (index.numel() == 0 || source.numel() == 0) return;
    check_positions("index_copy_(): ", result, dim, index, true);
    const bool ordered = globalContext().deterministicAlgorithms();
    const auto out = ordered ? tensor_of(result) : bits_of(result),
               in = ordered ? input_of(source) : input_bits_of(source);
    const auto chooser = input_of(index);
    xpu_fault fault = {};
    check(xpu_index_scatter(current_stream(result), &out, static_cast<int>(dim), &chooser, &in,
                            XPU_SCATTER_SET, scatter_order(), &fault));
    TORCH_CHECK_INDEX(!fault.state, "index_copy_(): index ", fault.index, " is out of bounds for dimension ",
                      dim, " with size ", fault.extent);
}

Tensor &index_fill_xpu_(Tensor &self, int64_t dim, const Tensor &index, const Scalar &value) {
    TORCH_CHECK_INDEX(index.scalar_type() == ScalarType::Long,
                      "index_fill_(): Expected dtype int64 for index.");
    at::assert_no_overlap(self, index);
    if (at::has_internal_overlap(self) == at::MemOverlap::Yes)
        TORCH_WARN("Use of index_fill_ on expanded tensors is deprecated. Please clone() the tensor before "
                   "performing "
                   "this operation. This also applies to advanced indexing e.g. tensor[mask] = scalar");
    TORCH_CHECK(self.is_complex() || !value.isComplex(),
                "index_fill_(): Converting complex Scalar to non-complex type is not supported");
    dim = maybe_wrap_dim(dim, self);
    TORCH_CHECK(index.dim() <= 1, "Index has to be a vector/scalar");
    if (index.numel() == 0) return self;
    DimVector sizes(self.sizes()), still(self.dim(), 0);
    if (self.dim() > 0) sizes[dim] = index.numel();
    if (c10::multiply_integers(sizes) == 0) return self;
    check_positions("", self, dim, index, true);
    const auto number = at::full({}, value, self.options());
    const auto source = number.as_strided(sizes, still);
    const auto out = bits_of(self), in = input_bits_of(source), chooser = input_of(index);
    xpu_fault fault = {};
    check(xpu_index_fill(current_stream(self), &out, static_cast<int>(dim), &chooser, &in, &fault));
    TORCH_CHECK_INDEX(!fault.state, "index ", fault.index, " is out of bounds for dimension ", dim,
                      " with size ", fault.extent);
    return self;
}

Tensor &index_fill_xpu_(Tensor &self, int64_t dim, const Tensor &index, const Tensor &source) {
    TORCH_CHECK(source.dim() == 0,
                "index_fill_ only supports a 0-dimensional value tensor, but got tensor with ", source.dim(),
                " dimension(s).");
    return self.index_fill_(dim, index, source.item());
}

// --- flat memory ---

Tensor &take_out_xpu(const Tensor &self, const Tensor &index, Tensor &out) {
    TORCH_CHECK(index.scalar_type() == ScalarType::Long, "take(): Expected a long tensor for index, but got ",
                index.scalar_type());
    TORCH_CHECK(self.scalar_type() == out.scalar_type(),
                "take(): self and out expected to have the same dtype, but got self.dtype = ",
                self.scalar_type(), " and out.dtype = ", out.scalar_type());
    TORCH_CHECK(self.device() == out.device() && self.device() == index.device(),
                "take(): self, index and out expected to be in the same device, but got self.device = ",
                self.device(), ", index.device = ", index.device(), ", and out.device = ", out.device());
    TORCH_CHECK_INDEX(!(self.numel() == 0 && index.numel() != 0),
                      "take(): tried to take from an empty tensor");
    at::assert_no_internal_overlap(out);
    at::assert_no_overlap(out, index);
    at::assert_no_overlap(out, self);
    at::native::resize_output(out, index.sizes());
    if (index.numel() == 0) return out;
    const auto flat = self.contiguous();
    xpu_indexed indexed;
    auto iter = flat_iter(flat, out, index, false, &indexed);
    iter.operand[0].dtype = iter.operand[1].dtype = bits_dtype(out);
    xpu_fault fault = {};
    check(xpu_index_get(current_stream(self), &iter, &indexed, &fault));
    TORCH_CHECK_INDEX(!fault.state, "out of range: tried to access index ", fault.index, " on a tensor of ",
                      fault.extent, " elements.");
    return out;
}

Tensor take_xpu(const Tensor &self, const Tensor &index) {
    auto out = at::empty(index.sizes(), self.options());
    return take_out_xpu(self, index, out);
}

Tensor &put_xpu_(Tensor &self, const Tensor &index, const Tensor &source, const bool accumulate) {
    TORCH_CHECK(index.scalar_type() == ScalarType::Long, "put_(): Expected a long tensor for index, but got ",
                index.scalar_type());
    TORCH_CHECK(self.scalar_type() == source.scalar_type(),
                "put_(): self and source expected to have the same dtype, but got self.dtype = ",
                self.scalar_type(), " and source.dtype = ", source.scalar_type());
    TORCH_CHECK(self.device() == source.device() && self.device() == index.device(),
                "put_(): self, index and source expected to be in the same device, but got self.device = ",
                self.device(), ", index.device = ", index.device(),
                ", and source.device = ", source.device());
    TORCH_CHECK_INDEX(
        source.numel() == index.numel(),
        "put_(): Expected source and index to have the same number of elements, but got source.numel() = ",
        source.numel(), ", index.numel() = ", index.numel());
    TORCH_CHECK_INDEX(!(self.numel() == 0 && index.numel() != 0),
                      "put_(): Tried to put elements into an empty tensor");
    at::assert_no_internal_overlap(self);
    at::assert_no_overlap(self, index);
    at::assert_no_overlap(self, source);
    if (index.numel() == 0) return self;
    const auto flat = self.contiguous();
    xpu_fault fault = {};
    put_flat(flat, index, source.reshape(index.sizes()), accumulate, &fault);
    TORCH_CHECK_INDEX(!fault.state, "out of range: tried to access index ", fault.index, " on a tensor of ",
                      fault.extent, " elements.");
    if (!flat.is_same(self)) self.copy_(flat);
    return self;
}

// --- masks ---

namespace {

// `rows` rows of coordinates; all if it is -1.
Tensor &write_nonzero(const Tensor &self, int64_t rows, int64_t fill, Tensor &out) {
    TORCH_CHECK(out.dtype() == at::kLong,
                "nonzero: Expected out tensor to have scalar type Long but got scalar type", out.dtype());
    at::assert_no_internal_overlap(out);
    at::assert_no_overlap(out, self);
    const auto flat = self.contiguous();
    const auto in = input_of(flat);
    auto *stream = current_stream(self);
    const auto bytes = static_cast<int64_t>(xpu_nonzero_scratch(self.device().index(), flat.numel()));
    const auto scratch = at::empty({bytes}, self.options().dtype(kByte));
    int64_t count;
    check(xpu_nonzero_count(stream, &in, scratch.mutable_data_ptr(), &count));
    // A new result is laid out one dimension after another, like PyTorch's: the transpose of a contiguous
    // tensor, even if empty.
    if (at::native::resize_output(out, {rows < 0 ? count : rows, self.dim()}) && rows < 0)
        out.as_strided_({count, self.dim()}, {1, std::max<int64_t>(count, 1)});
    if (rows > count) out.narrow(0, count, rows - count).fill_(fill);
    if (rows >= 0 && count > rows) count = rows;
    if (count == 0 || self.dim() == 0) return out;
    check(xpu_nonzero(stream, &in, scratch.const_data_ptr(), out.mutable_data_ptr<int64_t>(), out.stride(0),
                      out.stride(1), count));
    return out;
}

} // namespace

Tensor &nonzero_out_xpu(const Tensor &self, Tensor &out) {
    TORCH_CHECK(self.dim() <= XPU_MAX_DIMS, "nonzero is not supported for tensor with more than ",
                XPU_MAX_DIMS, " dimensions");
    TORCH_CHECK(self.device() == out.device(),
                "expected self and out to be on the same device, but got out on ", out.device(),
                " and self on ", self.device());
    return write_nonzero(self, -1, 0, out);
}

Tensor nonzero_xpu(const Tensor &self) {
    auto out = at::empty({0}, self.options().dtype(kLong));
    return nonzero_out_xpu(self, out);
}

Tensor &nonzero_static_out_xpu(const Tensor &self, int64_t size, int64_t fill_value, Tensor &out) {
    TORCH_CHECK(size >= 0, "nonzero_static: 'size' must be an non-negative integer");
    return write_nonzero(self, size, fill_value, out);
}

Tensor nonzero_static_xpu(const Tensor &self, int64_t size, int64_t fill_value) {
    TORCH_CHECK(size >= 0, "nonzero_static: 'size' must be an non-negative integer");
    auto out = at::empty({size, self.dim()}, self.options().dtype(kLong));
    return write_nonzero(self, size, fill_value, out);
}

Tensor &masked_select_out_xpu(const Tensor &self, const Tensor &mask, Tensor &out) {
    TORCH_CHECK(mask.scalar_type() == ScalarType::Bool, "masked_select: expected BoolTensor for mask");
    TORCH_CHECK(self.scalar_type() == out.scalar_type(),
                "masked_select(): self and result must have the same scalar type");
    at::assert_no_internal_overlap(out);
    at::assert_no_overlap(out, self);
    at::assert_no_overlap(out, mask);
    // A named variable, as the expanded tensor may be borrowed.
    const auto mask_vector = mask.dim() == 0 ? mask.unsqueeze(0) : mask;
    const auto self_vector = self.dim() == 0 ? self.unsqueeze(0) : self;
    const auto [chosen, source] = expand_outplace(mask_vector, self_vector);
    c10::List<std::optional<Tensor>> indices;
    indices.push_back(*chosen);
    at::index_out(out, *source, indices);
    return out;
}

Tensor masked_select_xpu(const Tensor &self, const Tensor &mask) {
    auto out = at::empty({0}, self.options());
    return masked_select_out_xpu(self, mask, out);
}

Tensor &masked_scatter_xpu_(Tensor &self, const Tensor &mask, const Tensor &source) {
    TORCH_CHECK(self.scalar_type() == source.scalar_type(),
                "masked_scatter: expected self and source to have same dtypes but got", self.scalar_type(),
                " and ", source.scalar_type());
    TORCH_CHECK(mask.dtype() == ScalarType::Bool,
                "masked_scatter_ only supports boolean masks, but got mask with dtype ", mask.dtype());
    at::assert_no_internal_overlap(self);
    const auto chosen = expand_inplace(self, mask, "masked_scatter_");
    if (self.numel() == 0) return self;
    auto positions = at::empty({0}, self.options().dtype(kLong));
    positions = nonzero_out_xpu(chosen->reshape({-1}), positions).view({-1});
    const auto count = positions.numel();
    TORCH_CHECK(count <= source.numel(), "Number of elements of source < number of ones in mask");
    if (count == 0) return self;
    const auto flat = self.contiguous();
    put_flat(flat, positions, source.contiguous().view({-1}).narrow(0, 0, count), false, nullptr);
    if (!flat.is_same(self)) self.copy_(flat);
    return self;
}

} // namespace at::native

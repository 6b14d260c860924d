#include <ATen/MemoryOverlap.h>
#include <ATen/core/IListRef.h>
#include <ATen/ops/cat_native.h>

#include "lower.h"
#include "xpu/ops/cat.h"

namespace at::native {

using openxpu::check;
using openxpu::current_stream;

namespace {

// PyTorch has always let an empty tensor of one dimension pass as an input of any shape.
bool is_skipped(const Tensor &tensor) { return tensor.dim() == 1 && tensor.size(0) == 0; }

// Where `dim` comes in memory, and the sizes in memory's order.
int64_t order_of(const Tensor &tensor, MemoryFormat format, int64_t dim, DimVector &sizes) {
    const auto dims = tensor.dim();
    sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
    if (format != MemoryFormat::ChannelsLast && format != MemoryFormat::ChannelsLast3d) return dim;
    std::rotate(sizes.begin() + 1, sizes.begin() + 2, sizes.end());
    return dim == 0 ? 0 : dim == 1 ? dims - 1 : dim - 1;
}

} // namespace

TORCH_IMPL_FUNC(cat_out_xpu)
(const ITensorListRef &tensors, int64_t dim, int64_t valid, bool all_contiguous, bool all_same_dtype,
 bool all_same_sizes_and_stride, MemoryFormat memory_format, const Tensor &result) {
    if (result.numel() == 0) return;
    const auto inputs = tensors.materialize();
    if (memory_format == MemoryFormat::Preserve) memory_format = MemoryFormat::Contiguous;
    DimVector sizes;
    const auto place = order_of(result, memory_format, dim, sizes);
    const bool dense = result.is_contiguous(memory_format);
    int64_t rows = 1, unit = result.element_size(); // rows of the output; bytes of one step along dim
    for (int64_t d = 0; d < place; d++) rows *= sizes[d];
    for (int64_t d = place + 1; d < result.dim(); d++) unit *= sizes[d];

    c10::SmallVector<xpu_cat_input, 16> pieces;
    int64_t offset = 0;
    for (const Tensor &input : inputs) {
        if (is_skipped(input)) continue;
        const auto length = input.size(dim);
        if (length == 0) continue;
        if (dense && input.scalar_type() == result.scalar_type() && input.is_contiguous(memory_format))
            pieces.push_back({input.const_data_ptr(), length * unit, offset * unit});
        else
            result.narrow(dim, offset, length).copy_(input);
        offset += length;
    }
    if (!pieces.empty())
        check(xpu_cat(current_stream(result), result.mutable_data_ptr(), rows, offset * unit, pieces.data(),
                      static_cast<int>(pieces.size())));
}

} // namespace at::native

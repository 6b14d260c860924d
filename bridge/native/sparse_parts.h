// Building blocks of sparse operations: coordinates flattened to keys, which are sorted, searched and merged
// (xpu/ops/sparse.h). All functions submit to the current stream of their arguments' device and return new
// tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include "lower.h"
#include "xpu/ops/sparse.h"

namespace openxpu {

// Strides that flatten coordinates to keys in lexicographic order; `size` is that of the sparse
// dimensions.
at::DimVector key_steps(at::IntArrayRef size);
// The key of each column of `indices` [sparse dimensions][nnz]; an index outside `size` is an error.
at::Tensor keys_of(const at::Tensor &indices, at::IntArrayRef size, at::IntArrayRef steps);
// Compressed indices `starts` [batch …][rows + 1] that don't rise from 0 to the number of elements of a
// matrix are an error, and with a width >= 0 plain indices [batch …][elements] out of its range.
void check_compressed(const at::Tensor &starts, const at::Tensor &columns, int64_t width = -1);

// For each key, the number of elements of `sorted` that are less; with `upper`, less or equal. The result
// has the dtype `type`.
at::Tensor search(const at::Tensor &sorted, const at::Tensor &keys, bool upper = false,
                  at::ScalarType type = at::kLong);
// The same for the keys 0 … count-1.
at::Tensor search_range(const at::Tensor &sorted, int64_t count, bool upper, at::ScalarType type = at::kLong);

// Elements sorted by key; stable.
struct Segments {
    at::Tensor keys;   // sorted
    at::Tensor order;  // permutation to sorted order; undefined if the elements were sorted already
    at::Tensor first;  // bool: does the key differ from the previous one?
    at::Tensor starts; // the positions where `first` is true
};
Segments segments_of(const at::Tensor &keys, bool sorted = false);

// Sum, maximum or product of each segment of values [elements][…].
at::Tensor reduce_segments(const Segments &segments, const at::Tensor &values,
                           xpu_sparse_reduction reduction = XPU_SPARSE_SUM);

// out = beta in + alpha A dense. Row r of A has the elements order[starts[r]] … order[starts[r + 1] - 1]
// of `columns` and `values`.
void sparse_product(const at::Tensor &out, const at::Tensor &starts, const at::Tensor &order,
                    const at::Tensor &columns, const at::Tensor &values, const at::Tensor &dense,
                    const at::Tensor &in, const at::Scalar &beta, const at::Scalar &alpha);

} // namespace openxpu

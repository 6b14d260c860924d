// cdist and pdist.
#include "xpu/ops/distance.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/_cdist_backward_native.h>
#include <ATen/ops/_cdist_forward_native.h>
#include <ATen/ops/_euclidean_dist.h>
#include <ATen/ops/_pdist_backward_native.h>
#include <ATen/ops/_pdist_forward_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/accumulate.h>

#include "operands.h"

namespace at::native {

using namespace openxpu;
using openxpu::check;

namespace {

constexpr int64_t MULTIPLIED_ROWS =
    25; // from more rows on Euclidean distances are matrix products, as PyTorch's

// Both matrices with the batch dimensions of both, as one.
struct Pair {
    Tensor x1, x2;                // [batch, rows, columns], contiguous
    std::vector<int64_t> batches; // before flattening
};
Pair pair_of(const Tensor &x1, const Tensor &x2) {
    Pair pair;
    pair.batches = infer_size(x1.sizes().slice(0, x1.dim() - 2), x2.sizes().slice(0, x2.dim() - 2));
    const auto batch = c10::multiply_integers(pair.batches);
    const auto expanded = [&](const Tensor &x) {
        auto sizes = pair.batches;
        sizes.insert(sizes.end(), {x.size(-2), x.size(-1)});
        return x.expand(sizes).contiguous().view({batch, x.size(-2), x.size(-1)});
    };
    pair.x1 = expanded(x1);
    pair.x2 = expanded(x2);
    return pair;
}

xpu_distance distance_of(const Tensor &x1, const Tensor &x2, double p, bool pairs) {
    const bool batched = x1.dim() == 3;
    return {.batch = batched ? x1.size(0) : 1,
            .rows1 = x1.size(-2),
            .rows2 = x2.size(-2),
            .columns = x1.size(-1),
            .p = p,
            .dtype = dtype_of(x1),
            .pairs = pairs};
}

} // namespace

Tensor cdist_forward_xpu(const Tensor &x1, const Tensor &x2, double p, std::optional<int64_t> compute_mode) {
    TORCH_CHECK(x1.dim() >= 2, "cdist only supports at least 2D tensors, X1 got: ", x1.dim(), "D");
    TORCH_CHECK(x2.dim() >= 2, "cdist only supports at least 2D tensors, X2 got: ", x2.dim(), "D");
    TORCH_CHECK(x1.size(-1) == x2.size(-1),
                "X1 and X2 must have the same number of columns. X1: ", x1.size(-1), " X2: ", x2.size(-1));
    TORCH_CHECK(isFloatingType(x1.scalar_type()),
                "cdist only supports floating-point dtypes, X1 got: ", x1.scalar_type());
    TORCH_CHECK(isFloatingType(x2.scalar_type()),
                "cdist only supports floating-point dtypes, X2 got: ", x2.scalar_type());
    TORCH_CHECK(p >= 0, "cdist only supports non-negative p values");
    const auto mode = compute_mode.value_or(0);
    TORCH_CHECK(mode >= 0 && mode <= 2, "possible modes: 0, 1, 2, but was: ", mode);
    TORCH_CHECK(x1.scalar_type() == x2.scalar_type(), "expected scalar type ", x1.scalar_type(),
                " but found ", x2.scalar_type());
    const auto [a, b, batches] = pair_of(x1, x2);
    const auto rows1 = a.size(1), rows2 = b.size(1);
    auto sizes = batches;
    sizes.insert(sizes.end(), {rows1, rows2});
    if (a.size(0) == 0 || rows1 == 0 || rows2 == 0) return at::empty(sizes, x1.options());
    if (a.size(2) == 0) return at::zeros(sizes, x1.options());
    const bool many = rows1 > MULTIPLIED_ROWS || rows2 > MULTIPLIED_ROWS;
    if (p == 2 && (mode == 1 || (mode == 0 && many))) return at::_euclidean_dist(a, b).view(sizes);
    auto distances = at::empty(sizes, x1.options());
    const auto args = distance_of(a, b, p, false);
    check(xpu_distance_forward(current_stream(a), &args, a.const_data_ptr(), b.const_data_ptr(),
                               distances.mutable_data_ptr()));
    return distances;
}

Tensor cdist_backward_xpu(const Tensor &grad, const Tensor &x1, const Tensor &x2, double p,
                          const Tensor &cdist) {
    const auto [a, b, batches] = pair_of(x1, x2);
    if (a.numel() == 0 || b.size(1) == 0) return at::zeros_like(x1);
    auto sizes = batches;
    sizes.insert(sizes.end(), {a.size(1), b.size(1)});
    TORCH_CHECK(grad.sizes() == IntArrayRef(sizes) && cdist.sizes() == IntArrayRef(sizes),
                "_cdist_backward: expected grad and cdist of shape ", IntArrayRef(sizes), ", but got ",
                grad.sizes(), " and ", cdist.sizes());
    sizes.back() = a.size(2);
    const auto g = grad.contiguous(), distances = cdist.contiguous();
    auto grad_x1 = at::empty(sizes, x1.options());
    const auto args = distance_of(a, b, p, false);
    check(xpu_distance_backward(current_stream(a), &args, g.const_data_ptr(), a.const_data_ptr(),
                                b.const_data_ptr(), distances.const_data_ptr(), grad_x1.mutable_data_ptr()));
    return grad_x1;
}

Tensor pdist_forward_xpu(const Tensor &self, double p) {
    TORCH_CHECK(self.is_contiguous(), "_pdist_forward requires contiguous input");
    const auto rows = self.size(0);
    if (rows <= 1) return at::empty({0}, self.options());
    if (self.size(1) == 0) return at::zeros({rows * (rows - 1) / 2}, self.options());
    auto distances = at::empty({rows * (rows - 1) / 2}, self.options());
    const auto args = distance_of(self, self, p, true);
    check(xpu_distance_forward(current_stream(self), &args, self.const_data_ptr(), self.const_data_ptr(),
                               distances.mutable_data_ptr()));
    return distances;
}

Tensor pdist_backward_xpu(const Tensor &grad, const Tensor &self, double p, const Tensor &pdist) {
    TORCH_CHECK(self.is_contiguous(), "_pdist_backward requires self to be contiguous");
    TORCH_CHECK(pdist.is_contiguous(), "_pdist_backward requires pdist to be contiguous");
    const auto rows = self.size(0), pairs = rows * (rows - 1) / 2;
    TORCH_CHECK(grad.numel() == pairs && pdist.numel() == pairs,
                "_pdist_backward: expected grad and pdist of ", pairs, " elements for ", rows,
                " rows, but got ", grad.sizes(), " and ", pdist.sizes());
    if (rows <= 1 || self.size(1) == 0) return at::zeros_like(self, MemoryFormat::Contiguous);
    const auto g = grad.contiguous();
    auto grad_self = at::empty_like(self, MemoryFormat::Contiguous);
    const auto args = distance_of(self, self, p, true);
    check(xpu_distance_backward(current_stream(self), &args, g.const_data_ptr(), self.const_data_ptr(),
                                self.const_data_ptr(), pdist.const_data_ptr(), grad_self.mutable_data_ptr()));
    return grad_self;
}

} // namespace at::native

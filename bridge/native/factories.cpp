// Factory functions, tril and triu, and rearrangements that copy.
#include "xpu/ops/factory.h"

#include <ATen/Dispatch_v2.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/native/RangeUtils.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/arange_native.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/real.h>
#include <ATen/ops/tril_native.h>
#include <ATen/ops/triu_native.h>

#include "native/index.h"
#include "operands.h"
#include "xpu/ops/copy.h"

namespace at::native {

using openxpu::check;
using openxpu::current_stream;
using openxpu::dtype_of;
using openxpu::scalar_of;
using openxpu::tensor_of;

namespace {

// Calls `fill` with a contiguous tensor of out's shape, and sees to it that out gets the values.
template <class Fill> void through_contiguous(Tensor &out, Fill fill) {
    if (out.numel() == 0) return;
    const auto dense = openxpu::dense_for(out, out.scalar_type());
    fill(dense);
    openxpu::deliver(dense, out);
}

Tensor &series(Tensor &out, int64_t size, const Scalar &start, const Scalar &step) {
    if (out.numel() != size) {
        if (out.numel() > 0)
            TORCH_WARN("The number of elements in the out tensor of shape ", out.sizes(), " is ", out.numel(),
                       " which does not match the computed number of elements ", size,
                       ". Note that this may occur as a result of rounding error. "
                       "The out tensor will be resized to a tensor of shape (",
                       size, ",).");
        out.resize_({size});
    }
    through_contiguous(out, [&](const Tensor &to) {
        const auto first = scalar_of(start), by = scalar_of(step);
        check(xpu_arange(current_stream(to), dtype_of(to), to.mutable_data_ptr(), to.numel(), &first, &by));
    });
    return out;
}

} // namespace

Tensor &arange_out_xpu(const Scalar &start, const Scalar &end, const Scalar &step, Tensor &out) {
    const auto size = out.scalar_type() == kLong ? compute_arange_size<int64_t>(start, end, step)
                                                 : compute_arange_size<double>(start, end, step);
    return series(out, size, start, step);
}

Tensor &range_out_xpu(const Scalar &start, const Scalar &end, const Scalar &step, Tensor &out) {
    arange_check_bounds(start, end, step);
    const auto size = static_cast<int64_t>((end.toDouble() - start.toDouble()) / step.toDouble() + 1);
    return series(out, size, start, step);
}

Tensor &linspace_out_xpu(const Scalar &start, const Scalar &end, int64_t steps, Tensor &out) {
    TORCH_CHECK(steps >= 0, "number of steps must be non-negative");
    if (out.numel() != steps) out.resize_({steps});
    if (steps == 1) return out.fill_(start);
    if (out.is_complex()) {
        // Real and imaginary parts are spaced by themselves.
        const auto real = toRealValueType(out.scalar_type());
        const auto a = start.toComplexDouble(), b = end.toComplexDouble();
        const auto options = out.options().dtype(real);
        at::real(out).copy_(at::linspace(a.real(), b.real(), steps, options).view_as(out));
        at::imag(out).copy_(at::linspace(a.imag(), b.imag(), steps, options).view_as(out));
        return out;
    }
    through_contiguous(out, [&](const Tensor &to) {
        const auto from = scalar_of(start), until = scalar_of(end);
        check(
            xpu_linspace(current_stream(to), dtype_of(to), to.mutable_data_ptr(), to.numel(), &from, &until));
    });
    return out;
}

Tensor &logspace_out_xpu(const Scalar &start, const Scalar &end, int64_t steps, double base, Tensor &out) {
    TORCH_CHECK(steps >= 0, "number of steps must be non-negative");
    if (out.numel() != steps) out.resize_({steps});
    if (out.is_complex()) {
        const auto exponents = at::linspace(start, end, steps, out.options());
        return out.copy_(at::pow(Scalar(base), exponents).view_as(out));
    }
    through_contiguous(out, [&](const Tensor &to) {
        const auto from = scalar_of(start), until = scalar_of(end);
        check(xpu_logspace(current_stream(to), dtype_of(to), to.mutable_data_ptr(), to.numel(), &from, &until,
                           base));
    });
    return out;
}

Tensor &eye_out_xpu(int64_t n, int64_t m, Tensor &out) {
    TORCH_CHECK(n >= 0, "n must be greater or equal to 0, got ", n);
    TORCH_CHECK(m >= 0, "m must be greater or equal to 0, got ", m);
    out.resize_({n, m});
    out.zero_();
    out.diagonal().fill_(1);
    return out;
}

Tensor &eye_out_xpu(int64_t n, Tensor &out) { return eye_out_xpu(n, n, out); }

static void triangle(const Tensor &self, const Tensor &out, int64_t diagonal, bool upper) {
    if (out.numel() == 0) return;
    const auto from = openxpu::input_of(self), to = tensor_of(out);
    check(xpu_triangle(current_stream(out), &from, &to, diagonal, upper));
}

TORCH_IMPL_FUNC(tril_xpu)(const Tensor &self, int64_t k, const Tensor &out) { triangle(self, out, k, false); }
TORCH_IMPL_FUNC(triu_xpu)(const Tensor &self, int64_t k, const Tensor &out) { triangle(self, out, k, true); }

static Tensor triangle_indices(int64_t row, int64_t col, int64_t offset, bool upper,
                               std::optional<ScalarType> dtype, std::optional<Layout> layout,
                               std::optional<Device> device, std::optional<bool> pin_memory) {
    check_args(row, col, layout);
    const auto count =
        upper ? row * col - get_tril_size(row, col, offset - 1) : get_tril_size(row, col, offset);
    auto out = at::empty({2, count}, dtype.value_or(kLong), layout, device, pin_memory, std::nullopt);
    if (count > 0)
        check(xpu_triangle_indices(current_stream(out), dtype_of(out), out.mutable_data_ptr(), count, row,
                                   col, offset, upper));
    return out;
}

Tensor tril_indices_xpu(int64_t row, int64_t col, int64_t offset, std::optional<ScalarType> dtype,
                        std::optional<Layout> layout, std::optional<Device> device,
                        std::optional<bool> pin_memory) {
    return triangle_indices(row, col, offset, false, dtype, layout, device, pin_memory);
}
Tensor triu_indices_xpu(int64_t row, int64_t col, int64_t offset, std::optional<ScalarType> dtype,
                        std::optional<Layout> layout, std::optional<Device> device,
                        std::optional<bool> pin_memory) {
    return triangle_indices(row, col, offset, true, dtype, layout, device, pin_memory);
}

// --- rearrangements ---------------------------------------------------------------------------------

// A copy that reads the flipped dimensions from their end, by negative strides.
Tensor flip_xpu(const Tensor &self, IntArrayRef dims) {
    const auto flipped = at::dim_list_to_bitset(dims, self.dim());
    auto out = at::empty_like(self, MemoryFormat::Preserve);
    if (self.numel() == 0) return out;
    TORCH_CHECK_NOT_IMPLEMENTED(self.dim() <= XPU_MAX_DIMS, "flip over more than ", XPU_MAX_DIMS,
                                " dimensions on xpu");
    const auto bytes = static_cast<int64_t>(self.element_size());
    xpu_iter iter;
    iter.outputs = iter.inputs = 1;
    iter.dims = static_cast<int>(self.dim());
    auto &to = iter.operand[0], &from = iter.operand[1];
    to.dtype = from.dtype = openxpu::bits_dtype(self);
    to.data = out.mutable_data_ptr();
    auto *start = static_cast<char *>(openxpu::input_data(self));
    for (int d = 0; d < iter.dims; d++) {
        const int dim = iter.dims - 1 - d;
        iter.size[d] = self.size(dim);
        to.stride[d] = out.stride(dim) * bytes;
        from.stride[d] = self.stride(dim) * bytes;
        if (flipped[dim]) {
            start += (self.size(dim) - 1) * from.stride[d];
            from.stride[d] = -from.stride[d];
        }
    }
    from.data = start;
    xpu_iter_coalesce(&iter);
    check(xpu_copy(current_stream(out), &iter));
    return out;
}

Tensor trace_xpu(const Tensor &self) {
    TORCH_CHECK(self.dim() == 2, "trace: expected a matrix");
    return self.diagonal().sum();
}

bool equal_xpu(const Tensor &self, const Tensor &other) {
    TORCH_CHECK(self.device() == other.device(),
                "Cannot compare two tensors on different devices. Got: ", self.device(), " and ",
                other.device());
    if (self.sizes() != other.sizes()) return false;
    return self.numel() == 0 || at::eq(self, other).all().item<bool>();
}

} // namespace at::native

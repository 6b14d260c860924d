// Fourier transforms. On CPU devices PyTorch's CPU kernels on the same memory.
#include "xpu/ops/fft.h"

#include <ATen/native/SpectralOpsUtils.h>
#include <ATen/ops/_fft_c2c.h>
#include <ATen/ops/_fft_c2c_native.h>
#include <ATen/ops/_fft_c2r_native.h>
#include <ATen/ops/_fft_r2c.h>
#include <ATen/ops/_fft_r2c_native.h>
#include <ATen/ops/empty_permuted.h>
#include <c10/util/accumulate.h>

#include "../fallback.h"
#include "host_memory.h"
#include "operands.h"

namespace openxpu {
namespace {

using Dims = std::vector<int64_t>;
using at::IntArrayRef;
using at::Tensor;

// True if PyTorch's CPU kernel is used: on CPU devices, or for fp64 on devices without it.
bool transforms_on_host(const Tensor &self) {
    const auto device = self.device().index();
    return works_as_cpu(device) ||
           (c10::toRealValueType(self.scalar_type()) == at::kDouble && !properties_of(device).has_fp64);
}

// The CPU kernel's result; fp16 is transformed in fp32 at any size.
template <typename... Settings>
Tensor transform_on_host(const char *name, const Tensor &self, const Settings &...settings) {
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
    const bool half = c10::toRealValueType(self.scalar_type()) == at::kHalf;
    torch::jit::Stack stack{half ? self.to(self.is_complex() ? at::kComplexFloat : at::kFloat) : self,
                            settings...};
    run_on_host(op, &stack);
    const auto result = stack.front().toTensor();
    return half ? result.to(result.is_complex() ? at::kComplexHalf : at::kHalf) : result;
}

// --- layouts: as in PyTorch's own transforms, which torch.compile assumes ---

void sort_by_stride(Dims &dims, IntArrayRef strides) {
    std::stable_sort(dims.begin(), dims.end(), [&](int64_t a, int64_t b) { return strides[a] > strides[b]; });
}

// The memory order after a transform of `dims`: these are last; the others precede them in order of
// strides.
Dims order_after(IntArrayRef strides, IntArrayRef dims) {
    Dims order;
    for (int64_t d = 0; d < static_cast<int64_t>(strides.size()); d++)
        if (std::find(dims.begin(), dims.end(), d) == dims.end()) order.push_back(d);
    sort_by_stride(order, strides);
    order.insert(order.end(), dims.begin(), dims.end());
    return order;
}

// Removes the dimensions to be transformed next from `dims`, at most three.
Dims next_dims(Dims &dims, IntArrayRef strides) {
    sort_by_stride(dims, strides);
    const auto begin = dims.end() - std::min<ptrdiff_t>(dims.size(), 3);
    Dims next(begin, dims.end());
    dims.erase(begin, dims.end());
    return next;
}

Dims strides_of(IntArrayRef sizes, IntArrayRef order) {
    Dims strides(sizes.size());
    int64_t stride = 1;
    for (size_t i = order.size(); i-- > 0; stride *= sizes[order[i]]) strides[order[i]] = stride;
    return strides;
}

// --- transforms ---

double scale_of(int64_t normalization, IntArrayRef sizes, IntArrayRef dims) {
    double n = 1;
    for (const auto d : dims) n *= static_cast<double>(sizes[d]);
    switch (static_cast<at::native::fft_norm_mode>(normalization)) {
    case at::native::fft_norm_mode::none: return 1;
    case at::native::fft_norm_mode::by_root_n: return 1 / std::sqrt(n);
    default: return 1 / n;
    }
}

// libxpu uses one dtype for real elements and for the parts of complex ones.
xpu_tensor numbers_of(const Tensor &tensor, void *data) {
    return {.data = data,
            .dtype = dtype_of(c10::toRealValueType(tensor.scalar_type())),
            .dims = static_cast<int>(tensor.dim()),
            .size = tensor.sizes().data(),
            .stride = tensor.strides().data()};
}

Tensor transform(const Tensor &self, c10::ScalarType dtype, IntArrayRef sizes, IntArrayRef order,
                 IntArrayRef dims, xpu_fft_kind kind, bool inverse, double scale) {
    const auto in = self.resolve_conj().resolve_neg();
    const auto out = at::empty_permuted(sizes, order, self.options().dtype(dtype));
    const c10::SmallVector<int, 8> along(dims.begin(), dims.end());
    const xpu_fft_args args = {.in = numbers_of(in, input_data(in)),
                               .out = numbers_of(out, out.mutable_data_ptr()),
                               .dim = along.data(),
                               .count = static_cast<int>(along.size()),
                               .kind = kind,
                               .inverse = inverse,
                               .scale = scale};
    check(xpu_fft(current_stream(self), &args));
    return out;
}

} // namespace
} // namespace openxpu

namespace at::native {

using namespace openxpu;

Tensor _fft_c2c_xpu(const Tensor &self, IntArrayRef dim, int64_t normalization, bool forward) {
    TORCH_CHECK(self.is_complex(), "expected a complex tensor, got ", self.scalar_type());
    if (dim.empty()) return self.clone();
    if (transforms_on_host(self))
        return transform_on_host("aten::_fft_c2c", self, dim, normalization, forward);
    auto dims = dim.vec();
    sort_by_stride(dims, self.strides());
    return transform(self, self.scalar_type(), self.sizes(), order_after(self.strides(), dims), dims,
                     XPU_FFT_C2C, !forward, scale_of(normalization, self.sizes(), dim));
}

// The last dimension first, then the others, at most three at a time, like PyTorch's own.
Tensor _fft_r2c_xpu(const Tensor &self, IntArrayRef dim, int64_t normalization, bool onesided) {
    TORCH_CHECK(self.is_floating_point(), "expected a real tensor, got ", self.scalar_type());
    const auto type = toComplexType(self.scalar_type());
    const auto last = dim.back();
    auto others = dim.slice(0, dim.size() - 1).vec();
    if (transforms_on_host(self)) {
        if (self.scalar_type() == kHalf)
            return at::_fft_r2c(self.to(kFloat), dim, normalization, onesided).to(kComplexHalf);
        if (!onesided) {
            const auto out = transform_on_host("aten::_fft_r2c", self, dim, normalization, false);
            return others.empty() ? out : out.contiguous();
        }
        auto out = transform_on_host("aten::_fft_r2c", self, IntArrayRef(last), normalization, true);
        while (!others.empty())
            out = at::_fft_c2c(out, next_dims(others, out.strides()), normalization, true);
        return out;
    }
    auto sizes = self.sizes().vec();
    auto order = order_after(self.strides(), last);
    if (onesided || !others.empty()) sizes[last] = self.size(last) / 2 + 1;
    while (!others.empty()) {
        const auto strides = strides_of(sizes, order);
        order = order_after(strides, next_dims(others, strides));
    }
    if (!onesided && sizes[last] != self.size(last)) {
        sizes[last] = self.size(last);
        std::iota(order.begin(), order.end(), 0);
    }
    return transform(self, type, sizes, order, dim, XPU_FFT_R2C, false,
                     scale_of(normalization, self.sizes(), dim));
}

Tensor _fft_c2r_xpu(const Tensor &self, IntArrayRef dim, int64_t normalization, int64_t last_dim_size) {
    TORCH_CHECK(self.is_complex(), "expected a complex tensor, got ", self.scalar_type());
    if (transforms_on_host(self))
        return transform_on_host("aten::_fft_c2r", self, dim, normalization, last_dim_size);
    auto sizes = self.sizes().vec(), strides = self.strides().vec(),
         others = dim.slice(0, dim.size() - 1).vec();
    if (!others.empty()) {
        sort_by_stride(others, strides);
        strides = strides_of(sizes, order_after(strides, others));
    }
    sizes[dim.back()] = last_dim_size;
    return transform(self, c10::toRealValueType(self.scalar_type()), sizes, order_after(strides, dim.back()),
                     dim, XPU_FFT_C2R, true, scale_of(normalization, sizes, dim));
}

Tensor &_fft_c2c_xpu_out(const Tensor &self, IntArrayRef dim, int64_t normalization, bool forward,
                         Tensor &out) {
    return give_converted(_fft_c2c_xpu(self, dim, normalization, forward), out);
}

Tensor &_fft_r2c_xpu_out(const Tensor &self, IntArrayRef dim, int64_t normalization, bool onesided,
                         Tensor &out) {
    return give_converted(_fft_r2c_xpu(self, dim, normalization, onesided), out);
}

Tensor &_fft_c2r_xpu_out(const Tensor &self, IntArrayRef dim, int64_t normalization, int64_t last_dim_size,
                         Tensor &out) {
    return give_converted(_fft_c2r_xpu(self, dim, normalization, last_dim_size), out);
}

} // namespace at::native

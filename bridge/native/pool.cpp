// Maximum and average pooling over two and three dimensions, with fixed, adaptive and fractional windows.
// PyTorch maps one-dimensional pooling to two dimensions.
#include "xpu/ops/pool.h"

#include <ATen/native/AdaptivePooling.h>
#include <ATen/native/FractionalMaxPooling.h>
#include <ATen/native/Pool.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_adaptive_avg_pool2d_backward_native.h>
#include <ATen/ops/_adaptive_avg_pool2d_native.h>
#include <ATen/ops/_adaptive_avg_pool3d_backward_native.h>
#include <ATen/ops/_adaptive_avg_pool3d_native.h>
#include <ATen/ops/adaptive_avg_pool2d_native.h>
#include <ATen/ops/adaptive_avg_pool3d_backward_native.h>
#include <ATen/ops/adaptive_avg_pool3d_native.h>
#include <ATen/ops/adaptive_max_pool2d_backward_native.h>
#include <ATen/ops/adaptive_max_pool2d_native.h>
#include <ATen/ops/adaptive_max_pool3d_backward_native.h>
#include <ATen/ops/adaptive_max_pool3d_native.h>
#include <ATen/ops/avg_pool2d_backward_native.h>
#include <ATen/ops/avg_pool2d_native.h>
#include <ATen/ops/avg_pool3d_backward_native.h>
#include <ATen/ops/avg_pool3d_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/fractional_max_pool2d_backward_native.h>
#include <ATen/ops/fractional_max_pool2d_native.h>
#include <ATen/ops/fractional_max_pool3d_backward_native.h>
#include <ATen/ops/fractional_max_pool3d_native.h>
#include <ATen/ops/max_pool2d_with_indices_backward_native.h>
#include <ATen/ops/max_pool2d_with_indices_native.h>
#include <ATen/ops/max_pool3d_with_indices_backward_native.h>
#include <ATen/ops/max_pool3d_with_indices_native.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "operands.h"

namespace at::native {

using namespace openxpu;
using openxpu::check;

namespace {

// Fixed windows; each list has `dims` entries, or one for all of them, or none (strides: the kernel's).
struct PoolWindows {
    IntArrayRef kernel, stride, pad, dilation;
    bool count_pad = false;
    int64_t divisor = 0;
};

// Windows of average pooling: no dilation.
PoolWindows average_windows(IntArrayRef kernel, IntArrayRef stride, IntArrayRef pad, bool count_pad,
                            std::optional<int64_t> divisor) {
    return {kernel, stride, pad, {}, count_pad, divisor.value_or(0)};
}

// Which of the last `dims` dimensions is dimension d of 3; -1: none.
int64_t entry(IntArrayRef list, int64_t dims, int d, int64_t otherwise) {
    const auto i = d - (3 - dims);
    if (i < 0 || list.empty()) return otherwise;
    return list.size() == 1 ? list[0] : list[i];
}

xpu_pool pool_of(const Tensor &input, const Tensor &output, int64_t dims, bool maximum,
                 const PoolWindows *windows, bool channels_last) {
    const bool batched = input.dim() == dims + 2;
    xpu_pool args = {.batch = batched ? input.size(0) : 1,
                     .channels = input.size(batched ? 1 : 0),
                     .channels_last = channels_last,
                     .dtype = dtype_of(input),
                     .maximum = maximum,
                     .adaptive = windows == nullptr};
    const auto in = input.sizes().slice(input.dim() - dims), out = output.sizes().slice(output.dim() - dims);
    for (int d = 0; d < 3; d++) {
        args.in[d] = safe_downcast<int, int64_t>(entry(in, dims, d, 1));
        args.out[d] = safe_downcast<int, int64_t>(entry(out, dims, d, 1));
        if (!windows) continue;
        args.kernel[d] = safe_downcast<int, int64_t>(entry(windows->kernel, dims, d, 1));
        args.stride[d] = safe_downcast<int, int64_t>(
            entry(windows->stride.empty() ? windows->kernel : windows->stride, dims, d, 1));
        args.pad[d] = safe_downcast<int, int64_t>(entry(windows->pad, dims, d, 0));
        args.dilation[d] = safe_downcast<int, int64_t>(entry(windows->dilation, dims, d, 1));
    }
    if (windows) {
        args.count_pad = windows->count_pad;
        args.divisor = safe_downcast<int, int64_t>(windows->divisor);
    }
    return args;
}

MemoryFormat format_of(const Tensor &input, int64_t dims) {
    if (input.dim() != dims + 2) return MemoryFormat::Contiguous;
    return input.suggest_memory_format();
}

void pool_forward(const Tensor &input, const Tensor &output, const Tensor &indices, int64_t dims,
                  const PoolWindows *windows) {
    if (output.numel() == 0) return;
    const auto format = format_of(input, dims);
    const auto x = input.contiguous(format), y = dense_for(output, input.scalar_type(), format);
    const auto at = indices.defined() ? dense_for(indices, kLong, format) : indices;
    const auto args = pool_of(x, y, dims, indices.defined(), windows, format != MemoryFormat::Contiguous);
    check(xpu_pool_forward(current_stream(input), &args, x.const_data_ptr(), y.mutable_data_ptr(),
                           at.defined() ? at.mutable_data_ptr() : nullptr));
    deliver(y, output);
    if (at.defined()) deliver(at, indices);
}

void pool_backward(const Tensor &grad_output, const Tensor &input, const Tensor &indices,
                   const Tensor &grad_input, int64_t dims, const PoolWindows *windows) {
    if (grad_input.numel() == 0) return;
    if (grad_output.numel() == 0) {
        grad_input.zero_();
        return;
    }
    const auto format = format_of(input, dims);
    const auto dy = grad_output.contiguous(format),
               dx = dense_for(grad_input, grad_output.scalar_type(), format);
    const auto at = indices.defined() ? indices.contiguous(format) : indices;
    const auto args = pool_of(dx, dy, dims, indices.defined(), windows, format != MemoryFormat::Contiguous);
    check(xpu_pool_backward(current_stream(input), &args, dy.const_data_ptr(),
                            at.defined() ? at.const_data_ptr() : nullptr, dx.mutable_data_ptr()));
    deliver(dx, grad_input);
}

// Resizes like a shape function: a tensor of the right size keeps its strides.
void resize_as(const Tensor &output, IntArrayRef sizes, MemoryFormat format) {
    if (!resize_output(output, sizes) || format == MemoryFormat::Contiguous) return;
    auto *impl = output.unsafeGetTensorImpl();
    impl->set_sizes_and_strides(sizes, format == MemoryFormat::ChannelsLast
                                           ? c10::get_channels_last_strides_2d(sizes)
                                           : c10::get_channels_last_strides_3d(sizes));
}

// max_pool3d keeps channels last for unbatched inputs too, as on CUDA.
MemoryFormat max_pool3d_format(const Tensor &input) {
    if (input.dim() == 5) return format_of(input, 3);
    const auto batch = input.unsqueeze(0);
    return !batch.is_contiguous() && batch.is_contiguous(MemoryFormat::ChannelsLast3d)
               ? MemoryFormat::ChannelsLast3d
               : MemoryFormat::Contiguous;
}

Tensor empty_gradient(const Tensor &input, int64_t dims) {
    return at::empty(input.sizes(), input.options().memory_format(format_of(input, dims)));
}

void check_adaptive(const char *name, const Tensor &input, IntArrayRef output_size, int64_t dims) {
    TORCH_CHECK(static_cast<int64_t>(output_size.size()) == dims, name, ": output_size must be ", dims);
    TORCH_CHECK(input.dim() == dims + 1 || input.dim() == dims + 2, name, "(): Expected ", dims + 1, "D or ",
                dims + 2, "D tensor, but got ", input.sizes());
    for (int64_t i = input.dim() - dims; i < input.dim(); i++)
        TORCH_CHECK(input.size(i) > 0, name,
                    "(): Expected input to have non-zero size for non-batch dimensions, but input has sizes ",
                    input.sizes(), " with dimension ", i, " being empty");
}

Tensor &adaptive_average(const char *name, const Tensor &input, IntArrayRef output_size, int64_t dims,
                         Tensor &output) {
    check_adaptive(name, input, output_size, dims);
    auto sizes = input.sizes().vec();
    for (int64_t i = 0; i < dims; i++) sizes[sizes.size() - dims + i] = output_size[i];
    resize_as(output, sizes, format_of(input, dims));
    pool_forward(input, output, {}, dims, nullptr);
    return output;
}

// Fractional max pooling: `samples` [batches, channels, dims] place the windows; with two dimensions,
// width first.
void fractional_forward(const Tensor &input, IntArrayRef kernel, const Tensor &samples, int64_t dims,
                        const Tensor &output, const Tensor &indices) {
    if (output.numel() == 0) return;
    const auto x = input.contiguous(), y = dense_for(output, input.scalar_type()),
               at = dense_for(indices, kLong);
    const PoolWindows windows = {kernel, kernel, {}, {}};
    auto args = pool_of(x, y, dims, true, &windows, false);
    auto places = samples.narrow(0, 0, args.batch);
    if (dims == 2) {
        const auto column = places.select(2, 0);
        places = at::stack({at::zeros_like(column), places.select(2, 1), column}, 2);
    }
    places = places.contiguous();
    args.samples = places.const_data_ptr();
    check(xpu_pool_forward(current_stream(input), &args, x.const_data_ptr(), y.mutable_data_ptr(),
                           at.mutable_data_ptr()));
    deliver(y, output);
    deliver(at, indices);
}

// Scatters each gradient to the position of its maximum.
Tensor fractional_backward(const Tensor &grad_output, const Tensor &self, const Tensor &indices,
                           int64_t dims) {
    TORCH_CHECK(grad_output.sizes() == indices.sizes() &&
                    grad_output.sizes().slice(0, grad_output.dim() - dims) ==
                        self.sizes().slice(0, self.dim() - dims),
                "fractional_max_pool", dims, "d_backward(): gradients of shape ", grad_output.sizes(),
                " and indices of shape ", indices.sizes(), " don't fit an input of shape ", self.sizes());
    auto result = at::zeros(self.sizes(), grad_output.options());
    result.flatten(-dims).scatter_add_(-1, indices.flatten(-dims), grad_output.flatten(-dims));
    return result;
}

} // namespace

// --- maximum ---

TORCH_IMPL_FUNC(max_pool2d_xpu)(const Tensor &self, IntArrayRef kernel_size, IntArrayRef stride,
                                IntArrayRef padding, IntArrayRef dilation, bool ceil_mode, const Tensor &out,
                                const Tensor &indices) {
    const PoolWindows windows = {kernel_size, stride, padding, dilation};
    pool_forward(self, out, indices, 2, &windows);
}

TORCH_IMPL_FUNC(max_pool2d_backward_xpu)(const Tensor &grad_output, const Tensor &self,
                                         IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                                         IntArrayRef dilation, bool ceil_mode, const Tensor &indices,
                                         const Tensor &grad_input) {
    const PoolWindows windows = {kernel_size, stride, padding, dilation};
    pool_backward(grad_output, self, indices, grad_input, 2, &windows);
}

std::tuple<Tensor &, Tensor &> max_pool3d_with_indices_xpu_out(const Tensor &self, IntArrayRef kernel_size,
                                                               IntArrayRef stride, IntArrayRef padding,
                                                               IntArrayRef dilation, bool ceil_mode,
                                                               Tensor &out, Tensor &indices) {
    TORCH_CHECK(self.dim() == 4 || self.dim() == 5,
                "non-empty 4D or 5D (batch mode) tensor expected for input");
    const PoolWindows windows = {kernel_size, stride, padding, dilation};
    const auto &strides = stride.empty() ? kernel_size : stride;
    auto sizes = self.sizes().vec();
    int64_t k[3], s[3], p[3], d[3], in[3], o[3];
    for (int i = 0; i < 3; i++) {
        k[i] = entry(kernel_size, 3, i, 1);
        s[i] = entry(strides, 3, i, 1);
        p[i] = entry(padding, 3, i, 0);
        d[i] = entry(dilation, 3, i, 1);
        in[i] = self.size(self.dim() - 3 + i);
        o[i] = sizes[sizes.size() - 3 + i] =
            pooling_output_shape<int64_t>(in[i], k[i], p[i], s[i], d[i], ceil_mode);
    }
    pool3d_shape_check(self, self.size(-4), k[0], k[1], k[2], s[0], s[1], s[2], p[0], p[1], p[2], d[0], d[1],
                       d[2], in[0], in[1], in[2], o[0], o[1], o[2], "max_pool3d_with_indices_out_xpu()");
    const auto format = max_pool3d_format(self);
    resize_as(out, sizes, format);
    resize_as(indices, sizes, format);
    pool_forward(self, out, indices, 3, &windows);
    return std::forward_as_tuple(out, indices);
}

std::tuple<Tensor, Tensor> max_pool3d_with_indices_xpu(const Tensor &self, IntArrayRef kernel_size,
                                                       IntArrayRef stride, IntArrayRef padding,
                                                       IntArrayRef dilation, bool ceil_mode) {
    auto out = at::empty({0}, self.options()), indices = at::empty({0}, self.options().dtype(kLong));
    max_pool3d_with_indices_xpu_out(self, kernel_size, stride, padding, dilation, ceil_mode, out, indices);
    return {out, indices};
}

Tensor &max_pool3d_with_indices_backward_xpu_out(const Tensor &grad_output, const Tensor &self,
                                                 IntArrayRef kernel_size, IntArrayRef stride,
                                                 IntArrayRef padding, IntArrayRef dilation, bool ceil_mode,
                                                 const Tensor &indices, Tensor &grad_input) {
    const PoolWindows windows = {kernel_size, stride, padding, dilation};
    resize_output(grad_input, self.sizes());
    pool_backward(grad_output, self, indices, grad_input, 3, &windows);
    return grad_input;
}

Tensor max_pool3d_with_indices_backward_xpu(const Tensor &grad_output, const Tensor &self,
                                            IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                                            IntArrayRef dilation, bool ceil_mode, const Tensor &indices) {
    auto grad_input = empty_gradient(self, 3);
    return max_pool3d_with_indices_backward_xpu_out(grad_output, self, kernel_size, stride, padding, dilation,
                                                    ceil_mode, indices, grad_input);
}

TORCH_IMPL_FUNC(adaptive_max_pool2d_xpu)(const Tensor &self, IntArrayRef output_size, const Tensor &out,
                                         const Tensor &indices) {
    pool_forward(self, out, indices, 2, nullptr);
}

TORCH_IMPL_FUNC(adaptive_max_pool2d_backward_xpu)(const Tensor &grad_output, const Tensor &self,
                                                  const Tensor &indices, const Tensor &grad_input) {
    pool_backward(grad_output, self, indices, grad_input, 2, nullptr);
}

TORCH_IMPL_FUNC(adaptive_max_pool3d_xpu)(const Tensor &self, IntArrayRef output_size, const Tensor &out,
                                         const Tensor &indices) {
    pool_forward(self, out, indices, 3, nullptr);
}

TORCH_IMPL_FUNC(adaptive_max_pool3d_backward_xpu)(const Tensor &grad_output, const Tensor &self,
                                                  const Tensor &indices, const Tensor &grad_input) {
    pool_backward(grad_output, self, indices, grad_input, 3, nullptr);
}

TORCH_IMPL_FUNC(fractional_max_pool2d_xpu)(const Tensor &self, IntArrayRef kernel_size,
                                           IntArrayRef output_size, const Tensor &random_samples,
                                           const Tensor &output, const Tensor &indices) {
    fractional_max_pool_check_shape<2>(self, random_samples);
    fractional_forward(self, kernel_size, random_samples, 2, output, indices);
}

TORCH_IMPL_FUNC(fractional_max_pool2d_backward_xpu)(const Tensor &grad_output, const Tensor &self,
                                                    IntArrayRef kernel_size, IntArrayRef output_size,
                                                    const Tensor &indices, const Tensor &grad_input) {
    grad_input.copy_(fractional_backward(grad_output, self, indices, 2));
}

TORCH_IMPL_FUNC(fractional_max_pool3d_xpu)(const Tensor &self, int64_t kernel_depth, int64_t kernel_height,
                                           int64_t kernel_width, int64_t depth, int64_t height, int64_t width,
                                           const Tensor &random_samples, int64_t batch, int64_t channels,
                                           int64_t input_depth, int64_t input_height, int64_t input_width,
                                           const Tensor &output, const Tensor &indices) {
    fractional_max_pool_check_shape<3>(self, random_samples);
    const int64_t kernel[] = {kernel_depth, kernel_height, kernel_width};
    fractional_forward(self, kernel, random_samples, 3, output, indices);
}

Tensor fractional_max_pool3d_backward_xpu(const Tensor &grad_output, const Tensor &self,
                                          IntArrayRef kernel_size, IntArrayRef output_size,
                                          const Tensor &indices) {
    return fractional_backward(grad_output, self, indices, 3);
}

Tensor &fractional_max_pool3d_backward_xpu_out(const Tensor &grad_output, const Tensor &self,
                                               IntArrayRef kernel_size, IntArrayRef output_size,
                                               const Tensor &indices, Tensor &grad_input) {
    return give(fractional_backward(grad_output, self, indices, 3), grad_input);
}

// --- average ---

TORCH_IMPL_FUNC(avg_pool2d_xpu)(const Tensor &self, int64_t kH, int64_t kW, int64_t dH, int64_t dW,
                                int64_t padH, int64_t padW, bool ceil_mode, bool count_include_pad,
                                std::optional<int64_t> divisor_override, const Tensor &out) {
    const int64_t kernel[] = {kH, kW}, stride[] = {dH, dW}, pad[] = {padH, padW};
    const auto windows = average_windows(kernel, stride, pad, count_include_pad, divisor_override);
    pool_forward(self, out, {}, 2, &windows);
}

TORCH_IMPL_FUNC(avg_pool2d_backward_xpu)(const Tensor &grad_output, const Tensor &self,
                                         IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                                         bool ceil_mode, bool count_include_pad,
                                         std::optional<int64_t> divisor_override, const Tensor &grad_input) {
    const auto windows = average_windows(kernel_size, stride, padding, count_include_pad, divisor_override);
    pool_backward(grad_output, self, {}, grad_input, 2, &windows);
}

TORCH_IMPL_FUNC(avg_pool3d_xpu)(const Tensor &self, IntArrayRef kernel_size, IntArrayRef stride,
                                IntArrayRef padding, bool ceil_mode, bool count_include_pad,
                                std::optional<int64_t> divisor_override, const Tensor &out) {
    const auto windows = average_windows(kernel_size, stride, padding, count_include_pad, divisor_override);
    pool_forward(self, out, {}, 3, &windows);
}

TORCH_IMPL_FUNC(avg_pool3d_backward_xpu)(const Tensor &grad_output, const Tensor &self,
                                         IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                                         bool ceil_mode, bool count_include_pad,
                                         std::optional<int64_t> divisor_override, const Tensor &grad_input) {
    const auto windows = average_windows(kernel_size, stride, padding, count_include_pad, divisor_override);
    pool_backward(grad_output, self, {}, grad_input, 3, &windows);
}

Tensor &adaptive_avg_pool2d_xpu_out(const Tensor &self, IntArrayRef output_size, Tensor &out) {
    return adaptive_average("adaptive_avg_pool2d", self, output_size, 2, out);
}

Tensor adaptive_avg_pool2d_xpu(const Tensor &self, IntArrayRef output_size) {
    auto out = at::empty({0}, self.options());
    return adaptive_avg_pool2d_xpu_out(self, output_size, out);
}

Tensor adaptive_avg_pool2d_backward_xpu(const Tensor &grad_output, const Tensor &self) {
    adaptive_pool_empty_output_check(grad_output, "adaptive_avg_pool2d_backward");
    auto grad_input = empty_gradient(self, 2);
    pool_backward(grad_output, self, {}, grad_input, 2, nullptr);
    return grad_input;
}

Tensor &adaptive_avg_pool3d_xpu_out(const Tensor &self, IntArrayRef output_size, Tensor &out) {
    return adaptive_average("adaptive_avg_pool3d", self, output_size, 3, out);
}

Tensor adaptive_avg_pool3d_xpu(const Tensor &self, IntArrayRef output_size) {
    auto out = at::empty({0}, self.options());
    return adaptive_avg_pool3d_xpu_out(self, output_size, out);
}

Tensor &adaptive_avg_pool3d_backward_xpu_out(const Tensor &grad_output, const Tensor &self,
                                             Tensor &grad_input) {
    adaptive_pool_empty_output_check(grad_output, "adaptive_avg_pool3d_backward");
    resize_output(grad_input, self.sizes());
    pool_backward(grad_output, self, {}, grad_input, 3, nullptr);
    return grad_input;
}

Tensor adaptive_avg_pool3d_backward_xpu(const Tensor &grad_output, const Tensor &self) {
    auto grad_input = empty_gradient(self, 3);
    return adaptive_avg_pool3d_backward_xpu_out(grad_output, self, grad_input);
}

} // namespace at::native

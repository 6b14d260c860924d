// Interpolation (upsample_*), and reflection and replication padding: libxpu's kernels on the current stream,
// or on CPU devices PyTorch's CPU kernels where those are faster. Shapes are checked by PyTorch's meta
// functions.
#include "xpu/ops/resample.h"

#include <ATen/native/Pool.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_upsample_bicubic2d_aa_backward.h>
#include <ATen/ops/_upsample_bicubic2d_aa_backward_native.h>
#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <ATen/ops/_upsample_bicubic2d_aa_native.h>
#include <ATen/ops/_upsample_bilinear2d_aa_backward.h>
#include <ATen/ops/_upsample_bilinear2d_aa_backward_native.h>
#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/_upsample_bilinear2d_aa_native.h>
#include <ATen/ops/_upsample_nearest_exact1d_backward_native.h>
#include <ATen/ops/_upsample_nearest_exact1d_native.h>
#include <ATen/ops/_upsample_nearest_exact2d_backward_native.h>
#include <ATen/ops/_upsample_nearest_exact2d_native.h>
#include <ATen/ops/_upsample_nearest_exact3d_backward_native.h>
#include <ATen/ops/_upsample_nearest_exact3d_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/reflection_pad1d_backward_native.h>
#include <ATen/ops/reflection_pad1d_native.h>
#include <ATen/ops/reflection_pad2d_backward_native.h>
#include <ATen/ops/reflection_pad2d_native.h>
#include <ATen/ops/reflection_pad3d_backward_native.h>
#include <ATen/ops/reflection_pad3d_native.h>
#include <ATen/ops/replication_pad1d_backward_native.h>
#include <ATen/ops/replication_pad1d_native.h>
#include <ATen/ops/replication_pad2d_backward_native.h>
#include <ATen/ops/replication_pad2d_native.h>
#include <ATen/ops/replication_pad3d_backward_native.h>
#include <ATen/ops/replication_pad3d_native.h>
#include <ATen/ops/upsample_bicubic2d_backward_native.h>
#include <ATen/ops/upsample_bicubic2d_native.h>
#include <ATen/ops/upsample_bilinear2d_backward_native.h>
#include <ATen/ops/upsample_bilinear2d_native.h>
#include <ATen/ops/upsample_linear1d_backward_native.h>
#include <ATen/ops/upsample_linear1d_native.h>
#include <ATen/ops/upsample_nearest1d_backward_native.h>
#include <ATen/ops/upsample_nearest1d_native.h>
#include <ATen/ops/upsample_nearest2d_backward_native.h>
#include <ATen/ops/upsample_nearest2d_native.h>
#include <ATen/ops/upsample_nearest3d_backward_native.h>
#include <ATen/ops/upsample_nearest3d_native.h>
#include <ATen/ops/upsample_trilinear3d_backward_native.h>
#include <ATen/ops/upsample_trilinear3d_native.h>
#if __has_include(<ATen/ops/_upsample_lanczos2d_aa_native.h>) // since PyTorch 2.13
#include <ATen/ops/_upsample_lanczos2d_aa_backward.h>
#include <ATen/ops/_upsample_lanczos2d_aa_backward_native.h>
#include <ATen/ops/_upsample_lanczos2d_aa.h>
#include <ATen/ops/_upsample_lanczos2d_aa_native.h>
#endif

#include "host_memory.h"
#include "operands.h"

namespace at::native {

using namespace openxpu;
using openxpu::check;

namespace {

using Scales = std::initializer_list<std::optional<double>>;

// Arguments for tensors [N, C, …] or [C, …] with `dims` spatial dimensions.
xpu_resample resample_of(xpu_resample_kind kind, const Tensor &input, const Tensor &output, int64_t dims,
                         bool last) {
    const bool batched = input.dim() == dims + 2;
    xpu_resample args = {.batch = batched ? input.size(0) : 1,
                         .channels = input.size(batched ? 1 : 0),
                         .channels_last = last,
                         .dtype = dtype_of(input),
                         .kind = kind};
    for (int d = 0; d < 3; d++) {
        const auto i = d - (3 - dims);
        args.in[d] = i < 0 ? 1 : safe_downcast<int, int64_t>(input.size(input.dim() - dims + i));
        args.out[d] = i < 0 ? 1 : safe_downcast<int, int64_t>(output.size(output.dim() - dims + i));
    }
    return args;
}

void set_scales(xpu_resample &args, bool align_corners, Scales scales) {
    args.align_corners = align_corners;
    int d = 3 - static_cast<int>(scales.size());
    for (int i = 0; i < 3; i++) args.scale[i] = 1;
    for (const auto &scale : scales) {
        if (align_corners)
            args.scale[d] = args.out[d] > 1 ? static_cast<double>(args.in[d] - 1) / (args.out[d] - 1) : 0;
        else
            args.scale[d] = scale && *scale > 0 ? 1 / *scale : static_cast<double>(args.in[d]) / args.out[d];
        d++;
    }
}

void interpolate(xpu_resample_kind kind, const Tensor &self, const Tensor &out, bool align_corners,
                 Scales scales) {
    if (out.numel() == 0) return;
    const auto dims = static_cast<int64_t>(scales.size());
    const auto format = self.dim() == dims + 2 ? self.suggest_memory_format() : MemoryFormat::Contiguous;
    const auto x = self.contiguous(format), y = dense_for(out, self.scalar_type(), format);
    auto args = resample_of(kind, x, y, dims, format != MemoryFormat::Contiguous);
    set_scales(args, align_corners, scales);
    check(xpu_resample_forward(current_stream(self), &args, x.const_data_ptr(), y.mutable_data_ptr()));
    deliver(y, out);
}

void interpolate_backward(xpu_resample_kind kind, const Tensor &grad_output, const Tensor &grad_input,
                          bool align_corners, Scales scales) {
    if (grad_input.numel() == 0) return;
    const auto dims = static_cast<int64_t>(scales.size());
    const auto format = grad_output.suggest_memory_format();
    const auto dy = grad_output.contiguous(format),
               dx = dense_for(grad_input, grad_output.scalar_type(), format);
    auto args = resample_of(kind, dx, dy, dims, format != MemoryFormat::Contiguous);
    set_scales(args, align_corners, scales);
    check(xpu_resample_backward(current_stream(grad_output), &args, dy.const_data_ptr(),
                                dx.mutable_data_ptr()));
    deliver(dx, grad_input);
}

// Use PyTorch's CPU kernels for antialiased filters on this CPU device? Measured, they take half the time
// for downsampling and gradients, and a fifth for uint8. They are slower for bilinear upsampling and do not
// support fp16 and bf16. For outputs one column wide, PyTorch 2.13 computes wrong results.
bool filters_on_host(xpu_resample_kind kind, const Tensor &from, const Tensor &to, bool backward) {
    const auto device = from.device().index();
    const auto type = from.scalar_type();
    if (!uses_host_kernels(device) || is_captured(device) || to.numel() == 0) return false;
    if (!backward && to.size(3) == 1) return false;
    if (type != kFloat && type != kDouble) return type == kByte;
    return backward || kind != XPU_RESAMPLE_FILTER_LINEAR || to.numel() <= from.numel();
}

using HostFilter = Tensor &(*)(const Tensor &, IntArrayRef, bool, std::optional<double>,
                               std::optional<double>, Tensor &);
void filter(xpu_resample_kind kind, HostFilter host, const Tensor &self, bool align_corners,
            std::optional<double> scales_h, std::optional<double> scales_w, const Tensor &out) {
    if (!filters_on_host(kind, self, out, false))
        return interpolate(kind, self, out, align_corners, {scales_h, scales_w});
    const HostScope scope(self.device().index());
    auto there = as_cpu(out);
    host(as_cpu_input(self), out.sizes().slice(2), align_corners, scales_h, scales_w, there);
}

using HostFilterBackward = Tensor &(*)(const Tensor &, IntArrayRef, IntArrayRef, bool, std::optional<double>,
                                       std::optional<double>, Tensor &);
void filter_backward(xpu_resample_kind kind, HostFilterBackward host, const Tensor &grad_output,
                     bool align_corners, std::optional<double> scales_h, std::optional<double> scales_w,
                     const Tensor &grad_input) {
    if (!filters_on_host(kind, grad_output, grad_input, true))
        return interpolate_backward(kind, grad_output, grad_input, align_corners, {scales_h, scales_w});
    const HostScope scope(grad_output.device().index());
    auto there = as_cpu(grad_input);
    host(as_cpu_input(grad_output), grad_output.sizes().slice(2), grad_input.sizes(), align_corners, scales_h,
         scales_w, there);
}

// `padding` holds (before, after) pairs from the last dimension to the first.
void set_padding(xpu_resample &args, IntArrayRef padding) {
    for (size_t i = 0; 2 * i < padding.size(); i++)
        args.before[2 - i] = safe_downcast<int, int64_t>(padding[2 * i]);
}

std::vector<int64_t> padded_sizes(const Tensor &self, IntArrayRef padding) {
    const auto dims = static_cast<int64_t>(padding.size() / 2);
    const auto sample = self.sizes().slice(self.dim() == dims + 2 ? 1 : 0);
    TORCH_CHECK(
        (self.dim() == dims + 1 || self.dim() == dims + 2) && c10::multiply_integers(sample) > 0, "Expected ",
        dims + 1, "D or ", dims + 2,
        "D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, but got: ",
        self.sizes());
    auto sizes = self.sizes().vec();
    for (int64_t i = 0; i < dims; i++) {
        auto &size = sizes[sizes.size() - 1 - i];
        TORCH_CHECK(padding[2 * i] < size && padding[2 * i + 1] < size,
                    "Argument #4: Padding size should be less than the corresponding input dimension, but "
                    "got: padding (",
                    padding[2 * i], ", ", padding[2 * i + 1], ") at dimension ", self.dim() - 1 - i,
                    " of input ", self.sizes());
        size += padding[2 * i] + padding[2 * i + 1];
        TORCH_CHECK(size >= 1, "input (size ", self.sizes(), ") is too small for padding ", padding);
    }
    return sizes;
}

void pad(xpu_resample_kind kind, const Tensor &self, IntArrayRef padding, const Tensor &out) {
    if (out.numel() == 0) return;
    const auto x = self.contiguous(), y = dense_for(out, self.scalar_type());
    auto args = resample_of(kind, x, y, static_cast<int64_t>(padding.size() / 2), false);
    set_padding(args, padding);
    check(xpu_resample_forward(current_stream(self), &args, x.const_data_ptr(), y.mutable_data_ptr()));
    deliver(y, out);
}

void pad_backward(xpu_resample_kind kind, const Tensor &grad_output, IntArrayRef padding,
                  const Tensor &grad_input) {
    auto sizes = grad_input.sizes().vec();
    for (size_t i = 0; i < padding.size() / 2 && i < sizes.size(); i++)
        sizes[sizes.size() - 1 - i] += padding[2 * i] + padding[2 * i + 1];
    TORCH_CHECK(grad_output.sizes() == IntArrayRef(sizes), "padding_backward: expected grad_output of shape ",
                IntArrayRef(sizes), ", but got ", grad_output.sizes());
    if (grad_input.numel() == 0) return;
    const auto dy = grad_output.contiguous(), dx = dense_for(grad_input, grad_output.scalar_type());
    auto args = resample_of(kind, dx, dy, static_cast<int64_t>(padding.size() / 2), false);
    set_padding(args, padding);
    check(xpu_resample_backward(current_stream(grad_output), &args, dy.const_data_ptr(),
                                dx.mutable_data_ptr()));
    deliver(dx, grad_input);
}

} // namespace

TORCH_IMPL_FUNC(upsample_nearest1d_xpu)(const Tensor &self, IntArrayRef output_size,
                                        std::optional<double> scales, const Tensor &out) {
    interpolate(XPU_RESAMPLE_NEAREST, self, out, false, {scales});
}

TORCH_IMPL_FUNC(upsample_nearest1d_backward_xpu)(const Tensor &grad_output, IntArrayRef output_size,
                                                 IntArrayRef input_size, std::optional<double> scales,
                                                 const Tensor &grad_input) {
    interpolate_backward(XPU_RESAMPLE_NEAREST, grad_output, grad_input, false, {scales});
}

TORCH_IMPL_FUNC(upsample_nearest2d_xpu)(const Tensor &self, IntArrayRef output_size,
                                        std::optional<double> scales_h, std::optional<double> scales_w,
                                        const Tensor &out) {
    interpolate(XPU_RESAMPLE_NEAREST, self, out, false, {scales_h, scales_w});
}

TORCH_IMPL_FUNC(upsample_nearest2d_backward_xpu)(const Tensor &grad_output, IntArrayRef output_size,
                                                 IntArrayRef input_size, std::optional<double> scales_h,
                                                 std::optional<double> scales_w, const Tensor &grad_input) {
    interpolate_backward(XPU_RESAMPLE_NEAREST, grad_output, grad_input, false, {scales_h, scales_w});
}

TORCH_IMPL_FUNC(upsample_nearest3d_xpu)(const Tensor &self, IntArrayRef output_size,
                                        std::optional<double> scales_d, std::optional<double> scales_h,
                                        std::optional<double> scales_w, const Tensor &out) {
    interpolate(XPU_RESAMPLE_NEAREST, self, out, false, {scales_d, scales_h, scales_w});
}

TORCH_IMPL_FUNC(upsample_nearest3d_backward_xpu)(const Tensor &grad_output, IntArrayRef output_size,
                                                 IntArrayRef input_size, std::optional<double> scales_d,
                                                 std::optional<double> scales_h,
                                                 std::optional<double> scales_w, const Tensor &grad_input) {
    interpolate_backward(XPU_RESAMPLE_NEAREST, grad_output, grad_input, false,
                         {scales_d, scales_h, scales_w});
}

TORCH_IMPL_FUNC(upsample_nearest_exact1d_xpu)(const Tensor &self, IntArrayRef output_size,
                                              std::optional<double> scales, const Tensor &out) {
    interpolate(XPU_RESAMPLE_NEAREST_EXACT, self, out, false, {scales});
}

TORCH_IMPL_FUNC(upsample_nearest_exact1d_backward_xpu)(const Tensor &grad_output, IntArrayRef output_size,
                                                       IntArrayRef input_size, std::optional<double> scales,
                                                       const Tensor &grad_input) {
    interpolate_backward(XPU_RESAMPLE_NEAREST_EXACT, grad_output, grad_input, false, {scales});
}

TORCH_IMPL_FUNC(upsample_nearest_exact2d_xpu)(const Tensor &self, IntArrayRef output_size,
                                              std::optional<double> scales_h, std::optional<double> scales_w,
                                              const Tensor &out) {
    interpolate(XPU_RESAMPLE_NEAREST_EXACT, self, out, false, {scales_h, scales_w});
}

TORCH_IMPL_FUNC(upsample_nearest_exact2d_backward_xpu)(const Tensor &grad_output, IntArrayRef output_size,
                                                       IntArrayRef input_size, std::optional<double> scales_h,
                                                       std::optional<double> scales_w,
                                                       const Tensor &grad_input) {
    interpolate_backward(XPU_RESAMPLE_NEAREST_EXACT, grad_output, grad_input, false, {scales_h, scales_w});
}

TORCH_IMPL_FUNC(upsample_nearest_exact3d_xpu)(const Tensor &self, IntArrayRef output_size,
                                              std::optional<double> scales_d, std::optional<double> scales_h,
                                              std::optional<double> scales_w, const Tensor &out) {
    interpolate(XPU_RESAMPLE_NEAREST_EXACT, self, out, false, {scales_d, scales_h, scales_w});
}

TORCH_IMPL_FUNC(upsample_nearest_exact3d_backward_xpu)(const Tensor &grad_output, IntArrayRef output_size,
                                                       IntArrayRef input_size, std::optional<double> scales_d,
                                                       std::optional<double> scales_h,
                                                       std::optional<double> scales_w,
                                                       const Tensor &grad_input) {
    interpolate_backward(XPU_RESAMPLE_NEAREST_EXACT, grad_output, grad_input, false,
                         {scales_d, scales_h, scales_w});
}

TORCH_IMPL_FUNC(upsample_linear1d_xpu)(const Tensor &self, IntArrayRef output_size, bool align_corners,
                                       std::optional<double> scales, const Tensor &out) {
    interpolate(XPU_RESAMPLE_LINEAR, self, out, align_corners, {scales});
}

TORCH_IMPL_FUNC(upsample_linear1d_backward_xpu)(const Tensor &grad_output, IntArrayRef output_size,
                                                IntArrayRef input_size, bool align_corners,
                                                std::optional<double> scales, const Tensor &grad_input) {
    interpolate_backward(XPU_RESAMPLE_LINEAR, grad_output, grad_input, align_corners, {scales});
}

TORCH_IMPL_FUNC(upsample_bilinear2d_xpu)(const Tensor &self, IntArrayRef output_size, bool align_corners,
                                         std::optional<double> scales_h, std::optional<double> scales_w,
                                         const Tensor &out) {
    interpolate(XPU_RESAMPLE_LINEAR, self, out, align_corners, {scales_h, scales_w});
}

TORCH_IMPL_FUNC(upsample_bilinear2d_backward_xpu)(const Tensor &grad_output, IntArrayRef output_size,
                                                  IntArrayRef input_size, bool align_corners,
                                                  std::optional<double> scales_h,
                                                  std::optional<double> scales_w, const Tensor &grad_input) {
    interpolate_backward(XPU_RESAMPLE_LINEAR, grad_output, grad_input, align_corners, {scales_h, scales_w});
}

TORCH_IMPL_FUNC(upsample_trilinear3d_xpu)(const Tensor &self, IntArrayRef output_size, bool align_corners,
                                          std::optional<double> scales_d, std::optional<double> scales_h,
                                          std::optional<double> scales_w, const Tensor &out) {
    interpolate(XPU_RESAMPLE_LINEAR, self, out, align_corners, {scales_d, scales_h, scales_w});
}

TORCH_IMPL_FUNC(upsample_trilinear3d_backward_xpu)(const Tensor &grad_output, IntArrayRef output_size,
                                                   IntArrayRef input_size, bool align_corners,
                                                   std::optional<double> scales_d,
                                                   std::optional<double> scales_h,
                                                   std::optional<double> scales_w, const Tensor &grad_input) {
    interpolate_backward(XPU_RESAMPLE_LINEAR, grad_output, grad_input, align_corners,
                         {scales_d, scales_h, scales_w});
}

TORCH_IMPL_FUNC(upsample_bicubic2d_xpu)(const Tensor &self, IntArrayRef output_size, bool align_corners,
                                        std::optional<double> scales_h, std::optional<double> scales_w,
                                        const Tensor &out) {
    interpolate(XPU_RESAMPLE_CUBIC, self, out, align_corners, {scales_h, scales_w});
}

TORCH_IMPL_FUNC(upsample_bicubic2d_backward_xpu)(const Tensor &grad_output, IntArrayRef output_size,
                                                 IntArrayRef input_size, bool align_corners,
                                                 std::optional<double> scales_h,
                                                 std::optional<double> scales_w, const Tensor &grad_input) {
    interpolate_backward(XPU_RESAMPLE_CUBIC, grad_output, grad_input, align_corners, {scales_h, scales_w});
}

TORCH_IMPL_FUNC(upsample_bilinear2d_aa_xpu)(const Tensor &self, IntArrayRef output_size, bool align_corners,
                                            std::optional<double> scales_h, std::optional<double> scales_w,
                                            const Tensor &out) {
    filter(XPU_RESAMPLE_FILTER_LINEAR, at::_upsample_bilinear2d_aa_outf, self, align_corners, scales_h,
           scales_w, out);
}

TORCH_IMPL_FUNC(upsample_bilinear2d_aa_backward_xpu)(const Tensor &grad_output, IntArrayRef output_size,
                                                     IntArrayRef input_size, bool align_corners,
                                                     std::optional<double> scales_h,
                                                     std::optional<double> scales_w,
                                                     const Tensor &grad_input) {
    filter_backward(XPU_RESAMPLE_FILTER_LINEAR, at::_upsample_bilinear2d_aa_backward_outf, grad_output,
                    align_corners, scales_h, scales_w, grad_input);
}

TORCH_IMPL_FUNC(upsample_bicubic2d_aa_xpu)(const Tensor &self, IntArrayRef output_size, bool align_corners,
                                           std::optional<double> scales_h, std::optional<double> scales_w,
                                           const Tensor &out) {
    filter(XPU_RESAMPLE_FILTER_CUBIC, at::_upsample_bicubic2d_aa_outf, self, align_corners, scales_h,
           scales_w, out);
}

TORCH_IMPL_FUNC(upsample_bicubic2d_aa_backward_xpu)(const Tensor &grad_output, IntArrayRef output_size,
                                                    IntArrayRef input_size, bool align_corners,
                                                    std::optional<double> scales_h,
                                                    std::optional<double> scales_w,
                                                    const Tensor &grad_input) {
    filter_backward(XPU_RESAMPLE_FILTER_CUBIC, at::_upsample_bicubic2d_aa_backward_outf, grad_output,
                    align_corners, scales_h, scales_w, grad_input);
}

#if __has_include(<ATen/ops/_upsample_lanczos2d_aa_native.h>)
TORCH_IMPL_FUNC(upsample_lanczos2d_aa_xpu)(const Tensor &self, IntArrayRef output_size, bool align_corners,
                                           std::optional<double> scales_h, std::optional<double> scales_w,
                                           const Tensor &out) {
    filter(XPU_RESAMPLE_FILTER_LANCZOS, at::_upsample_lanczos2d_aa_outf, self, align_corners, scales_h,
           scales_w, out);
}

TORCH_IMPL_FUNC(upsample_lanczos2d_aa_backward_xpu)(const Tensor &grad_output, IntArrayRef output_size,
                                                    IntArrayRef input_size, bool align_corners,
                                                    std::optional<double> scales_h,
                                                    std::optional<double> scales_w,
                                                    const Tensor &grad_input) {
    filter_backward(XPU_RESAMPLE_FILTER_LANCZOS, at::_upsample_lanczos2d_aa_backward_outf, grad_output,
                    align_corners, scales_h, scales_w, grad_input);
}
#endif

TORCH_IMPL_FUNC(reflection_pad1d_xpu)(const Tensor &self, IntArrayRef padding, const Tensor &out) {
    pad(XPU_RESAMPLE_REFLECT, self, padding, out);
}

TORCH_IMPL_FUNC(reflection_pad1d_backward_xpu)(const Tensor &grad_output, const Tensor &self,
                                               IntArrayRef padding, const Tensor &grad_input) {
    pad_backward(XPU_RESAMPLE_REFLECT, grad_output, padding, grad_input);
}

TORCH_IMPL_FUNC(replication_pad1d_xpu)(const Tensor &self, IntArrayRef padding, const Tensor &out) {
    pad(XPU_RESAMPLE_REPLICATE, self, padding, out);
}

TORCH_IMPL_FUNC(replication_pad1d_backward_xpu)(const Tensor &grad_output, const Tensor &self,
                                                IntArrayRef padding, const Tensor &grad_input) {
    pad_backward(XPU_RESAMPLE_REPLICATE, grad_output, padding, grad_input);
}

Tensor &reflection_pad2d_out_xpu(const Tensor &self, IntArrayRef padding, Tensor &out) {
    resize_output(out, padded_sizes(self, padding));
    pad(XPU_RESAMPLE_REFLECT, self, padding, out);
    return out;
}

Tensor reflection_pad2d_xpu(const Tensor &self, IntArrayRef padding) {
    auto out = at::empty({0}, self.options());
    return reflection_pad2d_out_xpu(self, padding, out);
}

Tensor &reflection_pad2d_backward_out_xpu(const Tensor &grad_output, const Tensor &self, IntArrayRef padding,
                                          Tensor &grad_input) {
    resize_output(grad_input, self.sizes());
    pad_backward(XPU_RESAMPLE_REFLECT, grad_output, padding, grad_input);
    return grad_input;
}

Tensor reflection_pad2d_backward_xpu(const Tensor &grad_output, const Tensor &self, IntArrayRef padding) {
    auto grad_input = at::empty_like(self, MemoryFormat::Contiguous);
    return reflection_pad2d_backward_out_xpu(grad_output, self, padding, grad_input);
}

TORCH_IMPL_FUNC(replication_pad2d_xpu)(const Tensor &self, IntArrayRef padding, const Tensor &out) {
    pad(XPU_RESAMPLE_REPLICATE, self, padding, out);
}

Tensor &replication_pad2d_backward_out_xpu(const Tensor &grad_output, const Tensor &self, IntArrayRef padding,
                                           Tensor &grad_input) {
    resize_output(grad_input, self.sizes());
    pad_backward(XPU_RESAMPLE_REPLICATE, grad_output, padding, grad_input);
    return grad_input;
}

Tensor replication_pad2d_backward_xpu(const Tensor &grad_output, const Tensor &self, IntArrayRef padding) {
    auto grad_input = at::empty_like(self, MemoryFormat::Contiguous);
    return replication_pad2d_backward_out_xpu(grad_output, self, padding, grad_input);
}

TORCH_IMPL_FUNC(reflection_pad3d_xpu)(const Tensor &self, IntArrayRef padding, const Tensor &out) {
    pad(XPU_RESAMPLE_REFLECT, self, padding, out);
}

TORCH_IMPL_FUNC(reflection_pad3d_backward_xpu)(const Tensor &grad_output, const Tensor &self,
                                               IntArrayRef padding, const Tensor &grad_input) {
    pad_backward(XPU_RESAMPLE_REFLECT, grad_output, padding, grad_input);
}

TORCH_IMPL_FUNC(replication_pad3d_xpu)(const Tensor &self, IntArrayRef padding, const Tensor &out) {
    pad(XPU_RESAMPLE_REPLICATE, self, padding, out);
}

Tensor &replication_pad3d_backward_out_xpu(const Tensor &grad_output, const Tensor &self, IntArrayRef padding,
                                           Tensor &grad_input) {
    resize_output(grad_input, self.sizes());
    pad_backward(XPU_RESAMPLE_REPLICATE, grad_output, padding, grad_input);
    return grad_input;
}

Tensor replication_pad3d_backward_xpu(const Tensor &grad_output, const Tensor &self, IntArrayRef padding) {
    auto grad_input = at::empty_like(self, MemoryFormat::Contiguous);
    return replication_pad3d_backward_out_xpu(grad_output, self, padding, grad_input);
}

} // namespace at::native

// Operators composed of a few others, without kernels of their own.
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/LossMulti.h>
#include <ATen/native/Resize.h>
#include <ATen/native/im2col_shape_check.h>
#include <ATen/ops/_assert_async_native.h>
#include <ATen/ops/_chunk_cat_native.h>
#include <ATen/ops/_foreach_max_native.h>
#include <ATen/ops/_safe_softmax_native.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/_unique_native.h>
#include <ATen/ops/_weight_norm_interface_backward_native.h>
#include <ATen/ops/_weight_norm_interface_native.h>
#include <ATen/ops/addbmm_native.h>
#include <ATen/ops/addr_native.h>
#include <ATen/ops/any.h>
#include <ATen/ops/col2im_native.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/im2col_native.h>
#include <ATen/ops/isin_native.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/linalg_cross_native.h>
#include <ATen/ops/max_unpool2d_native.h>
#include <ATen/ops/max_unpool3d_native.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/multi_margin_loss_backward_native.h>
#include <ATen/ops/multi_margin_loss_native.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/norm_except_dim.h>
#include <ATen/ops/repeat_interleave_native.h>
#include <ATen/ops/rrelu_with_noise_native.h>
#include <ATen/ops/split_with_sizes_copy_native.h>
#include <ATen/ops/unfold_backward_native.h>
#include <ATen/ops/zeros.h>

#include "operands.h"
#include "xpu/fault.h"
#include "xpu/ops/search.h"

namespace at::native {

using openxpu::give;

namespace {

// --- windows of an image: [N, C, H, W] and [N, C kh kw, windows] ---

struct Windows {
    IntArrayRef kernel, dilation, padding, stride;

    int64_t count(int d, int64_t size) const {
        return (size + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1) / stride[d] + 1;
    }
    void check_lengths() const {
        const auto check = [](const char *name, IntArrayRef list) {
            TORCH_CHECK(list.size() == 2, "It is expected ", name, " equals to 2, but got size ",
                        list.size());
        };
        check("kernel_size", kernel), check("dilation", dilation);
        check("padding", padding), check("stride", stride);
    }
};

Tensor windows_of(const Tensor &self, const Windows &w) {
    w.check_lengths();
    im2col_shape_check(self, Tensor(), w.kernel[0], w.kernel[1], w.dilation[0], w.dilation[1], w.padding[0],
                       w.padding[1], w.stride[0], w.stride[1]);
    const auto input = self.dim() == 3 ? self.unsqueeze(0) : self;
    const int64_t rows = w.count(0, input.size(2)), columns = w.count(1, input.size(3));
    const auto padded =
        at::constant_pad_nd(input, {w.padding[1], w.padding[1], w.padding[0], w.padding[0]}).contiguous();
    const auto s = padded.strides();
    const auto result =
        padded
            .as_strided({padded.size(0), padded.size(1), w.kernel[0], w.kernel[1], rows, columns},
                        {s[0], s[1], w.dilation[0] * s[2], w.dilation[1] * s[3], w.stride[0] * s[2],
                         w.stride[1] * s[3]})
            .reshape({padded.size(0), padded.size(1) * w.kernel[0] * w.kernel[1], rows * columns});
    return self.dim() == 3 ? result.squeeze(0) : result;
}

// col2im: adds up all windows at their positions.
Tensor image_of(const Tensor &self, IntArrayRef size, const Windows &w) {
    w.check_lengths();
    TORCH_CHECK(size.size() == 2, "It is expected output_size equals to 2, but got size ", size.size());
    col2im_shape_check(self, Tensor(), size[0], size[1], w.kernel[0], w.kernel[1], w.dilation[0],
                       w.dilation[1], w.padding[0], w.padding[1], w.stride[0], w.stride[1]);
    const auto input = self.dim() == 2 ? self.unsqueeze(0) : self;
    const int64_t rows = w.count(0, size[0]), columns = w.count(1, size[1]);
    const int64_t channels = input.size(1) / (w.kernel[0] * w.kernel[1]);
    const auto parts = input.reshape({input.size(0), channels, w.kernel[0], w.kernel[1], rows, columns});
    // half precision is accumulated in float32
    const auto padded =
        at::zeros({input.size(0), channels, size[0] + 2 * w.padding[0], size[1] + 2 * w.padding[1]},
                  self.options().dtype(at::toOpMathType(self.scalar_type())));
    for (int64_t y = 0; y < w.kernel[0]; y++)
        for (int64_t x = 0; x < w.kernel[1]; x++) {
            const int64_t top = y * w.dilation[0], left = x * w.dilation[1];
            padded.slice(2, top, top + (rows - 1) * w.stride[0] + 1, w.stride[0])
                .slice(3, left, left + (columns - 1) * w.stride[1] + 1, w.stride[1])
                .add_(parts.select(2, y).select(2, x));
        }
    const auto result = padded.narrow(2, w.padding[0], size[0])
                            .narrow(3, w.padding[1], size[1])
                            .to(self.scalar_type())
                            .contiguous();
    return self.dim() == 2 ? result.squeeze(0) : result;
}

// --- the inverse of max pooling: each element to where it came from, 0 elsewhere ---

Tensor unpool(const Tensor &self, const Tensor &indices, IntArrayRef output_size, int dims) {
    TORCH_CHECK(indices.scalar_type() == kLong,
                "elements in indices should be type int64 but got: ", indices.scalar_type());
    TORCH_CHECK(output_size.size() == static_cast<size_t>(dims), "There should be exactly ", dims,
                " elements in output_size, but got ", output_size.size(), " elements.");
    TORCH_CHECK(self.dim() == dims + 1 || self.dim() == dims + 2, "Input to max_unpooling", dims,
                "d should be a ", dims + 1, "d or ", dims + 2, "d Tensor, but got a tensor with ", self.dim(),
                " dimensions");
    TORCH_CHECK(self.sizes() == indices.sizes(),
                "Expected shape of indices to be same as that of the input tensor (", self.sizes(),
                ") but got indices tensor with shape: ", indices.sizes());
    for (int64_t d = 1; d < self.dim(); d++)
        TORCH_CHECK(
            self.size(d) > 0, "max_unpooling", dims,
            "d_forward_out(): Expected input to have non-zero size for non-batch dimensions, but got ",
            self.sizes(), " with dimension ", d, " being empty.");
    DimVector sizes(self.sizes().slice(0, self.dim() - dims));
    sizes.append(output_size.begin(), output_size.end());
    const auto result = at::zeros(sizes, self.options());
    result.flatten(-dims).scatter_(-1, indices.flatten(-dims), self.flatten(-dims));
    return dims == 2 ? result.contiguous(self.suggest_memory_format()) : result;
}

} // namespace

// --- isin with one number ---

TORCH_IMPL_FUNC(isin_scalar_tensor_xpu)(const Scalar &element, const Tensor &test_elements,
                                        bool assume_unique, bool invert, const Tensor &out) {
    const auto found = at::any(at::eq(test_elements, element));
    auto result = out; // the shape function leaves its shape to us
    give(invert ? found.logical_not() : found, result);
}

TORCH_IMPL_FUNC(isin_tensor_scalar_xpu)(const Tensor &elements, const Scalar &test_element,
                                        bool assume_unique, bool invert, const Tensor &out) {
    auto result = out;
    if (invert)
        at::ne_out(result, elements, test_element);
    else
        at::eq_out(result, elements, test_element);
}

TORCH_IMPL_FUNC(linalg_cross_xpu)(const Tensor &input, const Tensor &other, int64_t dim, const Tensor &out) {
    const auto a = input.expand(out.sizes()), b = other.expand(out.sizes());
    out.copy_(a.roll(-1, dim).mul_(b.roll(-2, dim)).sub_(a.roll(-2, dim).mul_(b.roll(-1, dim))));
}

Tensor repeat_interleave_xpu(const Tensor &repeats, std::optional<int64_t> output_size) {
    TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
    TORCH_CHECK(repeats.scalar_type() == kLong || repeats.scalar_type() == kInt,
                "repeats has to be Long or Int tensor");
    if (repeats.size(0) == 0) return at::empty_like(repeats);
    const auto ends = repeats.cumsum(0);
    if (!output_size) {
        TORCH_CHECK((repeats >= 0).all().item<bool>(), "repeats can not be negative");
        output_size = ends[-1].item<int64_t>();
    }
    TORCH_CHECK(*output_size >= 0, "repeat_interleave: output_size can't be negative, but is ", *output_size);
    const auto places = at::empty({*output_size}, repeats.options());
    openxpu::check(xpu_repeat(openxpu::current_stream(repeats), ends.const_data_ptr<int64_t>(),
                              repeats.size(0), *output_size, openxpu::dtype_of(places),
                              places.mutable_data_ptr()));
    return places;
}

Tensor unfold_backward_xpu(const Tensor &grad, IntArrayRef input_sizes, int64_t dim, int64_t size,
                           int64_t step) {
    const auto type = grad.scalar_type();
    dim = at::maybe_wrap_dim(dim, static_cast<int64_t>(input_sizes.size()));
    const bool apart = step >= size; // windows don't overlap; else half precision is accumulated in float32
    const auto result = at::zeros(input_sizes, grad.options().dtype(apart ? type : at::toOpMathType(type)));
    if (grad.numel() == 0) return result.to(type);
    if (input_sizes.empty()) return result.add_(grad.sum()).to(type);
    if (apart) {
        result.unfold(dim, size, step).copy_(grad);
        return result;
    }
    const auto last = (grad.size(dim) - 1) * step;
    for (int64_t i = 0; i < size; i++) result.slice(dim, i, i + last + 1, step).add_(grad.select(-1, i));
    return result.to(type);
}

Tensor im2col_xpu(const Tensor &self, IntArrayRef kernel, IntArrayRef dilation, IntArrayRef padding,
                  IntArrayRef stride) {
    return windows_of(self, {kernel, dilation, padding, stride});
}
Tensor &im2col_out_xpu(const Tensor &self, IntArrayRef kernel, IntArrayRef dilation, IntArrayRef padding,
                       IntArrayRef stride, Tensor &out) {
    return give(windows_of(self, {kernel, dilation, padding, stride}), out);
}

Tensor col2im_xpu(const Tensor &self, IntArrayRef size, IntArrayRef kernel, IntArrayRef dilation,
                  IntArrayRef padding, IntArrayRef stride) {
    return image_of(self, size, {kernel, dilation, padding, stride});
}
Tensor &col2im_out_xpu(const Tensor &self, IntArrayRef size, IntArrayRef kernel, IntArrayRef dilation,
                       IntArrayRef padding, IntArrayRef stride, Tensor &out) {
    return give(image_of(self, size, {kernel, dilation, padding, stride}), out);
}

Tensor max_unpool2d_xpu(const Tensor &self, const Tensor &indices, IntArrayRef output_size) {
    return unpool(self, indices, output_size, 2);
}
Tensor &max_unpool2d_out_xpu(const Tensor &self, const Tensor &indices, IntArrayRef output_size,
                             Tensor &out) {
    return give(unpool(self, indices, output_size, 2), out);
}
Tensor max_unpool3d_xpu(const Tensor &self, const Tensor &indices, IntArrayRef output_size,
                        IntArrayRef stride, IntArrayRef padding) {
    TORCH_CHECK(stride.size() == 3 && padding.size() == 3,
                "There should be exactly 3 elements (depth, height, width) in stride and padding");
    return unpool(self, indices, output_size, 3);
}
Tensor &max_unpool3d_out_xpu(const Tensor &self, const Tensor &indices, IntArrayRef output_size,
                             IntArrayRef stride, IntArrayRef padding, Tensor &out) {
    return give(max_unpool3d_xpu(self, indices, output_size, stride, padding), out);
}

// --- leaky_relu with random slopes ---

Tensor &rrelu_with_noise_out_xpu(const Tensor &self, Tensor &noise, const Scalar &lower, const Scalar &upper,
                                 bool training, std::optional<Generator> generator, Tensor &out) {
    TORCH_CHECK(self.sizes() == noise.sizes(),
                "noise tensor shape must match self tensor shape. Got self.shape = ", self.sizes(),
                " noise.shape = ", noise.sizes());
    if (!training) return at::leaky_relu_out(out, self, (lower.toDouble() + upper.toDouble()) / 2);
    noise.uniform_(lower.toDouble(), upper.toDouble(), generator);
    noise.masked_fill_(self.le(0).logical_not_(), 1);
    return at::mul_out(out, self, noise);
}
Tensor rrelu_with_noise_xpu(const Tensor &self, Tensor &noise, const Scalar &lower, const Scalar &upper,
                            bool training, std::optional<Generator> generator) {
    auto out = at::empty_like(self);
    return rrelu_with_noise_out_xpu(self, noise, lower, upper, training, std::move(generator), out);
}
Tensor &rrelu_with_noise_xpu_(Tensor &self, Tensor &noise, const Scalar &lower, const Scalar &upper,
                              bool training, std::optional<Generator> generator) {
    return rrelu_with_noise_out_xpu(self, noise, lower, upper, training, std::move(generator), self);
}

std::tuple<Tensor, Tensor> _unique_xpu(const Tensor &self, bool sorted, bool return_inverse) {
    const auto [values, inverse, counts] = at::_unique2(self, sorted, return_inverse, false);
    return {values, inverse};
}

// --- v scaled to the norm g along `dim` ---

namespace {

// Norms of half-precision tensors are in fp32, as PyTorch keeps them for the gradient.
Tensor wide(const Tensor &t) {
    return t.scalar_type() == kHalf || t.scalar_type() == kBFloat16 ? t.to(kFloat) : t;
}
// The sum over all dimensions but `dim`, in g's shape.
Tensor sum_except(const Tensor &t, int64_t dim) {
    DimVector others;
    for (int64_t d = 0; d < t.dim(); d++)
        if (d != dim) others.push_back(d);
    return others.empty() ? t : t.sum(others, /*keepdim=*/true);
}

} // namespace

std::tuple<Tensor, Tensor> weight_norm_xpu(const Tensor &v, const Tensor &g, int64_t dim) {
    TORCH_CHECK(v.device() == g.device(), "weight_norm: v is on ", v.device(), ", g on ", g.device());
    const auto along = at::maybe_wrap_dim(dim, v.dim());
    const auto norms = at::norm_except_dim(wide(v), 2, along);
    return {v * (g / norms).to(v.scalar_type()), norms};
}

std::tuple<Tensor, Tensor> weight_norm_backward_xpu(const Tensor &grad_w, const Tensor &saved_v,
                                                    const Tensor &saved_g, const Tensor &saved_norms,
                                                    int64_t dim) {
    const auto along = at::maybe_wrap_dim(dim, saved_v.dim());
    const auto grad = wide(grad_w), v = wide(saved_v), g = wide(saved_g), norms = wide(saved_norms);
    const auto grad_g = sum_except(grad * v, along).view(g.sizes()) / norms.view(g.sizes());
    const auto each = g / norms.view(g.sizes());
    const auto grad_v = each * grad - v * (each * grad_g / norms.view(g.sizes()));
    return {grad_v.to(saved_v.scalar_type()), grad_g.to(saved_g.scalar_type())};
}

// --- by how much another class' score comes within a margin of the right one's ---

namespace {

struct Margins {
    Tensor scores, right; // (rows, classes); (rows, 1)
    Tensor within;        // by how much; 0 for the right class
    Tensor weight;        // (rows, 1), by classes
    bool squared;
};

Margins margins_of(const Tensor &self, const Tensor &target, const Scalar &p, const Scalar &margin,
                   const std::optional<Tensor> &weight) {
    int64_t rows, classes;
    TORCH_CHECK(p.equal(1) || p.equal(2), "multi_margin_loss: Invalid p, expected 1 or 2 but got ",
                p.toDouble());
    multi_margin_loss_shape_check(rows, classes, self.dim(), self, target, weight);
    TORCH_CHECK(target.scalar_type() == kLong, "multi_margin_loss: expected scalar type Long but found ",
                target.scalar_type());
    Margins m{
        .scores = self.reshape({rows, classes}), .right = target.reshape({rows, 1}), .squared = p.equal(2)};
    m.within = (m.scores - m.scores.gather(1, m.right)).add_(margin).clamp_min_(0).scatter_(1, m.right, 0);
    if (weight.has_value() && weight->defined()) m.weight = weight->reshape({-1}).index({m.right});
    return m;
}

} // namespace

Tensor multi_margin_loss_xpu(const Tensor &self, const Tensor &target, const Scalar &p, const Scalar &margin,
                             const std::optional<Tensor> &weight, int64_t reduction) {
    const auto m = margins_of(self, target, p, margin, weight);
    auto each = (m.squared ? m.within.square() : m.within).sum(1, /*keepdim=*/true).div_(m.scores.size(1));
    if (m.weight.defined()) each.mul_(m.weight);
    if (reduction == at::Reduction::Mean) return each.mean();
    if (reduction == at::Reduction::Sum) return each.sum();
    return each.view(target.sizes());
}
Tensor &multi_margin_loss_out_xpu(const Tensor &self, const Tensor &target, const Scalar &p,
                                  const Scalar &margin, const std::optional<Tensor> &weight,
                                  int64_t reduction, Tensor &out) {
    return give(multi_margin_loss_xpu(self, target, p, margin, weight, reduction), out);
}

Tensor multi_margin_loss_backward_xpu(const Tensor &grad_output, const Tensor &self, const Tensor &target,
                                      const Scalar &p, const Scalar &margin,
                                      const std::optional<Tensor> &weight, int64_t reduction) {
    const auto m = margins_of(self, target, p, margin, weight);
    auto each = (m.squared ? m.within * 2 : m.within.sign()).div_(m.scores.size(1));
    if (m.weight.defined()) each.mul_(m.weight);
    if (reduction == at::Reduction::Mean) each.div_(m.scores.size(0));
    each.mul_(reduction == at::Reduction::None ? grad_output.reshape({-1, 1}) : grad_output);
    return each.scatter_(1, m.right, each.sum(1, /*keepdim=*/true).neg_()).view(self.sizes());
}
Tensor &multi_margin_loss_backward_out_xpu(const Tensor &grad_output, const Tensor &self,
                                           const Tensor &target, const Scalar &p, const Scalar &margin,
                                           const std::optional<Tensor> &weight, int64_t reduction,
                                           Tensor &grad_input) {
    return give(multi_margin_loss_backward_xpu(grad_output, self, target, p, margin, weight, reduction),
                grad_input);
}

void assert_async_msg_xpu(const Tensor &self, std::string_view message) {
    const auto count = self.numel();
    TORCH_CHECK(count != 0, "Boolean value of Tensor with no values is ambiguous");
    TORCH_CHECK(count < 2, "Boolean value of Tensor with more than one value is ambiguous");
    const Tensor flag = self.scalar_type() == kBool ? self : self.ne(0);
    openxpu::check(xpu_assert(openxpu::current_stream(self), flag.const_data_ptr(),
                              openxpu::lasting(message.empty() ? "Assertion is failed" : message)));
}
void assert_async_xpu(const Tensor &self) { assert_async_msg_xpu(self, ""); }

} // namespace at::native

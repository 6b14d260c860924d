// torchvision's operators (non-maximum suppression, RoI pooling, deformable convolution), which the package
// implements for CPU and CUDA only. Arguments and error texts are torchvision's. Work runs on the current
// stream.
#include <ATen/Context.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include "lower.h"
#include "xpu/ops/deform.h"
#include "xpu/ops/nms.h"
#include "xpu/ops/roi.h"

namespace {

using namespace openxpu;
using at::Tensor;
using openxpu::check;

void check_alike(const char *name, at::ArrayRef<at::TensorArg> tensors) {
    at::checkAllSameGPU(name, tensors);
    at::checkAllSameType(name, tensors);
}

// --- boxes ---

Tensor nms(const Tensor &dets, const Tensor &scores, double iou_threshold) {
    TORCH_CHECK(dets.dim() == 2, "boxes should be a 2d tensor, got ", dets.dim(), "D");
    TORCH_CHECK(dets.size(1) == 4, "boxes should have 4 elements in dimension 1, got ", dets.size(1));
    TORCH_CHECK(scores.dim() == 1, "scores should be a 1d tensor, got ", scores.dim(), "D");
    TORCH_CHECK(dets.size(0) == scores.size(0),
                "boxes and scores should have same number of elements in dimension 0, got ", dets.size(0),
                " and ", scores.size(0));
    at::checkAllSameGPU("nms", {{dets, "dets", 1}, {scores, "scores", 2}});
    const auto order = std::get<1>(scores.sort(/*stable=*/true, /*dim=*/0, /*descending=*/true));
    const auto boxes = dets.index_select(0, order).contiguous();
    const auto keep = at::empty({dets.size(0)}, dets.options().dtype(at::kBool));
    check(xpu_nms(current_stream(dets), dets.size(0), dtype_of(dets), boxes.const_data_ptr(), iou_threshold,
                  static_cast<uint8_t *>(keep.mutable_data_ptr())));
    return order.masked_select(keep);
}

// --- regions ---

struct Bins {
    double scale;
    int64_t rows, columns, samples;
    bool aligned;
};

bool reads_by_position(xpu_roi_kind kind) { return kind == XPU_ROI_PS_ALIGN || kind == XPU_ROI_PS_POOL; }

xpu_roi describe(xpu_roi_kind kind, const Tensor &rois, at::ScalarType type, at::IntArrayRef image,
                 const Bins &bins) {
    TORCH_CHECK(image.size() == 4, "input should have 4 dimensions, got ", image.size());
    TORCH_CHECK(rois.dim() == 2 && rois.size(1) == 5, "rois must have shape as Tensor[K, 5]");
    TORCH_CHECK(bins.rows > 0 && bins.columns > 0, "pooled height and width should be positive, got ",
                bins.rows, " and ", bins.columns);
    TORCH_CHECK(!reads_by_position(kind) || image[1] % (bins.rows * bins.columns) == 0,
                "input channels must be a multiple of pooling height * pooling width");
    return {.images = image[0],
            .regions = rois.size(0),
            .channels = static_cast<int>(image[1]),
            .height = static_cast<int>(image[2]),
            .width = static_cast<int>(image[3]),
            .rows = static_cast<int>(bins.rows),
            .columns = static_cast<int>(bins.columns),
            .samples = static_cast<int>(std::max<int64_t>(bins.samples, 0)),
            .scale = bins.scale,
            .aligned = bins.aligned,
            .dtype = dtype_of(type),
            .kind = kind};
}

void check_fault(const xpu_fault &fault) {
    TORCH_CHECK_INDEX(!fault.state, "rois: image index ", fault.index, " is out of range for a batch of ",
                      fault.extent);
}

std::tuple<Tensor, Tensor> regions_of(const char *name, xpu_roi_kind kind, const Tensor &input,
                                      const Tensor &rois, const Bins &bins, bool with_places) {
    check_alike(name, {{input, "input", 1}, {rois, "rois", 2}});
    const auto args = describe(kind, rois, input.scalar_type(), input.sizes(), bins);
    const auto image = input.contiguous(), regions = rois.contiguous();
    const int64_t planes =
        reads_by_position(kind) ? input.size(1) / (bins.rows * bins.columns) : input.size(1);
    const auto output = at::empty({rois.size(0), planes, bins.rows, bins.columns}, input.options());
    const auto places = with_places ? at::empty(output.sizes(), input.options().dtype(at::kInt)) : Tensor();
    xpu_fault fault = {};
    check(xpu_roi_forward(current_stream(input), &args, image.const_data_ptr(), regions.const_data_ptr(),
                          output.mutable_data_ptr(), with_places ? places.mutable_data_ptr<int>() : nullptr,
                          &fault));
    check_fault(fault);
    return {output, places};
}

Tensor regions_gradient(const char *name, xpu_roi_kind kind, const Tensor &grad, const Tensor &rois,
                        const Tensor &places, const Bins &bins, at::IntArrayRef image) {
    check_alike(name, {{grad, "grad", 1}, {rois, "rois", 2}});
    at::globalContext().alertNotDeterministic(name); // regions are summed in no fixed order
    const auto args = describe(kind, rois, grad.scalar_type(), image, bins);
    const auto gradient = grad.contiguous(), regions = rois.contiguous();
    const auto at = places.defined() ? places.contiguous() : places;
    const auto sum_type = at::toOpMathType(grad.scalar_type());
    const auto sums = at::zeros(image, grad.options().dtype(sum_type));
    xpu_fault fault = {};
    check(xpu_roi_backward(current_stream(grad), &args, gradient.const_data_ptr(), regions.const_data_ptr(),
                           at.defined() ? at.const_data_ptr<int>() : nullptr, sums.mutable_data_ptr(),
                           &fault));
    check_fault(fault);
    return sums.to(grad.scalar_type());
}

Tensor roi_align(const Tensor &input, const Tensor &rois, double spatial_scale, int64_t pooled_height,
                 int64_t pooled_width, int64_t sampling_ratio, bool aligned) {
    const Bins bins{spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned};
    return std::get<0>(regions_of("roi_align_forward_kernel", XPU_ROI_ALIGN, input, rois, bins, false));
}
Tensor roi_align_backward(const Tensor &grad, const Tensor &rois, double spatial_scale, int64_t pooled_height,
                          int64_t pooled_width, int64_t batch_size, int64_t channels, int64_t height,
                          int64_t width, int64_t sampling_ratio, bool aligned) {
    const Bins bins{spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned};
    return regions_gradient("roi_align_backward_kernel", XPU_ROI_ALIGN, grad, rois, {}, bins,
                            {batch_size, channels, height, width});
}

std::tuple<Tensor, Tensor> roi_pool(const Tensor &input, const Tensor &rois, double spatial_scale,
                                    int64_t pooled_height, int64_t pooled_width) {
    const Bins bins{spatial_scale, pooled_height, pooled_width, 0, false};
    return regions_of("roi_pool_forward_kernel", XPU_ROI_POOL, input, rois, bins, true);
}
Tensor roi_pool_backward(const Tensor &grad, const Tensor &rois, const Tensor &argmax, double spatial_scale,
                         int64_t pooled_height, int64_t pooled_width, int64_t batch_size, int64_t channels,
                         int64_t height, int64_t width) {
    TORCH_CHECK(argmax.scalar_type() == at::kInt && argmax.sizes() == grad.sizes(),
                "argmax should be an int tensor of the size of grad");
    at::checkSameGPU("roi_pool_backward_kernel", {grad, "grad", 1}, {argmax, "argmax", 3});
    const Bins bins{spatial_scale, pooled_height, pooled_width, 0, false};
    return regions_gradient("roi_pool_backward_kernel", XPU_ROI_POOL, grad, rois, argmax, bins,
                            {batch_size, channels, height, width});
}

std::tuple<Tensor, Tensor> ps_roi_align(const Tensor &input, const Tensor &rois, double spatial_scale,
                                        int64_t pooled_height, int64_t pooled_width, int64_t sampling_ratio) {
    const Bins bins{spatial_scale, pooled_height, pooled_width, sampling_ratio, false};
    return regions_of("ps_roi_align_forward_kernel", XPU_ROI_PS_ALIGN, input, rois, bins, true);
}
Tensor ps_roi_align_backward(const Tensor &grad, const Tensor &rois, const Tensor &channel_mapping,
                             double spatial_scale, int64_t pooled_height, int64_t pooled_width,
                             int64_t sampling_ratio, int64_t batch_size, int64_t channels, int64_t height,
                             int64_t width) {
    const Bins bins{spatial_scale, pooled_height, pooled_width, sampling_ratio, false};
    return regions_gradient("ps_roi_align_backward_kernel", XPU_ROI_PS_ALIGN, grad, rois, {}, bins,
                            {batch_size, channels, height, width});
}

std::tuple<Tensor, Tensor> ps_roi_pool(const Tensor &input, const Tensor &rois, double spatial_scale,
                                       int64_t pooled_height, int64_t pooled_width) {
    const Bins bins{spatial_scale, pooled_height, pooled_width, 0, false};
    return regions_of("ps_roi_pool_forward_kernel", XPU_ROI_PS_POOL, input, rois, bins, true);
}
Tensor ps_roi_pool_backward(const Tensor &grad, const Tensor &rois, const Tensor &channel_mapping,
                            double spatial_scale, int64_t pooled_height, int64_t pooled_width,
                            int64_t batch_size, int64_t channels, int64_t height, int64_t width) {
    const Bins bins{spatial_scale, pooled_height, pooled_width, 0, false};
    return regions_gradient("ps_roi_pool_backward_kernel", XPU_ROI_PS_POOL, grad, rois, {}, bins,
                            {batch_size, channels, height, width});
}

// --- deformable convolution ---

constexpr int64_t MOST_COLUMNS = 1 << 26; // limit on im2col elements per launch, over several images

struct Deformed {
    xpu_deform args;                               // for all images
    int64_t filters, groups, taps, places, images; // `images`: images per launch
    Tensor input, offset, mask,
        weight; // contiguous; weight [1, groups, filters / group, channels / group * taps]

    Tensor columns(int64_t images_now) const {
        return at::empty({images_now, groups, args.channels / groups * taps, places}, input.options());
    }
    xpu_deform some(int64_t images_now) const {
        auto few = args;
        few.batch = images_now;
        return few;
    }
    static const void *read(const Tensor &tensor, int64_t image) {
        if (!tensor.defined()) return nullptr;
        return static_cast<const char *>(tensor.const_data_ptr()) +
               image * tensor.stride(0) * tensor.itemsize();
    }
    static void *write(const Tensor &tensor, int64_t image) {
        if (!tensor.defined()) return nullptr;
        return static_cast<char *>(tensor.mutable_data_ptr()) + image * tensor.stride(0) * tensor.itemsize();
    }
};

Deformed deformed(const Tensor &input, const Tensor &weight, const Tensor &offset, const Tensor &mask,
                  std::array<int64_t, 2> stride, std::array<int64_t, 2> padding,
                  std::array<int64_t, 2> dilation, int64_t groups, int64_t offset_groups, bool use_mask) {
    check_alike("deform_conv2d", {{input, "input", 1}, {weight, "weight", 2}, {offset, "offset", 3}});
    TORCH_CHECK(input.dim() == 4 && offset.dim() == 4 && weight.dim() == 4,
                "deform_conv2d: input, offset and weight should have 4 dimensions, got ", input.dim(), ", ",
                offset.dim(), " and ", weight.dim());
    TORCH_CHECK(!use_mask || mask.dim() == 4, "deform_conv2d: mask should have 4 dimensions, got ",
                mask.dim());
    Deformed d = {};
    d.args.batch = input.size(0);
    d.args.dtype = dtype_of(input);
    d.args.channels = static_cast<int>(input.size(1));
    d.args.groups = static_cast<int>(offset_groups);
    for (int i = 0; i < 2; i++) {
        TORCH_CHECK(weight.size(2 + i) > 0, "weight_h: ", weight.size(2), " weight_w: ", weight.size(3));
        TORCH_CHECK(stride[i] > 0, "stride_h: ", stride[0], " stride_w: ", stride[1]);
        TORCH_CHECK(padding[i] >= 0, "pad_h: ", padding[0], " pad_w: ", padding[1]);
        TORCH_CHECK(dilation[i] > 0, "dil_h: ", dilation[0], " dil_w: ", dilation[1]);
        const auto reach = dilation[i] * (weight.size(2 + i) - 1) + 1;
        const auto out = (input.size(2 + i) + 2 * padding[i] - reach) / stride[i] + 1;
        d.args.in[i] = static_cast<int>(input.size(2 + i));
        d.args.kernel[i] = static_cast<int>(weight.size(2 + i));
        d.args.stride[i] = static_cast<int>(stride[i]);
        d.args.padding[i] = static_cast<int>(padding[i]);
        d.args.dilation[i] = static_cast<int>(dilation[i]);
        d.args.out[i] = static_cast<int>(out);
        TORCH_CHECK(input.size(2 + i) + 2 * padding[i] >= reach && out > 0,
                    "Calculated output size too small - out_h or out_w: ", out);
    }
    TORCH_CHECK(groups > 0 && offset_groups > 0, "deform_conv2d: ", groups, " groups and ", offset_groups,
                " offset groups; both must be positive");
    TORCH_CHECK(weight.size(1) * groups == input.size(1), "deform_conv2d: weight of ", weight.size(1),
                " channels in ", groups, " groups doesn't match input channels ", input.size(1));
    TORCH_CHECK(weight.size(0) % groups == 0, "deform_conv2d: ", weight.size(0),
                " filters are not divisible by ", groups, " groups");
    TORCH_CHECK(input.size(1) % offset_groups == 0, "deform_conv2d: ", input.size(1), " channels in ",
                offset_groups, " offset groups");
    d.groups = groups;
    d.filters = weight.size(0);
    d.taps = weight.size(2) * weight.size(3);
    d.places = int64_t{d.args.out[0]} * d.args.out[1];
    const auto fits = [&](const char *name, const Tensor &tensor, int64_t channels) {
        TORCH_CHECK(tensor.size(0) == input.size(0), "invalid batch size of ", name, ": ", tensor.size(0),
                    ", expected ", input.size(0));
        TORCH_CHECK(tensor.size(1) == channels, name, ".shape[1] is not valid: got: ", tensor.size(1),
                    " expected: ", channels);
        TORCH_CHECK(tensor.size(2) == d.args.out[0] && tensor.size(3) == d.args.out[1], name,
                    " output dims: (", tensor.size(2), ", ", tensor.size(3), ") - computed output dims: (",
                    d.args.out[0], ", ", d.args.out[1], ")");
    };
    fits("offset", offset, offset_groups * 2 * d.taps);
    if (use_mask) {
        check_alike("deform_conv2d", {{input, "input", 1}, {mask, "mask", 4}});
        fits("mask", mask, offset_groups * d.taps);
        d.mask = mask.contiguous();
    }
    d.input = input.contiguous();
    d.offset = offset.contiguous();
    d.weight = weight.contiguous().view({1, groups, d.filters / groups, weight.size(1) * d.taps});
    const auto each = std::max<int64_t>(input.size(1) * d.taps * d.places, 1);
    d.images = std::clamp<int64_t>(MOST_COLUMNS / each, 1, std::max<int64_t>(d.args.batch, 1));
    return d;
}

Tensor deform_conv2d(const Tensor &input, const Tensor &weight, const Tensor &offset, const Tensor &mask,
                     const Tensor &bias, int64_t stride_h, int64_t stride_w, int64_t pad_h, int64_t pad_w,
                     int64_t dilation_h, int64_t dilation_w, int64_t groups, int64_t offset_groups,
                     bool use_mask) {
    const auto d = deformed(input, weight, offset, mask, {stride_h, stride_w}, {pad_h, pad_w},
                            {dilation_h, dilation_w}, groups, offset_groups, use_mask);
    auto output = at::empty({d.args.batch, groups, d.filters / groups, d.places}, input.options());
    for (int64_t first = 0; first < d.args.batch; first += d.images) {
        const auto many = std::min(d.images, d.args.batch - first);
        const auto args = d.some(many);
        const auto columns = d.columns(many);
        check(xpu_deform_columns(current_stream(input), &args, Deformed::read(d.input, first),
                                 Deformed::read(d.offset, first), Deformed::read(d.mask, first),
                                 columns.mutable_data_ptr()));
        auto part = output.narrow(0, first, many);
        at::matmul_out(part, d.weight, columns);
    }
    output = output.view({d.args.batch, d.filters, d.args.out[0], d.args.out[1]});
    return bias.numel() ? output.add_(bias.view({1, -1, 1, 1})) : output;
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>
deform_conv2d_backward(const Tensor &grad, const Tensor &input, const Tensor &weight, const Tensor &offset,
                       const Tensor &mask, const Tensor &bias, int64_t stride_h, int64_t stride_w,
                       int64_t pad_h, int64_t pad_w, int64_t dilation_h, int64_t dilation_w, int64_t groups,
                       int64_t offset_groups, bool use_mask) {
    at::globalContext().alertNotDeterministic(
        "deform_conv2d_backward"); // gradients of the image are summed in no fixed order
    const auto d = deformed(input, weight, offset, mask, {stride_h, stride_w}, {pad_h, pad_w},
                            {dilation_h, dilation_w}, groups, offset_groups, use_mask);
    const auto sum_type = at::toOpMathType(input.scalar_type());
    const auto grad_input = at::zeros(input.sizes(), input.options().dtype(sum_type));
    const auto grad_offset = at::empty(offset.sizes(), offset.options());
    const auto grad_mask = use_mask ? at::empty(mask.sizes(), mask.options()) : at::zeros_like(mask);
    const auto grad_weight = at::zeros(d.weight.sizes(), weight.options().dtype(sum_type));
    const auto gradient = grad.contiguous().view({d.args.batch, groups, d.filters / groups, d.places});
    const auto turned = d.weight.transpose(-1, -2);
    for (int64_t first = 0; first < d.args.batch; first += d.images) {
        const auto many = std::min(d.images, d.args.batch - first);
        const auto args = d.some(many);
        const auto stream = current_stream(input);
        const auto some = gradient.narrow(0, first, many);
        const auto grad_columns = at::matmul(turned, some).contiguous();
        const auto *image = Deformed::read(d.input, first), *moved = Deformed::read(d.offset, first),
                   *factors = Deformed::read(d.mask, first);
        check(xpu_deform_backward(stream, &args, grad_columns.const_data_ptr(), image, moved, factors,
                                  Deformed::write(grad_input, first), Deformed::write(grad_offset, first),
                                  use_mask ? Deformed::write(grad_mask, first) : nullptr));
        const auto columns = d.columns(many);
        check(xpu_deform_columns(stream, &args, image, moved, factors, columns.mutable_data_ptr()));
        grad_weight.add_(at::matmul(some, columns.transpose(-1, -2)).sum({0}, /*keepdim=*/true, sum_type));
    }
    return {grad_input.to(input.scalar_type()), grad_weight.view(weight.sizes()).to(weight.scalar_type()),
            grad_offset, grad_mask, bias.numel() ? grad.sum({0, 2, 3}) : at::zeros_like(bias)};
}

} // namespace

TORCH_LIBRARY_IMPL(torchvision, XPU, m) {
    m.impl("nms", nms);
    m.impl("roi_align", roi_align);
    m.impl("_roi_align_backward", roi_align_backward);
    m.impl("roi_pool", roi_pool);
    m.impl("_roi_pool_backward", roi_pool_backward);
    m.impl("ps_roi_align", ps_roi_align);
    m.impl("_ps_roi_align_backward", ps_roi_align_backward);
    m.impl("ps_roi_pool", ps_roi_pool);
    m.impl("_ps_roi_pool_backward", ps_roi_pool_backward);
    m.impl("deform_conv2d", deform_conv2d);
    m.impl("_deform_conv2d_backward", deform_conv2d_backward);
}

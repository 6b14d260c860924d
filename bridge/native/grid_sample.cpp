// grid_sampler, forward and backward.
#include "xpu/ops/grid_sample.h"

#include <ATen/Context.h>
#include <ATen/OpMathType.h>
#include <ATen/native/GridSamplerUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/grid_sampler_2d_backward_native.h>
#include <ATen/ops/grid_sampler_2d_native.h>
#include <ATen/ops/grid_sampler_3d_backward_native.h>
#include <ATen/ops/grid_sampler_3d_native.h>
#include <ATen/ops/zeros.h>

#include "lower.h"

namespace at::native {

using namespace openxpu;
using openxpu::check;

namespace {

xpu_grid_sample describe(const Tensor &input, const Tensor &grid, int64_t mode, int64_t padding,
                         bool align_corners) {
    check_grid_sampler_common(input, grid);
    TORCH_CHECK(mode >= 0 && mode <= 2 && padding >= 0 && padding <= 2,
                "grid_sampler: expected an interpolation mode and a padding mode from 0 to 2, but got ", mode,
                " and ", padding);
    const int dims = static_cast<int>(input.dim()) - 2;
    if (dims == 2)
        check_grid_sampler_2d(input, grid);
    else
        check_grid_sampler_3d(input, grid, mode);
    xpu_grid_sample args = {
        .batch = input.size(0), .channels = input.size(1), .in = {1, 1, 1}, .out = {1, 1, 1}};
    for (int d = 0; d < dims; d++) {
        args.in[3 - dims + d] = static_cast<int>(input.size(2 + d));
        args.out[3 - dims + d] = static_cast<int>(grid.size(1 + d));
    }
    args.dims = dims;
    args.dtype = dtype_of(input);
    args.mode = static_cast<xpu_grid_mode>(mode);
    args.padding = static_cast<xpu_grid_padding>(padding);
    args.align_corners = align_corners;
    return args;
}

Tensor sample_forward(const Tensor &input, const Tensor &grid, int64_t mode, int64_t padding,
                      bool align_corners) {
    const auto args = describe(input, grid, mode, padding, align_corners);
    const auto image = input.contiguous(), places = grid.contiguous();
    DimVector sizes = {input.size(0), input.size(1)};
    sizes.append(grid.sizes().begin() + 1, grid.sizes().end() - 1);
    const auto output = at::empty(sizes, input.options());
    check(xpu_grid_sample_forward(current_stream(input), &args, image.const_data_ptr(),
                                  places.const_data_ptr(), output.mutable_data_ptr()));
    return output;
}

std::tuple<Tensor, Tensor> sample_backward(const Tensor &grad_output, const Tensor &input, const Tensor &grid,
                                           int64_t mode, int64_t padding, bool align_corners,
                                           std::array<bool, 2> output_mask) {
    if (output_mask[0]) // the image's gradients are summed in any order
        globalContext().alertNotDeterministic(input.dim() == 4 ? "grid_sampler_2d_backward_xpu"
                                                               : "grid_sampler_3d_backward_xpu");
    const auto args = describe(input, grid, mode, padding, align_corners);
    DimVector sizes = {input.size(0), input.size(1)};
    sizes.append(grid.sizes().begin() + 1, grid.sizes().end() - 1);
    TORCH_CHECK(grad_output.sizes() == IntArrayRef(sizes),
                "grid_sampler_backward: expected grad_output of shape ", IntArrayRef(sizes), ", but got ",
                grad_output.sizes());
    const auto gradient = grad_output.contiguous(), image = input.contiguous(), places = grid.contiguous();
    const auto sum_type = toOpMathType(input.scalar_type());
    const auto grad_input =
        output_mask[0] ? at::zeros(input.sizes(), input.options().dtype(sum_type)) : Tensor();
    const auto grad_grid = at::empty_like(grid, MemoryFormat::Contiguous);
    check(xpu_grid_sample_backward(current_stream(input), &args, gradient.const_data_ptr(),
                                   image.const_data_ptr(), places.const_data_ptr(),
                                   grad_input.defined() ? grad_input.mutable_data_ptr() : nullptr,
                                   grad_grid.mutable_data_ptr()));
    return {grad_input.defined() ? grad_input.to(input.scalar_type()) : grad_input, grad_grid};
}

} // namespace

Tensor grid_sampler_2d_xpu(const Tensor &input, const Tensor &grid, int64_t mode, int64_t padding,
                           bool align_corners) {
    return sample_forward(input, grid, mode, padding, align_corners);
}
Tensor grid_sampler_3d_xpu(const Tensor &input, const Tensor &grid, int64_t mode, int64_t padding,
                           bool align_corners) {
    return sample_forward(input, grid, mode, padding, align_corners);
}
std::tuple<Tensor, Tensor> grid_sampler_2d_backward_xpu(const Tensor &grad_output, const Tensor &input,
                                                        const Tensor &grid, int64_t mode, int64_t padding,
                                                        bool align_corners, std::array<bool, 2> output_mask) {
    return sample_backward(grad_output, input, grid, mode, padding, align_corners, output_mask);
}
std::tuple<Tensor, Tensor> grid_sampler_3d_backward_xpu(const Tensor &grad_output, const Tensor &input,
                                                        const Tensor &grid, int64_t mode, int64_t padding,
                                                        bool align_corners, std::array<bool, 2> output_mask) {
    return sample_backward(grad_output, input, grid, mode, padding, align_corners, output_mask);
}

} // namespace at::native

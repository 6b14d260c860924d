// _grouped_mm: one launch that reads the group sizes on the device.
#include "grouped.h"

#include <ATen/ops/_grouped_mm_native.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty_strided.h>

#include "../host_gemm.h"
#include "../operands.h"

namespace openxpu {

using at::Tensor;

Groups::Groups(const Tensor &left, const Tensor &right, const Tensor &ends) : a(left), b(right), offs(ends) {
    const bool flat_a = a.dim() == 2, flat_b = b.dim() == 2;
    TORCH_CHECK(offs.dim() == 1, "offs has to be 1D, but got offs.dim()=", offs.dim());
    TORCH_CHECK(offs.scalar_type() == at::kInt, "Offsets have to be int32, but got ", offs.scalar_type());
    TORCH_CHECK(offs.device() == a.device() && b.device() == a.device(),
                "Expected all tensors to be on the same device, but found ", a.device(), ", ", b.device(),
                " and ", offs.device());
    TORCH_CHECK((flat_a && flat_b) || (flat_a ? b : a).size(0) == offs.size(0),
                "matrix batch sizes have to match: offs has ", offs.size(0), " groups, the operand ",
                flat_a ? b.sizes() : a.sizes());
    TORCH_CHECK(a.size(-1) == b.size(-2), "contraction dimension of mat_a and mat_b must match, got ",
                a.sizes(), " and ", b.sizes());
    offs = offs.contiguous();
    grouped = flat_a && flat_b ? XPU_GROUPED_K : flat_a ? XPU_GROUPED_ROWS : XPU_GROUPED_COLUMNS;
    count = offs.size(0), m = a.size(-2), n = b.size(-1), k = a.size(-1);
}

Tensor grouped_result(const Tensor &like, at::IntArrayRef size, c10::ScalarType dtype) {
    const int64_t step = 16 / static_cast<int64_t>(c10::elementSize(dtype));
    const int64_t row = (size.back() + step - 1) / step * step;
    const auto options = like.options().dtype(dtype);
    if (size.size() == 3) return at::empty_strided(size, {size[1] * row, row, 1}, options);
    return at::empty_strided(size, {row, 1}, options);
}

Tensor Groups::empty_result(c10::ScalarType dtype) const {
    if (grouped == XPU_GROUPED_K) return grouped_result(a, {count, m, n}, dtype);
    return grouped_result(a, {m, n}, dtype);
}

xpu_gemm_args Groups::args_for(const Tensor &out) const {
    const auto matrix = [](const Tensor &t, void *data) {
        return xpu_matrix{data, t.dim() == 3 ? t.stride(0) : 0, t.stride(-2), t.stride(-1)};
    };
    return {.dtype = dtype_of(out),
            .batch = count,
            .m = m,
            .n = n,
            .k = k,
            .a = matrix(a, input_data(a)),
            .b = matrix(b, input_data(b)),
            .out = matrix(out, out.mutable_data_ptr()),
            .alpha = scalar_of(int64_t{1}),
            .beta = scalar_of(int64_t{0})};
}

} // namespace openxpu

namespace at::native {

Tensor grouped_mm_xpu(const Tensor &self, const Tensor &mat2, const std::optional<Tensor> &offs,
                      const std::optional<Tensor> &bias, std::optional<ScalarType> out_dtype) {
    for (const auto *x : {&self, &mat2}) {
        const char *name = x == &self ? "mat_a" : "mat_b";
        const auto type = x->scalar_type();
        TORCH_CHECK(type == kBFloat16 || type == kFloat || type == kHalf, "Expected ", name,
                    " to be Float32, BFloat16 or Float16 matrix, got ", type);
        TORCH_CHECK(x->dim() == 2 || x->dim() == 3, name, " has to be 2 or 3d, got ", x->sizes());
    }
    TORCH_CHECK(self.scalar_type() == mat2.scalar_type(), "expected mat_a and mat_b to have one dtype, got ",
                self.scalar_type(), " and ", mat2.scalar_type());
    const bool is_batch = self.dim() == 3 && mat2.dim() == 3;
    TORCH_CHECK(offs.has_value() != is_batch,
                "Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d");
    TORCH_CHECK(!bias, "Bias not supported yet");
    const auto dtype = out_dtype.value_or(self.scalar_type());
    TORCH_CHECK(dtype == self.scalar_type(), "Grouped gemm output dtype must match `mat_a` dtype");
    if (is_batch) {
        Tensor out = openxpu::grouped_result(self, {self.size(0), self.size(1), mat2.size(2)}, dtype);
        return at::bmm_out(out, self, mat2);
    }
    const openxpu::Groups groups(self, mat2, *offs);
    Tensor out = groups.empty_result(dtype);
    const auto args = groups.args_for(out);
    openxpu::check_product(
        xpu_gemm_grouped(openxpu::current_stream(self), &args, groups.grouped, groups.ends()));
    return out;
}

} // namespace at::native

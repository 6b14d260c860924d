// Products of quantized operands: 4- and 8-bit weights, float8 and float4 with scales, with
// xpu_gemm_quantized. Checks are those of PyTorch's CUDA and meta kernels.
#include <ATen/BlasBackend.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_convert_weight_to_int4pack_native.h>
#include <ATen/ops/_dyn_quant_matmul_4bit_native.h>
#include <ATen/ops/_dyn_quant_pack_4bit_weight_native.h>
#include <ATen/ops/_int_mm.h>
#include <ATen/ops/_scaled_grouped_mm_native.h>
#include <ATen/ops/_scaled_grouped_mm_v2_native.h>
#include <ATen/ops/_scaled_mm_native.h>
#include <ATen/ops/_scaled_mm_v2_native.h>
#include <ATen/ops/_weight_int4pack_mm_native.h>
#include <ATen/ops/_weight_int4pack_mm_with_scales_and_zeros_native.h>
#include <ATen/ops/_weight_int8pack_mm_native.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include <algorithm>

#include "../host_gemm.h"
#include "../host_memory.h"
#include "../operands.h"
#include "grouped.h"
#include "xpu/ops/gemm.h"

namespace {

using at::Tensor;
using at::blas::ScalingType;
using at::blas::SwizzleType;

constexpr auto FLOAT4 = at::kFloat4_e2m1fn_x2;
constexpr auto E8M0 = at::kFloat8_e8m0fnu;
constexpr auto E4M3 = at::kFloat8_e4m3fn;

int64_t div_up(int64_t n, int64_t by) { return (n + by - 1) / by; }
int64_t align_up(int64_t n, int64_t by) { return div_up(n, by) * by; }

void check_activation(const Tensor &x, const Tensor &w, c10::ScalarType weight) {
    TORCH_CHECK(x.scalar_type() == at::kFloat || x.scalar_type() == at::kHalf ||
                    x.scalar_type() == at::kBFloat16,
                "expected x to be f32/f16/bf16, got ", x.scalar_type());
    TORCH_CHECK(x.dim() == 2, "x must be a 2D tensor");
    TORCH_CHECK(w.dim() == 2, "w must be a 2D tensor");
    TORCH_CHECK(w.scalar_type() == weight, "expected w to be ", weight, ", got ", w.scalar_type());
}

void check_device(const char *name, const Tensor &t, const Tensor &x) {
    TORCH_CHECK(t.device() == x.device(), "Expected all tensors to be on the same device, but ", name,
                " is on ", t.device(), " and others are on ", x.device());
}

// x times the transpose of a K-major weight [n, k] with rows of `across` elements.
Tensor linear(const Tensor &x, void *weight, int64_t n, int64_t across, const xpu_quant_params &q) {
    Tensor out = at::empty({x.size(0), n}, x.options());
    const xpu_gemm_args args{.dtype = openxpu::dtype_of(x),
                             .batch = 1,
                             .m = x.size(0),
                             .n = n,
                             .k = x.size(1),
                             .a = {openxpu::input_data(x), 0, x.stride(0), x.stride(1)},
                             .b = {weight, 0, 1, across},
                             .out = {out.mutable_data_ptr(), 0, n, 1},
                             .alpha = openxpu::scalar_of(int64_t{1}),
                             .beta = openxpu::scalar_of(int64_t{0})};
    openxpu::check_product(xpu_gemm_quantized(openxpu::current_stream(x), &args, nullptr, &q));
    return out;
}

// Eight 4-bit elements per int32, lowest bits first; groups of `group` along k.
Tensor int4_linear(const Tensor &x, const Tensor &w, int64_t group, xpu_quant_params q) {
    check_activation(x, w, at::kInt);
    TORCH_CHECK(group > 0, "expected qGroupSize to be positive, got ", group);
    TORCH_CHECK(w.size(1) * 8 == x.size(1), "expected w to have ", x.size(1) / 8, " columns for x of ",
                x.size(1), " columns, got ", w.size(1));
    check_device("the weight", w, x);
    const Tensor packed = w.stride(1) == 1 ? w : w.contiguous();
    q.dtype = XPU_UINT4;
    q.group_rows = group, q.group_columns = 1;
    return linear(x, openxpu::input_data(packed), w.size(0), packed.stride(0) * 8, q);
}

// --- float8 and float4 ---

bool is_packed(const Tensor &t) { return t.scalar_type() == FLOAT4; }

// One operand's scales for the product: per group of rows and columns of the operand.
struct Scales {
    Tensor scale;
    int64_t group_rows = 0, group_columns = 0;
    int64_t row_stride = 0, column_stride = 0;
    Tensor whole = {}; // of the whole operand, if there is one
};
xpu_quant_params quantized(const Tensor &t, const Scales &s) {
    return {.dtype = openxpu::dtype_of(t),
            .scale_dtype = openxpu::dtype_of(s.scale),
            .scale = openxpu::input_data(s.scale),
            .group_rows = s.group_rows,
            .group_columns = s.group_columns,
            .scale_row_stride = s.row_stride,
            .scale_column_stride = s.column_stride,
            .global_scale = s.whole.defined() ? s.whole.const_data_ptr<float>() : nullptr};
}
// Converts the scales of B's transpose to B's.
Scales transposed(Scales s) {
    std::swap(s.group_rows, s.group_columns);
    std::swap(s.row_stride, s.column_stride);
    return s;
}

// Unswizzles scales of [rows, columns] groups from NVIDIA's layout: blocks of 128 rows by 4 columns, each
// stored as 32 rows of four rows' four columns.
Tensor unswizzled(const Tensor &scale, int64_t rows, int64_t columns) {
    const int64_t m = div_up(rows, 128), n = div_up(columns, 4);
    return scale.reshape({m, n, 32, 4, 4}).permute({0, 3, 2, 1, 4}).reshape({m * 128, n * 4});
}
// One scale per `block` elements of each row.
Scales by_blocks(const Tensor &scale, bool swizzled, int64_t rows, int64_t k, int64_t block) {
    const int64_t columns = div_up(k, block);
    const Tensor plain = swizzled ? unswizzled(scale, rows, columns) : scale.reshape({rows, columns});
    return {plain, 1, block, plain.stride(0), plain.stride(1)};
}

void check_operands(const Tensor &a, const Tensor &b) {
    TORCH_CHECK(a.dim() == 2 && b.dim() == 2, "Inputs must be 2D but got self.dim()=", a.dim(),
                " and mat2.dim()=", b.dim());
    const auto is_small = [](const Tensor &t) {
        return c10::isFloat8Type(t.scalar_type()) && t.scalar_type() != E8M0;
    };
    TORCH_CHECK((is_small(a) || is_packed(a)) && (is_small(b) || is_packed(b)),
                "Expected both inputs to be fp8 or fp4 types but got self.dtype=", a.scalar_type(),
                " and mat2.dtype=", b.scalar_type());
    TORCH_CHECK(is_packed(a) == is_packed(b), "float4 can only be multiplied with float4, got ",
                a.scalar_type(), " and ", b.scalar_type());
    TORCH_CHECK(a.size(1) == b.size(0), "mat1 and mat2 shapes cannot be multiplied (", a.size(0), "x",
                a.size(1), " and ", b.size(0), "x", b.size(1), ")");
    if (a.numel() > 0)
        TORCH_CHECK(a.stride(1) == 1 || a.size(1) == 1, "self must be row_major, got stride ", a.strides());
    if (b.numel() > 0)
        TORCH_CHECK(b.stride(0) == 1 || b.size(0) == 1, "mat2 must be col_major, got stride ", b.strides());
    TORCH_CHECK(a.size(1) % 16 == 0,
                "Expected trailing dimension of mat1 to be divisible by 16 but got mat1 shape: (", a.size(0),
                "x", a.size(1), ").");
    TORCH_CHECK(b.size(0) % 16 == 0 && b.size(1) % 16 == 0, "mat2 shape (", b.size(0), "x", b.size(1),
                ") must be divisible by 16");
    check_device("mat2", b, a);
}

// Two elements per byte, adjacent along k: in A's rows and B's columns.
void multiply(const Tensor &a, const Tensor &b, const Scales &scale_a, const Scales &scale_b,
              const std::optional<Tensor> &bias, const Tensor &out) {
    const int64_t packed = is_packed(a) ? 2 : 1;
    check_device("a scale", scale_a.scale, a);
    check_device("a scale", scale_b.scale, a);
    const auto qa = quantized(a, scale_a), qb = quantized(b, scale_b);
    xpu_gemm_args args{.dtype = openxpu::dtype_of(out),
                       .batch = 1,
                       .m = a.size(0),
                       .n = b.size(1),
                       .k = a.size(1) * packed,
                       .a = {openxpu::input_data(a), 0, a.stride(0) * packed, a.stride(1)},
                       .b = {openxpu::input_data(b), 0, b.stride(0), b.stride(1) * packed},
                       .out = {out.mutable_data_ptr(), 0, out.stride(0), out.stride(1)},
                       .alpha = openxpu::scalar_of(int64_t{1}),
                       .beta = openxpu::scalar_of(int64_t{1})};
    Tensor addend;
    if (bias) {
        TORCH_CHECK(bias->numel() == args.n, "Bias must be size ", args.n, " but got ", bias->numel());
        check_device("the bias", *bias, a);
        addend = bias->to(out.scalar_type()).contiguous();
        args.c = {openxpu::input_data(addend), 0, 0, 1};
    }
    if (out.numel() == 0) return;
    openxpu::check_product(xpu_gemm_quantized(openxpu::current_stream(a), &args, &qa, &qb));
}

// Also converts to dtypes that products can't write: float8, with its own scale.
void multiply_into(const Tensor &a, const Tensor &b, const Scales &scale_a, const Scales &scale_b,
                   const std::optional<Tensor> &bias, const std::optional<Tensor> &scale_result,
                   const Tensor &out) {
    const auto dtype = out.scalar_type();
    TORCH_CHECK(!scale_result || (scale_result->numel() == 1 && scale_result->scalar_type() == at::kFloat),
                "scale_result must be a float scalar");
    if (dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16)
        return multiply(a, b, scale_a, scale_b, bias, out);
    TORCH_CHECK(c10::isFloat8Type(dtype) && dtype != E8M0,
                "Scaled products support bf16, fp16, fp32 and fp8 results only, but got ", dtype);
    Tensor wide = at::empty(out.sizes(), out.options().dtype(at::kFloat));
    multiply(a, b, scale_a, scale_b, bias, wide);
    if (scale_result) wide.mul_(*scale_result);
    out.copy_(wide);
}

// The scaling modes, which _scaled_mm distinguishes by the scales' shapes and dtypes.
std::pair<Scales, Scales> find_scales(const Tensor &a, const Tensor &b, const Tensor &scale_a,
                                      const Tensor &scale_b) {
    const int64_t m = a.size(0), n = b.size(1), k = a.size(1) * (is_packed(a) ? 2 : 1);
    const auto type_a = scale_a.scalar_type(), type_b = scale_b.scalar_type();
    if (type_a == type_b && (type_a == E8M0 || type_a == E4M3)) {
        const int64_t block = type_a == E8M0 ? 32 : 16, columns = align_up(div_up(k, block), 4);
        const int64_t count_a = align_up(m, 128) * columns, count_b = align_up(n, 128) * columns;
        TORCH_CHECK(scale_a.numel() == count_a && scale_b.numel() == count_b,
                    "Invalid blockwise scaling configuration. For blockwise scaling, scale_a should have ",
                    count_a, " elements, got ", scale_a.numel(), ", scale_b should have ", count_b,
                    " elements, got ", scale_b.numel(), ".");
        TORCH_CHECK(scale_a.is_contiguous(), "scale_a must be contiguous");
        TORCH_CHECK(scale_b.is_contiguous(), "scale_b must be contiguous");
        return {by_blocks(scale_a, true, m, k, block), transposed(by_blocks(scale_b, true, n, k, block))};
    }
    if (scale_a.numel() == 1 && scale_b.numel() == 1) {
        TORCH_CHECK(type_a == at::kFloat && type_b == at::kFloat,
                    "For tensorwise scaling, both scale_a and scale_b must be float (fp32) tensors.");
        return {Scales{scale_a}, Scales{scale_b}};
    }
    TORCH_CHECK(type_a == at::kFloat && type_b == at::kFloat,
                "For rowwise scaling, both scale_a and scale_b must be float (fp32) tensors.");
    TORCH_CHECK(scale_a.dim() == 2 && scale_b.dim() == 2,
                "For non-tensorwise scaling, scale tensors must be 2D, but got scale_a.dim()=", scale_a.dim(),
                " and scale_b.dim()=", scale_b.dim());
    const int64_t blocks = div_up(k, 128), rows_a = scale_a.size(0), columns_b = scale_b.size(1);
    if (rows_a == m && scale_a.size(1) == 1 && scale_b.size(0) == 1 && columns_b == n) {
        TORCH_CHECK(scale_a.is_contiguous() && scale_b.is_contiguous(),
                    "Both scale_a and scale_b must be contiguous for rowwise scaling.");
        return {Scales{scale_a, 1, 0, 1, 0}, Scales{scale_b, 0, 1, 0, 1}};
    }
    const bool along = scale_a.size(1) == blocks && scale_b.size(0) == blocks;
    const bool by_row = rows_a == m, by_rows = rows_a == div_up(m, 128);
    const bool by_column = columns_b == n, by_columns = columns_b == div_up(n, 128);
    TORCH_CHECK(
        along && ((by_row && (by_column || by_columns)) || (by_rows && by_column)),
        "Invalid scaling configuration. For tensorwise scaling, both scales should be scalar. For rowwise "
        "scaling, scale_a should be (",
        m, ", 1), scale_b should be (1, ", n,
        "). For (BlockWise1x128, BlockWise128x128), scale_a should be (", m, ", ", blocks,
        "), scale_b should be (", blocks, ", ", div_up(n, 128),
        "). For (BlockWise1x128, BlockWise1x128), scale_a should be (", m, ", ", blocks,
        "), scale_b should be (", blocks, ", ", n,
        "). For (BlockWise128x128, BlockWise1x128), scale_a should be (", div_up(m, 128), ", ", blocks,
        "), scale_b should be (", blocks, ", ", n, "). Got scale_a.size()=(", rows_a, ", ", scale_a.size(1),
        ") and scale_b.size()=(", scale_b.size(0), ", ", columns_b, ")");
    return {Scales{scale_a, by_row ? 1 : 128, 128, scale_a.stride(0), scale_a.stride(1)},
            Scales{scale_b, 128, by_column ? 1 : 128, scale_b.stride(0), scale_b.stride(1)}};
}

// The scales of one operand of _scaled_mm_v2, which names the mode; `rows` rows along k.
Scales read_recipe(const char *name, at::ArrayRef<Tensor> scales, at::IntArrayRef recipe,
                   at::IntArrayRef swizzle, int64_t rows, int64_t k) {
    TORCH_CHECK_VALUE(!recipe.empty() && scales.size() == recipe.size(), "scale_", name,
                      " must have as many tensors as "
                      "recipe_",
                      name, " has entries, got ", scales.size(), " and ", recipe.size());
    const auto type = static_cast<ScalingType>(recipe[0]);
    const bool swizzled =
        !swizzle.empty() && static_cast<SwizzleType>(swizzle[0]) == SwizzleType::SWIZZLE_32_4_4;
    Tensor scale = scales[0];
    const auto expect = [&](bool right, c10::ScalarType dtype, const auto &...shape) {
        TORCH_CHECK_VALUE(right && scale.scalar_type() == dtype, "scale_", name, " must have ", shape..., " ",
                          dtype, " elements, got ", scale.scalar_type(), " of shape ", scale.sizes());
    };
    const bool two_levels = recipe.size() == 2 && type == ScalingType::BlockWise1x16 &&
                            static_cast<ScalingType>(recipe[1]) == ScalingType::TensorWise;
    TORCH_CHECK_VALUE(recipe.size() == 1 || two_levels, "Invalid scaling configuration: recipe_", name, " ",
                      recipe);
    switch (type) {
    case ScalingType::TensorWise: expect(scale.numel() == 1, at::kFloat, 1); return {scale};
    case ScalingType::RowWise:
        expect(scale.numel() == rows, at::kFloat, rows);
        return {scale.reshape({rows}).contiguous(), 1, 0, 1, 0};
    case ScalingType::BlockWise1x16:
    case ScalingType::BlockWise1x32: {
        const bool nv = type == ScalingType::BlockWise1x16;
        const int64_t block = nv ? 16 : 32, columns = div_up(k, block);
        const int64_t count = swizzled ? align_up(rows, 128) * align_up(columns, 4) : rows * columns;
        expect(scale.numel() == count, nv ? E4M3 : E8M0, count);
        Scales found = by_blocks(scale, swizzled, rows, k, block);
        if (two_levels) {
            TORCH_CHECK_VALUE(scales[1].numel() == 1 && scales[1].scalar_type() == at::kFloat, "scale_", name,
                              "[1] must have 1 Float element, got ", scales[1].numel(), " of ",
                              scales[1].scalar_type());
            found.whole = scales[1];
        }
        return found;
    }
    case ScalingType::BlockWise1x128:
        expect(scale.dim() == 2 && scale.size(0) == rows && scale.size(1) == div_up(k, 128), at::kFloat, rows,
               " x ", div_up(k, 128));
        return {scale, 1, 128, scale.stride(0), scale.stride(1)};
    case ScalingType::BlockWise128x128:
        expect(scale.dim() == 2 && scale.size(0) == align_up(div_up(k, 128), 4) &&
                   scale.size(1) == div_up(rows, 128),
               at::kFloat, align_up(div_up(k, 128), 4), " x ", div_up(rows, 128));
        return {scale, 128, 128, scale.stride(1), scale.stride(0)};
    }
    TORCH_CHECK_VALUE(false, "Invalid scaling configuration: recipe_", name, " ", recipe);
}

// --- groups: several products that differ in one size ---

// Reads each group's end along the split dimension; waits for the device.
std::vector<int64_t> ends_of(const Tensor &offs, int64_t size) {
    TORCH_CHECK(offs.dim() == 1, "Offsets tensor must be 1D, but got offs.dim()=", offs.dim(), ".");
    TORCH_CHECK(offs.scalar_type() == at::kInt, "Offsets tensor must be integer (int32) tensor, but got ",
                offs.scalar_type(), ".");
    const Tensor host = offs.to(at::kCPU).contiguous();
    std::vector<int64_t> ends(host.const_data_ptr<int32_t>(), host.const_data_ptr<int32_t>() + host.numel());
    int64_t before = 0;
    for (const int64_t end : ends) {
        TORCH_CHECK(end >= before && end <= size, "Offsets must not decrease and must not exceed ", size,
                    ", got ", ends);
        before = end;
    }
    return ends;
}

// One of the two operands: how it is split, and the layout of its scales.
struct Grouped {
    const Tensor &whole, &scale;
    bool is_left;
    int64_t block;            // elements per swizzled scale; 0: a scale per row or column
    Tensor global_scale = {}; // … and a global scale per group
    int64_t place = 0;        // offset of the group's first scale, if scales are stored per group

    // Its slice for a group from `begin` to `end` along the split dimension: its own, or k.
    Tensor part(int64_t group, int64_t begin, int64_t end, bool along_k) const {
        if (whole.dim() == 3) return whole.select(0, group);
        const int64_t elements = along_k ? elements_each() : 1;
        return whole.slice(is_left == along_k ? 1 : 0, begin / elements, end / elements);
    }
    int64_t elements_each() const { return is_packed(whole) ? 2 : 1; }
    int64_t lines() const { return whole.size(is_left ? -2 : -1); }
    int64_t swizzled_scales(int64_t count, int64_t k) const {
        return align_up(count, 128) * align_up(div_up(k, block), 4);
    }
    Scales scales(const Tensor &part, int64_t group, int64_t begin, bool along_k) {
        const int64_t rows = part.size(is_left ? 0 : 1), k = part.size(is_left ? 1 : 0) * elements_each();
        Scales found;
        if (block) {
            const int64_t count = swizzled_scales(rows, k);
            const Tensor mine = whole.dim() == 3 ? scale.select(0, group).reshape(-1)
                                                 : scale.reshape(-1).slice(0, place, place + count);
            place += count;
            TORCH_CHECK(mine.numel() == count, "Expected ", count, " scales for group ", group, ", got ",
                        mine.numel());
            found = by_blocks(mine, true, rows, k, block);
            if (global_scale.defined()) found.whole = global_scale.slice(0, group, group + 1);
        } else if (whole.dim() == 3) {
            found = {scale.select(0, group), 1, 0, scale.stride(1), 0};
        } else { // 2D with 2D: each group has separate scales for all rows
            const int64_t first = along_k ? group * rows : begin;
            found = {scale.slice(0, first, first + rows), 1, 0, 1, 0};
        }
        return is_left ? found : transposed(found);
    }
};

void check_group_scale(const char *name, const Grouped &g, int64_t groups, int64_t repeats) {
    const Tensor &scale = g.scale, &all = g.global_scale;
    check_device(name, scale, g.whole);
    if (all.defined()) {
        check_device(name, all, g.whole);
        TORCH_CHECK_VALUE(all.scalar_type() == at::kFloat && all.numel() == groups && all.is_contiguous(),
                          name, "[1] must have ", groups, " contiguous Float elements, got ",
                          all.scalar_type(), " of shape ", all.sizes());
    }
    const int64_t rows = g.lines();
    if (g.block) {
        TORCH_CHECK(scale.dim() == 2, "Expected ", name, " of blocks to have 2 dimensions, got ",
                    scale.dim());
        TORCH_CHECK(scale.is_contiguous(), "Expected ", name, " to be contiguous.");
        if (g.whole.dim() == 2) return; // the device knows the groups' sizes
        const int64_t count = g.swizzled_scales(rows, g.whole.size(g.is_left ? 2 : 1) * g.elements_each());
        TORCH_CHECK(scale.size(0) == g.whole.size(0) && scale.size(1) == count, "Expected ", name, " of ",
                    g.whole.size(0), " x ", count, " elements, got ", scale.sizes());
        return;
    }
    if (g.whole.dim() == 2) {
        TORCH_CHECK(scale.is_contiguous(), "Expected ", name, " to be contiguous.");
        TORCH_CHECK(scale.dim() == 1, "Expected ", name, " to be 1D tensor, but got ", scale.dim(),
                    "D tensor.");
        TORCH_CHECK(scale.size(0) == rows * repeats, "Expected ", name, " to have ", rows * repeats,
                    " elements, got ", scale.size(0), " elements.");
        return;
    }
    TORCH_CHECK(scale.dim() == 2, "Expected ", name, " to be 2D tensor, but got ", scale.dim(), "D tensor.");
    TORCH_CHECK(scale.size(0) == g.whole.size(0), "Expected ", name, " batch dimension to be ",
                g.whole.size(0), ", got ", scale.size(0), ".");
    TORCH_CHECK(scale.size(1) == rows, "Expected ", name, " non-batch dimension to be ", rows, ", got ",
                scale.size(1), ".");
}

// Scales per row of A and column of B, or swizzled per `block` elements: one product, which doesn't wait
// for the group sizes.
Tensor multiply_at_once(const openxpu::Groups &groups, const Grouped &left, const Grouped &right) {
    const bool along_k = groups.grouped == XPU_GROUPED_K;
    const auto quantized = [&](const Grouped &g) {
        const Tensor &x = g.whole, &scale = g.scale;
        const bool is_left = g.is_left;
        xpu_quant_params q{.dtype = openxpu::dtype_of(x),
                           .scale_dtype = openxpu::dtype_of(scale),
                           .scale = openxpu::input_data(scale)};
        const int64_t line = scale.stride(-1);
        (is_left ? q.group_rows : q.group_columns) = 1;
        q.scale_batch_stride = x.dim() == 3 ? scale.stride(0) : along_k ? g.lines() * line : 0;
        if (g.global_scale.defined()) {
            q.global_scale = g.global_scale.const_data_ptr<float>(), q.global_scale_stride = 1;
        }
        if (g.block == 0) {
            (is_left ? q.scale_row_stride : q.scale_column_stride) = line;
        } else {
            (is_left ? q.group_columns : q.group_rows) = g.block;
            q.scale_is_swizzled = true, q.scale_count = scale.numel();
        }
        return q;
    };
    const xpu_quant_params a = quantized(left), b = quantized(right);
    Tensor out = groups.empty_result(at::kBFloat16);
    auto args = groups.args_for(out);
    if (is_packed(groups.a)) { // two to a byte along k
        args.k *= 2;
        for (auto *stride :
             {&args.a.batch_stride, &args.a.row_stride, &args.b.batch_stride, &args.b.column_stride})
            *stride *= 2;
    }
    openxpu::check_product(xpu_gemm_grouped_quantized(openxpu::current_stream(out), &args, groups.grouped,
                                                      groups.ends(), &a, &b));
    return out;
}

// Swizzled scales: blocks of 32 float8 or float4 elements; or, with e4m3 scales, blocks of 16 float4
// elements and one global scale per group.
Tensor multiply_groups(const Tensor &a, const Tensor &b, const Tensor &scale_a, const Tensor &scale_b,
                       const std::optional<Tensor> &offs, const Tensor &whole_a = {},
                       const Tensor &whole_b = {}) {
    const auto type = scale_a.scalar_type();
    const bool nv = whole_a.defined();
    const auto suits = [&](const Tensor &t) {
        if (is_packed(t)) return type == E8M0 || nv;
        return !nv && (t.scalar_type() == E4M3 || (type == E8M0 && t.scalar_type() == at::kFloat8_e5m2));
    };
    TORCH_CHECK(suits(a) && suits(b) && is_packed(a) == is_packed(b),
                "Expected inputs of E4M3 FP8 type but got mat_a.dtype=", a.scalar_type(),
                " and mat_b.dtype=", b.scalar_type(), ".");
    const bool flat_a = a.dim() == 2, flat_b = b.dim() == 2;
    TORCH_CHECK((flat_a || a.dim() == 3) && (flat_b || b.dim() == 3),
                "Multiplicands must be 2D or 3D but got mat_a.dim()=", a.dim(), " and mat_b.dim()=", b.dim());
    TORCH_CHECK((flat_a && flat_b) || a.size(-1) == b.size(-2),
                "contraction dimension of mat_a and mat_b must match");
    TORCH_CHECK(!flat_a || !flat_b || a.size(1) == b.size(0),
                "contraction dimension of mat_a and mat_b must match");
    TORCH_CHECK(a.stride(-1) == 1,
                "Expected mat_a tensor to be row major in the last two dimensions, got strides ",
                a.strides().slice(a.dim() - 2));
    TORCH_CHECK(b.stride(-2) == 1,
                "Expected mat_b tensor to be column major in the last two dimensions, got strides ",
                b.strides().slice(b.dim() - 2));
    TORCH_CHECK(type == scale_b.scalar_type() && (nv ? type == E4M3 : type == at::kFloat || type == E8M0),
                "For FP8 scales must both be float32, or for MXFP8 both scales must be float8_e8m0fnu. Got "
                "scale_a.dtype=",
                type, " and scale_b.dtype=", scale_b.scalar_type(), ".");
    TORCH_CHECK(offs.has_value() == (flat_a || flat_b),
                offs ? "Offsets tensor provided, but is not needed for 3D/3D multiplicand layouts."
                     : "Offsets tensor not provided, but is needed for 2D multiplicands.");
    TORCH_CHECK(flat_a || flat_b || a.size(0) == b.size(0),
                "Expected as many groups in mat_a as in mat_b, got ", a.size(0), " and ", b.size(0));
    const bool along_k = flat_a && flat_b;
    const int64_t m = a.size(-2), n = b.size(-1);
    const int64_t groups = offs ? offs->numel() : a.size(0);
    TORCH_CHECK(flat_a || a.size(0) == groups, "Expected ", groups, " groups in mat_a, got ", a.size(0));
    TORCH_CHECK(flat_b || b.size(0) == groups, "Expected ", groups, " groups in mat_b, got ", b.size(0));
    const int64_t block = nv ? 16 : type == E8M0 ? 32 : 0;
    Grouped left{a, scale_a, true, block, whole_a}, right{b, scale_b, false, block, whole_b};
    check_group_scale("scale_a", left, groups, along_k ? groups : 1);
    check_group_scale("scale_b", right, groups, along_k ? groups : 1);
    check_device("mat_b", b, a);
    const auto device = a.device().index();
    // On the host there is no wait, and weights are dequantized on the fly for few rows.
    if (offs && (!openxpu::uses_host_kernels(device) || openxpu::is_captured(device)))
        return multiply_at_once(openxpu::Groups(a, b, *offs), left, right);
    std::vector<int64_t> ends;
    if (offs) ends = ends_of(*offs, along_k ? a.size(1) * left.elements_each() : flat_a ? m : n);
    const bool stacked = flat_a == flat_b;
    Tensor out = stacked ? at::empty({groups, m, n}, a.options().dtype(at::kBFloat16))
                         : at::empty({m, n}, a.options().dtype(at::kBFloat16));
    for (int64_t g = 0, begin = 0; g < groups; g++) {
        const int64_t end = offs ? ends[g] : 0;
        const Tensor x = left.part(g, begin, end, along_k), y = right.part(g, begin, end, along_k);
        const Scales sx = left.scales(x, g, begin, along_k), sy = right.scales(y, g, begin, along_k);
        multiply(x, y, sx, sy, std::nullopt,
                 stacked ? out.select(0, g) : out.slice(flat_a ? 0 : 1, begin, end));
        begin = end;
    }
    return out;
}

Tensor empty_result(const Tensor &a, const Tensor &b, std::optional<c10::ScalarType> dtype) {
    TORCH_CHECK(a.dim() == 2 && b.dim() == 2, "Inputs must be 2D but got self.dim()=", a.dim(),
                " and mat2.dim()=", b.dim());
    return at::empty({a.size(0), b.size(1)}, a.options().dtype(dtype.value_or(a.scalar_type())));
}
void fit_result(const Tensor &a, const Tensor &b, std::optional<c10::ScalarType> dtype, const Tensor &out) {
    TORCH_CHECK(!dtype || *dtype == out.scalar_type(), "out_dtype must match output matrix type, got ",
                *dtype, " and ", out.scalar_type());
    out.resize_({a.size(0), b.size(1)});
}

// --- int4 weights, activations rounded to int8 at each call ---

// Scales per [out, in / block] group.
int64_t check_dyn_quant(int64_t block, int64_t in, int64_t out) {
    TORCH_CHECK(in > 0 && out > 0 && in % 2 == 0,
                "expected sizes above 0 and an even number of in_features, "
                "got in_features ",
                in, " and out_features ", out);
    TORCH_CHECK(block == in || (block > 0 && block % 32 == 0 && in % block == 0),
                "expected block_size to be in_features, or a multiple of 32 that divides it, got block_size ",
                block, " and in_features ", in);
    return in / block;
}

// Quantizes each row to int8 between its minimum and maximum, extended to include 0.
struct RoundedRows {
    Tensor elements, scale, zero;
};
RoundedRows rounded_rows(const Tensor &x) {
    constexpr double low = -128, high = 127;
    const Tensor least = x.amin(1).clamp_max_(0), greatest = x.amax(1).clamp_min_(0);
    const Tensor range = greatest - least;
    const Tensor per_one = at::where(range == 0, 1.0, range.reciprocal().mul_(high - low));
    const Tensor from_least = least * per_one, from_greatest = greatest * per_one;
    const Tensor zero =
        at::where(from_least + from_greatest > -(low + high), low - from_least, high - from_greatest)
            .clamp_(low, high)
            .round_();
    const Tensor scaled = x * per_one.unsqueeze(1);
    const Tensor halves_away = scaled.abs().add_(0.5).floor_().copysign_(scaled);
    return {halves_away.add_(zero.unsqueeze(1)).clamp_(low, high).to(at::kChar), per_one.reciprocal(), zero};
}

// --- operators defined by torchao: with CUDA kernels only, or with Triton kernels that take minutes to tune
// ---

void check_single(const char *name, const Tensor &t) {
    const auto dtype = t.scalar_type();
    TORCH_CHECK(dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16, "expected ", name,
                " to be f32/f16/bf16, got ", dtype);
}

// int8 product A B with a scale per row, and one per column or one for all columns.
Tensor scaled_int8_mm(const Tensor &a, const Tensor &b, const Tensor &row_scale, const Tensor &column_scale) {
    TORCH_CHECK(a.dim() == 2 && b.dim() == 2, "Inputs must be 2D but got A.dim()=", a.dim(),
                " and B.dim()=", b.dim());
    TORCH_CHECK(a.scalar_type() == at::kChar && b.scalar_type() == at::kChar, "expected int8 operands, got ",
                a.scalar_type(), " and ", b.scalar_type());
    TORCH_CHECK(a.size(1) == b.size(0), "A and B shapes cannot be multiplied (", a.size(0), "x", a.size(1),
                " and ", b.size(0), "x", b.size(1), ")");
    check_single("the scales", row_scale);
    TORCH_CHECK(row_scale.scalar_type() == column_scale.scalar_type(), "expected scales of one dtype, got ",
                row_scale.scalar_type(), " and ", column_scale.scalar_type());
    TORCH_CHECK(row_scale.numel() == a.size(0), "expected A_scale to have ", a.size(0), " elements, got ",
                row_scale.sizes());
    TORCH_CHECK(column_scale.numel() == b.size(1) || column_scale.numel() == 1,
                "expected B_scale to have 1 or ", b.size(1), " elements, got ", column_scale.sizes());
    check_device("B", b, a);
    const Tensor rows = row_scale.reshape({-1}).to(at::kFloat);
    const Tensor columns = column_scale.reshape({-1}).to(at::kFloat);
    if (openxpu::uses_host_kernels(a.device().index())) // int32 results use another kernel
        return at::_int_mm(a, b).mul(rows.unsqueeze(1)).mul_(columns).to(row_scale.scalar_type());
    // in fp32: a device without int8 products multiplies dequantized values, which bf16 would round first
    Tensor out = at::empty({a.size(0), b.size(1)}, rows.options());
    multiply(a, b, {rows, 1, 0, rows.stride(0), 0},
             columns.numel() == 1 ? Scales{columns} : Scales{columns, 0, 1, 0, columns.stride(0)},
             std::nullopt, out);
    return out.to(row_scale.scalar_type());
}

// a (any dimensions) times the transpose of b. Scales: one per `block` elements of a's rows, one per
// block x block square of b.
Tensor blockwise_fp8_gemm(const Tensor &a, const Tensor &scale_a, const Tensor &b, const Tensor &scale_b,
                          int64_t block) {
    TORCH_CHECK(c10::isFloat8Type(a.scalar_type()) && c10::isFloat8Type(b.scalar_type()) &&
                    a.scalar_type() != E8M0 && b.scalar_type() != E8M0,
                "expected fp8 operands, got ", a.scalar_type(), " and ", b.scalar_type());
    TORCH_CHECK(block > 0, "expected block_size to be positive, got ", block);
    TORCH_CHECK(a.dim() >= 1 && b.dim() == 2 && a.size(-1) == b.size(1),
                "expected a of [..., k] and b of [n, k], got ", a.sizes(), " and ", b.sizes());
    const int64_t k = b.size(1), n = b.size(0), blocks = div_up(k, block),
                  m = c10::multiply_integers(a.sizes().begin(), a.sizes().end() - 1);
    TORCH_CHECK(scale_a.scalar_type() == at::kFloat && scale_b.scalar_type() == at::kFloat,
                "expected fp32 scales, got ", scale_a.scalar_type(), " and ", scale_b.scalar_type());
    TORCH_CHECK(scale_a.numel() == m * blocks, "expected a_s to have ", m, " x ", blocks, " elements, got ",
                scale_a.sizes());
    TORCH_CHECK(scale_b.dim() == 2 && scale_b.size(0) == div_up(n, block) && scale_b.size(1) == blocks,
                "expected b_s of [", div_up(n, block), ", ", blocks, "], got ", scale_b.sizes());
    check_device("b", b, a);
    auto shape = a.sizes().vec();
    shape.back() = n;
    Tensor out = at::empty(shape, a.options().dtype(at::kBFloat16));
    const Tensor rows = scale_a.reshape({m, blocks});
    multiply(a.reshape({m, k}), b.t(), {rows, 1, block, rows.stride(0), rows.stride(1)},
             {scale_b, block, block, scale_b.stride(1), scale_b.stride(0)}, std::nullopt, out.view({m, n}));
    return out;
}

} // namespace

TORCH_LIBRARY_IMPL(torchao, XPU, m) { m.impl("scaled_int8_mm", scaled_int8_mm); }
TORCH_LIBRARY_IMPL(ao, XPU, m) { m.impl("blockwise_fp8_gemm", blockwise_fp8_gemm); }

namespace at::native {

// The bytes are unchanged: CUDA's tile order only suits its tensor cores.
Tensor convert_weight_to_int4pack_xpu(const Tensor &self, int64_t inner_k_tiles) {
    TORCH_CHECK(self.dim() == 2, "in: expected 2D tensor, got ", self.dim(), "D");
    TORCH_CHECK(self.scalar_type() == kByte, "in: expected uint8, got ", self.scalar_type());
    TORCH_CHECK(inner_k_tiles == 2 || inner_k_tiles == 4 || inner_k_tiles == 8,
                "innerKTiles must be 2, 4 or 8, got ", inner_k_tiles);
    TORCH_CHECK(self.size(1) % 4 == 0, "in: expected a multiple of 8 elements in each row, got ",
                self.size(1) * 2);
    return self.clone(at::MemoryFormat::Contiguous).view(kInt);
}

Tensor weight_int4pack_mm_xpu(const Tensor &self, const Tensor &mat2, int64_t group,
                              const Tensor &scales_and_zeros) {
    const Tensor &sz = scales_and_zeros;
    check_activation(self, mat2, kInt);
    TORCH_CHECK(group > 0, "expected qGroupSize to be positive, got ", group);
    TORCH_CHECK(sz.dim() == 3 && sz.size(0) == div_up(self.size(1), group) && sz.size(1) == mat2.size(0) &&
                    sz.size(2) == 2,
                "expected qScaleAndZeros of [", div_up(self.size(1), group), ", ", mat2.size(0), ", 2], got ",
                sz.sizes());
    TORCH_CHECK(sz.scalar_type() == self.scalar_type(), "expected qScaleAndZeros to be ", self.scalar_type(),
                ", got ", sz.scalar_type());
    check_device("qScaleAndZeros", sz, self);
    const auto dtype = openxpu::dtype_of(sz);
    auto *const scale = static_cast<char *>(openxpu::input_data(sz));
    return int4_linear(self, mat2, group,
                       {.scale_dtype = dtype,
                        .zero_dtype = dtype,
                        .zero_offset = 8,
                        .zero_is_added = true,
                        .scale = scale,
                        .zero = scale + sz.stride(2) * sz.element_size(),
                        .scale_row_stride = sz.stride(0),
                        .scale_column_stride = sz.stride(1),
                        .zero_row_stride = sz.stride(0),
                        .zero_column_stride = sz.stride(1)});
}

Tensor weight_int4pack_mm_with_scales_and_zeros_xpu(const Tensor &self, const Tensor &mat2, int64_t group,
                                                    const Tensor &scale, const Tensor &zero) {
    check_activation(self, mat2, kInt);
    TORCH_CHECK(group > 0, "expected qGroupSize to be positive, got ", group);
    const int64_t groups = div_up(self.size(1), group), n = mat2.size(0);
    TORCH_CHECK(scale.dim() == 2 && scale.size(0) == groups && scale.size(1) == n, "expected qScale of [",
                groups, ", ", n, "], got ", scale.sizes());
    TORCH_CHECK(zero.dim() == 2 && zero.size(0) == groups && zero.size(1) == n, "expected qZeros of [",
                groups, ", ", n, "], got ", zero.sizes());
    TORCH_CHECK(isFloatingType(scale.scalar_type()), "expected qScale to be floating, got ",
                scale.scalar_type());
    TORCH_CHECK(zero.scalar_type() == kChar, "expected qZeros to be int8, got ", zero.scalar_type());
    check_device("qScale", scale, self);
    check_device("qZeros", zero, self);
    return int4_linear(self, mat2, group,
                       {.scale_dtype = openxpu::dtype_of(scale),
                        .zero_dtype = XPU_INT8,
                        .scale = openxpu::input_data(scale),
                        .zero = openxpu::input_data(zero),
                        .scale_row_stride = scale.stride(0),
                        .scale_column_stride = scale.stride(1),
                        .zero_row_stride = zero.stride(0),
                        .zero_column_stride = zero.stride(1)});
}

Tensor weight_int8pack_mm_xpu(const Tensor &self, const Tensor &mat2, const Tensor &scales) {
    check_activation(self, mat2, kChar);
    TORCH_CHECK(mat2.size(1) == self.size(1), "expected w.size(1) (", mat2.size(1), ") == x.size(1) (",
                self.size(1), ")");
    TORCH_CHECK(scales.dim() == 1 && scales.size(0) == mat2.size(0), "expected q_scales to be 1D with size ",
                mat2.size(0), ", got shape ", scales.sizes());
    check_device("mat2", mat2, self);
    check_device("the scales", scales, self);
    const Tensor weight = mat2.stride(1) == 1 ? mat2 : mat2.contiguous();
    return linear(self, openxpu::input_data(weight), weight.size(0), weight.stride(0),
                  {.dtype = XPU_INT8,
                   .scale_dtype = openxpu::dtype_of(scales),
                   .scale = openxpu::input_data(scales),
                   .group_columns = 1,
                   .scale_column_stride = scales.stride(0)});
}

// The format of the CPU's reference kernel: bytes of two elements each, then the scales, all as fp32.
Tensor dyn_quant_pack_4bit_weight_xpu(const Tensor &weights, const Tensor &scales,
                                      const std::optional<Tensor> &bias, int64_t block, int64_t in,
                                      int64_t out) {
    const int64_t groups = check_dyn_quant(block, in, out);
    TORCH_CHECK(weights.scalar_type() == kByte, "expected w to be uint8, got ", weights.scalar_type());
    TORCH_CHECK(!bias, "a bias can't be packed with int4 weights on xpu");
    TORCH_CHECK(weights.numel() == out * in / 2, "expected w to have ", out, " x ", in / 2, " bytes, got ",
                weights.sizes());
    TORCH_CHECK(isFloatingType(scales.scalar_type()) && scales.numel() == out * groups,
                "expected scales_zeros to have ", out, " x ", groups, " floating elements, got ",
                scales.scalar_type(), " of shape ", scales.sizes());
    check_device("scales_zeros", scales, weights);
    return at::cat({weights.reshape({-1}).to(kFloat), scales.reshape({-1}).to(kFloat)});
}

Tensor dyn_quant_matmul_4bit_xpu(const Tensor &inp, const Tensor &packed, int64_t block, int64_t in,
                                 int64_t out) {
    const int64_t groups = check_dyn_quant(block, in, out), bytes = out * in / 2;
    TORCH_CHECK(inp.dim() == 2 && inp.size(1) == in, "expected input of [m, ", in, "], got ", inp.sizes());
    TORCH_CHECK(inp.scalar_type() == kFloat || (inp.scalar_type() == kBFloat16 && block == in),
                "expected input to be f32 or bf16 (bf16 requires block_size == in_features), got ",
                inp.scalar_type());
    TORCH_CHECK(packed.scalar_type() == kFloat && packed.dim() == 1 && packed.numel() == bytes + out * groups,
                "expected packed weights of ", bytes + out * groups, " fp32 elements, got ",
                packed.scalar_type(), " of shape ", packed.sizes());
    check_device("the packed weights", packed, inp);
    if (inp.size(0) == 0) return at::empty({0, out}, inp.options());
    const RoundedRows a = rounded_rows(inp.to(kFloat));
    const Tensor b = packed.narrow(0, 0, bytes).to(kByte), scale = packed.narrow(0, bytes, out * groups);
    const xpu_quant_params qa{.dtype = XPU_INT8,
                              .scale_dtype = XPU_FLOAT32,
                              .zero_dtype = XPU_FLOAT32,
                              .scale = openxpu::input_data(a.scale),
                              .zero = openxpu::input_data(a.zero),
                              .group_rows = 1,
                              .scale_row_stride = 1,
                              .zero_row_stride = 1};
    const xpu_quant_params qb{.dtype = XPU_UINT4,
                              .scale_dtype = XPU_FLOAT32,
                              .zero_offset = 8,
                              .scale = openxpu::input_data(scale),
                              .group_rows = block,
                              .group_columns = 1,
                              .scale_row_stride = 1,
                              .scale_column_stride = groups};
    Tensor result = at::empty({inp.size(0), out}, a.scale.options());
    const xpu_gemm_args args{.dtype = XPU_FLOAT32,
                             .batch = 1,
                             .m = inp.size(0),
                             .n = out,
                             .k = in,
                             .a = {openxpu::input_data(a.elements), 0, in, 1},
                             .b = {openxpu::input_data(b), 0, 1, in},
                             .out = {result.mutable_data_ptr(), 0, out, 1},
                             .alpha = openxpu::scalar_of(int64_t{1}),
                             .beta = openxpu::scalar_of(int64_t{0})};
    openxpu::check_product(xpu_gemm_quantized(openxpu::current_stream(inp), &args, &qa, &qb));
    return result.to(inp.scalar_type());
}

Tensor &scaled_mm_out_xpu(const Tensor &self, const Tensor &mat2, const Tensor &scale_a,
                          const Tensor &scale_b, const std::optional<Tensor> &bias,
                          const std::optional<Tensor> &scale_result, std::optional<ScalarType> out_dtype,
                          bool /*use_fast_accum*/, Tensor &out) {
    check_operands(self, mat2);
    const auto [a, b] = find_scales(self, mat2, scale_a, scale_b);
    fit_result(self, mat2, out_dtype, out);
    multiply_into(self, mat2, a, b, bias, scale_result, out);
    return out;
}
Tensor scaled_mm_xpu(const Tensor &self, const Tensor &mat2, const Tensor &scale_a, const Tensor &scale_b,
                     const std::optional<Tensor> &bias, const std::optional<Tensor> &scale_result,
                     std::optional<ScalarType> out_dtype, bool use_fast_accum) {
    Tensor out = empty_result(self, mat2, out_dtype);
    return scaled_mm_out_xpu(self, mat2, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum,
                             out);
}

Tensor &scaled_mm_v2_out_xpu(const Tensor &self, const Tensor &mat2, TensorList scale_a, IntArrayRef recipe_a,
                             IntArrayRef swizzle_a, TensorList scale_b, IntArrayRef recipe_b,
                             IntArrayRef swizzle_b, const std::optional<Tensor> &bias,
                             std::optional<ScalarType> out_dtype, IntArrayRef /*contraction_dim*/,
                             bool /*use_fast_accum*/, Tensor &out) {
    check_operands(self, mat2);
    const int64_t k = self.size(1) * (is_packed(self) ? 2 : 1);
    const Scales a = read_recipe("a", scale_a, recipe_a, swizzle_a, self.size(0), k);
    const Scales b = transposed(read_recipe("b", scale_b, recipe_b, swizzle_b, mat2.size(1), k));
    fit_result(self, mat2, out_dtype, out);
    multiply_into(self, mat2, a, b, bias, std::nullopt, out);
    return out;
}
Tensor scaled_mm_v2_xpu(const Tensor &self, const Tensor &mat2, TensorList scale_a, IntArrayRef recipe_a,
                        IntArrayRef swizzle_a, TensorList scale_b, IntArrayRef recipe_b,
                        IntArrayRef swizzle_b, const std::optional<Tensor> &bias,
                        std::optional<ScalarType> out_dtype, IntArrayRef contraction_dim,
                        bool use_fast_accum) {
    Tensor out = empty_result(self, mat2, out_dtype);
    return scaled_mm_v2_out_xpu(self, mat2, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, bias,
                                out_dtype, contraction_dim, use_fast_accum, out);
}

Tensor scaled_grouped_mm_xpu(const Tensor &self, const Tensor &mat2, const Tensor &scale_a,
                             const Tensor &scale_b, const std::optional<Tensor> &offs,
                             const std::optional<Tensor> &bias, const std::optional<Tensor> &scale_result,
                             std::optional<ScalarType> out_dtype, bool /*use_fast_accum*/) {
    TORCH_CHECK(!bias, "Bias tensor provided, but it is not supported yet.");
    TORCH_CHECK(!scale_result, "Scale result tensor provided, but it is not supported yet.");
    TORCH_CHECK(!out_dtype || *out_dtype == kBFloat16,
                "If output dtype provided, it must be torch.bfloat16.");
    return multiply_groups(self, mat2, scale_a, scale_b, offs);
}
Tensor scaled_grouped_mm_v2_xpu(const Tensor &self, const Tensor &mat2, TensorList scale_a,
                                IntArrayRef recipe_a, IntArrayRef swizzle_a, TensorList scale_b,
                                IntArrayRef recipe_b, IntArrayRef swizzle_b,
                                const std::optional<Tensor> &offs, const std::optional<Tensor> &bias,
                                std::optional<ScalarType> out_dtype, IntArrayRef /*contraction_dim*/,
                                bool use_fast_accum) {
    const auto is = [&](std::initializer_list<ScalingType> types) {
        const auto fits = [&](TensorList scale, IntArrayRef recipe) {
            return scale.size() == types.size() &&
                   std::equal(recipe.begin(), recipe.end(), types.begin(), types.end(),
                              [](int64_t found, ScalingType type) {
                                  return static_cast<ScalingType>(found) == type;
                              });
        };
        return fits(scale_a, recipe_a) && fits(scale_b, recipe_b);
    };
    const auto are_swizzled = [](IntArrayRef swizzle) {
        return !swizzle.empty() && static_cast<SwizzleType>(swizzle[0]) == SwizzleType::SWIZZLE_32_4_4;
    };
    const bool in_tiles = are_swizzled(swizzle_a) && are_swizzled(swizzle_b);
    const bool nv = in_tiles && is({ScalingType::BlockWise1x16, ScalingType::TensorWise});
    TORCH_CHECK_VALUE(nv || is({ScalingType::RowWise}) || (in_tiles && is({ScalingType::BlockWise1x32})),
                      "Grouped products support row-wise scales, swizzled 1x32 block scales, or swizzled "
                      "1x16 block scales with a scale per group; got recipes ",
                      recipe_a, " and ", recipe_b, " with swizzles ", swizzle_a, " and ", swizzle_b);
    if (nv) {
        TORCH_CHECK(!bias, "Bias tensor provided, but it is not supported yet.");
        TORCH_CHECK(!out_dtype || *out_dtype == kBFloat16,
                    "If output dtype provided, it must be torch.bfloat16.");
        return multiply_groups(self, mat2, scale_a[0], scale_b[0], offs, scale_a[1], scale_b[1]);
    }
    return scaled_grouped_mm_xpu(self, mat2, scale_a[0], scale_b[0], offs, bias, std::nullopt, out_dtype,
                                 use_fast_accum);
}

} // namespace at::native

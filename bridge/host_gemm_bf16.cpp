// bfloat16 products with float32 results on CPU devices, with oneDNN's brgemm from PyTorch's library.
// PyTorch's own operators round the result to bfloat16.
#include "host_gemm_bf16.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "export.h"

namespace at::native::cpublas {
// C = A B, or C += A B with `adds`. ld_a and ld_c are row strides. B has VNNI layout: element [k][n] at
// [k / 2][n][k % 2]. Absent from builds without oneDNN.
OPENXPU_OPTIONAL void brgemm(int64_t m, int64_t n, int64_t k, int64_t ld_a, int64_t ld_b, int64_t ld_c,
                             bool adds, const BFloat16 *a, const BFloat16 *b, float *c, bool by_pairs);
OPENXPU_OPTIONAL void brgemm_release(bool by_pairs);
} // namespace at::native::cpublas

namespace openxpu {
namespace {

using at::BFloat16;
namespace blas = at::native::cpublas;

constexpr int64_t ROWS = 128, COLUMNS = 64, DEPTH = 1024; // of a block; B's takes 128 KiB

// PyTorch rejects CPUs for which oneDNN has no brgemm: tested once, with a small product.
bool has_blocks() {
    static const bool usable = [] {
        if (!blas::brgemm || !blas::brgemm_release) return false;
        std::array<BFloat16, 256> ones;
        ones.fill(1);
        std::array<float, 256> sums{};
        try {
            blas::brgemm(16, 16, 16, 16, 16, 16, false, ones.data(), ones.data(), sums.data(), true);
            blas::brgemm_release(true);
        } catch (const c10::Error &) { return false; }
        return sums[255] == 16;
    }();
    return usable && at::globalContext().userEnabledMkldnn();
}

// Packs four columns of eight contiguous elements into VNNI layout.
void pack_vnni_pairs(const BFloat16 *from, int64_t line, BFloat16 *to, int64_t pitch) {
    uint32_t pairs[4][4];
    for (int n = 0; n < 4; n++) std::memcpy(pairs[n], from + n * line, sizeof pairs[n]);
    for (int k = 0; k < 4; k++) {
        const std::array row{pairs[0][k], pairs[1][k], pairs[2][k], pairs[3][k]};
        std::memcpy(to + k * pitch, row.data(), sizeof row);
    }
}

// Packs the block of B that starts at `from` into VNNI layout; 16 columns at a time, which fill whole
// cache lines.
void pack(const xpu_matrix &b, const BFloat16 *from, int64_t depth, int64_t columns, BFloat16 *to) {
    for (int64_t first = 0; first < columns; first += 16) {
        const int64_t end = std::min(first + 16, columns);
        const int64_t whole = b.row_stride == 1 && end - first == 16 ? depth / 8 * 8 : 0;
        for (int64_t k = 0; k < whole; k += 8)
            for (int64_t n = first; n < end; n += 4)
                pack_vnni_pairs(from + k + n * b.column_stride, b.column_stride, to + k * columns + 2 * n,
                                2 * columns);
        for (int64_t k = whole; k < depth; k += 2)
            for (int64_t n = first; n < end; n++) {
                const BFloat16 *pair = from + k * b.row_stride + n * b.column_stride;
                BFloat16 *place = to + k * columns + 2 * n;
                place[0] = pair[0], place[1] = pair[b.row_stride];
            }
    }
}

// Computes up to COLUMNS columns from `first`, for rows from `begin` to `end`.
void multiply(const xpu_gemm_args &args, int64_t batch, int64_t first, int64_t begin, int64_t end,
              std::vector<BFloat16> &packed) {
    const int64_t columns = std::min(COLUMNS, args.n - first);
    const auto *a = static_cast<const BFloat16 *>(args.a.data) + batch * args.a.batch_stride;
    const auto *b = static_cast<const BFloat16 *>(args.b.data) + batch * args.b.batch_stride;
    auto *out = static_cast<float *>(args.out.data) + batch * args.out.batch_stride;
    for (int64_t k = 0; k < args.k; k += DEPTH) {
        const int64_t depth = std::min(DEPTH, args.k - k);
        pack(args.b, b + k * args.b.row_stride + first * args.b.column_stride, depth, columns, packed.data());
        for (int64_t row = begin; row < end; row += ROWS)
            blas::brgemm(std::min(ROWS, end - row), columns, depth, args.a.row_stride, columns,
                         args.out.row_stride, k > 0, a + row * args.a.row_stride + k, packed.data(),
                         out + row * args.out.row_stride + first, true);
    }
}

} // namespace

bool has_bf16_gemm() { return blas::brgemm && blas::brgemm_release; }

bool multiply_brgemm(const xpu_gemm_args &args) {
    if (args.k % 2 || args.k == 0 || args.a.column_stride != 1 || args.out.column_stride != 1 ||
        !has_blocks())
        return false;
    // One thread per column of blocks; with few columns, its rows are split too.
    const int64_t across = (args.n + COLUMNS - 1) / COLUMNS, threads = at::get_num_threads();
    const int64_t wanted = std::max<int64_t>(1, 2 * threads / (across * args.batch));
    const int64_t rows = (args.m / wanted + ROWS) / ROWS * ROWS, down = (args.m + rows - 1) / rows;
    at::parallel_for(0, args.batch * across * down, 1, [&](int64_t begin, int64_t end) {
        std::vector<BFloat16> packed(static_cast<size_t>(DEPTH * COLUMNS));
        for (int64_t i = begin; i < end; i++) {
            const int64_t part = i % down, column = i / down % across;
            multiply(args, i / down / across, column * COLUMNS, part * rows,
                     std::min(args.m, (part + 1) * rows), packed);
        }
        blas::brgemm_release(true);
    });
    return true;
}

} // namespace openxpu

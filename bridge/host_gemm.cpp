// The provider of matrix products on CPU devices: PyTorch's CPU libraries (MKL, oneDNN) on the same memory.
#include "host_gemm.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/add_cpu_dispatch.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/addmv_cpu_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/dot_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <climits>
#include <utility>

#include "export.h"
#include "host_gemm_bf16.h"
#include "host_memory.h"
#include "xpu/ops/gemm.h"
#include "xpu/tuning.h"

namespace at::native {
// PyTorch's interface to oneDNN's products; absent from builds without oneDNN.
OPENXPU_OPTIONAL void mkldnn_matmul(const Tensor &a, const Tensor &b, const Tensor &out, float beta,
                                    float alpha);
} // namespace at::native

// The BLAS in PyTorch's library (MKL); absent from builds with another BLAS, or with hidden symbols.
using blas_size = const int;
template <class T>
using Blas = void(const char *, const char *, blas_size *, blas_size *, blas_size *, const T *, const T *,
                  blas_size *, const T *, blas_size *, const T *, T *, blas_size *);
#if defined(_WIN32) // torch_cpu.dll does not export it
constexpr Blas<float> *sgemm_ = nullptr;
constexpr Blas<double> *dgemm_ = nullptr;
#else
extern "C" {
OPENXPU_OPTIONAL Blas<float> sgemm_;
OPENXPU_OPTIONAL Blas<double> dgemm_;
}
#endif

namespace openxpu {
namespace {

// A CPU tensor that borrows memory. Created once per thread and repointed for each use: creating one
// costs as much as a small product.
class View {
  public:
    const at::Tensor &over(void *data, c10::ScalarType dtype, c10::IntArrayRef sizes,
                           c10::IntArrayRef strides, bool conjugate = false) {
        const auto type = c10::scalarTypeToTypeMeta(dtype);
        c10::DataPtr pointer(data, c10::Device(c10::kCPU));
        if (!tensor_.defined() || tensor_.use_count() != 1 || tensor_.dtype() != type) {
            c10::Storage storage(c10::Storage::use_byte_size_t(), size_t{1} << 62, std::move(pointer),
                                 nullptr, false);
            tensor_ = at::detail::make_tensor<c10::TensorImpl>(
                std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), type);
        } else {
            tensor_.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
                std::move(pointer));
        }
        auto *impl = tensor_.unsafeGetTensorImpl();
        impl->set_sizes_and_strides(sizes, strides, 0);
        if (impl->is_conj() != conjugate) impl->_set_conj(conjugate);
        return tensor_;
    }

  private:
    at::Tensor tensor_;
};

struct Views {
    View a, b, c, out;
};
thread_local Views views;

c10::ScalarType scalar_type(xpu_dtype dtype) {
    static constexpr c10::ScalarType types[] = {
        c10::kBool,     c10::kChar,   c10::kByte,   c10::kShort,        c10::kUInt16,
        c10::kInt,      c10::kUInt32, c10::kLong,   c10::kUInt64,       c10::kHalf,
        c10::kBFloat16, c10::kFloat,  c10::kDouble, c10::kComplexFloat, c10::kComplexDouble};
    return types[dtype];
}

c10::Scalar number_of(const xpu_scalar &scalar) {
    switch (scalar.dtype) {
    case XPU_FLOAT64: return scalar.value.f;
    case XPU_COMPLEX128: return c10::complex<double>(scalar.value.c[0], scalar.value.c[1]);
    case XPU_BOOL: return scalar.value.i != 0;
    default: return scalar.value.i;
    }
}

// Converted to the tensor's dtype: for integers, fractions are truncated.
c10::Scalar number_for(const xpu_scalar &scalar, const at::Tensor &tensor) {
    const c10::Scalar number = number_of(scalar);
    return at::isIntegralType(tensor.scalar_type(), true) ? c10::Scalar(number.toLong()) : number;
}

bool is_zero(const xpu_scalar &s) {
    return s.dtype == XPU_FLOAT64      ? s.value.f == 0
           : s.dtype == XPU_COMPLEX128 ? s.value.c[0] == 0 && s.value.c[1] == 0
                                       : s.value.i == 0;
}
bool is_one(const xpu_scalar &s) {
    return s.dtype == XPU_FLOAT64      ? s.value.f == 1
           : s.dtype == XPU_COMPLEX128 ? s.value.c[0] == 1 && s.value.c[1] == 0
                                       : s.value.i == 1;
}

struct Shape {
    std::array<int64_t, 3> sizes, strides;
    bool batched;
    c10::IntArrayRef size() const { return {sizes.data() + !batched, 2u + batched}; }
    c10::IntArrayRef stride() const { return {strides.data() + !batched, 2u + batched}; }
};

Shape shape_of(const xpu_gemm_args &args, const xpu_matrix &m, int64_t rows, int64_t columns) {
    return {{args.batch, rows, columns}, {m.batch_stride, m.row_stride, m.column_stride}, args.batch != 1};
}

// oneDNN rejects CPUs without fast kernels: tested once, with a small product.
bool has_onednn() {
    static const bool usable = [] {
        if (!at::native::mkldnn_matmul) return false;
        try {
            const at::Tensor one = at::ones({16, 16}, c10::kCPU), out = at::zeros({16, 16}, c10::kCPU);
            at::native::mkldnn_matmul(one, one, out, 0, 1);
            return out.const_data_ptr<float>()[255] == 16;
        } catch (const c10::Error &) { return false; }
    }();
    return usable && at::globalContext().userEnabledMkldnn();
}

// Which library is faster for fp32 depends on the CPU, the size and the transposes. `openxpu tune`
// measures the thresholds below. Products that stay with PyTorch's BLAS: small ones (oneDNN has a fixed
// cost of 20 us), layouts that oneDNN would copy first, and few rows.
bool suits_onednn(int device, const xpu_gemm_args &args) {
    static const int rows = xpu_tuning_index("onednn_rows"), nn = xpu_tuning_index("onednn_from_nn"),
                     nt = xpu_tuning_index("onednn_from_nt"), tn = xpu_tuning_index("onednn_from_tn");
    const int64_t least_rows = xpu_tuning_value(device, rows), work = args.m * args.n * args.k;
    if (args.dtype != XPU_FLOAT32 || args.batch != 1 || args.m < least_rows || args.n < least_rows ||
        !is_one(args.alpha))
        return false;
    const bool row_a = args.a.column_stride == 1 && args.a.row_stride == args.k;
    const bool row_b = args.b.column_stride == 1 && args.b.row_stride == args.n;
    const bool column_a = args.a.row_stride == 1 && args.a.column_stride == args.m;
    const bool column_b = args.b.row_stride == 1 && args.b.column_stride == args.k;
    const bool whole_out = args.out.column_stride == 1 && args.out.row_stride == args.n;
    const int layout = row_a && row_b ? nn : row_a && column_b ? nt : column_a && row_b ? tn : -1;
    return whole_out && layout >= 0 && work >= xpu_tuning_value(device, layout) && has_onednn();
}

// One row times one column: a matrix product would sum in a single chain, slowly and with a large error.
void inner_product(const xpu_gemm_args &args, const at::Tensor &a, const at::Tensor &b, const at::Tensor &c,
                   at::Tensor &out) {
    at::Tensor sum = at::native::dot(a.view({args.k}), b.view({args.k}));
    if (!is_one(args.alpha)) sum.mul_(number_for(args.alpha, sum));
    if (c.defined()) sum = sum.add(c, number_for(args.beta, sum));
    out.copy_(sum);
}

void multiply(int device, const xpu_gemm_args &args, const at::Tensor &a, const at::Tensor &b,
              const at::Tensor &c, at::Tensor &out) {
    if (args.batch == 1 && args.m == 1 && args.n == 1) return inner_product(args, a, b, c, out);
    /* Asked to add to its result, oneDNN overruns its memory where it splits K. */
    if (suits_onednn(device, args) && !c.is_same(out)) {
        at::native::mkldnn_matmul(a, b, out, 0, 1);
        if (c.defined()) at::cpu::add_(out, c, number_of(args.beta));
        return;
    }
    if (!c.defined() && is_one(args.alpha)) {
        if (args.batch == 1)
            at::cpu::mm_out(out, a, b);
        else
            at::cpu::bmm_out(out, a, b);
        return;
    }
    const c10::Scalar alpha = number_of(args.alpha),
                      beta = c.defined() ? number_of(args.beta) : c10::Scalar(0);
    const at::Tensor &addend = c.defined() ? c : out;
    if (args.batch == 1)
        at::cpu::addmm_out(out, addend, a, b, beta, alpha);
    else
        at::cpu::baddbmm_out(out, addend, a, b, beta, alpha);
}

// Describes a matrix to BLAS, which is column-major: 'N' if rows are contiguous, 'T' if columns are.
// False if neither.
struct BlasMatrix {
    char transposed;
    int stride;
};
bool blas_matrix(const xpu_matrix &m, int64_t rows, int64_t columns, BlasMatrix *found) {
    const bool by_rows = m.column_stride == 1 && m.row_stride >= columns;
    if (!by_rows && (m.row_stride != 1 || m.column_stride < rows)) return false;
    const int64_t stride = by_rows ? m.row_stride : m.column_stride;
    *found = {by_rows ? 'N' : 'T', static_cast<int>(stride)};
    return stride <= INT_MAX;
}

// Makes the BLAS call of PyTorch's kernel directly, with the same arguments and hence the same results;
// the rest of that kernel takes as long as a 32 × 32 product. Returns false, with nothing done, in less
// simple cases.
template <class T> bool by_blas(Blas<T> *blas, const xpu_gemm_args &args) {
    BlasMatrix a, b, out;
    const int64_t m = args.m, n = args.n, k = args.k;
    const bool adds = args.c.data && !is_zero(args.beta);
    if (!blas || args.batch != 1 || n < 2 || k < 1 || m > INT_MAX || n > INT_MAX || k > INT_MAX ||
        !blas_matrix(args.a, m, k, &a) || !blas_matrix(args.b, k, n, &b) ||
        !blas_matrix(args.out, m, n, &out) || out.transposed != 'N')
        return false;
    const auto *c = static_cast<const T *>(args.c.data);
    auto *to = static_cast<T *>(args.out.data);
    if (adds && c != to) { // in threads where it is large
        if (m * n > at::internal::GRAIN_SIZE || args.c.column_stride != 1) return false;
        for (int64_t row = 0; row < m; row++)
            std::copy_n(c + row * args.c.row_stride, n, to + row * args.out.row_stride);
    } else if (adds && (args.c.row_stride != args.out.row_stride || args.c.column_stride != 1))
        return false;
    const int rows = static_cast<int>(m), columns = static_cast<int>(n), inner = static_cast<int>(k);
    const T alpha = number_of(args.alpha).to<T>(), beta = adds ? number_of(args.beta).to<T>() : T(0);
    blas(&b.transposed, &a.transposed, &columns, &rows, &inner, &alpha, static_cast<const T *>(args.b.data),
         &b.stride, static_cast<const T *>(args.a.data), &a.stride, &beta, to, &out.stride);
    return true;
}

// PyTorch uses BLAS for smaller products (mkldnn_gemm_min_size) at any requested precision.
constexpr int64_t LEAST_WORK_OF_ONEDNN = 16 * 16 * 16;

// At reduced precision (torch.set_float32_matmul_precision) PyTorch uses oneDNN. The query takes two hash
// table look-ups, as long as a product with few rows.
bool keeps_precision(const xpu_gemm_args &args) {
    if (args.m * args.n * args.k <= LEAST_WORK_OF_ONEDNN) return true;
    const auto precision =
        at::globalContext().float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL);
    return precision != at::Float32Precision::TF32 && precision != at::Float32Precision::BF16;
}

bool by_blas(int device, const xpu_gemm_args &args) {
    static const bool is_mkl = at::hasMKL();
    if (!is_mkl) return false;
    if (args.dtype == XPU_FLOAT64) return by_blas<double>(dgemm_, args);
    if (args.dtype != XPU_FLOAT32 || suits_onednn(device, args)) return false;
    return keeps_precision(args) && by_blas<float>(sgemm_, args);
}

void run(xpu_stream *stream, const xpu_gemm_args &args) {
    const int device = xpu_stream_device(stream);
    if (by_blas(device, args)) return;
    const auto dtype = scalar_type(args.dtype);
    const Shape sa = shape_of(args, args.a, args.m, args.k), sb = shape_of(args, args.b, args.k, args.n);
    const Shape sc = shape_of(args, args.c, args.m, args.n), so = shape_of(args, args.out, args.m, args.n);
    const at::Tensor &a = views.a.over(args.a.data, dtype, sa.size(), sa.stride(), args.conjugate_a);
    const at::Tensor &b = views.b.over(args.b.data, dtype, sb.size(), sb.stride(), args.conjugate_b);
    at::Tensor out = views.out.over(args.out.data, dtype, so.size(), so.stride());
    at::Tensor c;
    if (args.c.data && !is_zero(args.beta)) /* in place: the very tensor, or it would be copied onto itself */
        c = args.c.data == args.out.data && sc.strides == so.strides
                ? out
                : views.c.over(args.c.data, dtype, sc.size(), sc.stride());

    if (is_slow_on_host(dtype)) {
        const HostScope scope(static_cast<c10::DeviceIndex>(device));
        at::Tensor wide = at::empty(so.size(), out.options().dtype(c10::kFloat));
        multiply(device, args, a.to(c10::kFloat), b.to(c10::kFloat), c.defined() ? c.to(c10::kFloat) : c,
                 wide);
        out.copy_(wide);
        return;
    }
    multiply(device, args, a, b, c, out);
}

xpu_status gemm(xpu_stream *stream, const xpu_gemm_args *args) {
    if (args->dtype > XPU_COMPLEX128) return XPU_ERROR_NOT_SUPPORTED; // of 8 bits and fewer
    try {
        run(stream, *args);
        return XPU_SUCCESS;
    } catch (...) { return keep_failure(); }
}

// bfloat16 operands, float32 result.
void run_wide(xpu_stream *stream, const xpu_gemm_args &args) {
    if (multiply_brgemm(args)) return;
    const int device = xpu_stream_device(stream);
    const Shape sa = shape_of(args, args.a, args.m, args.k), sb = shape_of(args, args.b, args.k, args.n);
    const Shape so = shape_of(args, args.out, args.m, args.n);
    const at::Tensor &a = views.a.over(args.a.data, c10::kBFloat16, sa.size(), sa.stride());
    const at::Tensor &b = views.b.over(args.b.data, c10::kBFloat16, sb.size(), sb.stride());
    at::Tensor out = views.out.over(args.out.data, c10::kFloat, so.size(), so.stride());
    const HostScope scope(static_cast<c10::DeviceIndex>(device));
    multiply(device, args, a.to(c10::kFloat), b.to(c10::kFloat), {}, out);
}

xpu_status gemm_f32_output(xpu_stream *stream, const xpu_gemm_args *args) {
    try {
        run_wide(stream, *args);
        return XPU_SUCCESS;
    } catch (...) { return keep_failure(); }
}

[[maybe_unused]] const bool registered = [] {
    xpu_tuning_libraries("torch " TORCH_VERSION);
    const xpu_host_provider provider{.gemm = gemm,
                                     .gemm_f32_output = has_bf16_gemm() ? gemm_f32_output : nullptr};
    return xpu_set_host_provider(&provider) == XPU_SUCCESS;
}();

} // namespace

void check_product(xpu_status status) {
    if (C10_LIKELY(status == XPU_SUCCESS)) return;
    rethrow_failure();
    check(status);
}

} // namespace openxpu

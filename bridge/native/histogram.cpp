// bincount, histc, histogram and histogramdd: PyTorch's CPU kernels on CPU devices (on the same memory),
// libxpu's kernels on all others, on the current stream. Error texts are PyTorch's.
#include "xpu/ops/histogram.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_histogramdd_bin_edges_native.h>
#include <ATen/ops/_histogramdd_from_bin_cts_native.h>
#include <ATen/ops/_histogramdd_from_bin_tensors.h>
#include <ATen/ops/_histogramdd_from_bin_tensors_native.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/bincount_native.h>
#include <ATen/ops/histc.h>
#include <ATen/ops/histc_native.h>
#include <ATen/ops/histogram.h>
#include <ATen/ops/histogram_native.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/util/safe_numerics.h>

#include <cmath>

#include "native/sort.h"
#include "operands.h"

namespace openxpu {
namespace {

using at::Tensor;

// Elements per launch; a 32-bit counter cannot overflow.
constexpr int64_t most_counted = int64_t{1} << 30;

// PyTorch's CPU kernels take memory without asking whether there is any: Linux would end the process. More
// bins than these are counted by libxpu's kernels, whose memory the allocator checks.
constexpr int64_t most_host_bins = int64_t{1} << 24;

bool counts_on_host(const Tensor &self, int64_t bins) {
    return sorts_on_host(self) && bins <= most_host_bins;
}

// The largest element; 0 for dtypes with small values only, or that bincount refuses.
int64_t largest(const Tensor &values) {
    const auto type = values.scalar_type();
    return (type == at::kInt || type == at::kLong) && values.numel() > 0 ? values.max().item<int64_t>() : 0;
}

Tensor counts_of(const Tensor &flat, int64_t bins, const xpu_scalar *low, const xpu_scalar *high) {
    Tensor total;
    for (int64_t first = 0; first < flat.numel(); first += most_counted) {
        const auto part = flat.narrow(0, first, std::min(most_counted, flat.numel() - first));
        const auto counts = at::zeros({bins}, flat.options().dtype(at::kInt));
        check(xpu_histogram(current_stream(flat), dtype_of(flat), part.const_data_ptr(), part.numel(), bins,
                            low, high, nullptr, XPU_FLOAT32, counts.mutable_data_ptr()));
        total = total.defined() ? total.add(counts) : counts.to(at::kLong);
    }
    return total.defined() ? total : at::zeros({bins}, flat.options().dtype(at::kLong));
}

// For each value 0 … bins - 1, the sum of the weights (fp32 or fp64) of the elements that equal it.
Tensor sums_of(const Tensor &flat, int64_t bins, const Tensor &weights) {
    const auto factors = weights.contiguous();
    const auto sums = at::zeros({bins}, factors.options());
    if (at::globalContext().deterministicAlgorithms()) return sums.index_add_(0, flat.to(at::kLong), factors);
    for (int64_t first = 0; first < flat.numel(); first += most_counted) {
        const auto part = flat.narrow(0, first, std::min(most_counted, flat.numel() - first));
        check(xpu_histogram(current_stream(flat), dtype_of(flat), part.const_data_ptr(), part.numel(), bins,
                            nullptr, nullptr, factors.narrow(0, first, part.numel()).const_data_ptr(),
                            dtype_of(factors), sums.mutable_data_ptr()));
    }
    return sums;
}

Tensor evenly_counted(const Tensor &self, int64_t bins, const at::Scalar &min, const at::Scalar &max) {
    TORCH_CHECK(bins > 0, "bins must be > 0");
    TORCH_CHECK_NOT_IMPLEMENTED(!self.is_complex() && self.scalar_type() != at::kBool,
                                "\"histc\" not implemented for '", self.scalar_type(), "'");
    const auto flat = self.reshape({-1}).contiguous();
    const bool real = at::isFloatingType(self.scalar_type());
    auto low = min, high = max;
    const auto equal = [&] {
        return real ? low.toDouble() == high.toDouble() : low.toLong() == high.toLong();
    };
    if (equal() && flat.numel() > 0) {
        const auto [least, most] = at::aminmax(flat);
        const auto both = at::stack({least, most}).cpu();
        low = both[0].item();
        high = both[1].item();
    }
    if (real) {
        double a = low.toDouble(), b = high.toDouble();
        if (a == b) a -= 1, b += 1;
        TORCH_CHECK(std::isfinite(a) && std::isfinite(b), "range of [", a, ", ", b, "] is not finite");
        TORCH_CHECK(a < b, "max must be larger than min");
        const auto from = scalar_of(a), to = scalar_of(b);
        return counts_of(flat, bins, &from, &to).to(self.scalar_type());
    }
    int64_t a = low.toLong(), b = high.toLong();
    if (a == b) a -= 1, b += 1;
    TORCH_CHECK(a < b, "max must be larger than min");
    const auto from = scalar_of(a), to = scalar_of(b);
    return counts_of(flat, bins, &from, &to).to(self.scalar_type());
}

Tensor bin_counts(const Tensor &self, const Tensor &weights, int64_t minlength) {
    TORCH_CHECK(minlength >= 0, "minlength should be >= 0");
    TORCH_CHECK_NOT_IMPLEMENTED(at::isIntegralType(self.scalar_type(), false),
                                "\"bincount\" not implemented for '", self.scalar_type(), "'");
    TORCH_CHECK(self.dim() == 1, "bincount only supports 1-d non-negative integral inputs.");
    TORCH_CHECK(!weights.defined() || (weights.dim() == 1 && weights.numel() == self.numel()),
                "weights should be 1-d and have the same length as input");
    const auto type = !weights.defined()                    ? at::kLong
                      : weights.scalar_type() == at::kFloat ? at::kFloat
                                                            : at::kDouble;
    if (self.numel() == 0) return at::zeros({minlength}, self.options().dtype(at::kLong));
    const auto [least, most] = at::aminmax(self);
    const auto both = at::stack({least, most}).to(at::kLong).cpu();
    const auto last = both[1].item<int64_t>();
    TORCH_CHECK(both[0].item<int64_t>() >= 0, "bincount only supports 1-d non-negative integral inputs.");
    TORCH_CHECK(last < INT64_MAX, "maximum value of input overflowed, it should be < ", INT64_MAX,
                " but got ", last);
    const auto bins = std::max(last + 1, minlength);
    const auto flat = self.contiguous();
    if (!weights.defined()) return counts_of(flat, bins, nullptr, nullptr);
    return sums_of(flat, bins, weights.to(type));
}

// --- arbitrary edges ---

// The points of a histogram, [points, dimensions], with PyTorch's checks.
Tensor points_of(const Tensor &self, at::TensorList edges, const std::optional<Tensor> &weight) {
    TORCH_CHECK(self.dim() >= 2,
                "torch.histogramdd: input tensor should have at least 2 dimensions, but got ", self.dim());
    TORCH_CHECK(at::isFloatingType(self.scalar_type()), "\"histogram\" not implemented for '",
                self.scalar_type(), "'");
    const auto dims = self.size(-1);
    TORCH_CHECK(static_cast<int64_t>(edges.size()) == dims, "torch.histogramdd: expected ", dims,
                " sequences of bin edges for a ", dims, "-dimensional histogram but got ", edges.size());
    for (int64_t d = 0; d < dims; d++) {
        TORCH_CHECK(edges[d].device() == self.device(), "torch.histogramdd: input is on ", self.device(),
                    ", bins for dimension ", d, " on ", edges[d].device());
        TORCH_CHECK(edges[d].scalar_type() == self.scalar_type(),
                    "torch.histogramdd: input tensor and bins tensors should have the same dtype, but got "
                    "input with dtype ",
                    self.dtype(), " and bins for dimension ", d, " with dtype ", edges[d].dtype());
        TORCH_CHECK(edges[d].dim() == 1, "torch.histogramdd: bins tensor should have one dimension, but got ",
                    edges[d].dim(), " dimensions in the bins tensor for dimension ", d);
        TORCH_CHECK(edges[d].numel() > 1, "torch.histogram(): bins must be > 0, but got ",
                    edges[d].numel() - 1, " for dimension ", d);
    }
    if (weight) {
        TORCH_CHECK(weight->device() == self.device(), "torch.histogramdd: input is on ", self.device(),
                    ", weight on ", weight->device());
        TORCH_CHECK(weight->scalar_type() == self.scalar_type(),
                    "torch.histogramdd: if weight tensor is provided, input tensor and weight tensor should "
                    "have the same dtype, but got input(",
                    self.dtype(), "), and weight(", weight->dtype(), ")");
        const auto sizes = self.sizes().slice(0, self.dim() - 1);
        TORCH_CHECK(weight->sizes() == sizes || (weight->dim() == 0 && sizes == at::IntArrayRef({1})),
                    "torch.histogramdd: if weight tensor is provided it should have the same shape as the "
                    "input tensor excluding its innermost dimension, but got input with shape ",
                    self.sizes(), " and weight with shape ", weight->sizes());
    }
    return self.reshape({-1, dims});
}

// Bins include their left edge; the last bin includes its right edge, too. Values outside and NaN are not
// counted.
Tensor histogram(const Tensor &self, at::TensorList edges, const std::optional<Tensor> &weight,
                 bool density) {
    const auto points = points_of(self, edges, weight);
    std::vector<int64_t> sizes;
    Tensor place, inside;
    int64_t bins = 1;
    for (const auto &given : edges) {
        const auto values = points.select(1, static_cast<int64_t>(sizes.size())).contiguous();
        const auto lines = given.contiguous();
        const auto count = lines.numel() - 1;
        const auto here = values.ge(lines[0]).logical_and_(values.le(lines[count]));
        const auto bin = at::searchsorted(lines, values, false, /*right=*/true).sub_(1).clamp_(0, count - 1);
        place = place.defined() ? place.mul_(count).add_(bin) : bin;
        inside = inside.defined() ? inside.logical_and_(here) : here;
        sizes.push_back(count);
        TORCH_CHECK(!c10::mul_overflows(bins, count, &bins), "torch.histogramdd: too many bins");
    }
    place.masked_fill_(inside.logical_not_(), bins); // an extra bin for values that are not counted
    const auto type = self.scalar_type();
    const auto all =
        weight ? sums_of(place, bins + 1, weight->reshape({-1}).to(type == at::kDouble ? type : at::kFloat))
               : counts_of(place, bins + 1, nullptr, nullptr);
    auto hist = all.narrow(0, 0, bins).reshape(sizes);
    if (!density) return hist.to(type);
    hist = hist.to(type == at::kDouble ? type : at::kFloat);
    hist = hist / hist.sum();
    for (size_t d = 0; d < edges.size(); d++) {
        std::vector<int64_t> shape(edges.size(), 1);
        shape[d] = sizes[d];
        hist.div_(edges[d].diff().reshape(shape));
    }
    return hist.to(type);
}

// Edges of bins[d] bins of equal width in each dimension d, over `range` or from the minimum to the maximum.
std::vector<Tensor> even_edges(const Tensor &self, at::IntArrayRef bins,
                               std::optional<at::ArrayRef<double>> range) {
    TORCH_CHECK(self.dim() >= 2, "torch.histogramdd: input tensor should have at least 2 dimensions");
    const auto dims = self.size(-1);
    TORCH_CHECK(static_cast<int64_t>(bins.size()) == dims,
                "histogramdd: The size of bins must be equal to the innermost dimension of the input.");
    std::vector<double> ends(2 * dims);
    for (int64_t d = 0; d < dims; d++) ends[2 * d + 1] = 1;
    if (range) {
        TORCH_CHECK(static_cast<int64_t>(range->size()) == 2 * dims, "torch.histogramdd: for a ", dims,
                    "-dimensional histogram range should have ", 2 * dims, " elements, but got ",
                    range->size());
        ends.assign(range->begin(), range->end());
    } else if (self.numel() > 0) {
        const auto [least, most] = at::aminmax(self.reshape({-1, dims}), 0);
        const auto both = at::stack({least, most}, 1).to(at::kCPU, at::kDouble).contiguous();
        ends.assign(both.const_data_ptr<double>(), both.const_data_ptr<double>() + 2 * dims);
    }
    std::vector<Tensor> edges;
    for (int64_t d = 0; d < dims; d++) {
        double low = ends[2 * d], high = ends[2 * d + 1];
        TORCH_CHECK(std::isfinite(low) && std::isfinite(high), "torch.histogramdd: dimension ", d,
                    "'s range [", low, ", ", high, "] is not finite");
        TORCH_CHECK(low <= high, "torch.histogramdd: min should not exceed max, but got min ", low, " max ",
                    high, " for dimension ", d);
        TORCH_CHECK(bins[d] > 0, "torch.histogram(): bins must be > 0, but got ", bins[d], " for dimension ",
                    d);
        if (low == high) low -= 0.5, high += 0.5;
        edges.push_back(at::linspace(low, high, bins[d] + 1, self.options()));
    }
    return edges;
}

std::optional<Tensor> cpu_weight(const std::optional<Tensor> &weight) {
    return weight && weight->defined() ? std::optional<Tensor>(as_cpu_input(*weight)) : std::nullopt;
}

// For one-dimensional histograms, every element is a point.
std::optional<Tensor> flat_weight(const std::optional<Tensor> &weight) {
    return weight ? std::optional<Tensor>(weight->reshape({-1})) : std::nullopt;
}

void check_shape(const Tensor &self, const std::optional<Tensor> &weight) {
    TORCH_CHECK(!weight || weight->sizes() == self.sizes(),
                "torch.histogram: if weight tensor is provided it should have the same shape as the input, "
                "but got input with shape ",
                self.sizes(), " and weight with shape ", weight->sizes());
}

} // namespace
} // namespace openxpu

namespace at::native {

using namespace openxpu;

Tensor histc_xpu(const Tensor &self, int64_t bins, const Scalar &min, const Scalar &max) {
    // PyTorch's CPU kernel supports only floating-point dtypes.
    if (!counts_on_host(self, bins) || !at::isFloatingType(self.scalar_type()))
        return evenly_counted(self, bins, min, max);
    return back(at::histc(as_cpu_input(self), bins, min, max), self);
}
Tensor &histc_out_xpu(const Tensor &self, int64_t bins, const Scalar &min, const Scalar &max, Tensor &out) {
    return give(histc_xpu(self, bins, min, max), out);
}

Tensor bincount_xpu(const Tensor &self, const std::optional<Tensor> &weights, int64_t minlength) {
    if (counts_on_host(self, minlength)) {
        const auto values = as_cpu_input(self);
        if (largest(values) < most_host_bins)
            return back(at::bincount(values, cpu_weight(weights), minlength), self);
    }
    return bin_counts(self, weights.value_or(Tensor()), minlength);
}

// --- one dimension ---

std::tuple<Tensor, Tensor> histogram_edges_xpu(const Tensor &self, const Tensor &bins,
                                               const std::optional<Tensor> &weight, bool density) {
    if (sorts_on_host(self)) {
        const auto [hist, edges] =
            at::histogram(as_cpu_input(self), as_cpu_input(bins), cpu_weight(weight), density);
        return {back(hist, self), back(edges, self)};
    }
    check_shape(self, weight);
    return {openxpu::histogram(self.reshape({-1, 1}), bins, flat_weight(weight), density), bins.clone()};
}
std::tuple<Tensor &, Tensor &> histogram_edges_out_xpu(const Tensor &self, const Tensor &bins,
                                                       const std::optional<Tensor> &weight, bool density,
                                                       Tensor &hist, Tensor &bin_edges) {
    const auto [counts, edges] = histogram_edges_xpu(self, bins, weight, density);
    return std::forward_as_tuple(give(counts, hist), give(edges, bin_edges));
}

std::tuple<Tensor, Tensor> histogram_bins_xpu(const Tensor &self, int64_t bins,
                                              std::optional<ArrayRef<double>> range,
                                              const std::optional<Tensor> &weight, bool density) {
    if (counts_on_host(self, bins)) {
        const auto [hist, edges] =
            at::histogram(as_cpu_input(self), bins, range, cpu_weight(weight), density);
        return {back(hist, self), back(edges, self)};
    }
    check_shape(self, weight);
    const auto points = self.reshape({-1, 1});
    const auto edges = even_edges(points, bins, range);
    return {openxpu::histogram(points, edges, flat_weight(weight), density), edges[0]};
}
std::tuple<Tensor &, Tensor &> histogram_bins_out_xpu(const Tensor &self, int64_t bins,
                                                      std::optional<ArrayRef<double>> range,
                                                      const std::optional<Tensor> &weight, bool density,
                                                      Tensor &hist, Tensor &bin_edges) {
    const auto [counts, edges] = histogram_bins_xpu(self, bins, range, weight, density);
    return std::forward_as_tuple(give(counts, hist), give(edges, bin_edges));
}

// --- several dimensions ---

std::vector<Tensor> histogramdd_edges_xpu(const Tensor &self, IntArrayRef bins,
                                          std::optional<ArrayRef<double>> range,
                                          const std::optional<Tensor> &weight, bool density) {
    return even_edges(self, bins, range);
}

Tensor histogramdd_xpu(const Tensor &self, TensorList bins, const std::optional<Tensor> &weight,
                       bool density) {
    double all = 1; // bins
    for (const auto &given : bins) all *= static_cast<double>(given.numel());
    if (!sorts_on_host(self) || all > most_host_bins) return openxpu::histogram(self, bins, weight, density);
    std::vector<Tensor> edges;
    for (const auto &given : bins) edges.push_back(as_cpu_input(given));
    return back(at::_histogramdd_from_bin_tensors(as_cpu_input(self), edges, cpu_weight(weight), density),
                self);
}

Tensor histogramdd_bins_xpu(const Tensor &self, IntArrayRef bins, std::optional<ArrayRef<double>> range,
                            const std::optional<Tensor> &weight, bool density) {
    return histogramdd_xpu(self, even_edges(self, bins, range), weight, density);
}

} // namespace at::native

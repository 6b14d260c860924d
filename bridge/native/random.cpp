// Random numbers. PyTorch's own templates check arguments and build iterators; the numbers come from libxpu.
#include <ATen/native/DistributionTemplates.h>
#include <ATen/ops/_assert_async.h>
#include <ATen/ops/_fused_dropout_native.h>
#include <ATen/ops/_masked_scale_native.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/bernoulli_native.h>
#include <ATen/ops/cauchy_native.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exponential_native.h>
#include <ATen/ops/geometric_native.h>
#include <ATen/ops/log_normal_native.h>
#include <ATen/ops/multinomial_native.h>
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/native_dropout_backward_native.h>
#include <ATen/ops/native_dropout_native.h>
#include <ATen/ops/normal_native.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/random_native.h>
#include <ATen/ops/randperm_native.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/uniform_native.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <limits>

#include "generator.h"
#include "native/pointwise.h"
#include "xpu/ops/random.h"

namespace at::native {

namespace {

using openxpu::check;
using Source = std::optional<Generator>;

xpu_stream *stream_of(const TensorIteratorBase &iter) {
    return openxpu::current_stream(iter.device(0).index());
}
xpu_generator *generator_of(const TensorIteratorBase &iter, const Source &source) {
    return openxpu::generator_of(source, iter.device(0).index());
}

void draw(TensorIteratorBase &iter, xpu_distribution distribution, double first, double second,
          const Source &source) {
    if (iter.numel() == 0) return;
    const xpu_iter lowered = openxpu::iter_of(iter);
    check(xpu_random(stream_of(iter), generator_of(iter, source), &lowered, distribution, first, second));
}

void draw_integers(TensorIteratorBase &iter, int64_t from, uint64_t range, const Source &source) {
    if (iter.numel() == 0) return;
    const xpu_iter lowered = openxpu::iter_of(iter);
    check(xpu_random_integers(stream_of(iter), generator_of(iter, source), &lowered, from, range));
}

// The numbers of random_() without bounds: all that the dtype holds exactly, from 0 on.
uint64_t natural_range(ScalarType type) {
    if (type == kBool) return 2;
    if (isFloatingType(type))
        return AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, type, "random_", [] {
            return (uint64_t(1) << std::numeric_limits<scalar_t>::digits) + 1;
        });
    return AT_DISPATCH_V2(type, "random_",
                          AT_WRAP([] { return uint64_t(std::numeric_limits<scalar_t>::max()) + 1; }),
                          AT_EXPAND(AT_INTEGRAL_TYPES_V2));
}

// What PyTorch's templates call, one for each distribution.
template <typename> struct Uniform {
    void operator()(TensorIteratorBase &iter, double from, double to, const Source &source) {
        draw(iter, XPU_UNIFORM, from, to, source);
    }
};
template <typename> struct Normal {
    void operator()(const TensorBase &self, double mean, double std, const Source &source) {
        auto iter = TensorIterator::borrowing_nullary_op(self);
        draw(iter, XPU_NORMAL, mean, std, source);
    }
};
template <typename> struct LogNormal {
    void operator()(TensorIteratorBase &iter, double mean, double std, const Source &source) {
        draw(iter, XPU_LOG_NORMAL, mean, std, source);
    }
};
template <typename> struct Exponential {
    void operator()(TensorIteratorBase &iter, double rate, const Source &source) {
        draw(iter, XPU_EXPONENTIAL, rate, 0, source);
    }
};
template <typename> struct Cauchy {
    void operator()(TensorIteratorBase &iter, double median, double sigma, const Source &source) {
        draw(iter, XPU_CAUCHY, median, sigma, source);
    }
};
template <typename> struct Geometric {
    void operator()(TensorIteratorBase &iter, double p, const Source &source) {
        draw(iter, XPU_GEOMETRIC, p, 0, source);
    }
};
template <typename> struct BernoulliNumber {
    void operator()(const TensorBase &self, double p, const Source &source) {
        auto iter = TensorIterator::borrowing_nullary_op(self);
        draw(iter, XPU_BERNOULLI, p, 0, source);
    }
};
template <typename> struct BernoulliTensor {
    void operator()(const TensorBase &self, const TensorBase &p, const Source &source) {
        TORCH_CHECK(isFloatingType(p.scalar_type()),
                    "expected probabilities tensor to have floating type, got ", p.scalar_type());
        const auto chance = p.device() == self.device() ? Tensor(p) : Tensor(p).to(self.device());
        auto iter = TensorIteratorConfig()
                        .check_all_same_dtype(false)
                        .resize_outputs(false)
                        .add_output(self)
                        .add_const_input(chance)
                        .build();
        if (iter.numel() == 0) return;
        const xpu_iter lowered = openxpu::iter_of(iter);
        check(xpu_random_bernoulli(stream_of(iter), generator_of(iter, source), &lowered));
    }
};
template <typename> struct Integers {
    void operator()(TensorIteratorBase &iter, const Source &source) {
        draw_integers(iter, 0, natural_range(iter.dtype()), source);
    }
};
template <typename> struct IntegersFromTo {
    void operator()(TensorIteratorBase &iter, uint64_t range, int64_t from, const Source &source) {
        draw_integers(iter, from, range, source);
    }
    // from the smallest number to the largest
    void operator()(TensorIteratorBase &iter, const Source &source) {
        draw_integers(iter, std::numeric_limits<int64_t>::min(), 0, source);
    }
};

Tensor scaled_by_mask(const Tensor &self, const Tensor &mask, double scale) {
    Tensor out = at::empty_like(self);
    auto iter = TensorIteratorConfig()
                    .check_all_same_dtype(false)
                    .add_output(out)
                    .add_const_input(self)
                    .add_const_input(mask)
                    .build();
    openxpu::pointwise(iter, self.scalar_type(), XPU_POINTWISE_MASKED_SCALE, {openxpu::scalar_of(scale)});
    return out;
}

} // namespace

Tensor &uniform_xpu_(Tensor &self, double from, double to, Source generator) {
    return templates::uniform_impl_<Uniform, void>(self, from, to, std::move(generator));
}
Tensor &normal_xpu_(Tensor &self, double mean, double std, Source generator) {
    return templates::normal_impl_<Normal, void>(self, mean, std, std::move(generator));
}
Tensor &normal_out_xpu(const Tensor &mean, double std, Source generator, Tensor &out) {
    return templates::normal_out_impl<Normal, void>(out, mean, std, std::move(generator));
}
Tensor &normal_out_xpu(double mean, const Tensor &std, Source generator, Tensor &out) {
    return templates::normal_out_impl<Normal, void>(out, mean, std, std::move(generator));
}
Tensor &normal_out_xpu(const Tensor &mean, const Tensor &std, Source generator, Tensor &out) {
    return templates::normal_out_impl<Normal, void>(out, mean, std, std::move(generator));
}
Tensor normal_xpu(const Tensor &mean, double std, Source generator) {
    return templates::normal_impl<Normal, void>(mean, std, std::move(generator));
}
Tensor normal_xpu(double mean, const Tensor &std, Source generator) {
    return templates::normal_impl<Normal, void>(mean, std, std::move(generator));
}
Tensor normal_xpu(const Tensor &mean, const Tensor &std, Source generator) {
    return templates::normal_impl<Normal, void>(mean, std, std::move(generator));
}
Tensor &log_normal_xpu_(Tensor &self, double mean, double std, Source generator) {
    return templates::log_normal_impl_<LogNormal, void>(self, mean, std, std::move(generator));
}
Tensor &exponential_xpu_(Tensor &self, double lambd, Source generator) {
    return templates::exponential_impl_<Exponential, void>(self, lambd, std::move(generator));
}
Tensor &cauchy_xpu_(Tensor &self, double median, double sigma, Source generator) {
    return templates::cauchy_impl_<Cauchy, void>(self, median, sigma, std::move(generator));
}
Tensor &geometric_xpu_(Tensor &self, double p, Source generator) {
    return templates::geometric_impl_<Geometric, void>(self, p, std::move(generator));
}
Tensor &bernoulli_xpu_(Tensor &self, double p, Source generator) {
    return templates::bernoulli_impl_<BernoulliNumber, void>(self, p, std::move(generator));
}
Tensor &bernoulli_xpu_(Tensor &self, const Tensor &p, Source generator) {
    return templates::bernoulli_impl_<BernoulliTensor, void>(self, p, std::move(generator));
}
Tensor &bernoulli_out_xpu(const Tensor &self, Source generator, Tensor &out) {
    return templates::bernoulli_out_impl<BernoulliTensor, void>(out, self, std::move(generator));
}
Tensor &random_xpu_(Tensor &self, Source generator) {
    return templates::random_impl<Integers, void>(self, std::move(generator));
}
Tensor &random_xpu_(Tensor &self, int64_t to, Source generator) {
    return random_xpu_(self, 0, to, std::move(generator));
}
Tensor &random_xpu_(Tensor &self, int64_t from, std::optional<int64_t> to, Source generator) {
    return templates::random_from_to_impl<IntegersFromTo, void>(self, from, to, std::move(generator));
}

// The order of random 64-bit keys; two equal ones among n are as likely as n² in 2^65.
Tensor &randperm_out_xpu(int64_t n, Source generator, Tensor &out) {
    TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
    TORCH_CHECK(!generator.has_value() || out.device() == generator->device(), "Expected a '", out.device(),
                "' generator device but found '", generator->device(), "'");
    check_supported_max_int_with_precision(n, out);
    out.resize_({n});
    if (n == 0) return out;
    Tensor keys = at::empty({n}, out.options().dtype(kLong));
    random_xpu_(keys, std::numeric_limits<int64_t>::min(), std::nullopt, std::move(generator));
    return out.copy_(at::argsort(keys));
}

std::tuple<Tensor, Tensor> native_dropout_xpu(const Tensor &input, double p, std::optional<bool> train) {
    if (input.numel() == 0) return {input, at::empty_like(input, input.options().dtype(kBool))};
    if (train.has_value() && !*train)
        return {input.clone(), at::ones_like(input, input.options().dtype(kBool))};
    TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
    Tensor out = at::empty_like(input), mask = at::empty_like(input, input.options().dtype(kBool));
    auto iter = TensorIteratorConfig()
                    .check_all_same_dtype(false)
                    .add_output(out)
                    .add_output(mask)
                    .add_const_input(input)
                    .build();
    const xpu_iter lowered = openxpu::iter_of(iter);
    check(xpu_dropout(stream_of(iter), generator_of(iter, std::nullopt), &lowered, p));
    return {std::move(out), std::move(mask)};
}

Tensor native_dropout_backward_xpu(const Tensor &grad, const Tensor &mask, double scale) {
    TORCH_CHECK(mask.scalar_type() == kBool, "Mask should be Bool Scalar Type", mask.scalar_type());
    return scaled_by_mask(grad, mask, scale);
}

std::tuple<Tensor, Tensor> fused_dropout_xpu(const Tensor &self, double p, Source generator) {
    Tensor mask = at::empty_like(self, self.options().dtype(kByte));
    bernoulli_xpu_(mask, p, std::move(generator));
    return {scaled_by_mask(self, mask, 1 / p), mask};
}
Tensor masked_scale_xpu(const Tensor &self, const Tensor &mask, double scale) {
    TORCH_CHECK(mask.scalar_type() == kByte, "mask should be torch.uint8 dtype");
    return scaled_by_mask(self, mask, scale);
}

// --- distributions whose parameters are tensors ---

namespace {

Tensor drawn_from(const Tensor &first, const Tensor *second, xpu_parametrised distribution,
                  const Source &source) {
    auto config = TensorIteratorConfig();
    config.add_owned_output(Tensor()).add_const_input(first);
    if (second) config.add_const_input(*second);
    auto iter = config.build();
    if (iter.numel() != 0) {
        const xpu_iter lowered = openxpu::iter_of(iter);
        check(xpu_random_from(stream_of(iter), generator_of(iter, source), &lowered, distribution));
    }
    return iter.output();
}

Tensor poisson_xpu(const Tensor &mean, Source source) {
    return drawn_from(mean, nullptr, XPU_POISSON, source);
}

Tensor binomial_xpu(const Tensor &count, const Tensor &prob, Source source) {
    TORCH_CHECK_VALUE(isFloatingType(count.scalar_type()),
                      "binomial only supports floating-point dtypes for count, got: ", count.scalar_type());
    TORCH_CHECK_VALUE(isFloatingType(prob.scalar_type()),
                      "binomial only supports floating-point dtypes for prob, got: ", prob.scalar_type());
    return drawn_from(count, &prob, XPU_BINOMIAL, source);
}

Tensor standard_gamma_xpu(const Tensor &alpha, Source source) {
    return drawn_from(alpha, nullptr, XPU_GAMMA, source);
}

// Gamma numbers over their sum, between the dtype's smallest normal number and the last below 1.
Tensor sample_dirichlet_xpu(const Tensor &alpha, Source source) {
    const Tensor gamma = standard_gamma_xpu(alpha, source);
    const auto [least, most] =
        AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, alpha.scalar_type(), "_sample_dirichlet", [] {
            using limits = std::numeric_limits<scalar_t>;
            return std::pair(static_cast<double>(limits::min()),
                             1 - static_cast<double>(limits::epsilon()) / 2);
        });
    return gamma.div(gamma.sum(-1, true)).clamp_(least, most);
}

} // namespace

// Without replacement the largest of p / exponential numbers win; with it, uniform numbers are looked up
// in the running sums of p.
Tensor &multinomial_out_xpu(const Tensor &self, int64_t samples, bool replacement, Source generator,
                            Tensor &out) {
    TORCH_CHECK(out.device() == self.device(), "multinomial arguments must have the same device");
    TORCH_CHECK(self.dim() > 0 && self.dim() <= 2, "prob_dist must be 1 or 2 dim");
    TORCH_CHECK(isFloatingType(self.scalar_type()),
                "multinomial only supports floating-point dtypes for input, got: ", self.scalar_type());
    TORCH_CHECK(out.scalar_type() == kLong, "multinomial expects Long tensor out, got: ", out.scalar_type());
    TORCH_CHECK(samples > 0, "cannot sample n_sample <= 0 samples");
    const int64_t categories = self.size(-1);
    TORCH_CHECK(replacement || samples <= categories,
                "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
    TORCH_CHECK(categories <= (int64_t(1) << 24), "number of categories cannot exceed 2^24");
    auto shape = self.sizes().vec();
    shape.back() = samples;
    out.resize_(shape);
    if (out.numel() == 0) return out;
    at::_assert_async(self.max().lt(INFINITY).logical_and(self.min().ge(0)),
                      "probability tensor contains either `inf`, `nan` or element < 0");
    at::_assert_async(self.sum(-1).ne(0).all(),
                      "invalid multinomial distribution (sum of probabilities <= 0)");
    if (!replacement) {
        Tensor keys = at::empty_like(self);
        exponential_xpu_(keys, 1, std::move(generator));
        return out.copy_(std::get<1>(self.div(keys).topk(samples, -1)));
    }
    const auto type = self.scalar_type() == kDouble ? kDouble : kFloat;
    Tensor sums = self.to(type).cumsum(-1), points = at::empty(shape, self.options().dtype(type));
    uniform_xpu_(points, 0, 1, std::move(generator));
    points.mul_(sums.narrow(-1, categories - 1, 1));
    return out.copy_(at::searchsorted(sums, points, false, true).clamp_max_(categories - 1));
}
Tensor multinomial_xpu(const Tensor &self, int64_t samples, bool replacement, Source generator) {
    Tensor out = at::empty({0}, self.options().dtype(kLong));
    return multinomial_out_xpu(self, samples, replacement, std::move(generator), out);
}

} // namespace at::native

TORCH_LIBRARY_IMPL(aten, XPU, m) {
    m.impl("poisson", at::native::poisson_xpu);
    m.impl("binomial", at::native::binomial_xpu);
    m.impl("_standard_gamma", at::native::standard_gamma_xpu);
    m.impl("_sample_dirichlet", at::native::sample_dirichlet_xpu);
}

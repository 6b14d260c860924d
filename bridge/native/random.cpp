// Random sampling. PyTorch's templates check arguments and build iterators; libxpu draws the numbers.
#include <ATen/native/DistributionTemplates.h>
#include <ATen/ops/_assert_async.h>
#include <ATen/ops/_fused_dropout_native.h>
#include <ATen/ops/_masked_scale_native.h>
#include <ATen/ops/arange.h>
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
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>
#if __has_include(<ATen/ops/_philox_uniform_native.h>) // from 2.13 on
#include <ATen/ops/_philox_key_fold_in_native.h>
#include <ATen/ops/_philox_key_split_native.h>
#include <ATen/ops/_philox_normal_native.h>
#include <ATen/ops/_philox_uniform_native.h>
#endif

#include <cmath>
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

// The range of random_() without bounds: from 0, all integers that the dtype represents exactly.
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

// The functions that PyTorch's templates call, one per distribution.
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

// Sorts random 64-bit keys; the probability of two equal ones among n is n² / 2^65.
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

Tensor drawn_from(const Tensor &first, const Tensor *second, xpu_parametrized distribution,
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

// Gamma samples divided by their sum, clamped between the dtype's smallest normal number and the last one
// below 1.
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

// Without replacement: the largest p / (exponential samples). With replacement: uniform samples are
// searched in the cumulative sums of p.
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

// --- stateless generation from keys (torch.func._random), with CUDA's results ---

#if __has_include(<ATen/ops/_philox_uniform_native.h>)

namespace {

constexpr int64_t word = 0xffffffff;

// Keys contain seed and offset, adjacent.
void check_key(const char *op, const Tensor &key) {
    TORCH_CHECK(key.dim() >= 1 && key.size(-1) == 2, op,
                ": key must have shape (2,) or (*batch, 2), got shape ", key.sizes());
    TORCH_CHECK(key.scalar_type() == kUInt64, op, ": key must have dtype uint64, got ", key.scalar_type());
}

// Two of the four words that Philox returns for a seed and a counter, the lower one first: the first two,
// or the last two if `last` is 1. Everything is int64, as uint64 lacks most operators.
Tensor philox(const Tensor &seed, const Tensor &counter, const Tensor &last) {
    Tensor out;
    auto iter = TensorIteratorConfig()
                    .add_output(out)
                    .add_const_input(seed)
                    .add_const_input(counter)
                    .add_const_input(last)
                    .build();
    openxpu::pointwise(iter, kLong, XPU_POINTWISE_PHILOX);
    return iter.output();
}

// Keys from the four words at counters [splits, *batch] of seeds [*batch].
Tensor derived_keys(const Tensor &seed, const Tensor &counter) {
    const Tensor halves = at::arange(2, seed.options());
    return philox(seed.unsqueeze(-1), counter.unsqueeze(-1), halves).contiguous().view(kUInt64);
}

// For each element of a result, the two words that determine its value, [keys, elements per key]; for
// normal doubles also the other two.
struct KeyedWords {
    Tensor first, second; // the words, first and then second
    Tensor third, fourth; // where asked for
    Tensor number;        // the element's, within its key
    KeyedWords(const char *op, const Tensor &self, const Tensor &key, bool all_four) {
        TORCH_CHECK(self.is_floating_point(), op, ": self must be a floating point tensor, got ",
                    self.scalar_type());
        check_key(op, key);
        TORCH_CHECK(self.device() == key.device(), op, ": self and key must be on the same device, got ",
                    self.device(), " and ", key.device());
        const int64_t dims = self.dim();
        int64_t of_a_key = 1, kept = key.dim() > 1 ? dims : 0; // leading dimensions with keys of their own
        if (key.dim() > 1) {
            TORCH_CHECK(key.dim() == dims + 1, op,
                        ": batched key must have ndim == output ndim + 1, got key shape ", key.sizes(),
                        " with output shape ", self.sizes());
            for (int64_t d = 0; d < dims; d++)
                TORCH_CHECK(key.size(d) == 1 || key.size(d) == self.size(d), op, ": key batch shape ",
                            key.sizes().slice(0, dims), " is not broadcastable with output shape ",
                            self.sizes());
            while (kept > 0 && key.size(kept - 1) == 1) kept--;
        }
        for (int64_t d = kept; d < dims; d++) of_a_key *= self.size(d);
        auto shape = self.sizes().slice(0, kept).vec();
        const auto numbers = key.view(kLong).reshape([&] {
            auto sizes = key.sizes().slice(0, key.dim() > 1 ? kept : 0).vec();
            sizes.push_back(2);
            return sizes;
        }());
        shape.push_back(2);
        const auto keys = numbers.expand(shape).reshape({-1, 2});
        const int64_t per = self.scalar_type() == kDouble ? 2 : 4; // elements of a counter
        number = at::arange(of_a_key, keys.options());
        const auto seed = keys.select(1, 0).unsqueeze(1);
        const auto counter = keys.select(1, 1).unsqueeze(1).add(number.div(per, "floor"));
        const auto last = per == 2 ? number.remainder(2) : number.remainder(4).div(2, "floor");
        const auto words = philox(seed, counter, all_four ? last.mul(0) : last);
        first = words.bitwise_and(word), second = words.bitwise_right_shift(32).bitwise_and(word);
        if (!all_four) return;
        const auto others = philox(seed, counter, last.mul(0).add(1));
        third = others.bitwise_and(word), fourth = others.bitwise_right_shift(32).bitwise_and(word);
    }
};

// A uniform number in (0, 1): a float from one 32-bit word, or a double from two.
Tensor fraction(const Tensor &high, const Tensor &low) {
    const double unit = std::ldexp(1.0, -32);
    if (!low.defined()) return high.to(kFloat).mul(unit).add(unit / 2);
    return high.to(kDouble).mul(unit).add(low.to(kDouble).mul(unit * unit).add(unit * unit / 2));
}

// `value` rounded to the dtype.
double rounded_to(ScalarType type, double value) {
    switch (type) {
    case kHalf: return static_cast<at::Half>(static_cast<float>(value));
    case kBFloat16: return static_cast<at::BFloat16>(static_cast<float>(value));
    case kFloat: return static_cast<float>(value);
    default: return value;
    }
}

} // namespace

Tensor philox_key_split_xpu(const Tensor &key, int64_t splits) {
    constexpr auto op = "_philox_key_split";
    check_key(op, key);
    TORCH_CHECK(splits > 0, op, ": num_splits must be positive, got ", splits);
    const auto numbers = key.view(kLong);
    std::vector<int64_t> column(key.dim(), 1);
    column[0] = splits;
    const auto counter = numbers.select(-1, 1).add(at::arange(splits, numbers.options()).view(column));
    return derived_keys(numbers.select(-1, 0), counter);
}

Tensor philox_key_fold_in_xpu(const Tensor &key, int64_t data) {
    check_key("_philox_key_fold_in", key);
    const auto numbers = key.view(kLong);
    return derived_keys(numbers.select(-1, 0), numbers.select(-1, 1).add(data));
}

Tensor &philox_uniform_xpu_(Tensor &self, const Tensor &key, double low, double high) {
    const KeyedWords words("_philox_uniform_", self, key, false);
    if (self.numel() == 0) return self;
    const auto type = self.scalar_type();
    const double from = rounded_to(type, low), range = rounded_to(type, rounded_to(type, high) - from);
    const int digits = type == kDouble ? 53 : type == kFloat ? 24 : type == kHalf ? 11 : 8;
    Tensor bits;
    if (type == kDouble)
        bits = words.first.bitwise_and((int64_t{1} << 21) - 1).mul(int64_t{1} << 32).add(words.second);
    else // the element's own word of the two
        bits = at::where(words.number.remainder(2).eq(0), words.first, words.second)
                   .bitwise_and((int64_t{1} << digits) - 1);
    const auto unit = bits.to(type == kDouble ? kDouble : kFloat).mul(std::ldexp(1.0, -digits));
    return self.copy_(unit.mul(range).add(from).view(self.sizes()));
}

Tensor &philox_normal_xpu_(Tensor &self, const Tensor &key, double mean, double std) {
    const bool wide = self.scalar_type() == kDouble;
    const KeyedWords words("_philox_normal_", self, key, wide);
    if (self.numel() == 0) return self;
    const auto u = fraction(words.first, wide ? words.second : Tensor());
    const auto v = wide ? fraction(words.third, words.fourth) : fraction(words.second, {});
    const auto radius = u.log().mul(-2).sqrt(), angle = v.mul(2 * M_PI);
    const auto normal = radius.mul(at::where(words.number.remainder(2).eq(0), angle.cos(), angle.sin()));
    return self.copy_(normal.mul(std).add(mean).view(self.sizes()));
}

#endif

} // namespace at::native

TORCH_LIBRARY_IMPL(aten, XPU, m) {
    m.impl("poisson", at::native::poisson_xpu);
    m.impl("binomial", at::native::binomial_xpu);
    m.impl("_standard_gamma", at::native::standard_gamma_xpu);
    m.impl("_sample_dirichlet", at::native::sample_dirichlet_xpu);
}

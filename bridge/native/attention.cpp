// Scaled dot-product attention. On CPU devices PyTorch's CPU flash kernel on the same memory; elsewhere,
// and with dropout, xpu_attention_forward and xpu_attention_backward.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_efficient_attention_backward_native.h>
#include <ATen/ops/_efficient_attention_forward_native.h>
#include <ATen/ops/_flash_attention_backward_native.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward_native.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_native.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward_native.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_native.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable_backward_native.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable_native.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable.h>
#include <ATen/ops/_fill_mem_eff_dropout_mask_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_permuted.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <mutex>

#include "../generator.h"
#include "../host_memory.h"
#include "../operands.h"
#include "xpu/ops/attention.h"

namespace {

using at::Tensor;

double scale_of(const Tensor &query, std::optional<double> scale) {
    return scale ? *scale : 1 / std::sqrt(static_cast<double>(query.size(-1)));
}

// PyTorch's CPU flash kernel: no dropout. It masks later keys with -infinity before scaling, so causal
// attention needs a positive scale.
bool on_host(const Tensor &query, double dropout, bool causal, std::optional<double> scale) {
    const bool hides = !causal || scale_of(query, scale) > 0;
    return dropout == 0 && hides && openxpu::uses_host_kernels(query.device().index());
}

// A fake tensor in a meta kernel reports the device meta: use the current device.
c10::DeviceIndex index_of(const Tensor &tensor) {
    return tensor.is_xpu() ? tensor.device().index() : openxpu::current_device();
}

bool heads_fit(sdp::sdp_params const &p, bool debug) {
    const int64_t depth = p.query.sym_size(-1).guard_int(__FILE__, __LINE__);
    const bool fit = p.key.sym_size(-1) == depth;
    if (!fit && debug)
        TORCH_WARN("Fused attention on xpu doesn't support head sizes of ", depth, " and ",
                   p.key.sym_size(-1), " elements.");
    return fit;
}

// PyTorch's check for the CPU requires a mask without gradient, of 2 or 4 dimensions.
bool mask_spreads(sdp::sdp_params const &p, bool debug) {
    if (!p.attn_mask) return true;
    const auto mask = p.attn_mask->sym_sizes();
    const std::array<c10::SymInt, 4> scores{p.query.sym_size(0), p.query.sym_size(1), p.query.sym_size(2),
                                            p.key.sym_size(2)};
    bool fits = mask.size() <= 4;
    for (size_t i = 1; i <= mask.size() && fits; i++) {
        const auto &size = mask[mask.size() - i];
        fits = TORCH_GUARD_OR_FALSE(size.sym_eq(scores[4 - i])) || TORCH_GUARD_OR_FALSE(size.sym_eq(1));
    }
    if (!fits && debug)
        TORCH_WARN("Fused attention on xpu doesn't support an attn_mask of shape ", mask, ".");
    return fits;
}

// Kernels divide by the numbers of heads and elements; PyTorch's composed version handles empty tensors.
bool has_no_empty_tensor(sdp::sdp_params const &p, bool debug) {
    for (const auto *const tensor : {&p.query, &p.key, &p.value})
        for (const auto &size : tensor->sym_sizes())
            if (TORCH_GUARD_OR_FALSE(size.sym_eq(0))) {
                if (debug) TORCH_WARN("Fused attention on xpu doesn't support empty tensors.");
                return false;
            }
    return true;
}

bool fused_fits(sdp::sdp_params const &p, bool debug) {
    constexpr auto dtypes = std::array{at::kFloat, at::kBFloat16, at::kHalf};
    constexpr std::array<bool (*)(sdp::sdp_params const &, bool), 8> conditions{
        sdp::check_nested_tensor,
        sdp::check_tensor_shapes,
        has_no_empty_tensor,
        sdp::check_batch_size_and_num_heads_dense<true>,
        mask_spreads,
        sdp::check_nonzero_sequence_lengths_dense,
        sdp::check_last_dim_stride_equals_1_dense<false>,
        heads_fit};
    for (auto condition : conditions)
        if (!condition(p, debug)) return false;
    return sdp::check_tensor_dtype(p, dtypes, debug);
}

using sdp::SDPBackend;

// PyTorch's names for fused attention. On xpu one kernel is behind all of them.
struct Fused {
    SDPBackend backend;
    const char *name;
    bool (at::Context::*enabled)() const;
};
const std::array fused_backends{
    Fused{SDPBackend::overrideable, "Overrideable", &at::Context::userEnabledOverrideableSDP},
    Fused{SDPBackend::flash_attention, "Flash attention", &at::Context::userEnabledFlashSDP},
    Fused{SDPBackend::efficient_attention, "Memory efficient", &at::Context::userEnabledMemEfficientSDP}};

// PyTorch's initial order: the overrideable backend, which is xpu's own, is last.
const auto initial_order = at::globalContext().sDPPriorityOrder();

// PyTorch's CPU kernel lacks dropout and the gradient of a mask. On a CPU libxpu's kernel is slower than
// the products of the math backend. It needs less memory, though, and can be selected.
bool is_slow_fused(sdp::sdp_params const &p) {
    const bool mask_learns = p.attn_mask && p.attn_mask->requires_grad() && at::GradMode::is_enabled();
    return (mask_learns || p.dropout > 0) && openxpu::uses_host_kernels(index_of(p.query));
}

// Like CUDA: the first enabled backend that supports these tensors, in the user's order.
SDPBackend choose(sdp::sdp_params const &p) {
    auto &context = at::globalContext();
    const bool math = context.userEnabledMathSDP();
    const bool any = std::any_of(fused_backends.begin(), fused_backends.end(),
                                 [&](const Fused &f) { return (context.*f.enabled)(); });
    TORCH_CHECK(math || any || context.userEnabledCuDNNSDP(),
                "No viable backend for scaled_dot_product_attention was found. This is likely due to turning "
                "off both the math kernel and the fused kernels.");
    const auto order = context.sDPPriorityOrder();
    if (math && order == initial_order && is_slow_fused(p)) return SDPBackend::math;
    const bool fits = any && fused_fits(p, false);
    if (fits && order == initial_order)
        for (const auto &fused : fused_backends)
            if ((context.*fused.enabled)()) return fused.backend;
    for (const auto backend : order) {
        if (backend == SDPBackend::math && math) return backend;
        for (const auto &fused : fused_backends)
            if (fits && fused.backend == backend && (context.*fused.enabled)()) return backend;
    }
    for (const auto &fused : fused_backends) {
        TORCH_WARN(fused.name, " kernel not used because:");
        if ((context.*fused.enabled)())
            fused_fits(p, true); /* says why not */
        else
            TORCH_WARN(fused.name, " kernel has been runtime disabled.");
    }
    TORCH_WARN("cuDNN attention kernel not used because: it is not available on xpu.");
    TORCH_CHECK(false, "No available kernel. Aborting execution.");
}

struct Attention {
    Tensor out, logsumexp, seed, offset;
};

Tensor expanded(const Tensor &bias, const Tensor &query, const Tensor &key) {
    return bias.defined() ? bias.expand({query.size(0), query.size(1), query.size(2), key.size(2)}) : bias;
}

// A bias or its gradient with 4 dimensions, of size 1 where it is broadcast.
Tensor with_all_dimensions(Tensor bias) {
    while (bias.dim() < 4) bias = bias.unsqueeze(0);
    return bias;
}

Tensor number(uint64_t value) {
    Tensor t = at::empty({}, at::TensorOptions(at::kLong));
    *t.mutable_data_ptr<int64_t>() = static_cast<int64_t>(value);
    return t;
}
uint64_t number(const Tensor &t) { return t.defined() ? static_cast<uint64_t>(t.item<int64_t>()) : 0; }

// Four random numbers per four scores of a row; each row has its own counter.
void reserve_random(c10::DeviceIndex device, xpu_attention &args) {
    openxpu::check(xpu_graph_reserve(openxpu::current_stream(device),
                                     openxpu::generator_of(std::nullopt, device), 4, &args.seed,
                                     &args.offset));
}

// Dropout's random numbers in (0, 1] for a tensor of this shape. Elements with numbers above `dropout` are
// kept.
Tensor &fill_dropout_random(Tensor &numbers, uint64_t seed, uint64_t offset) {
    auto generator = at::globalContext().defaultGenerator(numbers.device()).clone();
    generator.set_current_seed(seed);
    generator.set_offset(offset);
    return numbers.uniform_(0, 1, generator).neg_().add_(1);
}

// The probabilities, negative where they were dropped.
Tensor probabilities(const Tensor &query, const Tensor &key, double dropout, bool causal,
                     std::optional<double> scale, uint64_t seed, uint64_t offset) {
    const Tensor keys = key.repeat_interleave(query.size(1) / key.size(1), 1);
    Tensor scores = at::matmul(query.to(at::kFloat), keys.to(at::kFloat).mT()).mul_(scale_of(query, scale));
    if (causal) scores.masked_fill_(at::ones_like(scores[0][0], at::kBool).tril_().logical_not_(), -INFINITY);
    const Tensor p = scores.softmax(-1);
    Tensor numbers = at::empty_like(p);
    return at::where(fill_dropout_random(numbers, seed, offset) > dropout, p, -p).to(query.scalar_type());
}

// An output with the query's sizes and memory order, as in the operators' meta functions.
Tensor empty_out(const Tensor &query, int64_t depth) {
    if (query.size(3) == depth) return at::empty_like(query);
    std::array<int64_t, 4> order{0, 1, 2, 3};
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return query.stride(a) > query.stride(b); });
    return at::empty_permuted({query.size(0), query.size(1), query.size(2), depth}, order, query.options());
}

// The tensor with memory order B x L x H x D, as in the efficient operator's meta functions.
Tensor by_sequence(const Tensor &x) { return x.transpose(1, 2).contiguous().transpose(1, 2); }

// libxpu's arguments for one attention. Contains pointers to itself and to the tensors' sizes and
// strides.
struct Lowered {
    Lowered(const Tensor &query, const Tensor &key, const Tensor &value, const Tensor &wide_bias,
            const Tensor &out, const Tensor &logsumexp, double dropout, bool causal,
            std::optional<double> scale)
        : bias_(wide_bias), q_(openxpu::input_of(query)), k_(openxpu::input_of(key)),
          v_(openxpu::input_of(value)), o_(openxpu::input_of(out)),
          l_(openxpu::input_of(logsumexp)) { // new, or the backward's inputs
        if (bias_.defined()) b_ = openxpu::input_of(bias_);
        args = {.query = &q_,
                .key = &k_,
                .value = &v_,
                .bias = bias_.defined() ? &b_ : nullptr,
                .out = &o_,
                .logsumexp = &l_,
                .scale = scale_of(query, scale),
                .causal = causal,
                .dropout = dropout};
    }
    Lowered(const Lowered &) = delete;
    Lowered &operator=(const Lowered &) = delete;
    xpu_attention args;

  private:
    Tensor bias_;
    xpu_tensor q_, k_, v_, o_, l_, b_{};
};

// The first `depth` elements of each row, with the strides of empty_out(like, depth), which the
// operators' meta functions promise to compiled programs. PyTorch's CPU kernels always return [batch,
// sequence, heads, depth].
Tensor laid_out_as(const Tensor &like, int64_t depth, Tensor result) {
    if (result.size(3) != depth) result = result.narrow(3, 0, depth);
    if (result.strides() == like.strides() && result.sizes() == like.sizes() &&
        like.is_non_overlapping_and_dense())
        return result;
    const Tensor wanted = empty_out(like, depth);
    return wanted.strides() == result.strides() ? result : wanted.copy_(result);
}
Tensor laid_out_as(const Tensor &like, Tensor result) {
    return laid_out_as(like, like.size(3), std::move(result));
}

// Arguments of PyTorch's CPU kernels, besides tensors.
struct AttentionSettings {
    bool causal;
    double scale;
};
// They require equal head sizes: pads each row with zeros.
Tensor of_depth(int64_t depth, const Tensor &cpu) {
    return cpu.size(3) == depth ? cpu : at::constant_pad_nd(cpu, {0, depth - cpu.size(3)});
}
std::optional<Tensor> mask_of(const Tensor &bias) {
    return bias.defined() ? std::optional(bias) : std::nullopt;
}

// They return [batch, sequence, heads, depth]. With one head, that is the layout required for a
// contiguous query; so heads are treated as batch entries. Empty if strides or a mask don't allow it.
template <size_t N>
std::optional<std::array<Tensor, N>> one_head(const std::array<Tensor, N> &x, const Tensor &query,
                                              const Tensor &key) {
    const Tensor &mask = x[N - 1];
    if (!query.is_contiguous() || query.size(1) == 1 || query.size(1) != key.size(1) ||
        (mask.defined() && (mask.size(0) != 1 || mask.size(1) != 1)))
        return std::nullopt;
    std::array<Tensor, N> result;
    result[N - 1] = mask;
    for (size_t i = 0; i + 1 < N; i++) {
        const auto sizes = x[i].sizes(), strides = x[i].strides();
        if (sizes[0] != 1 && strides[0] != sizes[1] * strides[1]) return std::nullopt;
        at::DimVector size(sizes), stride(strides);
        size[0] *= size[1], size[1] = 1;
        stride[0] = stride[1];
        result[i] = x[i].as_strided(size, stride);
    }
    return result;
}
// Restores the original heads.
Tensor with_heads(const Tensor &result, const Tensor &like) {
    at::DimVector size(result.sizes());
    size[0] = like.size(0), size[1] = like.size(1);
    return result.view(size);
}

std::array<Tensor, 2> attention_cpu(const AttentionSettings &s, const std::array<Tensor, 4> &given) {
    const auto merged = one_head(given, given[0], given[1]);
    const auto &x = merged ? *merged : given;
    const int64_t depth = std::max(x[0].size(3), x[2].size(3));
    auto [out, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
        of_depth(depth, x[0]), of_depth(depth, x[1]), of_depth(depth, x[2]), 0, s.causal, mask_of(x[3]),
        s.scale);
    if (merged) return {with_heads(out, given[0]), with_heads(logsumexp, given[0])};
    return {std::move(out), std::move(logsumexp)};
}
// Inputs: the result's gradient, query, key, value, result, logsumexp, mask.
std::array<Tensor, 3> attention_gradients_cpu(const AttentionSettings &s,
                                              const std::array<Tensor, 7> &given) {
    const auto merged = one_head(given, given[1], given[2]);
    const auto &x = merged ? *merged : given;
    const int64_t depth = std::max(x[1].size(3), x[3].size(3));
    auto [query, key, value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        of_depth(depth, x[0]), of_depth(depth, x[1]), of_depth(depth, x[2]), of_depth(depth, x[3]),
        of_depth(depth, x[4]), x[5], 0, s.causal, mask_of(x[6]), s.scale);
    if (merged) return {with_heads(query, given[1]), with_heads(key, given[2]), with_heads(value, given[3])};
    return {std::move(query), std::move(key), std::move(value)};
}

Attention attend(const Tensor &query, const Tensor &key, const Tensor &value, const Tensor &bias,
                 double dropout, bool causal, std::optional<double> scale) {
    const auto device = query.device().index();
    if (on_host(query, dropout, causal, scale)) {
        auto [out, logsumexp] = openxpu::on_host<2, 4, AttentionSettings>(
            "host attention", device, {query, key, value, bias.defined() ? with_all_dimensions(bias) : bias},
            {causal, scale_of(query, scale)}, attention_cpu);
        return {laid_out_as(query, value.size(3), std::move(out)), logsumexp.contiguous(), number(0),
                number(0)};
    }
    Tensor out = empty_out(query, value.size(3));
    Tensor logsumexp =
        at::empty({query.size(0), query.size(1), query.size(2)}, query.options().dtype(at::kFloat));
    Lowered lowered(query, key, value, expanded(bias, query, key), out, logsumexp, dropout, causal, scale);
    auto &args = lowered.args;
    if (dropout > 0) reserve_random(device, args);
    openxpu::check(xpu_attention_forward(openxpu::current_stream(query), &args));
    return {out, logsumexp, number(args.seed), number(args.offset)};
}

using Gradients = std::tuple<Tensor, Tensor, Tensor, Tensor>; // the last is what grad_bias was

// Gradients of query, key and value; that of the bias goes to `grad_bias` if defined.
Gradients attend_backward(const Tensor &grad_out, const Tensor &query, const Tensor &key, const Tensor &value,
                          const Tensor &bias, const Tensor &grad_bias, const Tensor &out,
                          const Tensor &logsumexp, double dropout, bool causal, const Tensor &seed,
                          const Tensor &offset, std::optional<double> scale) {
    if (!grad_out.defined()) return {};
    const auto device = query.device().index();
    Lowered lowered(query, key, value, expanded(bias, query, key), out, logsumexp, dropout, causal, scale);
    const xpu_tensor go = openxpu::input_of(grad_out);
    const Tensor wide_grad_bias = grad_bias.defined() ? with_all_dimensions(grad_bias) : grad_bias;
    xpu_tensor gb;
    xpu_attention_grad grad{.out = &go};
    if (grad_bias.defined()) gb = openxpu::tensor_of(wide_grad_bias), grad.bias = &gb;
    if (on_host(query, dropout, causal, scale)) {
        if (grad_bias.defined()) // PyTorch's kernel hasn't got it
            openxpu::check(xpu_attention_backward(openxpu::current_stream(query), &lowered.args, &grad));
        auto [grad_query, grad_key, grad_value] = openxpu::on_host<3, 7, AttentionSettings>(
            "host attention backward", device,
            {grad_out, query, key, value, out, logsumexp, bias.defined() ? with_all_dimensions(bias) : bias},
            {causal, scale_of(query, scale)}, attention_gradients_cpu);
        return {laid_out_as(query, std::move(grad_query)), laid_out_as(key, std::move(grad_key)),
                laid_out_as(value, std::move(grad_value)), grad_bias};
    }
    Tensor grad_query = at::empty_like(query), grad_key = at::empty_like(key),
           grad_value = at::empty_like(value);
    lowered.args.seed = number(seed);
    lowered.args.offset = number(offset);
    const xpu_tensor gq = openxpu::tensor_of(grad_query), gk = openxpu::tensor_of(grad_key),
                     gv = openxpu::tensor_of(grad_value);
    grad.query = &gq, grad.key = &gk, grad.value = &gv;
    openxpu::check(xpu_attention_backward(openxpu::current_stream(query), &lowered.args, &grad));
    return {grad_query, grad_key, grad_value, grad_bias};
}

// Views B x L x H x D as B x H x L x D, and packed sequences, total x H x D, as one batch item.
Tensor by_head(const Tensor &x) { return x.dim() == 3 ? x.transpose(0, 1).unsqueeze(0) : x.transpose(1, 2); }

uint64_t random_number(const Tensor &state, int64_t i) {
    return state.defined() && state.numel() > i
               ? static_cast<uint64_t>(state.view(at::kLong).flatten()[i].item<int64_t>())
               : 0;
}

// libxpu's arguments for PyTorch's _flash_attention_forward and its backward.
struct Flash {
    Flash(const Tensor &q, const Tensor &k, const Tensor &v, const Tensor &o, const Tensor &lse,
          const Tensor &cum_q, const Tensor &cum_k, int64_t max_q, int64_t max_k, double dropout, bool causal,
          std::optional<double> scale, std::optional<int64_t> left, std::optional<int64_t> right)
        : query(by_head(q)), key(by_head(k)), value(by_head(v)), out(by_head(o)),
          logsumexp(lse.dim() == 2 ? lse.unsqueeze(0) : lse),
          lowered(std::make_unique<Lowered>(query, key, value, Tensor(), out, logsumexp, dropout, causal,
                                            scale)) {
        auto &args = lowered->args;
        args.left = left.value_or(-1), args.right = right.value_or(-1);
        // The causal mask is aligned bottom right; for equal lengths that makes no difference.
        args.window = args.left >= 0 || args.right >= 0 || (causal && query.size(2) != key.size(2));
        if (!cum_q.defined()) return;
        for (const auto &starts : {cum_q, cum_k})
            TORCH_CHECK(starts.defined() && starts.dim() == 1 && starts.scalar_type() == at::kInt &&
                            starts.is_contiguous() && starts.numel() == cum_q.numel() &&
                            starts.device() == q.device(),
                        "flash attention on xpu: cum_seq_q and cum_seq_k must be contiguous int32 tensors of "
                        "the same length on the query's device");
        args.sequences = cum_q.numel() - 1;
        args.query_starts = cum_q.const_data_ptr<int32_t>();
        args.key_starts = cum_k.const_data_ptr<int32_t>();
        args.max_queries = max_q, args.max_keys = max_k;
    }
    Tensor query, key, value, out, logsumexp;
    std::unique_ptr<Lowered> lowered;
};

// _flash_attention_forward: rows before heads, packed sequences, windows. Boxed, as the number of
// arguments depends on PyTorch's version.
void flash_forward(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
    const auto &schema = op.schema();
    const auto count = schema.arguments().size();
    const auto first = stack->size() - count;
    auto given = [&](const char *name) {
        const auto i = schema.argumentIndexWithName(name);
        return i ? (*stack)[first + static_cast<size_t>(*i)] : c10::IValue();
    };
    auto tensor = [&](const char *name) {
        const auto v = given(name);
        return v.isTensor() ? v.toTensor() : Tensor();
    };
    for (const char *name : {"seqused_k", "alibi_slopes", "block_table"})
        TORCH_CHECK_NOT_IMPLEMENTED(!tensor(name).defined(),
                                    "_flash_attention_forward on xpu does not support ", name);
    const Tensor query = tensor("query"), key = tensor("key"), value = tensor("value");
    const Tensor cum_q = tensor("cum_seq_q"), cum_k = tensor("cum_seq_k");
    const double dropout = given("dropout_p").toDouble();
    TORCH_CHECK(!given("return_debug_mask").toBool() || dropout == 0,
                "_flash_attention_forward on xpu can't return a dropout mask");
    TORCH_CHECK(query.dim() == (cum_q.defined() ? 3 : 4) && key.dim() == query.dim() &&
                    value.dim() == query.dim(),
                "_flash_attention_forward on xpu: query of ", query.sizes(), ", key of ", key.sizes(),
                " and value of ", value.sizes(), " must have 3 dimensions with cum_seq_q, else 4");
    const Tensor out = query.size(-1) == value.size(-1) ? at::empty_like(query) : query.new_empty([&] {
        auto sizes = query.sizes().vec();
        sizes.back() = value.size(-1);
        return sizes;
    }());
    const auto sums = query.options().dtype(at::kFloat);
    const Tensor logsumexp = cum_q.defined() ? at::empty({query.size(1), query.size(0)}, sums)
                                             : at::empty({query.size(0), query.size(2), query.size(1)}, sums);
    const Flash f(query, key, value, out, logsumexp, cum_q, cum_k, given("max_q").toInt(),
                  given("max_k").toInt(), dropout, given("is_causal").toBool(),
                  given("scale").toOptional<double>(), given("window_size_left").toOptional<int64_t>(),
                  given("window_size_right").toOptional<int64_t>());
    auto &args = f.lowered->args;
    if (dropout > 0) reserve_random(query.device().index(), args);
    openxpu::check(xpu_attention_forward(openxpu::current_stream(query), &args));
    Tensor state = at::empty({2}, at::TensorOptions(at::kLong));
    state.mutable_data_ptr<int64_t>()[0] = static_cast<int64_t>(args.seed);
    state.mutable_data_ptr<int64_t>()[1] = static_cast<int64_t>(args.offset);
    stack->resize(first);
    stack->emplace_back(out);
    stack->emplace_back(logsumexp);
    stack->emplace_back(state.view(at::kUInt64));
    stack->emplace_back(at::empty({}, at::TensorOptions(at::kUInt64)));
    stack->emplace_back(at::empty({0}, query.options()));
}

} // namespace

namespace at::native {

int64_t fused_sdp_choice_xpu(const Tensor &query, const Tensor &key, const Tensor &value,
                             const std::optional<Tensor> &attn_mask, double dropout_p, bool is_causal,
                             std::optional<double> scale, bool enable_gqa) {
    const sdp::sdp_params params{query, key, value, attn_mask, dropout_p, is_causal, enable_gqa};
    return static_cast<int64_t>(choose(params));
}

std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>
sdp_overrideable_xpu(const Tensor &query, const Tensor &key, const Tensor &value,
                     const std::optional<Tensor> &attn_bias, double dropout_p, bool is_causal,
                     bool return_debug_mask, std::optional<double> scale) {
    auto a = attend(query, key, value, attn_bias.value_or(Tensor()), dropout_p, is_causal, scale);
    return {a.out, a.logsumexp, Tensor(), Tensor(), query.size(2), key.size(2), a.seed, a.offset, Tensor()};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> sdp_overrideable_backward_xpu(
    const Tensor &grad_out, const Tensor &query, const Tensor &key, const Tensor &value,
    const Tensor &attn_bias, std::array<bool, 4> grad_input_mask, const Tensor &out, const Tensor &logsumexp,
    const Tensor &cum_seq_q, const Tensor &cum_seq_k, int64_t max_q, int64_t max_k, double dropout_p,
    bool is_causal, const Tensor &philox_seed, const Tensor &philox_offset, std::optional<double> scale) {
    const Tensor grad_bias = grad_input_mask[3] && attn_bias.defined() ? at::empty_like(attn_bias) : Tensor();
    return attend_backward(grad_out, query, key, value, attn_bias, grad_bias, out, logsumexp, dropout_p,
                           is_causal, philox_seed, philox_offset, scale);
}

std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>
sdp_flash_xpu(const Tensor &query, const Tensor &key, const Tensor &value, double dropout_p, bool is_causal,
              bool return_debug_mask, std::optional<double> scale) {
    auto a = attend(query, key, value, Tensor(), dropout_p, is_causal, scale);
    Tensor debug_mask;
    if (return_debug_mask && dropout_p > 0)
        debug_mask = probabilities(query, key, dropout_p, is_causal, scale, number(a.seed), number(a.offset));
    return {a.out, a.logsumexp, Tensor(), Tensor(), query.size(2), key.size(2), a.seed, a.offset, debug_mask};
}

std::tuple<Tensor, Tensor, Tensor>
sdp_flash_backward_xpu(const Tensor &grad_out, const Tensor &query, const Tensor &key, const Tensor &value,
                       const Tensor &out, const Tensor &logsumexp, const Tensor &cum_seq_q,
                       const Tensor &cum_seq_k, int64_t max_q, int64_t max_k, double dropout_p,
                       bool is_causal, const Tensor &philox_seed, const Tensor &philox_offset,
                       std::optional<double> scale) {
    auto [q, k, v, none] = attend_backward(grad_out, query, key, value, Tensor(), Tensor(), out, logsumexp,
                                           dropout_p, is_causal, philox_seed, philox_offset, scale);
    return {q, k, v};
}

// The gradients of flash_forward. PyTorch passes its results.
std::tuple<Tensor, Tensor, Tensor>
flash_backward_xpu(const Tensor &grad_out, const Tensor &query, const Tensor &key, const Tensor &value,
                   const Tensor &out, const Tensor &logsumexp, const Tensor &cum_seq_q,
                   const Tensor &cum_seq_k, int64_t max_q, int64_t max_k, double dropout_p, bool is_causal,
                   const Tensor &rng_state, const Tensor &, std::optional<double> scale,
                   std::optional<int64_t> window_size_left, std::optional<int64_t> window_size_right) {
    if (!grad_out.defined()) return {};
    Tensor grad_query = at::empty_like(query), grad_key = at::empty_like(key),
           grad_value = at::empty_like(value);
    const Flash f(query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal,
                  scale, window_size_left, window_size_right);
    if (dropout_p > 0) { // else not worth a wait for the device
        f.lowered->args.seed = random_number(rng_state, 0);
        f.lowered->args.offset = random_number(rng_state, 1);
    }
    const Tensor go = by_head(grad_out), gq = by_head(grad_query), gk = by_head(grad_key),
                 gv = by_head(grad_value);
    const xpu_tensor o = openxpu::input_of(go), q = openxpu::tensor_of(gq);
    const xpu_tensor k = openxpu::tensor_of(gk), v = openxpu::tensor_of(gv);
    const xpu_attention_grad grad{.out = &o, .query = &q, .key = &k, .value = &v};
    openxpu::check(xpu_attention_backward(openxpu::current_stream(query), &f.lowered->args, &grad));
    return {grad_query, grad_key, grad_value};
}

Tensor &fill_mem_eff_dropout_mask_xpu(Tensor &self, double, int64_t seed, int64_t offset) {
    return fill_dropout_random(self, static_cast<uint64_t>(seed), static_cast<uint64_t>(offset));
}

std::tuple<Tensor, Tensor, Tensor, Tensor> sdp_efficient_xpu(const Tensor &query, const Tensor &key,
                                                             const Tensor &value,
                                                             const std::optional<Tensor> &attn_bias,
                                                             bool compute_log_sumexp, double dropout_p,
                                                             bool is_causal, std::optional<double> scale) {
    auto a = attend(query, key, value, attn_bias.value_or(Tensor()), dropout_p, is_causal, scale);
    // Its rows are padded to 32 elements, or it is not requested.
    const int64_t rows = query.size(2), wanted = compute_log_sumexp ? (rows + 31) / 32 * 32 : 0;
    if (wanted != rows) a.logsumexp = at::constant_pad_nd(a.logsumexp, {0, wanted - rows}, INFINITY);
    return {by_sequence(a.out), a.logsumexp, a.seed, a.offset};
}

std::tuple<Tensor, Tensor, Tensor, Tensor>
sdp_efficient_backward_xpu(const Tensor &grad_out, const Tensor &query, const Tensor &key,
                           const Tensor &value, const Tensor &attn_bias, const Tensor &out,
                           const Tensor &logsumexp, const Tensor &philox_seed, const Tensor &philox_offset,
                           double dropout_p, std::array<bool, 4> grad_input_mask, bool is_causal,
                           std::optional<double> scale) {
    if (!grad_out.defined()) return {};
    const Tensor rows = logsumexp.narrow(2, 0, query.size(2)).contiguous();
    Tensor grad_bias;
    if (grad_input_mask[3] && attn_bias.defined()) { // its rows begin at multiples of 16 elements
        auto sizes = attn_bias.sizes().vec();
        sizes.back() = (sizes.back() + 15) / 16 * 16;
        grad_bias = attn_bias.new_empty(sizes).narrow(-1, 0, attn_bias.size(-1));
    }
    auto [q, k, v, unused] = attend_backward(grad_out, query, key, value, attn_bias, grad_bias, out, rows,
                                             dropout_p, is_causal, philox_seed, philox_offset, scale);
    return {by_sequence(q), by_sequence(k), by_sequence(v), grad_bias};
}

namespace {

// xFormers' mask arguments: which keys a query sees.
struct Sight {
    bool causal;       // the last query sees all keys; or, `from_top`, query i keys 0 … i
    bool from_top;     // with as many queries as keys the same
    int64_t left = -1; // keys before a query's own; -1 all
    Sight(int64_t mask_type, std::optional<int64_t> window_size)
        : causal(mask_type != 0), from_top(mask_type == 1) {
        TORCH_CHECK(mask_type >= 0 && mask_type <= 2, "_efficient_attention: custom_mask_type ", mask_type,
                    " must be 0, 1 or 2");
        if (!window_size || *window_size <= 0) return;
        TORCH_CHECK(causal, "_efficient_attention: a window needs a causal mask");
        left = *window_size - 1;
    }
};

// True if the operator with only query, key and value suffices.
bool is_plain(const Sight &sight, const Tensor &query, const Tensor &key, const Tensor &starts) {
    const bool square = query.size(1) == key.size(1);
    return !starts.defined() && sight.left < 0 && (!sight.causal || sight.from_top || square);
}

void check_flash(const Sight &sight, const Tensor &query, const Tensor &key, const Tensor &bias,
                 const Tensor &starts_q, const Tensor &starts_k) {
    constexpr auto op = "_efficient_attention on xpu: ";
    TORCH_CHECK_NOT_IMPLEMENTED(
        !bias.defined(), op,
        "a bias can't be combined with windows, cu_seqlens or bottom-right causal masks");
    const bool same = starts_q.defined()
                          ? starts_q.is_same(starts_k) || (starts_q.sizes() == starts_k.sizes() &&
                                                           starts_q.eq(starts_k).all().item<bool>())
                          : query.size(1) == key.size(1);
    TORCH_CHECK_NOT_IMPLEMENTED(!sight.from_top || same, op,
                                "a top-left causal mask needs as many queries as keys here");
}

Tensor rows_of(const Tensor &x, const Tensor &starts) { return starts.defined() ? x.squeeze(0) : x; }

// Converts logsumexp between packed [heads, total] and padded [sequences, heads, longest rounded up to
// 32].
Tensor padded_sums(const Tensor &sums, const Tensor &starts, int64_t longest) {
    const auto begin = starts.cpu();
    const auto *at = begin.const_data_ptr<int32_t>();
    const auto out = sums.new_full({begin.numel() - 1, sums.size(0), (longest + 31) / 32 * 32}, INFINITY);
    for (int64_t i = 0; i + 1 < begin.numel(); i++)
        out.select(0, i).narrow(1, 0, at[i + 1] - at[i]).copy_(sums.narrow(1, at[i], at[i + 1] - at[i]));
    return out;
}
Tensor packed_sums(const Tensor &sums, const Tensor &starts) {
    const auto begin = starts.cpu();
    const auto *at = begin.const_data_ptr<int32_t>();
    const auto out = sums.new_empty({sums.size(1), at[begin.numel() - 1]});
    for (int64_t i = 0; i + 1 < begin.numel(); i++)
        out.narrow(1, at[i], at[i + 1] - at[i]).copy_(sums.select(0, i).narrow(1, 0, at[i + 1] - at[i]));
    return out;
}

void check_rows(const Tensor &query, const Tensor &key, const Tensor &value, const Tensor &starts_q,
                const Tensor &starts_k) {
    TORCH_CHECK(query.dim() == 4 && key.dim() == 4 && value.dim() == 4 && query.size(0) == key.size(0) &&
                    key.size(0) == value.size(0) && key.size(1) == value.size(1) &&
                    query.size(2) == key.size(2) && key.size(2) == value.size(2) &&
                    query.size(3) == key.size(3),
                "_efficient_attention: query of ", query.sizes(), ", key of ", key.sizes(), " and value of ",
                value.sizes(), " have incompatible shapes");
    TORCH_CHECK(starts_q.defined() == starts_k.defined(),
                "_efficient_attention: cu_seqlens_q and cu_seqlens_k must be passed together");
    TORCH_CHECK(!starts_q.defined() || query.size(0) == 1,
                "_efficient_attention: cu_seqlens needs a batch size of 1, got ", query.size(0));
}

} // namespace

// xFormers' operator: [batch, rows, heads, depth].
std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt>
efficient_attention_xpu(const Tensor &query, const Tensor &key, const Tensor &value,
                        const std::optional<Tensor> &bias_given, const std::optional<Tensor> &cu_seqlens_q,
                        const std::optional<Tensor> &cu_seqlens_k, std::optional<int64_t> max_seqlen_q,
                        std::optional<int64_t> max_seqlen_k, double dropout_p, int64_t custom_mask_type,
                        bool compute_log_sumexp, std::optional<double> scale,
                        const std::optional<Tensor> &seqlen_k, std::optional<int64_t> window_size) {
    const auto bias = bias_given.value_or(Tensor()), starts_q = cu_seqlens_q.value_or(Tensor()),
               starts_k = cu_seqlens_k.value_or(Tensor());
    check_rows(query, key, value, starts_q, starts_k);
    TORCH_CHECK_NOT_IMPLEMENTED(!seqlen_k || !seqlen_k->defined(),
                                "_efficient_attention on xpu: seqlen_k is not supported");
    const Sight sight(custom_mask_type, window_size);
    const int64_t most_q = starts_q.defined() && max_seqlen_q ? *max_seqlen_q : query.size(1),
                  most_k = starts_k.defined() && max_seqlen_k ? *max_seqlen_k : key.size(1);
    if (is_plain(sight, query, key, starts_q)) {
        auto [out, sums, seed, offset] =
            sdp_efficient_xpu(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), bias,
                              compute_log_sumexp, dropout_p, sight.causal, scale);
        return {out.transpose(1, 2), sums, seed, offset, most_q, most_k};
    }
    check_flash(sight, query, key, bias, starts_q, starts_k);
    auto sizes = query.sizes().vec();
    sizes.back() = value.size(-1);
    const auto out = query.new_empty(sizes);
    const auto options = query.options().dtype(at::kFloat);
    auto sums = starts_q.defined() ? at::empty({query.size(2), query.size(1)}, options)
                                   : at::empty({query.size(0), query.size(2), query.size(1)}, options);
    const Flash f(rows_of(query, starts_q), rows_of(key, starts_q), rows_of(value, starts_q),
                  rows_of(out, starts_q), sums, starts_q, starts_k, most_q, most_k, dropout_p, sight.causal,
                  scale, sight.left < 0 ? std::nullopt : std::optional(sight.left),
                  sight.left < 0 ? std::nullopt : std::optional<int64_t>(0));
    auto &args = f.lowered->args;
    if (dropout_p > 0) reserve_random(query.device().index(), args);
    openxpu::check(xpu_attention_forward(openxpu::current_stream(query), &args));
    if (!compute_log_sumexp)
        sums = starts_q.defined() ? sums.new_empty({starts_q.numel() - 1, query.size(2), 0})
                                  : sums.narrow(2, 0, 0);
    else if (starts_q.defined())
        sums = padded_sums(sums, starts_q, most_q);
    else
        sums = at::constant_pad_nd(sums, {0, (most_q + 31) / 32 * 32 - most_q}, INFINITY);
    return {out, sums, number(args.seed), number(args.offset), most_q, most_k};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> efficient_attention_backward_xpu(
    const Tensor &grad_out, const Tensor &query, const Tensor &key, const Tensor &value,
    const std::optional<Tensor> &bias_given, const Tensor &out, const std::optional<Tensor> &cu_seqlens_q,
    const std::optional<Tensor> &cu_seqlens_k, int64_t max_seqlen_q, int64_t max_seqlen_k,
    const Tensor &logsumexp, double dropout_p, const Tensor &philox_seed, const Tensor &philox_offset,
    int64_t custom_mask_type, bool bias_requires_grad, std::optional<double> scale, std::optional<int64_t>,
    std::optional<int64_t> window_size, bool shared_storage_dqdkdv) {
    if (!grad_out.defined()) return {};
    const auto bias = bias_given.value_or(Tensor()), starts_q = cu_seqlens_q.value_or(Tensor()),
               starts_k = cu_seqlens_k.value_or(Tensor());
    check_rows(query, key, value, starts_q, starts_k);
    TORCH_CHECK(out.sizes() == grad_out.sizes() && out.size(1) == query.size(1),
                "_efficient_attention_backward: a gradient of shape ", grad_out.sizes(),
                " and a result of shape ", out.sizes(), " don't fit a query of shape ", query.sizes());
    const Sight sight(custom_mask_type, window_size);
    Tensor q, k, v, grad_bias;
    if (is_plain(sight, query, key, starts_q)) {
        const auto transposed = [](const Tensor &x) { return x.transpose(1, 2); };
        std::tie(q, k, v, grad_bias) = sdp_efficient_backward_xpu(
            transposed(grad_out), transposed(query), transposed(key), transposed(value), bias,
            transposed(out), logsumexp, philox_seed, philox_offset, dropout_p,
            {true, true, true, bias_requires_grad}, sight.causal, scale);
        q = transposed(q), k = transposed(k), v = transposed(v);
    } else {
        check_flash(sight, query, key, bias, starts_q, starts_k);
        const auto sums = starts_q.defined() ? packed_sums(logsumexp, starts_q)
                                             : logsumexp.narrow(2, 0, query.size(1)).contiguous();
        Tensor state = at::zeros({2}, at::TensorOptions(at::kLong));
        if (dropout_p > 0) {
            state[0] = static_cast<int64_t>(number(philox_seed));
            state[1] = static_cast<int64_t>(number(philox_offset));
        }
        std::tie(q, k, v) =
            flash_backward_xpu(rows_of(grad_out, starts_q), rows_of(query, starts_q), rows_of(key, starts_q),
                               rows_of(value, starts_q), rows_of(out, starts_q), sums, starts_q, starts_k,
                               max_seqlen_q, max_seqlen_k, dropout_p, sight.causal, state, Tensor(), scale,
                               sight.left < 0 ? std::nullopt : std::optional(sight.left),
                               sight.left < 0 ? std::nullopt : std::optional<int64_t>(0));
        if (starts_q.defined()) q = q.unsqueeze(0), k = k.unsqueeze(0), v = v.unsqueeze(0);
    }
    if (shared_storage_dqdkdv) {
        TORCH_CHECK(q.sizes() == k.sizes() && k.sizes() == v.sizes(),
                    "_efficient_attention_backward: shared_storage_dqdkdv needs query, key and value of the "
                    "same shape");
        const auto all = at::stack({q, k, v}, 2);
        return {all.select(2, 0), all.select(2, 1), all.select(2, 2), grad_bias};
    }
    return {q, k, v, grad_bias};
}

} // namespace at::native

namespace {

// True if torch.func computes a gradient: it may be over vmap, for which the fused operator has no rule.
bool is_transformed(const Tensor &query, const Tensor &key, const Tensor &value,
                    const std::optional<Tensor> &mask) {
    const auto keys = query.key_set() | key.key_set() | value.key_set();
    return (mask ? keys | mask->key_set() : keys).has(c10::DispatchKey::FuncTorchGradWrapper);
}

// F.scaled_dot_product_attention. PyTorch's own uses a dispatch table without xpu in a CPU build; this
// one calls fused_sdp_choice_xpu. It is registered above autograd, which sees the operator that it calls.
Tensor scaled_dot_product_attention_xpu(const Tensor &query, const Tensor &key, const Tensor &value,
                                        const std::optional<Tensor> &attn_mask, double dropout_p,
                                        bool is_causal, std::optional<double> scale, bool enable_gqa) {
    TORCH_CHECK(query.dtype() == key.dtype() && query.dtype() == value.dtype(),
                "Expected query, key, and value to have the same dtype, but got query.dtype: ", query.dtype(),
                " key.dtype: ", key.dtype(), " and value.dtype: ", value.dtype(), " instead.");
    TORCH_CHECK(
        query.device() == key.device() && query.device() == value.device(),
        "Expected query, key, and value to have the same device type, but got query.device: ", query.device(),
        " key.device: ", key.device(), " and value.device: ", value.device(), " instead.");
    TORCH_CHECK(query.dim() >= 2 && key.dim() >= 2 && value.dim() >= 2,
                "Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: ",
                query.dim(), " key.dim: ", key.dim(), " and value.dim: ", value.dim(), " instead.");
    std::optional<Tensor> mask;
    if (attn_mask && attn_mask->defined()) {
        mask = attn_mask;
        TORCH_CHECK(
            mask->dtype() == at::kBool || mask->dtype() == at::kFloat || mask->dtype() == query.dtype(),
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: ",
            mask->dtype(), " and  query.dtype: ", query.dtype(), " instead.");
        TORCH_CHECK(!is_causal, "Explicit attn_mask should not be set when is_causal=True");
        if (mask->dtype() == at::kBool)
            mask = at::zeros_symint(mask->sym_sizes(), query.options())
                       .masked_fill_(mask->logical_not(), -INFINITY);
    }
    TORCH_CHECK(!enable_gqa ||
                    (key.dim() > 2 && key.sym_size(-3) > 0 && value.dim() > 2 && value.sym_size(-3) > 0) ||
                    query.dim() < 3 || query.sym_size(-3) == 0,
                "scaled_dot_product_attention: the query's heads must be a multiple of those of key and "
                "value, but the shapes are ",
                key.sym_sizes(), " and ", value.sym_sizes());
    // Called directly: through the dispatcher the query would become part of traced programs.
    if (!is_transformed(query, key, value, mask) &&
        choose({query, key, value, mask, dropout_p, is_causal, enable_gqa}) != SDPBackend::math)
        return std::get<0>(at::_scaled_dot_product_fused_attention_overrideable(
            query, key, value, mask, dropout_p, is_causal, false, scale));
    return std::get<0>(at::_scaled_dot_product_attention_math(query, key, value, mask, dropout_p, is_causal,
                                                              std::nullopt, scale, enable_gqa));
}

int64_t fused_sdp_choice_meta(const Tensor &query, const Tensor &key, const Tensor &value,
                              const std::optional<Tensor> &attn_mask, double dropout_p, bool is_causal,
                              std::optional<double> scale, bool enable_gqa) {
    return query.key_set().has(c10::DispatchKey::XPU)
               ? at::native::fused_sdp_choice_xpu(query, key, value, attn_mask, dropout_p, is_causal, scale,
                                                  enable_gqa)
               : at::native::_fused_sdp_choice_meta(query, key, value, attn_mask, dropout_p, is_causal, scale,
                                                    enable_gqa);
}

} // namespace

// torch.compile and fake tensors request the choice without data; PyTorch's own function uses that table.
TORCH_LIBRARY_IMPL(aten, Meta, m) { m.impl("_fused_sdp_choice", fused_sdp_choice_meta); }
TORCH_LIBRARY_IMPL(aten, XPU, m) {
    m.impl("scaled_dot_product_attention", scaled_dot_product_attention_xpu);
    m.impl("_flash_attention_forward", torch::CppFunction::makeFromBoxedFunction<&flash_forward>());
}
TORCH_LIBRARY_IMPL(aten, AutogradXPU, m) {
    m.impl("scaled_dot_product_attention", scaled_dot_product_attention_xpu);
}

// Recurrent networks over whole sequences.
//
// On devices with the GPU policy, a layer in one direction is one operator with its own gradient. Other
// devices, and unusual cases (projections, forward-mode gradients, functorch transforms), compose it from
// cells; so does the double backward. PyTorch composes them too, except LSTM without gradients, which from
// 2.13 on it passes to an XPU oneDNN that isn't present.
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <ATen/autocast_mode.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gru_cell.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/lstm_cell.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rnn_relu_cell.h>
#include <ATen/ops/rnn_relu_native.h>
#include <ATen/ops/rnn_tanh_cell.h>
#include <ATen/ops/rnn_tanh_native.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>

#include "../lower.h"
#include "xpu/ops/rnn.h"
#include "xpu/policy.h"

namespace openxpu::rnn_net {

using at::Tensor;
using c10::SymInt;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// In the order of xpu_rnn_kind.
constexpr int64_t kGates[] = {4, 3, 1, 1};

// --- the operator and its gradient ---

// y, hy, cy (LSTM), and what gradients want: gates and cells. What isn't there has no elements.
using Results = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;
// Of the input, both weights, both biases, hx and cx.
using Gradients = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

// Makes them, of real sizes or symbolic ones. `input`: all steps' rows.
Results empty_results(const Tensor &input, const Tensor &weight, const Tensor &hx, int64_t kind, bool keep) {
    const auto rows = input.sym_size(0), units = weight.sym_size(1);
    const bool lstm = kind == XPU_RNN_LSTM, has_gates = keep && (lstm || kind == XPU_RNN_GRU);
    const auto made = [&](const SymInt &r, const SymInt &c, bool there, c10::ScalarType type) {
        const auto options = input.options().dtype(type);
        return there ? at::empty_symint({r, c}, options) : at::empty({0}, options);
    };
    const auto type = input.scalar_type();
    return {made(rows, units, true, type), made(hx.sym_size(0), units, true, type),
            made(hx.sym_size(0), units, lstm, type), made(rows, units * kGates[kind], has_gates, type),
            made(rows, units, has_gates, type == at::kDouble ? at::kDouble : at::kFloat)};
}

xpu_rnn net_of(const Tensor &input, const Tensor &weight, const Tensor &hx, const Tensor &cx, const Tensor &y,
               const Tensor &gates, const Tensor &cells, at::IntArrayRef batch_sizes, int64_t kind,
               bool reverse) {
    const int64_t rows = hx.size(0);
    return {.kind = static_cast<xpu_rnn_kind>(kind),
            .dtype = dtype_of(input),
            .reverse = reverse,
            .steps = batch_sizes.empty() ? input.size(0) / rows : static_cast<int64_t>(batch_sizes.size()),
            .rows = rows,
            .hidden = hx.size(1),
            .step_rows = batch_sizes.empty() ? nullptr : batch_sizes.data(),
            .weight = weight.const_data_ptr(),
            .hx = hx.const_data_ptr(),
            .cx = cx.defined() ? cx.const_data_ptr() : nullptr,
            .y = y.mutable_data_ptr(),
            .gates = gates.mutable_data_ptr(),
            .cells = cells.numel() ? cells.mutable_data_ptr() : nullptr};
}

Tensor plain(const std::optional<Tensor> &tensor) {
    return tensor && tensor->defined() ? tensor->contiguous() : Tensor();
}
const void *address(const Tensor &tensor) { return tensor.defined() ? tensor.const_data_ptr() : nullptr; }

Results layer_xpu(const Tensor &input, const Tensor &w_ih, const Tensor &w_hh,
                  const std::optional<Tensor> &b_ih, const std::optional<Tensor> &b_hh,
                  const Tensor &hx_given, const std::optional<Tensor> &cx_given, at::IntArrayRef batch_sizes,
                  int64_t kind, bool reverse, bool keep) {
    const c10::DeviceGuard device(input.device());
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    auto results = empty_results(input, w_hh, hx_given, kind, keep);
    auto &[y, hy, cy, gates, cells] = results;
    const auto products = at::linear(input, w_ih, b_ih).contiguous(), weight = w_hh.contiguous();
    const auto hx = hx_given.contiguous(), cx = plain(cx_given), bias = plain(b_hh);
    if (gates.numel()) gates = products;
    const xpu_rnn_forward_args args{
        .net = net_of(input, weight, hx, cx, y, products, cells, batch_sizes, kind, reverse),
        .bias = address(bias),
        .keep = keep,
        .hy = hy.mutable_data_ptr(),
        .cy = cy.numel() ? cy.mutable_data_ptr() : nullptr};
    check(xpu_rnn_forward(current_stream(input), &args));
    return results;
}

Results layer_meta(const Tensor &input, const Tensor &w_ih, const Tensor &w_hh, const std::optional<Tensor> &,
                   const std::optional<Tensor> &, const Tensor &hx, const std::optional<Tensor> &,
                   c10::SymIntArrayRef, int64_t kind, bool, bool keep) {
    return empty_results(input, w_hh, hx, kind, keep);
}

// `wanted`: of the input, of its weight, of the hidden weight, of the biases.
using Wanted = std::array<bool, 4>;

Gradients empty_gradients(const Tensor &input, const Tensor &w_ih, const Tensor &w_hh, const Tensor &hx,
                          int64_t kind, const Wanted &wanted) {
    const auto made = [&](c10::SymIntArrayRef sizes, bool there) {
        return there ? at::empty_symint(sizes, input.options()) : at::empty({0}, input.options());
    };
    const auto bias = w_hh.sym_sizes().slice(0, 1);
    return {made(input.sym_sizes(), wanted[0]),
            made(w_ih.sym_sizes(), wanted[1]),
            made(w_hh.sym_sizes(), wanted[2]),
            made(bias, wanted[3]),
            made(bias, wanted[3]),
            made(hx.sym_sizes(), true),
            made(hx.sym_sizes(), kind == XPU_RNN_LSTM)};
}

Gradients layer_backward_xpu(const std::optional<Tensor> &grad_y_given,
                             const std::optional<Tensor> &grad_hy_given,
                             const std::optional<Tensor> &grad_cy_given, const Tensor &input,
                             const Tensor &w_ih, const Tensor &w_hh, const Tensor &hx_given,
                             const std::optional<Tensor> &cx_given, const Tensor &y, const Tensor &gates,
                             const Tensor &cells, at::IntArrayRef batch_sizes, int64_t kind, bool reverse,
                             Wanted wanted) {
    const c10::DeviceGuard device(input.device());
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const bool lstm = kind == XPU_RNN_LSTM, gru = kind == XPU_RNN_GRU;
    const auto none = at::empty({0}, input.options());
    const auto weight = w_hh.contiguous(), hx = hx_given.contiguous(), cx = plain(cx_given);
    const auto grad_y = plain(grad_y_given), grad_hy = plain(grad_hy_given), grad_cy = plain(grad_cy_given);
    const auto grad_gates = at::empty({y.size(0), w_hh.size(0)}, y.options());
    const auto grad_hidden_gates = gru ? at::empty_like(grad_gates) : grad_gates;
    const auto states = at::empty_like(y), grad_hx = at::empty_like(hx);
    const auto grad_cx = lstm ? at::empty_like(hx) : none;
    const xpu_rnn_backward_args args{
        .net = net_of(input, weight, hx, cx, y, gates, cells, batch_sizes, kind, reverse),
        .grad_y = address(grad_y),
        .grad_hy = address(grad_hy),
        .grad_cy = address(grad_cy),
        .grad_gates = grad_gates.mutable_data_ptr(),
        .grad_hidden_gates = gru ? grad_hidden_gates.mutable_data_ptr() : nullptr,
        .grad_hx = grad_hx.mutable_data_ptr(),
        .grad_cx = lstm ? grad_cx.mutable_data_ptr() : nullptr,
        .states = states.mutable_data_ptr()};
    check(xpu_rnn_backward(current_stream(input), &args));
    const auto grad_b_ih = wanted[3] ? grad_gates.sum(0) : none;
    return {wanted[0] ? at::mm(grad_gates, w_ih) : none,
            wanted[1] ? at::mm(grad_gates.t(), input) : none,
            wanted[2] ? at::mm(grad_hidden_gates.t(), states) : none,
            grad_b_ih,
            !wanted[3] ? none
            : gru      ? grad_hidden_gates.sum(0)
                       : grad_b_ih.clone(),
            grad_hx,
            grad_cx};
}

Gradients layer_backward_meta(const std::optional<Tensor> &, const std::optional<Tensor> &,
                              const std::optional<Tensor> &, const Tensor &input, const Tensor &w_ih,
                              const Tensor &w_hh, const Tensor &hx, const std::optional<Tensor> &,
                              const Tensor &, const Tensor &, const Tensor &, c10::SymIntArrayRef,
                              int64_t kind, bool, Wanted wanted) {
    return empty_gradients(input, w_ih, w_hh, hx, kind, wanted);
}

std::optional<Tensor> maybe(const Tensor &t) { return t.defined() ? std::optional<Tensor>(t) : std::nullopt; }

Results layer(const Tensor &input, const Tensor &w_ih, const Tensor &w_hh, const Tensor &b_ih,
              const Tensor &b_hh, const Tensor &hx, const Tensor &cx, c10::SymIntArrayRef batch_sizes,
              int64_t kind, bool reverse, bool keep) {
    static const auto op =
        c10::Dispatcher::singleton()
            .findSchemaOrThrow("openxpu::rnn_layer", "")
            .typed<Results(const Tensor &, const Tensor &, const Tensor &, const std::optional<Tensor> &,
                           const std::optional<Tensor> &, const Tensor &, const std::optional<Tensor> &,
                           c10::SymIntArrayRef, int64_t, bool, bool)>();
    return op.call(input, w_ih, w_hh, maybe(b_ih), maybe(b_hh), hx, maybe(cx), batch_sizes, kind, reverse,
                   keep);
}

Gradients layer_backward(const Tensor &grad_y, const Tensor &grad_hy, const Tensor &grad_cy,
                         const Tensor &input, const Tensor &w_ih, const Tensor &w_hh, const Tensor &hx,
                         const Tensor &cx, const Tensor &y, const Tensor &gates, const Tensor &cells,
                         c10::SymIntArrayRef batch_sizes, int64_t kind, bool reverse, Wanted wanted) {
    static const auto op =
        c10::Dispatcher::singleton()
            .findSchemaOrThrow("openxpu::rnn_layer_backward", "")
            .typed<Gradients(const std::optional<Tensor> &, const std::optional<Tensor> &,
                             const std::optional<Tensor> &, const Tensor &, const Tensor &, const Tensor &,
                             const Tensor &, const std::optional<Tensor> &, const Tensor &, const Tensor &,
                             const Tensor &, c10::SymIntArrayRef, int64_t, bool, Wanted)>();
    return op.call(maybe(grad_y), maybe(grad_hy), maybe(grad_cy), input, w_ih, w_hh, hx, maybe(cx), y, gates,
                   cells, batch_sizes, kind, reverse, wanted);
}

// --- autograd ---

// The same layer of PyTorch's cells: y, hy and cy. `of`: as LayerFunction's.
variable_list composed(const variable_list &of, c10::SymIntArrayRef batch_sizes, int64_t kind, bool reverse) {
    const Tensor &hx = of[5], &cx = of[6];
    std::vector<SymInt> rows(batch_sizes.begin(), batch_sizes.end());
    if (rows.empty())
        rows.assign((of[0].sym_size(0) / hx.sym_size(0)).guard_int(__FILE__, __LINE__), hx.sym_size(0));
    const auto xs = of[0].split_with_sizes_symint(rows);
    const auto steps = static_cast<int64_t>(xs.size());
    std::vector<Tensor> ys(steps), hs, cs; // hs, cs: of rows that ended
    Tensor h, c;
    // As many rows as the step has: new ones begin with the initial state.
    const auto fit = [](Tensor &state, const Tensor &first, const SymInt &count, std::vector<Tensor> &ended) {
        const SymInt have = state.defined() ? state.sym_size(0) : SymInt(0);
        if (!state.defined()) {
            state = first.narrow_symint(0, 0, count);
        } else if (have < count) {
            state = at::cat({state, first.narrow_symint(0, have, count - have)});
        } else if (have > count) {
            ended.insert(ended.begin(), state.narrow_symint(0, count, have - count));
            state = state.narrow_symint(0, 0, count);
        }
    };
    for (int64_t i = 0; i < steps; i++) {
        const int64_t t = reverse ? steps - 1 - i : i;
        fit(h, hx, rows[t], hs);
        if (kind == XPU_RNN_LSTM) {
            fit(c, cx, rows[t], cs);
            std::tie(h, c) = at::lstm_cell(xs[t], {h, c}, of[1], of[2], of[3], of[4]);
        } else {
            h = kind == XPU_RNN_GRU    ? at::gru_cell(xs[t], h, of[1], of[2], of[3], of[4])
                : kind == XPU_RNN_TANH ? at::rnn_tanh_cell(xs[t], h, of[1], of[2], of[3], of[4])
                                       : at::rnn_relu_cell(xs[t], h, of[1], of[2], of[3], of[4]);
        }
        ys[t] = h;
    }
    hs.insert(hs.begin(), h);
    if (c.defined()) cs.insert(cs.begin(), c);
    return {at::cat(ys), at::cat(hs), c.defined() ? at::cat(cs) : Tensor()};
}

// Gradients that can be differentiated: of the same function, made of PyTorch's cells.
variable_list differentiable(const variable_list &saved, const variable_list &grads,
                             c10::SymIntArrayRef batch_sizes, int64_t kind, bool reverse) {
    variable_list of(7), inputs, outputs, given, results(7);
    for (int i = 0; i < 7; i++) {
        if (!saved[i].defined()) continue;
        // As another tensor, so that a way from one input to another outside of this function doesn't count.
        of[i] = at::alias(saved[i]);
        if (of[i].requires_grad()) inputs.push_back(of[i]);
    }
    const auto all = composed(of, batch_sizes, kind, reverse);
    for (size_t i = 0; i < grads.size(); i++) {
        if (!grads[i].defined()) continue;
        outputs.push_back(all[i]);
        given.push_back(grads[i]);
    }
    const auto found = torch::autograd::grad(outputs, inputs, given, true, true, true);
    for (int i = 0, at = 0; i < 7; i++)
        if (of[i].defined() && of[i].requires_grad()) results[i] = found[at++];
    return results;
}

struct LayerFunction : torch::autograd::Function<LayerFunction> {
    static variable_list forward(AutogradContext *ctx, const Tensor &input, const Tensor &w_ih,
                                 const Tensor &w_hh, const std::optional<Tensor> &biases_ih,
                                 const std::optional<Tensor> &biases_hh, const Tensor &hx,
                                 const std::optional<Tensor> &cells_x, std::vector<SymInt> batch_sizes,
                                 int64_t kind, bool reverse) {
        at::AutoDispatchBelowADInplaceOrView below;
        const auto b_ih = biases_ih.value_or(Tensor()), b_hh = biases_hh.value_or(Tensor());
        const auto cx = cells_x.value_or(Tensor());
        const auto [y, hy, cy, gates, cells] =
            layer(input, w_ih, w_hh, b_ih, b_hh, hx, cx, batch_sizes, kind, reverse, true);
        ctx->save_for_backward({input, w_ih, w_hh, b_ih, b_hh, hx, cx, y, gates, cells});
        ctx->set_materialize_grads(false);
        ctx->saved_data["kind"] = kind;
        ctx->saved_data["reverse"] = reverse;
        ctx->saved_data["batch_sizes"] = c10::SymIntArrayRef(batch_sizes);
        if (kind == XPU_RNN_LSTM) return {y, hy, cy};
        return {y, hy};
    }

    static variable_list backward(AutogradContext *ctx, const variable_list &grads) {
        const auto saved = ctx->get_saved_variables();
        const int64_t kind = ctx->saved_data["kind"].toInt();
        const bool reverse = ctx->saved_data["reverse"].toBool();
        const auto batch_sizes = ctx->saved_data["batch_sizes"].toSymIntVector();
        variable_list results(10);
        if (at::GradMode::is_enabled()) {
            const auto found = differentiable(saved, grads, batch_sizes, kind, reverse);
            std::copy(found.begin(), found.end(), results.begin());
            return results;
        }
        const auto wants = [&](int i) { return saved[i].defined() && saved[i].requires_grad(); };
        const Wanted wanted = {wants(0), wants(1), wants(2), wants(3) || wants(4)};
        const auto [x, w_ih, w_hh, b_ih, b_hh, hx, cx] = layer_backward(
            grads[0], grads[1], grads.size() > 2 ? grads[2] : Tensor(), saved[0], saved[1], saved[2],
            saved[5], saved[6], saved[7], saved[8], saved[9], batch_sizes, kind, reverse, wanted);
        const Tensor all[] = {x, w_ih, w_hh, b_ih, b_hh, hx, cx};
        for (int i = 0; i < 7; i++)
            if (wants(i)) results[i] = all[i];
        return results;
    }
};

// --- nets ---

// A net as ATen has them: steps x rows x features, or, with batch_sizes, the rows of packed sequences.
struct Net {
    int64_t kind;
    Tensor input;
    std::vector<SymInt> batch_sizes;
    bool packed;
    Tensor hx, cx;
    std::vector<Tensor> params;
    bool has_biases;
    int64_t layers;
    double dropout;
    bool train, bidirectional;
};

bool is_of(const Tensor &tensor, std::initializer_list<SymInt> sizes) {
    return tensor.sym_sizes().equals(c10::SymIntArrayRef(sizes));
}

std::vector<Tensor> all_of(const Net &net) {
    std::vector<Tensor> all = net.params;
    all.push_back(net.input);
    all.push_back(net.hx);
    if (net.kind == XPU_RNN_LSTM) all.push_back(net.cx);
    return all;
}

bool has_gradient(const Net &net) {
    const auto all = all_of(net);
    return at::GradMode::is_enabled() &&
           std::any_of(all.begin(), all.end(), [](const Tensor &t) { return t.requires_grad(); });
}

// Is a layer of the net one operator?
bool is_whole(const Net &net) {
    if (xpu_uses_cpu_policy(net.input.device().index()) ||
        c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerBackMode))
        return false;
    const auto all = all_of(net);
    return std::none_of(all.begin(), all.end(), [](const Tensor &t) { return t._fw_grad(0).defined(); });
}

// Is all as it should be, and nothing unusual? Else PyTorch composes it, or has an error for it.
bool is_regular(const Net &net) {
    const Tensor &x = net.input;
    if (!x.defined() || !net.hx.defined() || !x.device().is_xpu()) return false;
    const auto type = x.scalar_type();
    if (type != at::kFloat && type != at::kHalf && type != at::kBFloat16 &&
        !(type == at::kDouble && properties_of(x.device().index()).has_fp64))
        return false;
    const bool lstm = net.kind == XPU_RNN_LSTM;
    const int64_t directions = net.bidirectional ? 2 : 1, each = net.has_biases ? 4 : 2;
    if (x.dim() != (net.packed ? 2 : 3) || net.hx.dim() != 3 || net.layers < 1 ||
        static_cast<int64_t>(net.params.size()) != net.layers * directions * each)
        return false;
    for (const Tensor &t : all_of(net))
        if (!t.defined() || t.scalar_type() != type || t.device() != x.device() || t.layout() != at::kStrided)
            return false;
    const auto units = net.hx.sym_size(2), rows = net.packed ? net.batch_sizes.at(0) : x.sym_size(1);
    auto features = x.sym_size(-1);
    if (!is_of(net.hx, {net.layers * directions, rows, units}) ||
        (lstm && !is_of(net.cx, {net.layers * directions, rows, units})) || units == 0 || features == 0 ||
        rows == 0 || x.sym_size(0) == 0)
        return false;
    const auto gates = units * kGates[net.kind];
    for (int64_t i = 0; i < net.layers * directions; i++) {
        const Tensor *of = &net.params[i * each];
        if (i == directions) features = units * directions;
        if (!is_of(of[0], {gates, features}) || !is_of(of[1], {gates, units})) return false;
        if (net.has_biases && (!is_of(of[2], {gates}) || !is_of(of[3], {gates}))) return false;
    }
    return true;
}

// y, hy, cy; a layer as one operator, or composed.
std::array<Tensor, 3> run(const Net &net, bool whole) {
    const bool lstm = net.kind == XPU_RNN_LSTM;
    const int64_t directions = net.bidirectional ? 2 : 1, each = net.has_biases ? 4 : 2;
    std::vector<Tensor> hs, cs;
    Tensor x = net.input;
    const auto steps = x.sym_size(0), rows = x.sym_size(net.packed ? 0 : 1);
    if (!net.packed) x = x.reshape_symint({steps * rows, x.sym_size(2)});
    const bool keep = has_gradient(net);
    for (int64_t i = 0; i < net.layers; i++) {
        std::vector<Tensor> ys;
        for (int64_t d = 0; d < directions; d++) {
            const int64_t at = i * directions + d;
            const Tensor *of = &net.params[at * each];
            const Tensor b_ih = each > 2 ? of[2] : Tensor(), b_hh = each > 2 ? of[3] : Tensor();
            const auto hx = net.hx.select(0, at), cx = lstm ? net.cx.select(0, at) : Tensor();
            if (!whole) {
                const auto made =
                    composed({x, of[0], of[1], b_ih, b_hh, hx, cx}, net.batch_sizes, net.kind, d == 1);
                ys.push_back(made[0]), hs.push_back(made[1]), cs.push_back(made[2]);
            } else if (keep) {
                const auto made = LayerFunction::apply(x, of[0], of[1], maybe(b_ih), maybe(b_hh), hx,
                                                       maybe(cx), net.batch_sizes, net.kind, d == 1);
                ys.push_back(made[0]), hs.push_back(made[1]);
                if (lstm) cs.push_back(made[2]);
            } else {
                at::AutoDispatchBelowADInplaceOrView below;
                const auto [y, hy, cy, gates, cells] =
                    layer(x, of[0], of[1], b_ih, b_hh, hx, cx, net.batch_sizes, net.kind, d == 1, false);
                ys.push_back(y), hs.push_back(hy), cs.push_back(cy);
            }
        }
        x = directions == 1 ? ys[0] : at::cat(ys, 1);
        if (net.dropout != 0 && net.train && i + 1 < net.layers) x = at::dropout(x, net.dropout, true);
    }
    if (!net.packed) x = x.view_symint({steps, rows, x.sym_size(1)});
    return {x, at::stack(hs, 0), lstm ? at::stack(cs, 0) : Tensor()};
}

// Under autocast all is of its dtype, as PyTorch's cells would have it.
Net as_computed(Net net) {
    if (!at::autocast::is_autocast_enabled(at::kXPU)) return net;
    const auto type = at::autocast::get_autocast_dtype(at::kXPU);
    const auto cast = [&](Tensor &t) {
        if (t.defined()) t = at::autocast::cached_cast(type, t, at::kXPU);
    };
    for (Tensor *t : {&net.input, &net.hx, &net.cx}) cast(*t);
    for (Tensor &t : net.params) cast(t);
    return net;
}

// Reads the batch sizes of packed sequences; false if they are symbolic or invalid.
bool read_batch_sizes(const Tensor &given, Net &net) {
    if (!given.defined() || !given.is_cpu() || given.scalar_type() != at::kLong || given.dim() != 1 ||
        given.numel() == 0 || given.key_set().has(c10::DispatchKey::Python))
        return false;
    const auto sizes = given.contiguous();
    const int64_t *data = sizes.const_data_ptr<int64_t>();
    int64_t sum = 0;
    for (int64_t i = 0; i < sizes.numel(); i++) {
        if (data[i] <= 0 || (i && data[i] > data[i - 1])) return false;
        net.batch_sizes.emplace_back(data[i]);
        sum += data[i];
    }
    return net.input.defined() && net.input.dim() == 2 && net.input.sym_size(0) == sum;
}

std::optional<std::array<Tensor, 3>> taken(int64_t kind, const Tensor &input, at::TensorList hx,
                                           at::TensorList params, bool has_biases, int64_t layers,
                                           double dropout, bool train, bool bidirectional, bool batch_first,
                                           const Tensor *batch_sizes) {
    const bool lstm = kind == XPU_RNN_LSTM;
    if (hx.size() != (lstm ? 2 : 1)) return std::nullopt;
    Net net{.kind = kind,
            .input = input,
            .packed = batch_sizes != nullptr,
            .hx = hx[0],
            .cx = lstm ? hx[1] : Tensor(),
            .params = params.vec(),
            .has_biases = has_biases,
            .layers = layers,
            .dropout = dropout,
            .train = train,
            .bidirectional = bidirectional};
    if (batch_sizes && !read_batch_sizes(*batch_sizes, net)) return std::nullopt;
    if (batch_first && input.dim() == 3) net.input = input.transpose(0, 1);
    net = as_computed(std::move(net));
    if (!is_regular(net)) return std::nullopt;
    const bool whole = is_whole(net);
    if (!whole && (!lstm || has_gradient(net))) return std::nullopt;
    auto made = run(net, whole);
    if (batch_first) made[0] = made[0].transpose(0, 1);
    return made;
}

using Three = std::tuple<Tensor, Tensor, Tensor>;
using Two = std::tuple<Tensor, Tensor>;

Three lstm_input(const Tensor &input, at::TensorList hx, at::TensorList params, bool has_biases,
                 int64_t layers, double dropout, bool train, bool bidirectional, bool batch_first) {
    const auto made = taken(XPU_RNN_LSTM, input, hx, params, has_biases, layers, dropout, train,
                            bidirectional, batch_first, nullptr);
    if (made) return {(*made)[0], (*made)[1], (*made)[2]};
    return at::native::lstm(input, hx, params, has_biases, layers, dropout, train, bidirectional,
                            batch_first);
}

Three lstm_data(const Tensor &data, const Tensor &batch_sizes, at::TensorList hx, at::TensorList params,
                bool has_biases, int64_t layers, double dropout, bool train, bool bidirectional) {
    const auto made = taken(XPU_RNN_LSTM, data, hx, params, has_biases, layers, dropout, train, bidirectional,
                            false, &batch_sizes);
    if (made) return {(*made)[0], (*made)[1], (*made)[2]};
    return at::native::lstm(data, batch_sizes, hx, params, has_biases, layers, dropout, train, bidirectional);
}

// GRU and the plain nets have one state, and differ by their names alone.
#define ONE_STATE(name, kind)                                                                                \
    Two name##_input(const Tensor &input, const Tensor &hx, at::TensorList params, bool has_biases,          \
                     int64_t layers, double dropout, bool train, bool bidirectional, bool batch_first) {     \
        const auto made = taken(kind, input, hx, params, has_biases, layers, dropout, train, bidirectional,  \
                                batch_first, nullptr);                                                       \
        if (made) return {(*made)[0], (*made)[1]};                                                           \
        return at::native::name(input, hx, params, has_biases, layers, dropout, train, bidirectional,        \
                                batch_first);                                                                \
    }                                                                                                        \
    Two name##_data(const Tensor &data, const Tensor &batch_sizes, const Tensor &hx, at::TensorList params,  \
                    bool has_biases, int64_t layers, double dropout, bool train, bool bidirectional) {       \
        const auto made = taken(kind, data, hx, params, has_biases, layers, dropout, train, bidirectional,   \
                                false, &batch_sizes);                                                        \
        if (made) return {(*made)[0], (*made)[1]};                                                           \
        return at::native::name(data, batch_sizes, hx, params, has_biases, layers, dropout, train,           \
                                bidirectional);                                                              \
    }
ONE_STATE(gru, XPU_RNN_GRU)
ONE_STATE(rnn_tanh, XPU_RNN_TANH)
ONE_STATE(rnn_relu, XPU_RNN_RELU)

void register_nets(torch::Library &m) {
    m.impl("lstm.input", lstm_input);
    m.impl("lstm.data", lstm_data);
    m.impl("gru.input", gru_input);
    m.impl("gru.data", gru_data);
    m.impl("rnn_tanh.input", rnn_tanh_input);
    m.impl("rnn_tanh.data", rnn_tanh_data);
    m.impl("rnn_relu.input", rnn_relu_input);
    m.impl("rnn_relu.data", rnn_relu_data);
}

} // namespace openxpu::rnn_net

TORCH_LIBRARY(openxpu, m) {
    m.def("rnn_layer(Tensor input, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh, Tensor hx, Tensor? "
          "cx, "
          "SymInt[] batch_sizes, int kind, bool reverse, bool keep) -> (Tensor, Tensor, Tensor, Tensor, "
          "Tensor)");
    m.def("rnn_layer_backward(Tensor? grad_y, Tensor? grad_hy, Tensor? grad_cy, Tensor input, Tensor w_ih, "
          "Tensor w_hh, Tensor hx, Tensor? cx, Tensor y, Tensor gates, Tensor cells, SymInt[] batch_sizes, "
          "int kind, bool reverse, bool[4] wanted) "
          "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(openxpu, XPU, m) {
    m.impl("rnn_layer", openxpu::rnn_net::layer_xpu);
    m.impl("rnn_layer_backward", openxpu::rnn_net::layer_backward_xpu);
}
TORCH_LIBRARY_IMPL(openxpu, Meta, m) {
    m.impl("rnn_layer", openxpu::rnn_net::layer_meta);
    m.impl("rnn_layer_backward", openxpu::rnn_net::layer_backward_meta);
}
TORCH_LIBRARY_IMPL(aten, XPU, m) { openxpu::rnn_net::register_nets(m); }
TORCH_LIBRARY_IMPL(aten, AutogradXPU, m) { openxpu::rnn_net::register_nets(m); }

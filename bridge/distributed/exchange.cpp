#include "exchange.h"

namespace openxpu {

using at::Tensor;
using c10d::ReduceOp;

namespace {

class ExchangeWork final : public c10d::Work {
  public:
    ExchangeWork(c10d::Backend &carrier, Exchange what)
        : Work(carrier.getRank()), timeout_(what.timeout == c10d::kUnsetTimeout ? kNoTimeout : what.timeout) {
        const int size = carrier.getSize(), rank = carrier.getRank();
        const int tag = first_exchange_tag + static_cast<int>(what.number & 0xffffff);
        const auto turn = [&](Tensors &all, auto &&begin) {
            for (int i = 1; i < size; i++) {
                const int other = (rank + i) % size;
                if (!all[other].numel()) continue;
                Tensors one{all[other]};
                parts_.push_back(begin(one, other));
            }
        };
        // All is sent before anything can come: what is larger than expected stops Gloo's thread, which keeps
        // a lock that sends to the same rank would wait for.
        turn(what.given, [&](Tensors &one, int other) { return carrier.send(one, other, tag); });
        turn(what.taken, [&](Tensors &one, int other) { return carrier.recv(one, other, tag); });
    }

    bool wait(std::chrono::milliseconds timeout) override {
        for (auto part = parts_.rbegin(); part != parts_.rend(); ++part)
            if (!(*part)->wait(timeout == kNoTimeout ? timeout_ : timeout)) return false; // aborted
        return true;
    }
    void abort() override {
        for (const auto &part : parts_) part->abort();
    }

  private:
    const std::chrono::milliseconds timeout_;
    std::vector<WorkPtr> parts_;
};

// a = a reduced with b, or result = that.
void combine(ReduceOp::RedOpType reduction, Tensor &result, const Tensor &a, const Tensor &b) {
    switch (reduction) {
    case ReduceOp::SUM: at::add_out(result, a, b); return;
    case ReduceOp::PRODUCT: at::mul_out(result, a, b); return;
    case ReduceOp::MIN: at::minimum_out(result, a, b); return;
    case ReduceOp::MAX: at::maximum_out(result, a, b); return;
    case ReduceOp::BAND: at::bitwise_and_out(result, a, b); return;
    case ReduceOp::BOR: at::bitwise_or_out(result, a, b); return;
    case ReduceOp::BXOR: at::bitwise_xor_out(result, a, b); return;
    default: TORCH_CHECK_VALUE(false, "not a reduction: ", static_cast<int>(reduction));
    }
}

} // namespace

WorkPtr exchange(c10d::Backend &carrier, Exchange what) {
    return c10::make_intrusive<ExchangeWork>(carrier, std::move(what));
}

void reduce(ReduceOp::RedOpType reduction, const Tensors &parts, Tensor result, bool alone) {
    if (parts.size() == 2 && !alone) return combine(reduction, result, parts[0], parts[1]);
    const int64_t length = result.numel();
    const auto type = result.scalar_type();
    const bool in_fp32 = parts.size() > 2 && (type == at::kHalf || type == at::kBFloat16);
    constexpr int64_t piece = 16384; // elements: PyTorch's loops take other threads from 32,768 on
    Tensor sum;
    if (parts.size() > 2)
        sum = at::empty({std::min(piece, length)},
                        in_fp32 ? result.options().dtype(at::kFloat) : result.options());
    for (int64_t from = 0; from < length; from += piece) {
        const int64_t here = std::min(piece, length - from);
        const auto part = [&](size_t i) { return parts[i].narrow(0, from, here); };
        auto to = result.narrow(0, from, here);
        if (parts.size() == 1) {
            if (result.data_ptr() != parts[0].data_ptr()) to.copy_(part(0));
            continue;
        }
        if (parts.size() == 2) {
            combine(reduction, to, part(0), part(1));
            continue;
        }
        auto so_far = sum.narrow(0, 0, here); // not in `to`, which may be a part that is still wanted
        if (in_fp32) {
            so_far.copy_(part(0));
            for (size_t i = 1; i < parts.size(); i++) combine(reduction, so_far, so_far, part(i));
            to.copy_(so_far);
        } else {
            combine(reduction, so_far, part(0), part(1));
            for (size_t i = 2; i + 1 < parts.size(); i++) combine(reduction, so_far, so_far, part(i));
            combine(reduction, to, so_far, part(parts.size() - 1));
        }
    }
}

} // namespace openxpu

// Collectives that go straight from rank to rank: each gives every other one what that needs, and reduces
// what it gets itself.
//
// The carrier's own collectives run in its threads, and go round a ring: two hand-overs between threads and,
// for an all_reduce, 4 (ranks - 1) messages one after the other. Here messages are sent by the thread that
// calls, all at once, and who waits reduces what has come.
#pragma once

#include "backend.h"

namespace openxpu {

// One message to each other rank and one from each.
struct Exchange {
    Tensors given;                     // to each rank; the own place is what this one keeps
    Tensors taken;                     // from each rank; the own place is not used
    uint64_t number;                   // the same on all ranks: which exchange of the group it is
    std::chrono::milliseconds timeout; // kUnsetTimeout: the carrier's
};

// Tags from here on are the exchanges'; sends and receptions of programs have the ones below.
constexpr int first_exchange_tag = 0x7f000000;

// Begins to send and to receive. The work has no future: `wait` waits for all messages, and who calls it lets
// `abort` end that.
WorkPtr exchange(c10d::Backend &carrier, Exchange what);

// Writes the reduction of `parts`, CPU tensors of one size and dtype, into `result`, which may be one of
// them: in their order, so all ranks get the same bits. Halves are added in fp32 and rounded once. With
// `alone` PyTorch's other threads are left alone, which would make a second team beside the one of the thread
// that computes.
void reduce(c10d::ReduceOp::RedOpType reduction, const Tensors &parts, at::Tensor result, bool alone);

} // namespace openxpu

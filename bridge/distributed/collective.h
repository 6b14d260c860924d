// What describes a collective, a send or a receive.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace openxpu {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// The properties of a call.
struct Collective {
    c10d::OpType type;
    const char *title; // name in profiles; error texts use the part after the colon
    std::optional<c10d::ReduceOp> reduces = std::nullopt;
    bool reads_outputs = false;          // in place
    enum { keep, flat, rows } as = keep; // shapes given to the transport; `rows` keeps rows, even as bytes
    // Which tensors must have the same sizes on all ranks.
    enum { nobodys, inputs, outputs } alike = nobodys;
    int root = -1;
    bool is_between_two = false;  // a send or a receive
    bool is_straight = false;     // done by an exchange, not by the transport's own collective
    bool is_awaited = false;      // the caller waits immediately
    bool is_replayed = false;     // replayed by a graph, on CPU tensors
    bool is_read_at_once = false; // the caller reads the result immediately
};

} // namespace openxpu

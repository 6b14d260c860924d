// One captured graph: the implementation of torch.xpu.XPUGraph and torch.accelerator.Graph.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <utility>

#include "export.h"
#include "xpu/graph.h"

namespace openxpu {

using PoolId = std::pair<uint64_t, uint64_t>;

// Captures on the device that is current at begin(). Methods called out of order throw c10::Error.
class OPENXPU_API Graph {
  public:
    explicit Graph(bool keep) : keep_(keep) {}
    Graph(const Graph &) = delete;
    Graph &operator=(const Graph &) = delete;
    ~Graph();

    void begin(PoolId pool);
    void end();
    void instantiate();
    void replay();
    void reset();
    PoolId pool() const;
    void enable_debug() { debug_ = true; }
    // Writes the recorded work, in order, as a graph for dot.
    void dump(const std::string &path);
    // An opaque handle; no driver accepts it.
    const void *raw(bool executable) const;

  private:
    const bool keep_;
    bool debug_ = false;
    xpu_graph *graph_ = nullptr;
    c10::DeviceIndex device_ = -1;

    bool has_capture() const;
    xpu_graph *begun() const;
    xpu_graph *captured(const char *method) const;
};

} // namespace openxpu

// Graphs, and the implementation of torch.accelerator.Graph.
#include "graph.h"

#include <c10/core/DeviceGuard.h>

#if __has_include(<ATen/core/GraphImplInterface.h>)
#include <ATen/core/GraphImplInterface.h>
#define HAS_GRAPH_IMPL // from PyTorch 2.13 on
#endif

#include <fstream>

#include "allocator.h"
#include "host_memory.h"
#include "interpreter.h"

namespace openxpu {

bool Graph::has_capture() const {
    uint64_t id[2];
    return xpu_graph_pool(graph_, id) == XPU_SUCCESS;
}
xpu_graph *Graph::begun() const {
    TORCH_CHECK(graph_, "Called XPUGraph::capture_end without a preceding capture_begin.");
    return graph_;
}
xpu_graph *Graph::captured(const char *method) const {
    TORCH_CHECK(graph_ && has_capture(), "Called XPUGraph::", method,
                " without a preceding successful capture.");
    return graph_;
}

Graph::~Graph() { xpu_graph_destroy(graph_); }

void Graph::begin(PoolId pool) {
    interpreter.initialize();
    check_native("pools for graphs");
    const auto device = current_device();
    TORCH_CHECK(!graph_ || !has_capture(),
                "This XPUGraph instance already owns a captured graph. "
                "To capture a new graph, create a new instance or reset this one.");
    if (device != device_) {
        xpu_graph_destroy(std::exchange(graph_, nullptr));
        device_ = device;
        check(xpu_graph_create(device, &graph_));
    }
    const uint64_t id[] = {pool.first, pool.second};
    check(xpu_graph_begin(graph_, current_stream(device_), id));
}

void Graph::end() {
    check(xpu_graph_end(begun()));
    if (!keep_) instantiate();
}

void Graph::instantiate() { check(xpu_graph_instantiate(captured("instantiate"))); }

void Graph::replay() {
    auto *graph = captured("replay");
    const c10::DeviceGuard guard({c10::kXPU, device_});
    const auto status = xpu_graph_replay(graph, current_stream(device_));
    if (status == XPU_SUCCESS) return;
    rethrow_failure();
    check(status);
}

void Graph::reset() {
    if (graph_) check(xpu_graph_reset(graph_));
}

PoolId Graph::pool() const {
    uint64_t id[2];
    check(xpu_graph_pool(captured("pool"), id));
    return {id[0], id[1]};
}

void Graph::dump(const std::string &path) {
    auto *graph = captured("debug_dump");
    if (!debug_) {
        TORCH_WARN(
            "XPU graphs: debug_dump writes nothing, because enable_debug_mode() was not called before.");
        return;
    }
    struct Dump {
        std::ofstream file;
        int count = 0;
    } dump{std::ofstream(path)};
    dump.file << "digraph graph_of_xpu {\n";
    check(xpu_graph_visit(
        graph,
        [](const xpu_work *work, void *user) {
            static const char *const kinds[] = {"kernel", "copy", "fill", "host"};
            auto &to = *static_cast<Dump *>(user);
            const int i = to.count++;
            if (i > 0) to.file << "n" << i - 1 << " -> n" << i << "\n";
            to.file << "n" << i << " [label=\"" << kinds[work->kind] << ": " << work->name;
            if (work->bytes) to.file << ", " << work->bytes << " bytes";
            to.file << "\"]\n";
        },
        &dump));
    dump.file << "}\n";
    TORCH_CHECK(dump.file.flush().good(), "can't write ", path);
}

const void *Graph::raw(bool executable) const {
    TORCH_CHECK(executable || keep_,
                "You cannot access the raw graph of an XPUGraph that wasn't made with keep_graph=True");
    return captured(executable ? "raw_xpu_graph_exec" : "raw_xpu_graph");
}

#ifdef HAS_GRAPH_IMPL
namespace {

struct GraphImpl final : at::GraphImplInterface {
    explicit GraphImpl(const at::GraphImplArgs &args) : graph(args.keep_graph) {}
    // Capture modes differ in which calls of which threads are rejected. Here every mode rejects calls
    // that can't be recorded.
    void capture_begin(c10::MempoolId_t pool, at::GraphCaptureMode) override { graph.begin(pool); }
    void capture_end() override { graph.end(); }
    void instantiate() override { graph.instantiate(); }
    void replay() override { graph.replay(); }
    void reset() override { graph.reset(); }
    c10::MempoolId_t pool() const override { return graph.pool(); }
    void enable_debug_mode() override { graph.enable_debug(); }
    void debug_dump(const std::string &path) override { graph.dump(path); }

    Graph graph;
};

} // namespace
#endif

} // namespace openxpu

#ifdef HAS_GRAPH_IMPL
namespace at {
REGISTER_GRAPH_IMPL(XPU, openxpu::GraphImpl)
} // namespace at
#endif

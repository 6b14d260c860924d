// Graphs: torch.xpu.XPUGraph's methods, and the implementation behind torch.accelerator.Graph.
#include "graph.h"

#include <c10/core/DeviceGuard.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/device_lazy_init.h>

#if __has_include(<ATen/core/GraphImplInterface.h>)
#include <ATen/core/GraphImplInterface.h>
#define HAS_GRAPH_IMPL // from PyTorch 2.13 on
#endif

#include <fstream>

#include "allocator.h"
#include "host_memory.h"
#include "xpu/graph.h"

namespace openxpu {
namespace {

using PoolId = std::pair<uint64_t, uint64_t>;

// One capture, on the device that is current when it begins.
class Graph {
  public:
    explicit Graph(bool keep) : keep_(keep) {}
    Graph(const Graph &) = delete;
    Graph &operator=(const Graph &) = delete;
    ~Graph() { xpu_graph_destroy(graph_); }

    void begin(PoolId pool) {
        torch::utils::device_lazy_init(at::kXPU);
        check_native("pools for graphs");
        int device;
        check(xpu_device_current(&device));
        TORCH_CHECK(!graph_ || !has_capture(),
                    "This XPUGraph instance already owns a captured graph. "
                    "To capture a new graph, create a new instance or reset this one.");
        if (device != device_) {
            xpu_graph_destroy(std::exchange(graph_, nullptr));
            device_ = static_cast<c10::DeviceIndex>(device);
            check(xpu_graph_create(device, &graph_));
        }
        const uint64_t id[] = {pool.first, pool.second};
        check(xpu_graph_begin(graph_, current_stream(device_), id));
    }

    void end() {
        check(xpu_graph_end(begun()));
        if (!keep_) instantiate();
    }

    void instantiate() { check(xpu_graph_instantiate(captured("instantiate"))); }

    void replay() {
        auto *graph = captured("replay");
        const c10::DeviceGuard guard({c10::kXPU, device_});
        const auto status = xpu_graph_replay(graph, current_stream(device_));
        if (status == XPU_SUCCESS) return;
        rethrow_failure();
        check(status);
    }

    void reset() {
        if (graph_) check(xpu_graph_reset(graph_));
    }

    PoolId pool() const {
        uint64_t id[2];
        check(xpu_graph_pool(captured("pool"), id));
        return {id[0], id[1]};
    }

    void enable_debug() { debug_ = true; }

    // What was recorded, one after the other, as a graph for dot.
    void dump(const std::string &path) {
        auto *graph = captured("debug_dump");
        if (!debug_) {
            TORCH_WARN(
                "XPU graphs: enable_debug_mode() was not called before debug_dump, which writes nothing.");
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
                auto &dump = *static_cast<Dump *>(user);
                const int i = dump.count++;
                if (i > 0) dump.file << "n" << i - 1 << " -> n" << i << "\n";
                dump.file << "n" << i << " [label=\"" << kinds[work->kind] << ": " << work->name;
                if (work->bytes) dump.file << ", " << work->bytes << " bytes";
                dump.file << "\"]\n";
            },
            &dump));
        dump.file << "}\n";
        TORCH_CHECK(dump.file.flush().good(), "can't write ", path);
    }

    // A handle, for what it is worth: no driver knows it.
    const void *raw(bool executable) const {
        TORCH_CHECK(executable || keep_,
                    "You cannot access the raw graph of an XPUGraph that wasn't made with keep_graph=True");
        return captured(executable ? "raw_xpu_graph_exec" : "raw_xpu_graph");
    }

  private:
    const bool keep_;
    bool debug_ = false;
    xpu_graph *graph_ = nullptr;
    c10::DeviceIndex device_ = -1;

    bool has_capture() const {
        uint64_t id[2];
        return xpu_graph_pool(graph_, id) == XPU_SUCCESS;
    }
    xpu_graph *begun() const {
        TORCH_CHECK(graph_, "Called XPUGraph::capture_end without a preceding capture_begin.");
        return graph_;
    }
    xpu_graph *captured(const char *method) const {
        TORCH_CHECK(graph_ && has_capture(), "Called XPUGraph::", method,
                    " without a preceding successful capture.");
        return graph_;
    }
};

#ifdef HAS_GRAPH_IMPL
struct GraphImpl final : at::GraphImplInterface {
    explicit GraphImpl(const at::GraphImplArgs &args) : graph(args.keep_graph) {}
    // The modes differ in which calls of which threads are refused; here those that can't be recorded are, in
    // any.
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
#endif

// --- Python ---

struct GraphObject {
    PyObject_HEAD Graph *graph;
};

Graph &graph_of(PyObject *self) { return *reinterpret_cast<GraphObject *>(self)->graph; }

PyObject *graph_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    HANDLE_TH_ERRORS
    static const char *names[] = {"keep_graph", nullptr};
    int keep = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|p", const_cast<char **>(names), &keep)) return nullptr;
    PyObject *self = type->tp_alloc(type, 0);
    if (self) reinterpret_cast<GraphObject *>(self)->graph = new Graph(keep);
    return self;
    END_HANDLE_TH_ERRORS
}

// A subclass may take what it likes: __new__ has had its arguments.
int graph_init(PyObject *, PyObject *, PyObject *) { return 0; }

void graph_free(PyObject *self) {
    delete reinterpret_cast<GraphObject *>(self)->graph;
    Py_TYPE(self)->tp_free(self);
}

PyObject *pool_tuple(PoolId id) {
    return Py_BuildValue("(KK)", static_cast<unsigned long long>(id.first),
                         static_cast<unsigned long long>(id.second));
}

PyObject *graph_begin(PyObject *self, PyObject *args, PyObject *kwargs) {
    HANDLE_TH_ERRORS
    static const char *names[] = {"pool", nullptr};
    PyObject *pool = Py_None;
    unsigned long long first = 0, second = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", const_cast<char **>(names), &pool)) return nullptr;
    if (pool != Py_None && !PyArg_ParseTuple(pool, "KK", &first, &second)) return nullptr;
    graph_of(self).begin({first, second});
    Py_RETURN_NONE;
    END_HANDLE_TH_ERRORS
}

template <void (Graph::*method)()> PyObject *graph_call(PyObject *self, PyObject *) {
    HANDLE_TH_ERRORS {
        auto &graph = graph_of(self);
        pybind11::gil_scoped_release release;
        (graph.*method)();
    }
    Py_RETURN_NONE;
    END_HANDLE_TH_ERRORS
}

PyObject *graph_pool(PyObject *self, PyObject *) {
    HANDLE_TH_ERRORS
    return pool_tuple(graph_of(self).pool());
    END_HANDLE_TH_ERRORS
}

PyObject *graph_dump(PyObject *self, PyObject *args, PyObject *kwargs) {
    HANDLE_TH_ERRORS
    static const char *names[] = {"debug_path", nullptr};
    const char *path;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s", const_cast<char **>(names), &path)) return nullptr;
    graph_of(self).dump(path);
    Py_RETURN_NONE;
    END_HANDLE_TH_ERRORS
}

template <bool executable> PyObject *graph_raw(PyObject *self, PyObject *) {
    HANDLE_TH_ERRORS
    return PyLong_FromVoidPtr(const_cast<void *>(graph_of(self).raw(executable)));
    END_HANDLE_TH_ERRORS
}

// Whatever generators the captured work draws from are known to the graph.
PyObject *graph_register(PyObject *, PyObject *) { Py_RETURN_NONE; }

PyCFunction with_names(PyObject *(*function)(PyObject *, PyObject *, PyObject *)) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef graph_methods[] = {
    {"capture_begin", with_names(graph_begin), METH_VARARGS | METH_KEYWORDS, nullptr},
    {"capture_end", graph_call<&Graph::end>, METH_NOARGS, nullptr},
    {"instantiate", graph_call<&Graph::instantiate>, METH_NOARGS, nullptr},
    {"replay", graph_call<&Graph::replay>, METH_NOARGS, nullptr},
    {"reset", graph_call<&Graph::reset>, METH_NOARGS, nullptr},
    {"pool", graph_pool, METH_NOARGS, nullptr},
    {"register_generator_state", graph_register, METH_O, nullptr},
    {"enable_debug_mode", graph_call<&Graph::enable_debug>, METH_NOARGS, nullptr},
    {"debug_dump", with_names(graph_dump), METH_VARARGS | METH_KEYWORDS, nullptr},
    {"raw_xpu_graph", graph_raw<false>, METH_NOARGS, nullptr},
    {"raw_xpu_graph_exec", graph_raw<true>, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyTypeObject graph_type = [] {
    PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};
    type.tp_name = "torch._C._XPUGraph";
    type.tp_basicsize = sizeof(GraphObject);
    type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE;
    type.tp_dealloc = graph_free;
    type.tp_methods = graph_methods;
    type.tp_init = graph_init;
    type.tp_new = graph_new;
    return type;
}();

PyObject *is_capturing(PyObject *, PyObject *) {
    HANDLE_TH_ERRORS
    if (!xpu_initialized()) Py_RETURN_FALSE;
    int device;
    check(xpu_device_current(&device));
    return PyBool_FromLong(is_captured(static_cast<c10::DeviceIndex>(device)));
    END_HANDLE_TH_ERRORS
}

// Of a pool that a user makes?
PyObject *new_pool_id(PyObject *, PyObject *of_user) {
    HANDLE_TH_ERRORS
    uint64_t id[2];
    check(xpu_pool_new_id(PyObject_IsTrue(of_user) == 1, id));
    return pool_tuple({id[0], id[1]});
    END_HANDLE_TH_ERRORS
}

PyObject *graph_pool_handle(PyObject *self, PyObject *) { return new_pool_id(self, Py_True); }

PyMethodDef graph_functions[] = {
    {"_xpu_isCurrentStreamCapturing", is_capturing, METH_NOARGS, nullptr},
    {"_xpu_graph_pool_handle", graph_pool_handle, METH_NOARGS, nullptr},
    {"new_pool_id", new_pool_id, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

} // namespace

bool add_graphs(PyObject *module) {
    // For collectives, a library of its own, which can't be linked to this one.
    using Record = void (*)(c10::DeviceIndex, const char *, std::function<void()>);
    static constexpr Record record = record_on_host;
    auto *capsule = PyCapsule_New(const_cast<Record *>(&record), "record_on_host", nullptr);
    const bool is_added = capsule && PyModule_AddObjectRef(module, "_record_on_host", capsule) == 0;
    Py_XDECREF(capsule);
    return is_added && PyType_Ready(&graph_type) == 0 &&
           PyModule_AddFunctions(module, graph_functions) == 0 &&
           PyModule_AddObjectRef(module, "Graph", reinterpret_cast<PyObject *>(&graph_type)) == 0;
}

} // namespace openxpu

#ifdef HAS_GRAPH_IMPL
namespace at {
REGISTER_GRAPH_IMPL(XPU, openxpu::GraphImpl)
} // namespace at
#endif

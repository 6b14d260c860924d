// Python bindings of torch.xpu.XPUGraph and torch.xpu.graphs.
#include "../graph.h"

#include <torch/csrc/Exceptions.h>

#include "../host_memory.h"
#include "module.h"

namespace openxpu {
namespace {

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
    return PyBool_FromLong(is_captured(current_device()));
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
    return PyType_Ready(&graph_type) == 0 && PyModule_AddFunctions(module, graph_functions) == 0 &&
           PyModule_AddObjectRef(module, "Graph", reinterpret_cast<PyObject *>(&graph_type)) == 0;
}

} // namespace openxpu

// Parts of the Python module openxpu._bridge.
#pragma once

#include <Python.h>

#include <c10/core/CachingDeviceAllocator.h>

namespace openxpu {

// Each adds a part to the module. On failure it returns false with a Python error set.
bool add_triton(PyObject *module);      // what the Triton backend (python/openxpu/triton) and Inductor need
bool add_graphs(PyObject *module);      // the type `Graph`, and functions that ask
bool add_graph_trees(PyObject *module); // what Inductor's graphs want of memory
bool add_aoti(PyObject *module);        // the type AOTIModelContainerRunnerXpu
bool add_sharing(PyObject *module);     // storages that processes share

// All segments and blocks of all devices, or of one pool, and the history, as Python objects.
PyObject *memory_snapshot(c10::MempoolId_t pool);

} // namespace openxpu

// Shared storages for openxpu._shared_memory.
#include "../shared_memory.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Storage.h>
#include <torch/csrc/utils/python_numbers.h>

#include "module.h"

namespace openxpu {
namespace {

c10::Storage storage_from(PyObject *object) {
    TORCH_CHECK(THPStorage_Check(object), "expected a storage");
    THPStorage_assertNotNull(object);
    return THPStorage_Unpack(object);
}

PyObject *shared_storage(PyObject *, PyObject *argument) {
    HANDLE_TH_ERRORS
    auto shared = shared_storage_of(storage_from(argument));
    if (!shared) Py_RETURN_NONE;
    return THPStorage_Wrap(std::move(shared));
    END_HANDLE_TH_ERRORS
}

PyObject *move_storage(PyObject *, PyObject *arguments) {
    HANDLE_TH_ERRORS
    PyObject *storage, *shared;
    if (!PyArg_ParseTuple(arguments, "OO", &storage, &shared)) return nullptr;
    const auto from = storage_from(storage), to = storage_from(shared);
    {
        pybind11::gil_scoped_release release;
        move_into_shared(from, to);
    }
    Py_RETURN_NONE;
    END_HANDLE_TH_ERRORS
}

PyObject *check_shareable_(PyObject *, PyObject *argument) {
    HANDLE_TH_ERRORS
    check_shareable(THPUtils_unpackDeviceIndex(argument));
    Py_RETURN_NONE;
    END_HANDLE_TH_ERRORS
}

PyObject *storage_over_(PyObject *, PyObject *arguments) {
    HANDLE_TH_ERRORS
    PyObject *shared;
    int device;
    if (!PyArg_ParseTuple(arguments, "Oi", &shared, &device)) return nullptr;
    return THPStorage_Wrap(storage_over(storage_from(shared), static_cast<c10::DeviceIndex>(device)));
    END_HANDLE_TH_ERRORS
}

PyMethodDef sharing_methods[] = {
    {"shared_storage", shared_storage, METH_O, nullptr},
    {"move_storage", move_storage, METH_VARARGS, nullptr},
    {"check_shareable", check_shareable_, METH_O, nullptr},
    {"storage_over", storage_over_, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

} // namespace

bool add_sharing(PyObject *module) { return PyModule_AddFunctions(module, sharing_methods) == 0; }

} // namespace openxpu

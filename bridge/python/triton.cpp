// C++ support for Triton and Inductor: kernel objects, a launcher that is cheap to call from Python, and
// memory.
#include "module.h"

#include <ATen/xpu/EmptyTensor.h>
#include <c10/util/BFloat16.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/object_ptr.h>

#include <array>
#include <vector>

#include "../lower.h"
#include "xpu/image.h"

namespace openxpu {
namespace {

// --- a built kernel ---

struct Kernel {
    PyObject_HEAD xpu_kernel *kernel;
    xpu_image *image;
};

void delete_kernel(PyObject *self) {
    xpu_image_free(reinterpret_cast<Kernel *>(self)->image);
    Py_TYPE(self)->tp_free(self);
}

// TritonKernel(device: int, image: bytes): builds what the compiler gave, or takes it from the cache.
PyObject *new_kernel(PyTypeObject *type, PyObject *arguments, PyObject *) {
    HANDLE_TH_ERRORS
    int device;
    const char *bytes;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(arguments, "iy#", &device, &bytes, &size)) return nullptr;
    THPObjectPtr owned(type->tp_alloc(type, 0));
    if (!owned) return nullptr;
    auto *self = reinterpret_cast<Kernel *>(owned.get());
    check(xpu_image_read(bytes, static_cast<size_t>(size), &self->image));
    xpu_status status;
    {
        pybind11::gil_scoped_release release;
        status = xpu_image_kernel(self->image, device, &self->kernel);
    }
    check(status);
    return owned.release();
    END_HANDLE_TH_ERRORS
}

PyTypeObject type_of(const char *name, Py_ssize_t size, destructor dealloc, newfunc create) {
    PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};
    type.tp_name = name;
    type.tp_basicsize = size;
    type.tp_flags = Py_TPFLAGS_DEFAULT;
    type.tp_dealloc = dealloc;
    type.tp_new = create;
    return type;
}

PyTypeObject kernel_type = type_of("openxpu._bridge.TritonKernel", sizeof(Kernel), delete_kernel, new_kernel);
// --- the launcher ---

// TritonLauncher(is_passed: bytes): one byte a Python argument, 0 for those that are constants in the kernel.
struct Launcher {
    PyObject_HEAD vectorcallfunc call;
    std::vector<char> *is_passed;
};

void delete_launcher(PyObject *self) {
    delete reinterpret_cast<Launcher *>(self)->is_passed;
    Py_TYPE(self)->tp_free(self);
}

uint64_t address_of(PyObject *argument, Py_ssize_t index) {
    if (THPVariable_Check(argument)) {
        const auto &tensor = THPVariable_Unpack(argument);
        TORCH_CHECK_VALUE(tensor.is_xpu(), "Pointer argument (at ", index, ") is a ", tensor.device(),
                          " tensor: a Triton kernel on xpu can't access it");
        return reinterpret_cast<uint64_t>(tensor.mutable_data_ptr());
    }
    if (argument == Py_None) return 0;
    if (PyLong_Check(argument)) {
        const auto address = PyLong_AsUnsignedLongLong(argument);
        if (PyErr_Occurred()) throw python_error();
        return address;
    }
    THPObjectPtr address(PyObject_CallMethod(argument, "data_ptr", nullptr));
    if (!address) {
        PyErr_Clear();
        TORCH_CHECK_TYPE(false, "Pointer argument (at ", index,
                         ") must be a tensor, an address or None; got ", Py_TYPE(argument)->tp_name);
    }
    const auto result = PyLong_AsUnsignedLongLong(address.get());
    if (PyErr_Occurred()) throw python_error();
    return result;
}

uint64_t integer_of(PyObject *argument) {
    THPObjectPtr index(PyNumber_Index(argument));
    if (!index) throw python_error();
    int overflow;
    const auto value = PyLong_AsLongLongAndOverflow(index.get(), &overflow);
    if (!overflow) {
        if (value == -1 && PyErr_Occurred()) throw python_error();
        return static_cast<uint64_t>(value);
    }
    const auto result = PyLong_AsUnsignedLongLong(index.get());
    if (PyErr_Occurred()) throw python_error();
    return result;
}

uint64_t float_of(PyObject *argument, const xpu_param &param) {
    const double value = PyFloat_AsDouble(argument);
    if (value == -1 && PyErr_Occurred()) throw python_error();
    uint64_t bits = 0;
    if (param.size == 8) {
        memcpy(&bits, &value, sizeof value);
    } else if (param.size == 4) {
        const auto single = static_cast<float>(value);
        memcpy(&bits, &single, sizeof single);
    } else if (param.is_bf16) {
        bits = c10::BFloat16(static_cast<float>(value)).x;
    } else {
        bits = c10::Half(static_cast<float>(value)).x;
    }
    return bits;
}

void call_hook(PyObject *hook, PyObject *metadata) {
    if (hook == Py_None) return;
    THPObjectPtr result(PyObject_CallOneArg(hook, metadata));
    if (!result) throw python_error();
}

// A kernel with the grid and arguments of a call from Python. Arguments that `is_passed` has false are
// skipped.
void submit(PyObject *object, PyObject *const *grid_values, PyObject *stream_value, PyObject *const *values,
            size_t count, const char *is_passed) {
    TORCH_CHECK_TYPE(Py_TYPE(object) == &kernel_type, "not an xpu kernel: ", Py_TYPE(object)->tp_name);
    const auto *kernel = reinterpret_cast<Kernel *>(object);
    std::array<uint32_t, 3> grid;
    for (size_t d = 0; d < 3; d++) {
        const auto size = PyLong_AsLong(grid_values[d]);
        if (size == -1 && PyErr_Occurred()) throw python_error();
        TORCH_CHECK_VALUE(size >= 0 && size <= INT32_MAX, "grid dimension ", d, " is ", size);
        grid[d] = static_cast<uint32_t>(size);
    }
    auto *stream = static_cast<xpu_stream *>(PyLong_AsVoidPtr(stream_value));
    if (PyErr_Occurred()) throw python_error();

    alignas(8) std::array<char, XPU_IMAGE_PARAMS_MAX> params;
    const auto &image = *kernel->image;
    const auto wanted = static_cast<size_t>(image.param_count);
    size_t next = 0;
    for (size_t i = 0; i < count; i++) {
        if (is_passed && !is_passed[i]) continue;
        TORCH_CHECK_TYPE(next < wanted, "the Triton kernel has ", wanted, " parameters; got more");
        const auto &param = image.params[next++];
        uint64_t bits;
        switch (param.kind) {
        case XPU_PARAM_POINTER: bits = address_of(values[i], static_cast<Py_ssize_t>(i)); break;
        case XPU_PARAM_INTEGER: bits = integer_of(values[i]); break;
        default: bits = float_of(values[i], param);
        }
        memcpy(params.data() + param.offset, &bits, param.size);
    }
    TORCH_CHECK_TYPE(next == wanted, "the Triton kernel has ", wanted, " parameters; got ", next);
    xpu_status status;
    {
        pybind11::gil_scoped_release release;
        status = xpu_image_submit(stream, &image, kernel->kernel, grid.data(), params.data());
    }
    check(status);
}

enum { GRID, STREAM = 3, FUNCTION, KERNEL_METADATA, LAUNCH_METADATA, ENTER_HOOK, EXIT_HOOK, FIRST };

// launcher(grid_x, grid_y, grid_z, stream, kernel, _, launch_metadata, enter_hook, exit_hook, *arguments)
PyObject *launch(PyObject *object, PyObject *const *values, size_t flags, PyObject *names) {
    HANDLE_TH_ERRORS
    const auto count = PyVectorcall_NARGS(flags);
    const auto &is_passed = *reinterpret_cast<Launcher *>(object)->is_passed;
    TORCH_CHECK_TYPE(!names && count == FIRST + static_cast<Py_ssize_t>(is_passed.size()),
                     "a Triton kernel's launcher takes ", FIRST + is_passed.size(), " arguments; got ",
                     count);
    call_hook(values[ENTER_HOOK], values[LAUNCH_METADATA]);
    submit(values[FUNCTION], values + GRID, values[STREAM], values + FIRST, is_passed.size(),
           is_passed.data());
    call_hook(values[EXIT_HOOK], values[LAUNCH_METADATA]);
    Py_RETURN_NONE;
    END_HANDLE_TH_ERRORS
}

// What Inductor calls on torch._C._StaticXpuLauncher:
// triton_launch(kernel, grid_x, grid_y, grid_z, num_warps, shared, types: str, arguments: tuple, stream)
PyObject *triton_launch(PyObject *, PyObject *const *values, Py_ssize_t count) {
    HANDLE_TH_ERRORS
    TORCH_CHECK_TYPE(count == 9 && PyTuple_Check(values[7]), "triton_launch takes 9 arguments; got ", count);
    submit(values[0], values + 1, values[8], &PyTuple_GET_ITEM(values[7], 0),
           static_cast<size_t>(PyTuple_GET_SIZE(values[7])), nullptr);
    Py_RETURN_NONE;
    END_HANDLE_TH_ERRORS
}

PyObject *new_launcher(PyTypeObject *type, PyObject *arguments, PyObject *) {
    const char *bytes;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(arguments, "y#", &bytes, &size)) return nullptr;
    auto *self = reinterpret_cast<Launcher *>(type->tp_alloc(type, 0));
    if (!self) return nullptr;
    self->call = launch;
    self->is_passed = new std::vector<char>(bytes, bytes + size);
    return reinterpret_cast<PyObject *>(self);
}

PyTypeObject launcher_type = [] {
    PyTypeObject type =
        type_of("openxpu._bridge.TritonLauncher", sizeof(Launcher), delete_launcher, new_launcher);
    type.tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
    type.tp_vectorcall_offset = offsetof(Launcher, call);
    type.tp_call = PyVectorcall_Call;
    return type;
}();

// --- memory ---

std::vector<int64_t> integers_of(PyObject *object, const char *what) {
    TORCH_CHECK_TYPE(PyTuple_Check(object), "_empty_strided_xpu: ", what, " must be a tuple");
    std::vector<int64_t> result(static_cast<size_t>(PyTuple_GET_SIZE(object)));
    for (size_t i = 0; i < result.size(); i++) {
        result[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(object, static_cast<Py_ssize_t>(i)));
        if (result[i] == -1 && PyErr_Occurred()) throw python_error();
    }
    return result;
}

// _empty_strided_xpu(size: tuple, stride: tuple, dtype): what Inductor's programs allocate with, on the
// current device, past the dispatcher.
PyObject *py_empty_strided(PyObject *, PyObject *const *values, Py_ssize_t count) {
    HANDLE_TH_ERRORS
    TORCH_CHECK_TYPE(count == 3 && THPDtype_Check(values[2]),
                     "_empty_strided_xpu takes size, stride and dtype");
    const auto dtype = reinterpret_cast<THPDtype *>(values[2])->scalar_type;
    return THPVariable_Wrap(at::detail::empty_strided_xpu(integers_of(values[0], "size"),
                                                          integers_of(values[1], "stride"), dtype,
                                                          c10::Device(c10::kXPU, current_device())));
    END_HANDLE_TH_ERRORS
}

PyMethodDef functions[] = {
    {"triton_launch", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(triton_launch)),
     METH_FASTCALL, nullptr},
    {"_empty_strided_xpu", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(py_empty_strided)),
     METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

} // namespace

bool add_triton(PyObject *module) {
    if (PyType_Ready(&kernel_type) || PyType_Ready(&launcher_type)) return false;
    return PyModule_AddFunctions(module, functions) == 0 &&
           PyModule_AddObjectRef(module, "TritonKernel", reinterpret_cast<PyObject *>(&kernel_type)) == 0 &&
           PyModule_AddObjectRef(module, "TritonLauncher", reinterpret_cast<PyObject *>(&launcher_type)) == 0;
}

} // namespace openxpu

// The Python module openxpu._bridge: functions of torch._C that torch.xpu calls and CPU builds of PyTorch
// lack, and a few of openxpu's own. The device itself is in libopenxpu_torch, which doesn't depend on
// Python.
#include <ATen/Context.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/utils/device_lazy_init.h>
#include <torch/csrc/utils/python_numbers.h>
#include <torch/csrc/utils/python_strings.h>

#include <map>
#include <vector>

#include "../allocator.h"
#include "../engine.h"
#include "../fallback.h"
#include "../generator.h"
#include "../history.h"
#include "../interpreter.h"
#include "../lower.h"
#include "../trace.h"
#include "module.h"
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "xpu/program.h"
#include "xpu/tile.h"

namespace openxpu {
namespace {

// --- making Python values ---

// A dictionary's value for a key; takes the reference over.
void put(PyObject *dict, const char *key, PyObject *value) {
    THPObjectPtr owned(value);
    if (!owned || PyDict_SetItemString(dict, key, owned)) throw python_error();
}

PyObject *dict_of(const c10::CachingDeviceAllocator::Stat &stat) {
    return Py_BuildValue("{s:L,s:L,s:L,s:L}", "current", stat.current, "peak", stat.peak, "allocated",
                         stat.allocated, "freed", stat.freed);
}

PyObject *dict_of(const c10::CachingDeviceAllocator::StatArray &stats) {
    return Py_BuildValue("{s:N,s:N,s:N}", "all", dict_of(stats[0]), "small_pool", dict_of(stats[1]),
                         "large_pool", dict_of(stats[2]));
}

PyObject *stream_tuple(const xpu_stream *stream) {
    return Py_BuildValue("(Lii)", static_cast<long long>(xpu_stream_id(stream)), xpu_stream_device(stream),
                         static_cast<int>(c10::kXPU));
}

c10::DeviceIndex index_from(PyObject *object, const char *function) {
    TORCH_CHECK(THPUtils_checkLong(object), "invalid argument to ", function);
    return THPUtils_unpackDeviceIndex(object);
}

// Runs without the interpreter's lock.
template <class Function> void unlocked(Function &&function) {
    xpu_status status;
    {
        pybind11::gil_scoped_release release;
        status = function();
    }
    check(status);
}

#define METHOD(name) PyObject *name([[maybe_unused]] PyObject *self, [[maybe_unused]] PyObject *argument)

// --- start and devices ---

METHOD(init) {
    HANDLE_TH_ERRORS
    torch::utils::register_fork_handler_for_device_init(at::kXPU);
    at::globalContext().lazyInitDevice(at::kXPU);
    int count;
    check(xpu_device_count(&count));
    THPObjectPtr generators(PyTuple_New(count));
    if (!generators) throw python_error();
    for (int device = 0; device < count; device++) {
        auto *generator =
            THPGenerator_initDefaultGenerator(default_generator(static_cast<c10::DeviceIndex>(device)));
        PyTuple_SET_ITEM(generators.get(), device, generator);
    }
    THPObjectPtr xpu(PyImport_ImportModule("torch.xpu"));
    if (!xpu || PyObject_SetAttrString(xpu, "default_generators", generators)) throw python_error();
    Py_RETURN_NONE;
    END_HANDLE_TH_ERRORS
}

METHOD(is_in_bad_fork) {
    return PyBool_FromLong(xpu_in_bad_fork() || torch::utils::is_device_in_bad_fork(at::kXPU));
}

METHOD(get_device_count) {
    // Never fails: without a driver there are no devices.
    int count;
    if (xpu_in_bad_fork() || xpu_device_count(&count) != XPU_SUCCESS) count = 0;
    return PyLong_FromLong(count);
}

METHOD(get_device) {
    HANDLE_TH_ERRORS
    return PyLong_FromLong(current_device());
    END_HANDLE_TH_ERRORS
}

METHOD(set_device) {
    HANDLE_TH_ERRORS
    check(xpu_device_set_current(index_from(argument, "set_device")));
    Py_RETURN_NONE;
    END_HANDLE_TH_ERRORS
}

METHOD(exchange_device) {
    HANDLE_TH_ERRORS
    const auto device = index_from(argument, "exchange_device");
    if (device < 0) return PyLong_FromLong(-1);
    torch::utils::device_lazy_init(at::kXPU);
    const int before = current_device();
    if (device != before) check(xpu_device_set_current(device));
    return PyLong_FromLong(before);
    END_HANDLE_TH_ERRORS
}

METHOD(synchronize) {
    HANDLE_TH_ERRORS
    auto device = index_from(argument, "synchronize");
    tell(&Trace::trace_gpu_device_synchronization);
    unlocked([=] { return xpu_device_synchronize(device < 0 ? current_device() : device); });
    Py_RETURN_NONE;
    END_HANDLE_TH_ERRORS
}

METHOD(get_arch_flags) {
    HANDLE_TH_ERRORS
    Py_RETURN_NONE; // nothing is compiled ahead of time
    END_HANDLE_TH_ERRORS
}

METHOD(can_device_access_peer) {
    HANDLE_TH_ERRORS
    int device, peer, count;
    if (!PyArg_ParseTuple(argument, "ii", &device, &peer)) return nullptr;
    check(xpu_device_count(&count));
    TORCH_CHECK(device >= 0 && device < count && peer >= 0 && peer < count,
                "device index out of range: there are ", count);
    return PyBool_FromLong(device == peer);
    END_HANDLE_TH_ERRORS
}

// Every line of the table of properties, as a dictionary.
METHOD(device_properties) {
    HANDLE_TH_ERRORS
    auto device = index_from(argument, "get_device_properties");
    const auto &properties = properties_of(device);
    THPObjectPtr dict(PyDict_New());
    static const char *const types[] = {"gpu", "cpu", "accelerator"};
    put(dict, "type", THPUtils_packString(types[properties.type]));
    static const char *const memories[] = {"usm", "svm", "host", "buffer"};
    put(dict, "memory", THPUtils_packString(memories[properties.memory]));
    char target[XPU_TILE_TARGET_TEXT]; // what kernels are compiled for: processes without the device do it,
                                       // too
    check(xpu_tile_describe_device(device, target, sizeof target));
    put(dict, "target", THPUtils_packString(target));
#define PUT_text(name) put(dict, #name, THPUtils_packString(properties.name));
#define PUT_boolean(name) put(dict, #name, PyBool_FromLong(properties.name));
#define PUT_integer(name) put(dict, #name, THPUtils_packUInt64(properties.name));
#define PUT_list(name)                                                                                       \
    {                                                                                                        \
        PyObject *list = PyList_New(0);                                                                      \
        for (auto value : properties.name)                                                                   \
            if (value) {                                                                                     \
                THPObjectPtr number(THPUtils_packUInt64(value));                                             \
                if (PyList_Append(list, number)) throw python_error();                                       \
            }                                                                                                \
        put(dict, #name, list);                                                                              \
    }
#define X(type, name, kind) PUT_##kind(name)
    XPU_DEVICE_PROPERTIES(X)
#undef X
    return dict.release();
    END_HANDLE_TH_ERRORS
}

// --- streams ---

METHOD(get_current_stream) {
    HANDLE_TH_ERRORS
    return stream_tuple(current_stream(index_from(argument, "current_stream")));
    END_HANDLE_TH_ERRORS
}

METHOD(get_current_raw_stream) {
    HANDLE_TH_ERRORS
    // For launchers: the address of the xpu_stream, from which they can get the queue.
    return PyLong_FromVoidPtr(current_stream(index_from(argument, "getCurrentRawStream")));
    END_HANDLE_TH_ERRORS
}

PyObject *set_stream(PyObject *, PyObject *args, PyObject *kwargs) {
    HANDLE_TH_ERRORS
    long long id = 0, device = 0, type = 0;
    const char *names[] = {"stream_id", "device_index", "device_type", nullptr};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|LLL", const_cast<char **>(names), &id, &device, &type))
        return nullptr;
    TORCH_CHECK(static_cast<c10::DeviceType>(type) == c10::kXPU, "a stream of another device type");
    xpu_stream *stream;
    check(xpu_stream_from_id(static_cast<int>(device), id, &stream));
    if (current_device() != device) check(xpu_device_set_current(static_cast<int>(device)));
    check(xpu_stream_set_current(stream));
    Py_RETURN_NONE;
    END_HANDLE_TH_ERRORS
}

METHOD(get_stream_from_external) {
    HANDLE_TH_ERRORS
    unsigned long long queue;
    int device;
    if (!PyArg_ParseTuple(argument, "Ki", &queue, &device)) return nullptr;
    xpu_stream *stream;
    check(xpu_stream_from_external(device, reinterpret_cast<void *>(queue), &stream));
    return stream_tuple(stream);
    END_HANDLE_TH_ERRORS
}

// A stream of the pool: (device or -1, priority) → (id, device, type).
METHOD(new_stream) {
    HANDLE_TH_ERRORS
    int device, priority;
    if (!PyArg_ParseTuple(argument, "ii", &device, &priority)) return nullptr;
    const c10::Stream stream = c10::impl::getDeviceGuardImpl(c10::kXPU)->getNewStream(
        c10::Device(c10::kXPU, static_cast<c10::DeviceIndex>(device)), priority);
    return Py_BuildValue("(Lii)", static_cast<long long>(stream.id()), stream.device_index(),
                         static_cast<int>(c10::kXPU));
    END_HANDLE_TH_ERRORS
}

// The stream that a tuple (device, id) names.
xpu_stream *stream_from(PyObject *argument) {
    int device;
    long long id;
    if (!PyArg_ParseTuple(argument, "iL", &device, &id)) throw python_error();
    xpu_stream *stream;
    check(xpu_stream_from_id(device, id, &stream));
    return stream;
}

// (device, id) → cl_command_queue
METHOD(stream_queue) {
    HANDLE_TH_ERRORS
    void *queue;
    check(xpu_stream_native(stream_from(argument), &queue));
    return PyLong_FromVoidPtr(queue);
    END_HANDLE_TH_ERRORS
}

// (device, id) → priority
METHOD(stream_priority) {
    HANDLE_TH_ERRORS
    return PyLong_FromLong(xpu_stream_priority(stream_from(argument)));
    END_HANDLE_TH_ERRORS
}

// Milliseconds between two recorded events, given by their handles: torch.Event takes no subclasses there.
METHOD(elapsed_time) {
    HANDLE_TH_ERRORS
    unsigned long long start, end;
    if (!PyArg_ParseTuple(argument, "KK", &start, &end)) return nullptr;
    const auto *guard = c10::impl::getDeviceGuardImpl(c10::kXPU);
    return PyFloat_FromDouble(
        guard->elapsedTime(reinterpret_cast<void *>(start), reinterpret_cast<void *>(end), -1));
    END_HANDLE_TH_ERRORS
}

// --- memory ---

METHOD(empty_cache) {
    HANDLE_TH_ERRORS
    pybind11::gil_scoped_release release;
    c10::getDeviceAllocator(c10::kXPU)->emptyCache();
    END_HANDLE_TH_ERRORS
    Py_RETURN_NONE;
}

// (address, value, bytes): fills device memory, on the current stream.
METHOD(fill_bytes) {
    HANDLE_TH_ERRORS
    unsigned long long address, size;
    int value;
    if (!PyArg_ParseTuple(argument, "KiK", &address, &value, &size)) return nullptr;
    const auto byte = static_cast<uint8_t>(value);
    check(xpu_memset(current_stream(current_device()), reinterpret_cast<void *>(address), &byte, 1, size));
    Py_RETURN_NONE;
    END_HANDLE_TH_ERRORS
}

METHOD(memory_stats) {
    HANDLE_TH_ERRORS
    const auto stats = device_stats(index_from(argument, "memory_stats"));
    THPObjectPtr dict(PyDict_New());
#define PUT(name) put(dict, #name, dict_of(stats.name));
    PUT(allocation)
    PUT(segment)
    PUT(active)
    PUT(inactive_split)
    PUT(allocated_bytes)
    PUT(reserved_bytes)
    PUT(active_bytes)
    PUT(inactive_split_bytes)
    PUT(requested_bytes)
    PUT(oversize_allocations)
    PUT(oversize_segments)
#undef PUT
#define PUT(name) put(dict, #name, THPUtils_packInt64(stats.name));
    PUT(num_alloc_retries)
    PUT(num_ooms)
    PUT(num_device_alloc)
    PUT(num_device_free)
    PUT(num_sync_all_streams)
    PUT(max_split_size)
#undef PUT
    return dict.release();
    END_HANDLE_TH_ERRORS
}

METHOD(reset_peak_memory_stats) {
    HANDLE_TH_ERRORS
    check(xpu_memory_reset_peak_stats(index_from(argument, "reset_peak_memory_stats")));
    Py_RETURN_NONE;
    END_HANDLE_TH_ERRORS
}

METHOD(reset_accumulated_memory_stats) {
    HANDLE_TH_ERRORS
    check(xpu_memory_reset_accumulated_stats(index_from(argument, "reset_accumulated_memory_stats")));
    Py_RETURN_NONE;
    END_HANDLE_TH_ERRORS
}

METHOD(get_memory_info) {
    HANDLE_TH_ERRORS
    size_t free_bytes, total_bytes;
    check(xpu_memory_info(index_from(argument, "mem_get_info"), &free_bytes, &total_bytes));
    return Py_BuildValue("(KK)", static_cast<unsigned long long>(free_bytes),
                         static_cast<unsigned long long>(total_bytes));
    END_HANDLE_TH_ERRORS
}

METHOD(get_memory_fraction) {
    HANDLE_TH_ERRORS
    double fraction;
    check(xpu_memory_get_fraction(index_from(argument, "get_per_process_memory_fraction"), &fraction));
    return PyFloat_FromDouble(fraction);
    END_HANDLE_TH_ERRORS
}

METHOD(set_memory_fraction) {
    HANDLE_TH_ERRORS
    double fraction;
    int device;
    if (!PyArg_ParseTuple(argument, "di", &fraction, &device)) return nullptr;
    TORCH_CHECK_VALUE(fraction >= 0 && fraction <= 1, "invalid fraction:", fraction,
                      ". Please set within [0, 1].");
    check(xpu_memory_set_fraction(device, fraction));
    Py_RETURN_NONE;
    END_HANDLE_TH_ERRORS
}

// None, or the id of the pool that is wanted
METHOD(memory_snapshot_) {
    HANDLE_TH_ERRORS
    unsigned long long id[2] = {};
    if (argument != Py_None && !PyArg_ParseTuple(argument, "KK", &id[0], &id[1])) return nullptr;
    return memory_snapshot({id[0], id[1]});
    END_HANDLE_TH_ERRORS
}

// --- pools of memory: (device, (id, id)) ---

struct PoolArgument {
    int device;
    uint64_t id[2];
};

bool parse_pool(PyObject *argument, PoolArgument *pool) {
    unsigned long long first, second;
    if (!PyArg_ParseTuple(argument, "i(KK)", &pool->device, &first, &second)) return false;
    pool->id[0] = first;
    pool->id[1] = second;
    return true;
}

// What `work` says of the pool that is asked for.
template <typename Work> PyObject *with_pool(PyObject *argument, const Work &work) {
    HANDLE_TH_ERRORS
    PoolArgument pool;
    if (!parse_pool(argument, &pool)) return nullptr;
    check(work(pool));
    Py_RETURN_NONE;
    END_HANDLE_TH_ERRORS
}

METHOD(begin_pool) {
    return with_pool(argument, [](const PoolArgument &pool) {
        return xpu_pool_begin(pool.device, pool.id, xpu_pool_thread_filter, xpu_pool_this_thread());
    });
}

METHOD(end_pool) {
    return with_pool(argument, [](const PoolArgument &pool) { return xpu_pool_end(pool.device, pool.id); });
}

METHOD(release_pool) {
    return with_pool(argument,
                     [](const PoolArgument &pool) { return xpu_pool_release(pool.device, pool.id); });
}

METHOD(pool_users) {
    HANDLE_TH_ERRORS
    PoolArgument pool;
    int users;
    if (!parse_pool(argument, &pool)) return nullptr;
    check(xpu_pool_users(pool.device, pool.id, &users));
    return PyLong_FromLong(users);
    END_HANDLE_TH_ERRORS
}

xpu_pool_source source_of(unsigned long long take, unsigned long long give) {
    return {.take = reinterpret_cast<decltype(xpu_pool_source::take)>(take),
            .give = reinterpret_cast<decltype(xpu_pool_source::give)>(give)};
}

// (device, id, id, address of the function that gives memory or 0, of the one that takes it back, use on OOM,
// no splitting)
METHOD(make_pool) {
    HANDLE_TH_ERRORS
    int device, use_on_oom, no_split;
    unsigned long long first, second, take, give;
    if (!PyArg_ParseTuple(argument, "iKKKKpp", &device, &first, &second, &take, &give, &use_on_oom,
                          &no_split))
        return nullptr;
    const uint64_t id[] = {first, second};
    check(xpu_pool_acquire(device, id));
    if (take) check(xpu_pool_set_source(device, id, source_of(take, give)));
    if (use_on_oom) check(xpu_pool_use_on_oom(device, id));
    if (no_split) check(xpu_pool_no_split(device, id));
    Py_RETURN_NONE;
    END_HANDLE_TH_ERRORS
}

// Frees unused segments of a pool; the rest is freed when it is unused and the cache is emptied.
METHOD(drop_pool) {
    HANDLE_TH_ERRORS
    PoolArgument pool;
    if (!parse_pool(argument, &pool)) return nullptr;
    if (xpu_in_bad_fork()) Py_RETURN_NONE; // the parent's memory
    check(xpu_pool_release(pool.device, pool.id));
    unlocked([&] { return xpu_pool_empty(pool.device, pool.id); });
    Py_RETURN_NONE;
    END_HANDLE_TH_ERRORS
}

METHOD(plug_in_) {
    HANDLE_TH_ERRORS
    unsigned long long take, give;
    if (!PyArg_ParseTuple(argument, "KK", &take, &give)) return nullptr;
    plug_in(source_of(take, give));
    Py_RETURN_NONE;
    END_HANDLE_TH_ERRORS
}

// (enabled, context, stacks, max_entries, clear, skip_actions), as torch.xpu.memory passes them
METHOD(record_memory_history) {
    HANDLE_TH_ERRORS
    const char *enabled, *context, *stacks;
    Py_ssize_t max_entries;
    int clear = 0;
    PyObject *skipped = nullptr;
    if (!PyArg_ParseTuple(argument, "zzsn|pO!", &enabled, &context, &stacks, &max_entries, &clear,
                          &PyList_Type, &skipped))
        return nullptr;
    const std::string_view which = enabled ? enabled : "", stacks_of = context ? context : "";
    TORCH_CHECK_VALUE(which.empty() || which == "state" || which == "all",
                      "expected enabled to be None, 'state' or 'all'");
    HistoryOptions wanted{};
    wanted.enabled = enabled;
    wanted.trace = which == "all";
    wanted.alloc_stacks = context;
    wanted.free_stacks = stacks_of == "all";
    wanted.cpp = std::string_view(stacks) == "all";
    wanted.max_entries = static_cast<size_t>(max_entries);
    wanted.clear = clear;
    wanted.skipped = 0;
    for (Py_ssize_t i = 0; skipped && i < PyList_Size(skipped); i++)
        wanted.skipped |= trace_action_bit(THPUtils_unpackString(PyList_GetItem(skipped, i)));
    record_history(wanted);
    Py_RETURN_NONE;
    END_HANDLE_TH_ERRORS
}

// --- openxpu's own ---

METHOD(fallback_counts_) {
    HANDLE_TH_ERRORS
    int reset = 0;
    if (!PyArg_ParseTuple(argument, "|p", &reset)) return nullptr;
    THPObjectPtr dict(PyDict_New());
    for (const auto &[name, count] : fallback_counts(reset))
        put(dict, name.c_str(), THPUtils_packInt64(count));
    return dict.release();
    END_HANDLE_TH_ERRORS
}

METHOD(program_stats) {
    HANDLE_TH_ERRORS
    xpu_program_stats stats;
    check(xpu_program_get_stats(&stats));
    return Py_BuildValue("{s:K,s:K,s:d,s:d}", "built", static_cast<unsigned long long>(stats.built), "loaded",
                         static_cast<unsigned long long>(stats.loaded), "build_seconds", stats.build_seconds,
                         "load_seconds", stats.load_seconds);
    END_HANDLE_TH_ERRORS
}

METHOD(drain_autograd_) {
    HANDLE_TH_ERRORS
    if (xpu_initialized()) {
        pybind11::gil_scoped_release release;
        drain_autograd();
    }
    END_HANDLE_TH_ERRORS
    Py_RETURN_NONE;
}

METHOD(cache_dir) { return PyUnicode_DecodeFSDefault(xpu_cache_dir()); }
METHOD(no_device_hint) { return PyUnicode_FromString(xpu_no_device_hint()); }
METHOD(no_gpu_hint) { return PyUnicode_FromString(xpu_no_gpu_hint()); }

PyMethodDef methods[] = {
    {"_xpu_init", init, METH_NOARGS, nullptr},
    {"_xpu_isInBadFork", is_in_bad_fork, METH_NOARGS, nullptr},
    {"_xpu_getDeviceCount", get_device_count, METH_NOARGS, nullptr},
    {"_xpu_getDevice", get_device, METH_NOARGS, nullptr},
    {"_xpu_setDevice", set_device, METH_O, nullptr},
    {"_xpu_exchangeDevice", exchange_device, METH_O, nullptr},
    {"_xpu_maybeExchangeDevice", exchange_device, METH_O, nullptr},
    {"_xpu_synchronize", synchronize, METH_O, nullptr},
    {"_xpu_getArchFlags", get_arch_flags, METH_NOARGS, nullptr},
    {"_xpu_canDeviceAccessPeer", can_device_access_peer, METH_VARARGS, nullptr},
    {"_xpu_getCurrentStream", get_current_stream, METH_O, nullptr},
    {"_xpu_getCurrentRawStream", get_current_raw_stream, METH_O, nullptr},
    {"_xpu_setStream", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(set_stream)),
     METH_VARARGS | METH_KEYWORDS, nullptr},
    {"_xpu_getStreamFromExternal", get_stream_from_external, METH_VARARGS, nullptr},
    {"_xpu_emptyCache", empty_cache, METH_NOARGS, nullptr},
    {"_xpu_memoryStats", memory_stats, METH_O, nullptr},
    {"_xpu_resetPeakMemoryStats", reset_peak_memory_stats, METH_O, nullptr},
    {"_xpu_resetAccumulatedMemoryStats", reset_accumulated_memory_stats, METH_O, nullptr},
    {"_xpu_getMemoryInfo", get_memory_info, METH_O, nullptr},
    {"_xpu_getMemoryFraction", get_memory_fraction, METH_O, nullptr},
    {"_xpu_setMemoryFraction", set_memory_fraction, METH_VARARGS, nullptr},
    {"_xpu_memorySnapshot", memory_snapshot_, METH_O, nullptr},
    {"_xpu_recordMemoryHistory", record_memory_history, METH_VARARGS, nullptr},
    {"_xpu_beginAllocateCurrentThreadToPool", begin_pool, METH_VARARGS, nullptr},
    {"_xpu_endAllocateToPool", end_pool, METH_VARARGS, nullptr},
    {"_xpu_releasePool", release_pool, METH_VARARGS, nullptr},
    {"make_pool", make_pool, METH_VARARGS, nullptr},
    {"drop_pool", drop_pool, METH_VARARGS, nullptr},
    {"pool_users", pool_users, METH_VARARGS, nullptr},
    {"plug_in", plug_in_, METH_VARARGS, nullptr},
    {"device_properties", device_properties, METH_O, nullptr},
    {"new_stream", new_stream, METH_VARARGS, nullptr},
    {"elapsed_time", elapsed_time, METH_VARARGS, nullptr},
    {"stream_queue", stream_queue, METH_VARARGS, nullptr},
    {"stream_priority", stream_priority, METH_VARARGS, nullptr},
    {"fill_bytes", fill_bytes, METH_VARARGS, nullptr},
    {"fallback_counts", fallback_counts_, METH_VARARGS, nullptr},
    {"program_stats", program_stats, METH_NOARGS, nullptr},
    {"drain_autograd", drain_autograd_, METH_NOARGS, nullptr},
    {"cache_dir", cache_dir, METH_NOARGS, nullptr},
    {"no_device_hint", no_device_hint, METH_NOARGS, nullptr},
    {"no_gpu_hint", no_gpu_hint, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "openxpu._bridge", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

void call_python(const std::function<void()> &call) {
    if (!Py_IsInitialized()) return; // memory that outlives Python
    const pybind11::gil_scoped_acquire held;
    const pybind11::error_scope kept; // memory is given back while an error is on its way, too
    call();
}

} // namespace
} // namespace openxpu

PyMODINIT_FUNC PyInit__bridge() {
    HANDLE_TH_ERRORS
    openxpu::interpreter = {.call = openxpu::call_python,
                            .initialize = [] { torch::utils::device_lazy_init(at::kXPU); }};
    THPObjectPtr module(PyModule_Create(&openxpu::module));
    return module && openxpu::add_triton(module.get()) && openxpu::add_graphs(module.get()) &&
                   openxpu::add_graph_trees(module.get()) && openxpu::add_aoti(module.get()) &&
                   openxpu::add_sharing(module.get())
               ? module.release()
               : nullptr;
    END_HANDLE_TH_ERRORS
}

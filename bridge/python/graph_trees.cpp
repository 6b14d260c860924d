// Allocator and storage functions for PyTorch's graph trees (torch/_inductor/cudagraph_trees.py), which
// PyTorch has in CUDA builds only; see python/openxpu/_graph_trees.py.
#include <c10/core/TensorImpl.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "../allocator.h"
#include "../history.h"
#include "../lower.h"
#include "module.h"

namespace openxpu {
namespace {

namespace py = pybind11;

using PoolId = std::pair<uint64_t, uint64_t>;

struct PoolState {
    xpu_pool_state *state = nullptr;
    PoolState(int device, PoolId pool) {
        const uint64_t id[] = {pool.first, pool.second};
        check(xpu_pool_save(device, id, &state));
    }
    PoolState(const PoolState &) = delete;
    ~PoolState() { xpu_pool_state_destroy(state); }

    std::set<void *> addresses() const {
        std::set<void *> all;
        check(xpu_pool_state_visit(
            state, [](void *address, void *user) { static_cast<std::set<void *> *>(user)->insert(address); },
            &all));
        return all;
    }
};

// Storages go by their addresses, as in PyTorch's file.
c10::StorageImpl &storage_at(uintptr_t address) { return *reinterpret_cast<c10::StorageImpl *>(address); }

bool has_standard_deleter(uintptr_t storage) {
    return storage_at(storage).data_ptr().get_deleter() == give_memory;
}

void leave_memory(void *) {}

// The memory goes back now, and not when the storage does.
void free_and_remove_deleter(uintptr_t storage) {
    auto &impl = storage_at(storage);
    void *memory = impl.mutable_data_ptr().get();
    TORCH_CHECK(impl.mutable_data_ptr().compare_exchange_deleter(give_memory, leave_memory),
                "a graph's output has memory that is not from openxpu's allocator");
    give_memory(memory);
}

// The pool is as it was when `state` was saved. What lies in its blocks then gives them back again.
void restore_pool(const PoolState &state, const std::vector<uintptr_t> &stale,
                  const std::vector<uintptr_t> &living) {
    for (const auto storage : stale)
        std::ignore =
            storage_at(storage).mutable_data_ptr().compare_exchange_deleter(give_memory, leave_memory);
    check(xpu_pool_restore(state.state));
    const auto blocks = state.addresses();
    for (const auto storage : living) {
        auto &impl = storage_at(storage);
        void *memory = impl.mutable_data_ptr().get();
        if (!blocks.count(memory) || has_standard_deleter(storage)) continue;
        impl.set_data_ptr_noswap({memory, memory, give_memory, impl.device()});
    }
}

// Are these all the blocks that the pool has handed out?
bool are_all_of(int device, PoolId pool, const std::set<uintptr_t> &expected) {
    struct Found {
        PoolId pool;
        std::set<uintptr_t> addresses;
    } found{pool, {}};
    check(xpu_memory_visit_blocks(
        device,
        [](const xpu_block_info *block, void *user) {
            auto &f = *static_cast<Found *>(user);
            if (block->state == XPU_BLOCK_ALLOCATED && PoolId(block->pool[0], block->pool[1]) == f.pool)
                f.addresses.insert(reinterpret_cast<uintptr_t>(block->address));
        },
        &found));
    return found.addresses == expected;
}

bool addresses_are(const py::list &tensors, const py::list &addresses, const py::list &places) {
    return std::all_of(places.begin(), places.end(), [&](py::handle place) {
        const auto i = place.cast<size_t>();
        return THPVariable_Unpack(py::object(tensors[i]).ptr()).const_data_ptr() ==
               reinterpret_cast<const void *>(py::object(addresses[i]).cast<uintptr_t>());
    });
}

at::Tensor tensor_in(const py::dict &metadata, const c10::Storage &storage) {
    const auto *dtype = reinterpret_cast<THPDtype *>(metadata["dtype"].ptr());
    auto tensor = at::detail::make_tensor_base<c10::TensorImpl>(
        c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::XPU),
        c10::scalarTypeToTypeMeta(dtype->scalar_type));
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(metadata["size"].cast<std::vector<int64_t>>(),
                                                        metadata["stride"].cast<std::vector<int64_t>>(),
                                                        metadata["storage_offset"].cast<int64_t>());
    return at::Tensor(std::move(tensor));
}

} // namespace

bool add_graph_trees(PyObject *module) {
    try {
        auto m = py::reinterpret_borrow<py::module_>(module);
        py::class_<PoolState>(m, "PoolState");
        m.def("pool_state",
              [](int device, PoolId pool) { return std::make_unique<PoolState>(device, pool); });
        m.def("restore_pool", restore_pool);
        m.def("pool_holds", are_all_of);
        m.def("has_standard_deleter", has_standard_deleter);
        m.def("free_and_remove_deleter", free_and_remove_deleter);
        m.def("raw_delete", [](uintptr_t memory) { give_memory(reinterpret_cast<void *>(memory)); });
        m.def("set_access_error", [](const at::Tensor &tensor, std::string message) {
            tensor.unsafeGetTensorImpl()->release_storage_and_set_meta_custom_data_ptr_error_msg_(
                std::move(message));
        });
        m.def("set_storage_access_error", [](uintptr_t storage, std::string message) {
            storage_at(storage).release_data_and_set_meta_custom_data_ptr_error_msg_(std::move(message));
        });
        m.def("records_history", records_history);
        m.def("addresses_are", addresses_are);
        m.def("tensor_in", tensor_in);
    } catch (py::error_already_set &error) {
        error.restore();
        return false;
    }
    return true;
}

} // namespace openxpu

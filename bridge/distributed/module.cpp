// openxpu._distributed: ProcessGroupXCCL for Python. Importing it registers c10d's operators for xpu.
#include <torch/csrc/utils/pybind.h>

#include <pybind11/functional.h>

#include "backend.h"

PYBIND11_MODULE(_distributed, m) {
    using openxpu::CollectiveBackend;
    using openxpu::CollectiveOptions;
    using Options = c10::intrusive_ptr<CollectiveOptions>;

    pybind11::module_::import("torch._C._distributed_c10d"); // has the base classes
    const auto copy = [](const CollectiveOptions &options, const pybind11::object &) {
        return c10::make_intrusive<CollectiveOptions>(options);
    };
    pybind11::class_<CollectiveOptions, Options, c10d::Backend::Options>(m, "Options")
        .def(pybind11::init<bool>(), pybind11::arg("is_high_priority_stream") = false)
        .def_readwrite("is_high_priority_stream", &CollectiveOptions::is_high_priority_stream)
        .def("__deepcopy__", copy); // split_group copies a parent's

    pybind11::class_<CollectiveBackend, c10::intrusive_ptr<CollectiveBackend>, c10d::Backend>(
        m, "ProcessGroupXCCL")
        .def(pybind11::init([](c10::intrusive_ptr<c10d::Backend> carrier,
                               c10::intrusive_ptr<c10d::Store> store, Options options,
                               CollectiveBackend::Connect connect) {
                 return c10::make_intrusive<CollectiveBackend>(std::move(carrier), std::move(store),
                                                               std::move(options), std::move(connect));
             }),
             pybind11::arg("carrier"), pybind11::arg("store"), pybind11::arg("options"),
             pybind11::arg("connect"))
        .def_property_readonly("options", &CollectiveBackend::options)
        // torch.distributed calls it on ranks that a new group leaves out: NCCL's splitting takes all of
        // them.
        .def(
            "perform_nocolor_split", [](CollectiveBackend &, const c10::Device &) {},
            pybind11::arg("device"));
}

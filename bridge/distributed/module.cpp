// openxpu._distributed: ProcessGroupXCCL for Python. Importing it registers c10d's operators for xpu.
#include <torch/csrc/utils/pybind.h>

#include "backend.h"

PYBIND11_MODULE(_distributed, m) {
    pybind11::module_::import("torch._C._distributed_c10d"); // has the base class
    pybind11::class_<openxpu::CollectiveBackend, c10::intrusive_ptr<openxpu::CollectiveBackend>,
                     c10d::Backend>(m, "ProcessGroupXCCL")
        .def(pybind11::init([](c10::intrusive_ptr<c10d::Backend> carrier,
                               c10::intrusive_ptr<c10d::Store> store) {
                 return c10::make_intrusive<openxpu::CollectiveBackend>(std::move(carrier), std::move(store));
             }),
             pybind11::arg("carrier"), pybind11::arg("store"));
}

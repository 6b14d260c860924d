// Python bindings of AOTInductor models.
#include "../aoti_runner.h"

#include <torch/csrc/utils/pybind.h>

#include "module.h"

namespace openxpu {

// As torch._C._aoti has one for each device of the build: torch._export.aot_load makes it.
bool add_aoti(PyObject *module) {
    namespace py = pybind11;
    using Tensors = std::unordered_map<std::string, at::Tensor>;
    try {
        py::class_<ModelRunner>(module, "AOTIModelContainerRunnerXpu")
            .def(py::init([](const std::string &library, int models, const std::string &device,
                             const std::string &folder) {
                     return ModelRunner::load(library, static_cast<size_t>(models), device, folder, false);
                 }),
                 py::arg("model_so_path"), py::arg("num_models") = 1, py::arg("device") = "xpu",
                 py::arg("kernel_bin_dir") = "")
            .def("run", &ModelRunner::run, py::arg("inputs"), py::arg("stream_handle") = nullptr)
            .def("boxed_run", &ModelRunner::boxed_run, py::arg("inputs"), py::arg("stream_handle") = nullptr)
            .def("get_call_spec", &ModelRunner::get_call_spec)
            .def("get_constant_names_to_original_fqns", &ModelRunner::getConstantNamesToOriginalFQNs)
            .def("get_constant_names_to_dtypes", &ModelRunner::getConstantNamesToDtypes)
            .def("extract_constants_map", &ModelRunner::extract_constants_map)
            .def(
                "update_constant_buffer",
                [](ModelRunner &self, Tensors tensors, bool inactive, bool validate, bool user_managed) {
                    self.update_constant_buffer(tensors, inactive, validate, user_managed);
                },
                py::arg("tensor_map"), py::arg("use_inactive"), py::arg("validate_full_updates"),
                py::arg("user_managed") = false)
            .def("run_const_fold", [](ModelRunner &self, bool inactive) { self.run_const_fold(inactive); })
            .def("swap_constant_buffer", &ModelRunner::swap_constant_buffer)
            .def("free_inactive_constant_buffer", &ModelRunner::free_inactive_constant_buffer);
    } catch (py::error_already_set &error) {
        error.restore();
        return false;
    }
    return true;
}

} // namespace openxpu

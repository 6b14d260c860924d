// Models that were compiled ahead of time, for torch._inductor.aoti_load_package.
#include "aoti_runner.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>
#include <torch/csrc/utils/pybind.h>

#include "lower.h"

namespace openxpu {
namespace {

using torch::inductor::AOTIModelContainerRunner;

struct Runner final : AOTIModelContainerRunner {
    Runner(const std::string &library, size_t models, const std::string &device, const std::string &folder,
           bool single_threaded)
        : AOTIModelContainerRunner(library, models, device, folder, single_threaded) {
        const c10::Device named(device);
        if (named.has_index()) {
            device_ = named.index();
        } else { // the model took the current one
            int current;
            check(xpu_device_current(&current));
            device_ = static_cast<c10::DeviceIndex>(current);
        }
    }

    std::vector<at::Tensor> run_impl(std::vector<AtenTensorHandle> &inputs, void *stream) override {
        return AOTIModelContainerRunner::run_impl(inputs, stream ? stream : current_stream(device_));
    }

  private:
    c10::DeviceIndex device_;
};

// Loads what models are linked to, from the folder of this library: theirs name it without a path.
void load_shims() {
    static const bool loaded = [] {
        Dl_info here;
        TORCH_CHECK(dladdr(reinterpret_cast<void *>(&load_shims), &here),
                    "openxpu can't find its own folder");
        std::string path(here.dli_fname);
        path = path.substr(0, path.rfind('/') + 1) + "libopenxpu_aoti.so";
        TORCH_CHECK(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL), dlerror());
        return true;
    }();
    (void)loaded;
}

void prepare() {
    load_shims();
    // Models look at their inputs' shapes and dtypes only when this says so, and take wrong ones as they
    // come.
    setenv("AOTI_RUNTIME_CHECK_INPUTS", "1", 0);
}

std::unique_ptr<AOTIModelContainerRunner> make_runner(const std::string &library, size_t models,
                                                      const std::string &device, const std::string &folder,
                                                      const bool single_threaded) {
    prepare();
    return std::make_unique<Runner>(library, models, device, folder, single_threaded);
}

const torch::inductor::RegisterAOTIModelRunner registered("xpu", make_runner);

} // namespace

// As torch._C._aoti has one for each device of the build: torch._export.aot_load makes it.
bool add_aoti(PyObject *module) {
    namespace py = pybind11;
    using Tensors = std::unordered_map<std::string, at::Tensor>;
    try {
        py::class_<Runner>(module, "AOTIModelContainerRunnerXpu")
            .def(py::init([](const std::string &library, int models, const std::string &device,
                             const std::string &folder) {
                     prepare();
                     return std::make_unique<Runner>(library, models, device, folder, false);
                 }),
                 py::arg("model_so_path"), py::arg("num_models") = 1, py::arg("device") = "xpu",
                 py::arg("kernel_bin_dir") = "")
            .def("run", &Runner::run, py::arg("inputs"), py::arg("stream_handle") = nullptr)
            .def("boxed_run", &Runner::boxed_run, py::arg("inputs"), py::arg("stream_handle") = nullptr)
            .def("get_call_spec", &Runner::get_call_spec)
            .def("get_constant_names_to_original_fqns", &Runner::getConstantNamesToOriginalFQNs)
            .def("get_constant_names_to_dtypes", &Runner::getConstantNamesToDtypes)
            .def("extract_constants_map", &Runner::extract_constants_map)
            .def(
                "update_constant_buffer",
                [](Runner &self, Tensors tensors, bool inactive, bool validate, bool user_managed) {
                    self.update_constant_buffer(tensors, inactive, validate, user_managed);
                },
                py::arg("tensor_map"), py::arg("use_inactive"), py::arg("validate_full_updates"),
                py::arg("user_managed") = false)
            .def("run_const_fold", [](Runner &self, bool inactive) { self.run_const_fold(inactive); })
            .def("swap_constant_buffer", &Runner::swap_constant_buffer)
            .def("free_inactive_constant_buffer", &Runner::free_inactive_constant_buffer);
    } catch (py::error_already_set &error) {
        error.restore();
        return false;
    }
    return true;
}

} // namespace openxpu

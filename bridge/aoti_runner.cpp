// Runs AOTInductor models for AOTIModelPackageLoader and torch._inductor.aoti_load_package.
#include "aoti_runner.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "lower.h"

namespace openxpu {
namespace {

// Loads the library that models are linked to from this library's folder: they name it without a path.
void load_shims() {
    static const bool loaded = [] {
        Dl_info here;
        TORCH_CHECK(dladdr(reinterpret_cast<void *>(&load_shims), &here),
                    "openxpu can't locate its installation folder");
        std::string path(here.dli_fname);
        path = path.substr(0, path.rfind('/') + 1) + "libopenxpu_aoti.so";
        TORCH_CHECK(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL), dlerror());
        return true;
    }();
    (void)loaded;
}

} // namespace

std::unique_ptr<ModelRunner> ModelRunner::load(const std::string &library, size_t models,
                                               const std::string &device, const std::string &folder,
                                               bool single_threaded) {
    load_shims();
    // Models check shapes and dtypes of inputs only with this setting; otherwise wrong ones go unnoticed.
    setenv("AOTI_RUNTIME_CHECK_INPUTS", "1", 0);
    return std::unique_ptr<ModelRunner>(new ModelRunner(library, models, device, folder, single_threaded));
}

ModelRunner::ModelRunner(const std::string &library, size_t models, const std::string &device,
                         const std::string &folder, bool single_threaded)
    : AOTIModelContainerRunner(library, models, device, folder, single_threaded) {
    const c10::Device named(device);
    device_ = named.has_index() ? named.index() : current_device(); // which the model took
}

std::vector<at::Tensor> ModelRunner::run_impl(std::vector<AtenTensorHandle> &inputs, void *stream) {
    return AOTIModelContainerRunner::run_impl(inputs, stream ? stream : current_stream(device_));
}

namespace {

const torch::inductor::RegisterAOTIModelRunner registered(
    "xpu",
    [](const std::string &library, size_t models, const std::string &device, const std::string &folder,
       const bool single_threaded) -> std::unique_ptr<torch::inductor::AOTIModelContainerRunner> {
        return ModelRunner::load(library, models, device, folder, single_threaded);
    });

} // namespace
} // namespace openxpu

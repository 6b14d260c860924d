// Runs AOTInductor models for AOTIModelPackageLoader and torch._inductor.aoti_load_package.
#include "aoti_runner.h"

#include <ATen/DynamicLibrary.h>
#include <c10/util/Unicode.h>
#include <c10/util/env.h>

#if !defined(_WIN32)
#include <dlfcn.h>
#endif

#include "lower.h"

namespace openxpu {
namespace {

#if defined(_WIN32)
constexpr char SHIMS[] = "openxpu_aoti.dll";
#else
constexpr char SHIMS[] = "libopenxpu_aoti.so";
#endif

// The path of the library that contains this function.
std::string own_path() {
#if defined(_WIN32)
    HMODULE here = nullptr;
    wchar_t path[32768] = L""; // the longest that Windows has
    const DWORD flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
    TORCH_CHECK(GetModuleHandleExW(flags, reinterpret_cast<const wchar_t *>(&own_path), &here) &&
                    GetModuleFileNameW(here, path, sizeof path / sizeof *path),
                "openxpu can't locate its installation folder");
    return c10::u16u8(path);
#else
    Dl_info here;
    TORCH_CHECK(dladdr(reinterpret_cast<void *>(&own_path), &here),
                "openxpu can't locate its installation folder");
    return here.dli_fname;
#endif
}

// Loads the library that models are linked to from this library's folder: they name it without a path.
void load_shims() {
    static const at::DynamicLibrary shims = [] {
        const std::string path = own_path();
        return at::DynamicLibrary((path.substr(0, path.find_last_of("/\\") + 1) + SHIMS).c_str(), nullptr,
                                  true);
    }();
}

} // namespace

std::unique_ptr<ModelRunner> ModelRunner::load(const std::string &library, size_t models,
                                               const std::string &device, const std::string &folder,
                                               bool single_threaded) {
    load_shims();
    // Models check shapes and dtypes of inputs only with this setting; otherwise wrong ones go unnoticed.
    c10::utils::set_env("AOTI_RUNTIME_CHECK_INPUTS", "1", false);
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

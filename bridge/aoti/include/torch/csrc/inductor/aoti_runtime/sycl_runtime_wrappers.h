// Replaces PyTorch's header of this name: generated code loads and launches kernels as images.
#pragma once

#include <fstream>
#include <iterator>

#include <openxpu_aoti.h>
#include <sycl/sycl.hpp>

#define aoti_torch_empty_strided openxpu_aoti_empty_strided

// From a file; `folder` is where the package was unpacked, if it was.
[[maybe_unused]] static std::unique_ptr<sycl::kernel>
loadKernel(std::string path, const std::string &, uint32_t,
           const std::optional<std::string> &folder = std::nullopt) {
    if (folder) path = (std::filesystem::path(*folder) / std::filesystem::path(path).filename()).string();
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    if (!file) throw std::runtime_error("the kernel's image " + path + " can't be read");
    return std::make_unique<sycl::kernel>(bytes.data(), bytes.size());
}

// From the model's library.
[[maybe_unused]] static std::unique_ptr<sycl::kernel> loadKernel(const void *start, const void *end,
                                                                 const std::string &, uint32_t, bool) {
    return std::make_unique<sycl::kernel>(
        start, static_cast<size_t>(static_cast<const char *>(end) - static_cast<const char *>(start)));
}

// Work-group shape, subgroup size (passed by some PyTorch versions) and local memory come from the image.
[[maybe_unused]] static void launchKernel(std::unique_ptr<sycl::kernel> &kernel, uint32_t x, uint32_t y,
                                          uint32_t z, uint32_t, uint32_t, void **values, sycl::queue *queue,
                                          uint32_t = 0) {
    const uint32_t grid[] = {x, y, z};
    kernel->launch(queue, grid, values);
}

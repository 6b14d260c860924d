// Runs models compiled ahead of time by AOTInductor.
#pragma once

#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>

#include <memory>
#include <string>

#include "export.h"

namespace openxpu {

// A model's library on a device: `device` is "xpu:1", or "xpu" for the current one; `folder` contains its
// kernels.
class OPENXPU_API ModelRunner final : public torch::inductor::AOTIModelContainerRunner {
  public:
    static std::unique_ptr<ModelRunner> load(const std::string &library, size_t models,
                                             const std::string &device, const std::string &folder,
                                             bool single_threaded);
    // A stream is an xpu_stream; null for the current one.
    std::vector<at::Tensor> run_impl(std::vector<AtenTensorHandle> &inputs, void *stream) override;

  private:
    ModelRunner(const std::string &library, size_t models, const std::string &device,
                const std::string &folder, bool single_threaded);
    c10::DeviceIndex device_;
};

} // namespace openxpu

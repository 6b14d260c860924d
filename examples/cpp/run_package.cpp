// A package of AOTInductor's, run on xpu by a C++ program without a Python interpreter.
//
// In Python, on a machine with a C++ compiler:
//     torch._inductor.aoti_compile_and_package(torch.export.export(model, inputs), package_path="model.pt2")
//     torch.save(inputs, "inputs.pt")                            # a tuple of tensors
// then, with the CMakeLists.txt beside this file, whose first line says how:
//     build/run_package model.pt2 inputs.pt outputs.pt           # and further pairs, of other sizes
// and `torch.load("outputs.pt")` is the tuple of results.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <cstdio>
#include <fstream>
#include <iterator>

namespace {

// The tensors of a file that torch.save wrote, on xpu.
std::vector<at::Tensor> load(const char *path) {
    std::ifstream file(path, std::ios::binary);
    TORCH_CHECK(file, "can't read ", path);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    const auto loaded = torch::jit::pickle_load(bytes);
    std::vector<at::Tensor> tensors;
    for (const auto &value : loaded.toTupleRef().elements()) tensors.push_back(value.toTensor().to(at::kXPU));
    return tensors;
}

void save(const char *path, const std::vector<at::Tensor> &tensors) {
    std::vector<c10::IValue> values;
    for (const auto &tensor : tensors) values.emplace_back(tensor.cpu());
    const auto bytes = torch::jit::pickle_save(c10::ivalue::Tuple::create(std::move(values)));
    std::ofstream file(path, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    TORCH_CHECK(file.flush(), "can't write ", path);
}

} // namespace

int main(int count, char **arguments) try {
    if (count < 4 || count % 2) {
        std::fprintf(stderr, "usage: %s model.pt2 inputs.pt outputs.pt [inputs.pt outputs.pt ...]\n",
                     arguments[0]);
        return 2;
    }
    const c10::InferenceMode no_gradients;
    torch::inductor::AOTIModelPackageLoader model(arguments[1]);
    for (int i = 2; i < count; i += 2) {
        const auto outputs = model.run(load(arguments[i]));
        // What comes out are tensors of xpu: PyTorch's operators go on from there.
        for (const auto &output : outputs)
            std::printf("%s %s, the largest is %g\n", output.device().str().c_str(),
                        c10::str(output.sizes()).c_str(), output.abs().amax().item<double>());
        save(arguments[i + 1], outputs);
    }
    return 0;
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}

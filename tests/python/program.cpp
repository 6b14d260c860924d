// A C++ program without an interpreter: opens libopenxpu_torch.so (the first argument), uses the xpu device
// as PyTorch's own operators do, runs a package (the second) on two sizes, and ends with 0 where all was as
// on the CPU.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <fstream>
#include <iostream>
#include <string>

namespace {

void expect_same(const at::Tensor &xpu, const at::Tensor &cpu, double tolerance) {
    TORCH_CHECK(xpu.is_xpu() && xpu.sizes() == cpu.sizes() && xpu.dtype() == cpu.dtype());
    const double difference = (xpu.cpu() - cpu).abs().max().item<double>();
    TORCH_CHECK(difference <= tolerance, "they differ by ", difference);
}

template <class Function> void expect_error(const char *text, Function &&function) {
    std::string said;
    try {
        function();
    } catch (const std::exception &error) { said = error.what(); }
    TORCH_CHECK(said.find(text) != std::string::npos, "expected \"", text, "\", got \"", said, "\"");
}

void use_the_device() {
    const auto on_xpu = at::device(at::kXPU);
    TORCH_CHECK(at::hasXPU() && at::empty({2, 3}, on_xpu).device() == at::Device(at::kXPU, 0));
    expect_error("", [] { at::empty({1}, at::device(at::Device(at::kXPU, 99))); });

    const at::Tensor a = at::rand({37, 65}), b = at::rand({65, 12});
    expect_same(at::relu(a.to(at::kXPU).matmul(b.to(at::kXPU)) - 16), at::relu(a.matmul(b) - 16), 1e-4);
    expect_same(std::get<0>(at::sort(a.to(at::kXPU), 1)), std::get<0>(at::sort(a, 1)), 0);
    expect_same(at::linalg_inv(at::eye(4).to(at::kXPU) * 2), at::linalg_inv(at::eye(4) * 2), 0); // LAPACK

    at::Tensor x = a.to(at::kXPU).requires_grad_(), y = a.clone().requires_grad_();
    (x.sin() * x).sum().backward();
    (y.sin() * y).sum().backward();
    expect_same(x.grad(), y.grad(), 1e-5);

    at::manual_seed(7);
    const at::Tensor first = at::randn({100}, on_xpu);
    at::manual_seed(7);
    expect_same(at::randn({100}, on_xpu), first.cpu(), 0);
    TORCH_CHECK(!at::equal(at::randn({100}, on_xpu), first));

    const c10::impl::VirtualGuardImpl guard(at::kXPU);
    const auto stream = guard.getNewStream({at::kXPU, 0});
    {
        const c10::StreamGuard inside(stream);
        x = at::full({1000}, 3, on_xpu).cumsum(0);
    }
    stream.synchronize();
    TORCH_CHECK(x[999].item<double>() == 3000);
}

void run_package(const char *path) {
    const c10::InferenceMode no_gradients;
    torch::inductor::AOTIModelPackageLoader model(path);
    for (const int64_t rows : {5, 40}) {
        const at::Tensor x = at::rand({rows, 8});
        const auto outputs = model.run({x.to(at::kXPU)});
        TORCH_CHECK(outputs.size() == 1);
        expect_same(outputs[0], at::softmax(x.sin() * 3, 1), 1e-6);
    }
    expect_error("unmatched dim value", [&] { model.run({at::rand({5, 9}).to(at::kXPU)}); });
}

} // namespace

int main(int, char **arguments) try {
    TORCH_CHECK(dlopen(arguments[1], RTLD_NOW), dlerror());
    use_the_device();
    run_package(arguments[2]);
    std::ifstream maps("/proc/self/maps");
    bool found = false;
    for (std::string line; std::getline(maps, line);) {
        found |= line.find("libopenxpu_aoti") != std::string::npos;
        TORCH_CHECK(line.find("libpython") == std::string::npos &&
                        line.find("libtorch_python") == std::string::npos,
                    "an interpreter: ", line);
    }
    TORCH_CHECK(found);
    return 0;
} catch (const std::exception &error) {
    std::cerr << error.what() << '\n';
    return 1;
}

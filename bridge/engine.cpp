// Autograd's device threads at process exit.
//
// A device thread first wakes the caller of backward(), then drops its reference to the graph task. The last
// reference releases Python objects: the context that torch.autograd stashes, saved-tensor hooks, modes.
// This takes the GIL. If Python is finalizing by then, it ends the thread by unwinding through a noexcept
// destructor, which aborts the process.
#include "engine.h"

#include <ATen/ops/empty.h>
#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>

#include "lower.h"

namespace openxpu {
namespace {

struct Queues : torch::autograd::Engine {
    static bool started(Engine &engine) { return !(engine.*&Queues::device_ready_queues_).empty(); }
};

} // namespace

void drain_autograd() {
    if (!Queues::started(torch::autograd::Engine::get_default_engine())) return;
    int count;
    check(xpu_device_count(&count));
    // A device has one autograd thread, which works in order. Once it has run this pass, which holds no
    // Python objects, it has released all earlier graphs.
    for (int device = 0; device < count; device++) {
        const auto options = at::device({c10::kXPU, static_cast<c10::DeviceIndex>(device)});
        const auto leaf = at::empty({1}, options).requires_grad_(), gradient = at::empty({1, 1}, options);
        c10::AutogradState::get_tls_state().set_multithreading_enabled(true); // the allocator switches it off
        torch::autograd::grad({leaf.view({1, 1})}, {leaf}, {gradient});
    }
}

} // namespace openxpu

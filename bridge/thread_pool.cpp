// Runs kernels of CPU devices on the threads of PyTorch's own CPU operators.
#include "thread_pool.h"

#include <ATen/Parallel.h>

#include "lower.h"

namespace openxpu {
namespace {

int threads() { return at::in_parallel_region() ? 1 : at::get_num_threads(); }

void run(int tasks, void (*task)(int index, void *context), void *context) {
    at::parallel_for(0, tasks, 1, [&](int64_t begin, int64_t end) {
        for (auto i = begin; i < end; i++) task(static_cast<int>(i), context);
    });
}

} // namespace

void register_host_thread_pool() {
    const xpu_host_thread_pool team = {threads, run};
    check(xpu_set_host_thread_pool(&team));
}

} // namespace openxpu

// CPU fallback for operators without an xpu kernel.
//
// On CPU devices the CPU kernels work on the tensors in place. Elsewhere tensors are copied to the host,
// and back if the operator writes to them.
// - PYTORCH_ENABLE_XPU_FALLBACK=0 makes every fallback an error.
// - PYTORCH_XPU_FALLBACK_OP names operators ("add.out,mm") that must run on the CPU.
// - PYTORCH_DEBUG_XPU_FALLBACK=1 reports every call, not only the first of each operator.
#include "fallback.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/COW.h>
#include <torch/library.h>

#include <cstdlib>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "generator.h"
#include "host_memory.h"
#include "operands.h"

namespace openxpu {
namespace {

using at::Tensor;
using c10::IValue;

bool flag(const char *name, bool otherwise) {
    const char *value = std::getenv(name);
    return value && *value ? std::string_view(value) != "0" : otherwise;
}

// --- which operators may fall back ---

// Namespaces whose operators are functions of their tensors. Elsewhere a call may do more than its schema
// says: a collective on a copy would leave the tensor itself unchanged.
bool is_safe(std::string_view space) {
    for (const char *safe :
         {"aten", "prims", "torchvision", "torchaudio", "quantized", "quantized_decomposed"})
        if (space == safe) return true;
    return false;
}

// Operators that write to arguments which their schemas don't mark.
bool writes_unmarked(const std::string &name) {
    for (const char *op :
         {"aten::native_batch_norm", "aten::batch_norm_update_stats", "aten::_batch_norm_impl_index",
          "aten::cudnn_batch_norm", "aten::miopen_batch_norm", "aten::batch_norm_gather_stats",
          "aten::batch_norm_gather_stats_with_counts"})
        if (name == op) return true;
    return false;
}

// Operators that take CPU tensors (lengths, shapes) besides device tensors.
bool takes_cpu_tensors(std::string_view name) {
    for (const char *part : {"ctc_loss", "nested", "quantized"})
        if (name.find(part) != name.npos) return true;
    return false;
}

// True if lazy clones share the tensor's memory.
bool is_shared(const Tensor &tensor) {
    return tensor.has_storage() && c10::impl::cow::is_cow_data_ptr(tensor.storage().data_ptr());
}

std::mutex counts_lock;
std::unordered_map<std::string, int64_t> counts;

void count(const c10::OperatorHandle &op) {
    static const bool every_call = flag("PYTORCH_DEBUG_XPU_FALLBACK", false);
    const auto name = c10::toString(op.operator_name());
    bool first;
    {
        std::lock_guard guard(counts_lock);
        first = counts[name]++ == 0;
    }
    if (first || every_call)
        TORCH_WARN("The operator '", name, "' has no kernel for xpu and runs on the CPU",
                   first ? ". PYTORCH_ENABLE_XPU_FALLBACK=0 makes this an error." : ".");
}

// --- one call ---

// A tensor argument and the CPU tensor that replaces it.
struct Argument {
    Tensor device, host;
    bool written;
    bool aliased; // over the same memory
    // The host tensor before the call.
    void *data;
    c10::DimVector sizes, strides;
    int64_t offset;

    bool reshaped() const {
        return host.sizes() != sizes || host.strides() != strides || host.storage_offset() != offset;
    }
};

class Call {
  public:
    Call(const c10::OperatorHandle &called, torch::jit::Stack *values)
        : op(called), schema(called.schema()), stack(values) {}

    void run() {
        const auto count = schema.arguments().size();
        first = stack->size() - count;
        for (size_t i = 0; i < count; i++) look_at(peek(i), is_written(schema.arguments()[i]));
        TORCH_CHECK(target, "Could not run '", op.operator_name(), "' on xpu: no argument is on the device");
        TORCH_CHECK(!is_captured(target->index()),
                    "operation not permitted when stream is capturing: ", op.operator_name(),
                    ", which runs on the CPU");
        for (size_t i = 0; i < count; i++) replace(peek(i), schema.arguments()[i]);
        const c10::DeviceGuard guard(*target);
        for (size_t i = 0; i < count; i++) replace_generator(peek(i), schema.arguments()[i]);
        op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
        for (auto &argument : arguments)
            if (argument.written) write_back(argument);
        const auto results = schema.returns().size();
        for (size_t i = 0; i < results; i++) bring_back((*stack)[stack->size() - results + i]);
    }

  private:
    const c10::OperatorHandle &op;
    const c10::FunctionSchema &schema;
    torch::jit::Stack *stack;
    size_t first = 0;
    std::optional<c10::Device> target;
    c10::SmallVector<Argument, 8> arguments;

    IValue &peek(size_t i) { return (*stack)[first + i]; }

    bool is_written(const c10::Argument &argument) const {
        return (argument.alias_info() && argument.alias_info()->isWrite()) ||
               writes_unmarked(op.operator_name().name);
    }

    // The device is that of the first argument that has one. Written tensors are detached from lazy
    // clones here, before any argument is converted.
    void look_at(const IValue &value, bool written) {
        const auto look = [&](const Tensor &tensor) {
            if (!tensor.defined() || !tensor.is_xpu()) return;
            if (!target) target = tensor.device();
            if (written && tensor.has_storage()) tensor.storage().mutable_data();
        };
        if (value.isTensor()) look(value.toTensor());
        if (value.isTensorList())
            for (const Tensor &tensor : value.toTensorList()) look(tensor);
        if (value.isOptionalTensorList())
            for (const std::optional<Tensor> tensor : value.toOptionalTensorList())
                if (tensor) look(*tensor);
        if (value.isDevice() && value.toDevice().is_xpu() && !target) target = value.toDevice();
    }

    // PyTorch's check in the wrappers of operators with a kernel; 0-dimensional inputs are scalars and
    // may be on the CPU.
    void check_device(const Tensor &tensor, bool written, const std::string &argument) {
        if (tensor.device() == *target || takes_cpu_tensors(op.operator_name().name)) return;
        TORCH_CHECK(!written && tensor.is_cpu() && tensor.dim() == 0,
                    "Expected all tensors to be on the same device, but got ", argument, " is on ",
                    tensor.device(), ", different from other tensors on ", *target,
                    " (when checking argument in ", op.operator_name(), ")");
    }

    Tensor to_host(const Tensor &tensor, bool written, const c10::Argument &argument) {
        if (!tensor.defined()) return tensor;
        check_device(tensor, written, argument.name());
        if (!tensor.is_xpu()) return tensor;
        for (auto &known : arguments)
            if (known.device.is_same(tensor)) {
                known.written |= written;
                return known.host;
            }
        const bool on_host = is_host_device(tensor.device().index());
        // Some CPU kernels assume that out tensors are contiguous.
        const bool beside = argument.is_out() && !tensor.is_contiguous();
        const auto host = beside              ? at::empty(tensor.sizes(), tensor.options().device(c10::kCPU))
                          : !on_host          ? tensor.to(c10::kCPU)
                          : is_shared(tensor) ? as_cpu_input(tensor)
                                              : as_cpu(tensor, true);
        Argument known{tensor, host, written, on_host && !beside, nullptr, {}, {}, 0};
        if (host.has_storage()) {
            known.data = host.storage().mutable_data();
            known.sizes = host.sizes();
            known.strides = host.strides();
            known.offset = host.storage_offset();
        }
        arguments.push_back(std::move(known));
        return host;
    }

    void replace(IValue &value, const c10::Argument &argument) {
        const bool written = is_written(argument);
        if (value.isTensor()) {
            value = to_host(value.toTensor(), written, argument);
        } else if (value.isTensorList()) {
            const auto tensors = value.toTensorList();
            c10::List<Tensor> host;
            host.reserve(tensors.size());
            for (const Tensor &tensor : tensors) host.push_back(to_host(tensor, written, argument));
            value = std::move(host);
        } else if (value.isOptionalTensorList()) {
            c10::List<std::optional<Tensor>> host;
            for (std::optional<Tensor> tensor : value.toOptionalTensorList())
                host.push_back(tensor ? std::optional(to_host(*tensor, written, argument)) : std::nullopt);
            value = std::move(host);
        } else if (value.isDevice() && value.toDevice().is_xpu()) {
            value = c10::Device(c10::kCPU);
        }
    }

    // A CPU generator seeded from the xpu generator: reproducible for a given seed.
    void replace_generator(IValue &value, const c10::Argument &argument) {
        const bool given = value.isGenerator();
        if (given ? value.toGenerator().device().type() != c10::kXPU
                  : !(value.isNone() &&
                      argument.type()->isSubtypeOf(*c10::OptionalType::create(c10::GeneratorType::get()))))
            return;
        uint64_t seed, offset;
        auto *generator =
            generator_of(given ? std::optional(value.toGenerator()) : std::nullopt, target->index());
        check(xpu_generator_reserve(generator, 4, &seed, &offset));
        value = at::detail::createCPUGenerator(seed ^ (offset * 0x9E3779B97F4A7C15u));
    }

    // Takes over a host tensor that was resized or moved, or that is a copy.
    void write_back(Argument &argument) {
        const auto &host = argument.host;
        const auto &device = argument.device;
        if (!host.has_storage()) return;
        const bool aliased = argument.aliased;
        const bool moved = host.storage().mutable_data() != argument.data;
        if (argument.reshaped()) {
            auto *impl = device.unsafeGetTensorImpl();
            device.resize_(host.sizes());
            if (aliased && !moved)
                impl->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
            else if (host.is_non_overlapping_and_dense())
                impl->set_sizes_and_strides(host.sizes(), host.strides());
        }
        if (!aliased || moved) device.copy_(host);
    }

    // Converts a host result to the caller's tensor: an argument, a view of one, or a new tensor.
    Tensor to_device(const Tensor &host) {
        if (!host.defined() || !host.is_cpu()) return host;
        for (const auto &argument : arguments)
            if (argument.host.is_same(host)) return argument.device;
        if (host.has_storage() && host.storage().data()) {
            for (const auto &argument : arguments) {
                if (!argument.host.has_storage() || !argument.host.storage().is_alias_of(host.storage()))
                    continue;
                const auto &base = argument.device;
                auto view = at::detail::make_tensor<c10::TensorImpl>(
                    c10::Storage(base.storage()), c10::DispatchKeySet(c10::DispatchKey::XPU), host.dtype());
                auto *impl = view.unsafeGetTensorImpl();
                impl->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
                impl->_set_conj(host.is_conj());
                impl->_set_neg(host.is_neg());
                return view;
            }
        }
        if (host.layout() != c10::kStrided) return host.to(*target);
        Tensor result = at::empty_strided(host.sizes(), host.strides(), host.options().device(*target));
        result.copy_(host);
        return result;
    }

    void bring_back(IValue &value) {
        if (value.isTensor()) {
            value = to_device(value.toTensor());
        } else if (value.isTensorList()) {
            c10::List<Tensor> device;
            for (const Tensor &tensor : value.toTensorList()) device.push_back(to_device(tensor));
            value = std::move(device);
        }
    }
};

void fall_back(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
    const auto &name = op.operator_name();
    static const bool enabled = flag("PYTORCH_ENABLE_XPU_FALLBACK", true);
    const auto space = std::string_view(name.name).substr(0, name.name.find("::"));
    // Process groups with a backend for xpu register kernels for these.
    TORCH_CHECK_NOT_IMPLEMENTED(
        space != "c10d", "The operator '", name,
        "' has no kernel for xpu: this process group has no backend for xpu tensors. ",
        "Pass backend=\"cpu:gloo,xpu:gloo\", backend=\"xccl\" or no backend to init_process_group or "
        "new_group.");
    TORCH_CHECK_NOT_IMPLEMENTED(
        is_safe(space), "The operator '", name,
        "' has no kernel for xpu, and only PyTorch's own operators can run on the CPU instead.");
    TORCH_CHECK_NOT_IMPLEMENTED(
        enabled, "The operator '", name,
        "' has no kernel for xpu, and PYTORCH_ENABLE_XPU_FALLBACK=0 keeps it from running "
        "on the CPU.");
    count(op);
    Call(op, stack).run();
}

// The device of the call's first xpu tensor.
std::optional<c10::Device> device_of(const c10::OperatorHandle &op, const torch::jit::Stack &stack) {
    const auto count = op.schema().arguments().size();
    for (size_t i = stack.size() - count; i < stack.size(); i++)
        if (stack[i].isTensor() && stack[i].toTensor().defined() && stack[i].toTensor().is_xpu())
            return stack[i].toTensor().device();
    return std::nullopt;
}

// A CPU tensor of placeholder values with which decompositions succeed and no index is out of range: ones
// on the diagonal, pivots of one.
Tensor harmless(const Tensor &tensor) {
    const auto options = tensor.options().device(c10::kCPU);
    Tensor host = tensor.is_non_overlapping_and_dense()
                      ? at::empty_strided(tensor.sizes(), tensor.strides(), options)
                      : at::empty(tensor.sizes(), options);
    host.zero_();
    const bool whole = host.dim() < 2 || c10::isIntegralType(host.scalar_type(), true);
    (whole ? host : host.diagonal(0, -2, -1)).fill_(1);
    return host;
}

// In a capture: results have the shapes that placeholder inputs give; the graph's host function fills
// them in.
void record(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
    const auto device = device_of(op, *stack);
    const auto &schema = op.schema();
    const auto count = schema.arguments().size(), first = stack->size() - count;
    torch::jit::Stack there(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end()), shapes = there;
    for (size_t i = 0; i < count; i++) {
        const auto &argument = schema.arguments()[i];
        bool can = !there[i].isTensorList() && !there[i].isOptionalTensorList() &&
                   !(argument.alias_info() && argument.alias_info()->isWrite());
        if (there[i].isTensor() && there[i].toTensor().defined()) {
            const Tensor tensor = there[i].toTensor();
            can &= tensor.is_xpu() && !is_shared(tensor) && !tensor.is_conj() && !tensor.is_neg();
            if (can) {
                there[i] = borrowed(tensor, false);
                shapes[i] = harmless(tensor);
            }
        }
        TORCH_CHECK(can, "operation not permitted when stream is capturing: ", op.operator_name(),
                    " with argument '", argument.name(), "', which runs on the CPU");
    }
    static constexpr c10::DispatchKeySet cpu(c10::DispatchKey::CPU);
    {
        const HostScope scope(device->index());
        op.redispatchBoxed(cpu, &shapes);
    }
    stack->resize(first);
    std::vector<Tensor> places;
    for (const auto &value : shapes) {
        const Tensor shape = value.toTensor();
        stack->emplace_back(
            at::empty_strided(shape.sizes(), shape.strides(), shape.options().device(*device)));
        places.push_back(borrowed(stack->back().toTensor(), true));
    }
    record_on_host(device->index(), "PyTorch's CPU kernel", [op, there, places, device] {
        const HostScope scope(device->index());
        auto results = there;
        op.redispatchBoxed(cpu, &results);
        for (size_t i = 0; i < places.size(); i++) places[i].copy_(results[i].toTensor());
    });
}

} // namespace

void run_on_host(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
    const auto device = device_of(op, *stack);
    if (device && is_host_device(device->index())) {
        if (is_captured(device->index())) return record(op, stack);
        Call(op, stack).run();
    } else {
        fall_back(op, stack);
    }
}

std::unordered_map<std::string, int64_t> fallback_counts(bool reset) {
    std::lock_guard guard(counts_lock);
    auto result = counts;
    if (reset) counts.clear();
    return result;
}

void force_fallbacks() {
    const char *list = std::getenv("PYTORCH_XPU_FALLBACK_OP");
    if (!list) return;
    static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::XPU, __FILE__, __LINE__);
    for (std::string_view names = list; !names.empty();) {
        const auto name = names.substr(0, names.find(','));
        names.remove_prefix(std::min(names.size(), name.size() + 1));
        if (!name.empty())
            library.impl(std::string(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&fall_back>());
    }
}

TORCH_LIBRARY_IMPL(_, XPU, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back>()); }

} // namespace openxpu

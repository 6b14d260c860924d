// Device hooks: whether there is an xpu device, and its properties, generators and pinned memory.
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/XPUHooksInterface.h>

#include "allocator.h"
#include "generator.h"
#include "lower.h"
#include "trace.h"

// The registry looks this class up by its name: it must be at::XPUHooks.
namespace at {

struct XPUHooks final : XPUHooksInterface {
    XPUHooks() = default;
    explicit XPUHooks(XPUHooksArgs) {} // how PyTorch 2.11 makes it

    void init() const override {
        int count;
        openxpu::check(xpu_device_count(&count));
        TORCH_CHECK(count > 0, xpu_no_device_hint());
    }
    bool hasXPU() const override { return true; }
    bool isBuilt() const override { return true; }
    bool isAvailable() const override { return deviceCount() > 0; }
    std::string showConfig() const override { return "OpenCL (openxpu)"; }
    bool hasPrimaryContext(DeviceIndex) const override { return xpu_initialized(); }

    DeviceIndex deviceCount() const override {
        int count;
        return xpu_device_count(&count) == XPU_SUCCESS ? static_cast<DeviceIndex>(count) : 0;
    }
    DeviceIndex getNumGPUs() const override { return deviceCount(); }
    DeviceIndex getCurrentDevice() const override { return openxpu::current_device(); }
    DeviceIndex current_device() const override { return getCurrentDevice(); }
    void setCurrentDevice(DeviceIndex device) const override {
        openxpu::check(xpu_device_set_current(device));
    }
    DeviceIndex exchangeDevice(DeviceIndex device) const override {
        const auto before = getCurrentDevice();
        if (device >= 0 && device != before) setCurrentDevice(device);
        return before;
    }
    DeviceIndex maybeExchangeDevice(DeviceIndex device) const override { return exchangeDevice(device); }
    void deviceSynchronize(DeviceIndex device) const override {
        openxpu::tell(&openxpu::Trace::trace_gpu_device_synchronization);
        openxpu::check(xpu_device_synchronize(device));
    }

    int32_t getGlobalIdxFromDevice(const Device &device) const override { return device.index(); }
    Device getDeviceFromPtr(void *data) const override {
        int device;
        if (xpu_memory_device_of(data, &device) == XPU_SUCCESS)
            return {kXPU, static_cast<DeviceIndex>(device)};
        // Memory not from libxpu: a CPU device can use any address of the process.
        const auto current = getCurrentDevice();
        TORCH_CHECK(openxpu::is_host_device(current), "the pointer ", data,
                    " is not memory that openxpu allocated on an xpu device");
        return {kXPU, current};
    }

    Allocator *getPinnedMemoryAllocator() const override { return openxpu::pinned_allocator(); }
    // In a CUDA build with a visible CUDA GPU, torch.empty(pin_memory=True) uses CUDA's pinned memory.
    bool isPinnedPtr(const void *data) const override {
        if (xpu_initialized() && xpu_host_is_pinned(data)) return true;
        const auto &cuda = detail::getCUDAHooks();
        return cuda.hasCUDA() && cuda.isPinnedPtr(data);
    }

    const Generator &getDefaultGenerator(DeviceIndex device) const override {
        return openxpu::default_generator(device);
    }
    Generator getNewGenerator(DeviceIndex device) const override { return openxpu::new_generator(device); }
};

REGISTER_XPU_HOOKS(XPUHooks);

} // namespace at

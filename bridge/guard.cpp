// The device guard: streams and events for PyTorch's device-generic code.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "allocator.h"
#include "lower.h"
#include "trace.h"
#include "xpu/graph.h"

namespace openxpu {
namespace {

c10::DeviceIndex index_of(c10::Device device) {
    return device.has_index() ? device.index() : current_device();
}

c10::Stream wrap(xpu_stream *stream) {
    const c10::Device device(c10::kXPU, static_cast<c10::DeviceIndex>(xpu_stream_device(stream)));
    return c10::Stream(c10::Stream::UNSAFE, device, xpu_stream_id(stream));
}

xpu_stream *unwrap(const c10::Stream &stream) {
    xpu_stream *result;
    check(xpu_stream_from_id(stream.device_index(), stream.id(), &result));
    return result;
}

// The cl_command_queue that identifies a stream in traces. Requested for traces only, as the stream then
// keeps its queue.
void *queue_of(xpu_stream *stream) {
    void *queue;
    check(xpu_stream_native(stream, &queue));
    return queue;
}

xpu_event *unwrap(void *event) { return static_cast<xpu_event *>(event); }

// True for success, false for not ready; throws otherwise.
bool finished(xpu_status status) {
    if (status == XPU_NOT_READY) return false;
    check(status);
    return true;
}

void check_index(c10::Device device) {
    int count;
    check(xpu_device_count(&count));
    TORCH_CHECK(index_of(device) < count, "The device index is out of range. It must be in [0, ", count,
                "), but got ", static_cast<int>(device.index()), ".");
}

c10::Stream pool_stream(c10::Device device, int priority) {
    xpu_stream *stream;
    check(xpu_stream_from_pool(index_of(device), std::clamp(priority, XPU_PRIORITY_HIGH, XPU_PRIORITY_LOW),
                               &stream));
    // The pool reuses its streams; each is reported to PyTorch as new once.
    static std::mutex lock;
    static std::set<xpu_stream *> known;
    std::unique_lock guard(lock);
    const bool is_new = known.insert(stream).second;
    guard.unlock(); // the callback takes Python's lock
    if (is_new && traced()) tell(&Trace::trace_gpu_stream_creation, queue_of(stream));
    return wrap(stream);
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
    c10::DeviceType type() const override { return c10::kXPU; }
    c10::Device exchangeDevice(c10::Device device) const override {
        const int before = current_device();
        if (device.has_index() && device.index() != before) check(xpu_device_set_current(device.index()));
        return {c10::kXPU, static_cast<c10::DeviceIndex>(before)};
    }
    c10::Device getDevice() const override {
        return {c10::kXPU, static_cast<c10::DeviceIndex>(current_device())};
    }
    void setDevice(c10::Device device) const override { exchangeDevice(device); }
    void uncheckedSetDevice(c10::Device device) const noexcept override {
        if (device.has_index()) xpu_device_set_current(device.index());
    }
    c10::DeviceIndex deviceCount() const noexcept override {
        int count;
        return xpu_device_count(&count) == XPU_SUCCESS ? static_cast<c10::DeviceIndex>(count) : 0;
    }
    c10::DeviceCapability getDeviceCapability(c10::Device device) const override {
        c10::DeviceCapability capability;
        const auto &properties = properties_of(index_of(device));
        if (!properties.has_fp64) {
            capability.capability_data.supported_scalar_types.has_Double = 0;
            capability.capability_data.supported_scalar_types.has_ComplexDouble = 0;
        }
        return capability;
    }
    void synchronizeDevice(c10::DeviceIndex device) const override {
        tell(&Trace::trace_gpu_device_synchronization);
        check(xpu_device_synchronize(index_of({c10::kXPU, device})));
    }

    c10::Stream getStream(c10::Device device) const override {
        check_index(device);
        return wrap(current_stream(index_of(device)));
    }
    c10::Stream getDefaultStream(c10::Device device) const override {
        xpu_stream *stream;
        check(xpu_stream_default(index_of(device), &stream));
        return wrap(stream);
    }
    c10::Stream getNewStream(c10::Device device, int priority) const override {
        return pool_stream(device, priority);
    }
    c10::Stream getStreamFromGlobalPool(c10::Device device, bool high) const override {
        return pool_stream(device, high ? XPU_PRIORITY_HIGH : XPU_PRIORITY_NORMAL);
    }
    c10::Stream exchangeStream(c10::Stream stream) const override {
        const auto before = wrap(current_stream(stream.device_index()));
        if (before != stream) check(xpu_stream_set_current(unwrap(stream)));
        return before;
    }
    void *getStreamNativeHandle(const c10::Stream stream) const override { return queue_of(unwrap(stream)); }
    bool queryStream(const c10::Stream &stream) const override {
        return finished(xpu_stream_query(unwrap(stream)));
    }
    bool isStreamCapturing(const c10::Stream &stream) const { // of the interface from 2.13 on
        return xpu_stream_is_capturing(unwrap(stream));
    }
    void synchronizeStream(const c10::Stream &stream) const override {
        auto *waited = unwrap(stream);
        if (traced()) tell(&Trace::trace_gpu_stream_synchronization, queue_of(waited));
        check(xpu_stream_synchronize(waited));
    }
    void recordDataPtrOnStream(const c10::DataPtr &block, const c10::Stream &stream) const override {
        c10::getDeviceAllocator(c10::kXPU)->recordStream(block, stream);
    }

    void record(void **event, const c10::Stream &stream, c10::DeviceIndex device,
                c10::EventFlag flag) const override {
        TORCH_CHECK(device == -1 || device == stream.device_index(), "Event device index ",
                    static_cast<int>(device), " does not match recording stream's device index ",
                    static_cast<int>(stream.device_index()), ".");
        xpu_event *made = unwrap(*event);
        if (!made) {
            check(xpu_event_create(stream.device_index(), flag == c10::EventFlag::BACKEND_DEFAULT, &made));
            tell(&Trace::trace_gpu_event_creation, made);
        }
        *event = made;
        auto *recording = unwrap(stream);
        check(xpu_event_record(made, recording));
        if (traced()) tell(&Trace::trace_gpu_event_record, made, queue_of(recording));
    }
    void block(void *event, const c10::Stream &stream) const override {
        if (!event) return;
        auto *waiting = unwrap(stream);
        check(xpu_stream_wait(waiting, unwrap(event)));
        if (traced()) tell(&Trace::trace_gpu_event_wait, event, queue_of(waiting));
    }
    bool queryEvent(void *event) const override { return !event || finished(xpu_event_query(unwrap(event))); }
    void synchronizeEvent(void *event) const override {
        if (!event) return;
        tell(&Trace::trace_gpu_event_synchronization, event);
        check(xpu_event_synchronize(unwrap(event)));
    }
    double elapsedTime(void *start, void *end, c10::DeviceIndex) const override {
        TORCH_CHECK(start && end, "Both events must be recorded before calculating elapsed time.");
        double milliseconds;
        const auto status = xpu_event_elapsed(unwrap(start), unwrap(end), &milliseconds);
        TORCH_CHECK(status != XPU_NOT_READY,
                    "Both events must be completed before calculating elapsed time.");
        check(status);
        return milliseconds;
    }
    void destroyEvent(void *event, c10::DeviceIndex) const noexcept override {
        if (!event) return;
        tell(&Trace::trace_gpu_event_deletion, event);
        xpu_event_destroy(unwrap(event));
    }
};

C10_REGISTER_GUARD_IMPL(XPU, Guard)

} // namespace
} // namespace openxpu

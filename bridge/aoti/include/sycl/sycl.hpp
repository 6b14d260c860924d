// Replaces SYCL's header: the few names that PyTorch's AOTInductor headers use, over libxpu. A sycl::queue is
// never created: a pointer to one is the address of an xpu_stream.
#pragma once

#include <cassert>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include <xpu/device.h>
#include <xpu/image.h>
#include <xpu/memory.h>
#include <xpu/stream.h>
#include <xpu/tile.h>

namespace sycl {

inline void check(xpu_status status) {
    if (status != XPU_SUCCESS) throw std::runtime_error(xpu_last_error());
}

namespace info {
enum class event_command_status { submitted, running, complete };
namespace event {
struct command_execution_status {
    using return_type = event_command_status;
};
} // namespace event
} // namespace info

// An event created without a queue is complete.
class event {
  public:
    event() = default;
    explicit event(xpu_stream *stream) {
        xpu_event *made;
        check(xpu_event_create(xpu_stream_device(stream), false, &made));
        event_.reset(made, xpu_event_destroy);
        check(xpu_event_record(made, stream));
    }
    void wait() {
        if (event_) check(xpu_event_synchronize(event_.get()));
    }
    void wait_and_throw() { wait(); }
    template <class Info> typename Info::return_type get_info() const {
        const auto status = event_ ? xpu_event_query(event_.get()) : XPU_SUCCESS;
        if (status == XPU_NOT_READY) return Info::return_type::running;
        check(status);
        return Info::return_type::complete;
    }

  private:
    std::shared_ptr<xpu_event> event_;
};

class queue {
  public:
    queue() = delete;
    // Host memory may be freed on return, so there is nothing to wait for.
    event memcpy(void *to, const void *from, size_t size) {
        check(xpu_memcpy(stream(), to, from, size, true));
        return {};
    }
    event ext_oneapi_submit_barrier() { return event(stream()); }
    xpu_stream *stream() { return reinterpret_cast<xpu_stream *>(this); }
};

inline void *malloc_device(size_t size, queue &queue) {
    void *pointer;
    check(xpu_malloc(queue.stream(), size, &pointer));
    return pointer;
}

inline void free(void *pointer, queue &) { xpu_free(pointer); }

// An image, and its kernel on the current device.
class kernel {
  public:
    kernel(const void *bytes, size_t size) {
        xpu_image *image;
        check(xpu_image_read(bytes, size, &image));
        image_.reset(image);
        int device;
        check(xpu_device_current(&device));
        check(xpu_tile_target_check(image->target, device));
        check(xpu_image_kernel(image, device, &kernel_));
    }
    // Omits what follows a kernel's own parameters in `values` (scratch memory, which it doesn't use).
    void launch(queue *queue, const uint32_t grid[3], void **values) const {
        check(xpu_image_launch(queue->stream(), image_.get(), kernel_, grid, values, image_->param_count));
    }

  private:
    struct Free {
        void operator()(xpu_image *image) const { xpu_image_free(image); }
    };
    std::unique_ptr<xpu_image, Free> image_;
    xpu_kernel *kernel_;
};

} // namespace sycl

/* Preloaded by `openxpu run` into CUDA builds of PyTorch, which allow a single accelerator: makes it xpu.
 *
 * Replaces std::optional<c10::DeviceType> at::accelerator::getAccelerator(bool checked). The optional of a
 * one-byte enumeration is two bytes, returned in a register like this struct. */
#include <stdbool.h>
#include <stdint.h>

struct optional_device_type {
    int8_t value;
    bool engaged;
};

enum { DEVICE_TYPE_XPU = 12 };

__attribute__((visibility("default"))) struct optional_device_type
_ZN2at11accelerator14getAcceleratorEb(bool checked) {
    (void)checked;
    return (struct optional_device_type){DEVICE_TYPE_XPU, true};
}

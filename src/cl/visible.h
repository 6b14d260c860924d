/* Which of the drivers' devices this process sees, and in what order: the environment's choice. */
#ifndef CL_VISIBLE_H
#define CL_VISIBLE_H

#include "cl/cl.h"

/* The variables, each NULL or empty where it isn't set. They are applied in this order, each to what the one
 * before has left.
 *
 * `mask`, ZE_AFFINITY_MASK: indices of Intel GPUs, "0,2", in the drivers' order; it leaves other devices
 * alone. Intel's own driver has applied it already. Entries "0.1" are tiles, of which OpenCL shows none: they
 * name nothing.
 *
 * `selector`, ONEAPI_DEVICE_SELECTOR, as SYCL's runtime reads it: terms "backend:devices" between semicolons,
 * those that begin with "!" last. A term's devices are "*", "cpu", "gpu", "fpga" or indices, with commas
 * between. All devices are in the backend opencl, Intel's GPUs in level_zero too, NVIDIA's in cuda, AMD's in
 * hip; indices count within a backend, in libxpu's order. A device is seen when it is accepted in a backend
 * in which it isn't discarded. Sub-devices ("0.1") are an error; patterns of them ("0.*") match nothing.
 *
 * `choice`, OPENXPU_DEVICE: "gpu", "cpu", or parts of a device's or platform's name, with commas between. A
 * word that comes twice makes two devices of each that it names. Without it all GPUs and the first host
 * processor are taken. */
typedef struct visible_rules {
    const char *mask, *selector, *choice;
} visible_rules;

/* Writes the devices that are seen to `to`, of `room`: GPUs and accelerators first, then host processors,
 * each in the order in which they were found. XPU_ERROR_INVALID_ARGUMENT for a selector that isn't one. */
xpu_status visible_devices(const visible_rules *rules, const cl_device *found, int count, cl_device *to,
                           int room, int *seen);

#endif

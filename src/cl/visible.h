/* Selects and orders the devices that this process sees, according to environment variables. Called once,
 * while the drivers are loaded. */
#ifndef CL_VISIBLE_H
#define CL_VISIBLE_H

#include "cl/cl.h"

/* The variables; NULL or empty if unset. They are applied in this order, each to the devices that the
 * previous one has left.
 *
 * `mask`, ZE_AFFINITY_MASK: indices of Intel GPUs ("0,2") in the drivers' order; other devices are not
 * affected. Intel's own driver applies the mask itself. Entries such as "0.1" are tiles, which OpenCL does
 * not expose, and match nothing.
 *
 * `selector`, ONEAPI_DEVICE_SELECTOR, with the syntax of the SYCL runtime: terms "backend:devices" separated
 * by semicolons; terms that start with "!" come last. The devices of a term are "*", "cpu", "gpu", "fpga" or
 * indices, separated by commas. Every device is in the backend opencl; Intel's GPUs are also in level_zero,
 * NVIDIA's in cuda, AMD's in hip. Indices count within a backend, in libxpu's order. A device is visible if
 * some backend accepts it and does not discard it. Sub-devices ("0.1") are an error; patterns of them ("0.*")
 * match nothing.
 *
 * `choice`, OPENXPU_DEVICE: "gpu", "cpu", or parts of a device's or platform's name, separated by commas.
 * Repeating a name creates two devices. Without the variable, all GPUs and the first host CPU are visible. */
typedef struct visible_rules {
    const char *mask, *selector, *choice;
} visible_rules;

/* Writes up to `room` visible devices to `to`: GPUs and accelerators first, then host CPUs, each in the order
 * in which they were found. XPU_ERROR_INVALID_ARGUMENT for a malformed selector. */
xpu_status visible_devices(const visible_rules *rules, const cl_device *found, int count, cl_device *to,
                           int room, int *seen);

#endif

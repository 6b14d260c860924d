/* xpu/tuning.h: tunable parameters, by name and index.
 *
 * Values come from libxpu's table (for CPUs and GPUs), from `openxpu tune`, and from the environment's
 * OPENXPU_TUNING=name=value,…; later ones take precedence. `openxpu tune` measures on the current machine
 * and stores results beside the kernel cache, for this device, driver, processor and these libraries. No
 * parameter changes what an operation computes, except the order of summation.
 *
 * Rates: the measured speed of a matrix tile on a device, from which libxpu selects the tile of a product
 *     (xpu/ops/tiles.h). A rate is 0 until it is measured; libxpu's table applies until then. */
#ifndef XPU_TUNING_H
#define XPU_TUNING_H

#include <stdint.h>

#include "xpu/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xpu_tuning {
    const char *name, *unit;
    const char *benchmark; /* the file in bench/ that measures it */
    const char *text;
    const char *source; /* of the value: "table", "measured", "pinned" or "set" */
    int64_t value, least, most;
} xpu_tuning;

/* Number of parameters. Parameters have the indices 0 to count-1. */
XPU_API int xpu_tuning_count(void);
/* Number of rates. Rates have the indices count to count+rates-1, which differ between versions: look them up
 * by name. */
XPU_API int xpu_tuning_rates(void);
/* The index of a name, or -1. */
XPU_API int xpu_tuning_index(const char *name);
XPU_API xpu_status xpu_tuning_get(int device, int index, xpu_tuning *tuning);
/* The value alone; cheap. `index` and `device` must be valid. */
XPU_API int64_t xpu_tuning_value(int device, int index);
/* Sets a value for this process: a parameter for all devices of the kind, a rate for this device only. */
XPU_API xpu_status xpu_tuning_set(int device, int index, int64_t value);
/* Undoes xpu_tuning_set: value and source are the earlier ones. */
XPU_API xpu_status xpu_tuning_reset(int device, int index);

/* Names the libraries that compute the products of CPU devices. Call it before the first use of a device, or
 * never. Values measured on a CPU device with other libraries are ignored. The text is copied. */
XPU_API void xpu_tuning_libraries(const char *libraries);
/* Saves to disk the values set in this process; later processes read them. xpu_tuning_path gives the file's
 * path, "" if there is no cache. With GPUs of several models, the first one's parameters apply to all. */
XPU_API xpu_status xpu_tuning_save(int device);
XPU_API xpu_status xpu_tuning_path(int device, const char **path);
/* Describes what is wrong with the file: "FILE:LINE: …", or "". Its other lines apply. A file whose hash
 * doesn't match its text is ignored. The text is static. */
XPU_API xpu_status xpu_tuning_problem(int device, const char **text);

#ifdef __cplusplus
}
#endif
#endif

/* xpu/tuning.h: the choices that decide speed, by name and number.
 *
 * libxpu has a table of them with values for processors and for GPUs. `openxpu tune` measures some where it
 * runs and keeps them beside the kernel cache, for this device, driver, processor and these libraries; the
 * environment's OPENXPU_TUNING=name=value,… goes before both. None changes what an operation computes, but
 * for the order in which sums are added up.
 *
 * Beside choices there are rates: how fast a tile of matrix products is on a device, from which libxpu tells
 * which tile a product takes (xpu/ops/tiles.h says which numbers are whose). A rate is 0 until it is
 * measured, and libxpu's table holds meanwhile. */
#ifndef XPU_TUNING_H
#define XPU_TUNING_H

#include <stdint.h>

#include "xpu/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xpu_tuning {
    const char *name, *unit;
    const char *benchmark; /* the file in bench/ that decides it */
    const char *text;
    const char *source; /* of the value: "table", "measured", "pinned" or "set" */
    int64_t value, least, most;
} xpu_tuning;

/* Choices have numbers from 0 to one less than this, … */
XPU_API int xpu_tuning_count(void);
/* … and behind them so many rates have theirs, which change from version to version: ask for them by name. */
XPU_API int xpu_tuning_rates(void);
/* The number of a name, or -1. */
XPU_API int xpu_tuning_number(const char *name);
XPU_API xpu_status xpu_tuning_get(int device, int number, xpu_tuning *tuning);
/* The value alone, at next to no cost. `number` must be one, and `device` a device. */
XPU_API int64_t xpu_tuning_value(int device, int number);
/* Sets a value for this process and all devices of the kind; a rate for this device alone. */
XPU_API xpu_status xpu_tuning_set(int device, int number, int64_t value);
/* Takes back what was set: the value and its source are again those of before. */
XPU_API xpu_status xpu_tuning_reset(int device, int number);

/* Says which libraries the host's products are computed with; before the first use of a device, or not at
 * all. What was measured on a host device with others isn't used. The text is copied. */
XPU_API void xpu_tuning_libraries(const char *libraries);
/* Writes the values that were set in this process to disk, from where later processes take them. The file's
 * path is to be had from xpu_tuning_path, "" where there is no cache. Where GPUs of several models are used,
 * the choices of the first one hold for all. */
XPU_API xpu_status xpu_tuning_keep(int device);
XPU_API xpu_status xpu_tuning_path(int device, const char **path);
/* What is wrong with the file, for people: "FILE:LINE: …", or "". What else it says holds; a file whose hash
 * isn't that of its text isn't used at all. The text is static. */
XPU_API xpu_status xpu_tuning_problem(int device, const char **text);

#ifdef __cplusplus
}
#endif
#endif

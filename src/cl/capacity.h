/* How much memory a device has for this process and how much is left, from the operating system and the
 * drivers. All callers use these definitions, so the remainder never exceeds the capacity. Any thread may
 * call. */
#ifndef CL_CAPACITY_H
#define CL_CAPACITY_H

#include "cl/cl.h"
#include "core/os.h"

/* The capacity of all CPU devices together: a share of the machine's memory, or of the control group's limit
 * if that is smaller. The rest is left for the program's own data and for other programs. `setting` is
 * OPENXPU_HOST_MEMORY: a share ("0.5", "50%") or a size ("12GiB"), which is clamped to what exists; NULL or
 * empty means 75 %. XPU_ERROR_INVALID_ARGUMENT for any other text. */
xpu_status capacity_of_host(const os_memory *memory, const char *setting, uint64_t *bytes);

/* Bytes of host memory that can still be allocated: the machine's available memory or the control groups'
 * remainder, whichever is less. */
uint64_t capacity_left(const os_memory *memory);

#endif

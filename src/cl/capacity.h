/* How much memory a device has for this process, and how much of it is left, from what the operating system
 * and the drivers tell. One definition for all who ask: left <= all. */
#ifndef CL_CAPACITY_H
#define CL_CAPACITY_H

#include "cl/cl.h"
#include "core/os.h"

/* What host devices have together: a share of the machine's memory, or of a control group's limit where that
 * is less; the rest stays for the program's own data and for other programs. `setting` is
 * OPENXPU_HOST_MEMORY: a share ("0.5", "50%") or a size ("12GiB"); NULL or empty is three quarters. A size is
 * cut to what there is. XPU_ERROR_INVALID_ARGUMENT for another text. */
xpu_status capacity_of_host(const os_memory *memory, const char *setting, uint64_t *bytes);

/* Bytes of host memory that a program can still have: what the machine has available, or its control groups
 * leave, whichever is less. */
uint64_t capacity_left(const os_memory *memory);

#endif

/* Internal waits and the fault check. Kernels report faults (xpu/fault.h) asynchronously. The *_finish
 * functions only wait, so the runtime can wait for its own purposes without consuming a report. Public
 * synchronization functions call fault_check afterwards, which raises the report as a deferred error.
 * Any thread may call these functions. */
#ifndef RUNTIME_FAULT_H
#define RUNTIME_FAULT_H

#include <stdbool.h>

#include "xpu/fault.h"

xpu_status stream_finish(xpu_stream *stream);
xpu_status device_finish(int device);
xpu_status event_finish(xpu_event *event);

/* Fails with the device's pending report, if any, and clears it: XPU_ERROR_INDEX or XPU_ERROR_ASSERTION.
 * A report that the host cannot read in place is copied from the device only if `look` is true. */
xpu_status fault_check(int device, bool look);
#endif

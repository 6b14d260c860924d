/* Waiting for the device. These functions wait and leave reports of faults (xpu/fault.h) for the program's
 * own waits, which call fault_check when they are through. */
#ifndef RUNTIME_FAULT_H
#define RUNTIME_FAULT_H

#include <stdbool.h>

#include "xpu/fault.h"

xpu_status stream_finish(xpu_stream *stream);
xpu_status device_finish(int device);
xpu_status event_finish(xpu_event *event);

/* Fails when there is a report, and forgets it. `look`: also where the report has to be copied first. */
xpu_status fault_check(int device, bool look);
#endif

/* xpu/request.h: build requests: descriptions of the kernels that operations build on first use, to build
 * them ahead of time.
 *
 * A request is a line of text that describes a kernel's build parameters, not its source. It remains valid
 * as long as the library has an operation that requests such a kernel, on other devices of the same kind
 * too.
 *
 * OPENXPU_RECORD_KERNELS=file appends each request that a process meets for the first time to the file, as
 * "process, tab, kind of device, tab, request". */
#ifndef XPU_REQUEST_H
#define XPU_REQUEST_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Builds what `request` describes into the disk cache, unless it is there. Launches nothing.
 *
 * Errors: XPU_ERROR_INVALID_ARGUMENT for a malformed request. */
XPU_API xpu_status xpu_request_build(int device, const char *request);

/* The kind of a device in recordings: "cpu", "intel", "nvidia" or "gpu". Kernels of one kind differ little.
 */
XPU_API xpu_status xpu_request_kind(int device, const char **kind);

/* Appends `request` to the file that OPENXPU_RECORD_KERNELS names, if it is set. For callers that build the
 * kernel that `request` describes. Does nothing if the file can't be written. */
XPU_API void xpu_request_record(int device, const char *request);

/* The requests shipped with the library, recorded from common programs (src/ops/tables/common.requests). */
XPU_API const char *xpu_request_common(void);

#ifdef __cplusplus
}
#endif
#endif

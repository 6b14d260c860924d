/* xpu/request.h: what operations build at first use, written down, to be built beforehand.
 *
 * A request is a line of text that says what a kernel is made from, and not its source: it serves as long as
 * the library has an operation that asks for such a kernel, also on another device of the same kind.
 *
 * OPENXPU_RECORD_KERNELS=file: each request that a process meets for the first time is appended to the file,
 * as "process, tab, kind of device, tab, request". */
#ifndef XPU_REQUEST_H
#define XPU_REQUEST_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Builds what `request` asks for into the cache on disk, or finds it there; nothing is launched. A request
 * that can't be read is XPU_ERROR_INVALID_ARGUMENT. */
XPU_API xpu_status xpu_request_build(int device, const char *request);

/* The kind of a device in recordings, "cpu", "intel", "nvidia" or "gpu": kernels of one kind differ little.
 */
XPU_API xpu_status xpu_request_kind(int device, const char **kind);

/* The requests that come with the library, recorded from common programs: see src/ops/tables/common.requests.
 */
XPU_API const char *xpu_request_common(void);

#ifdef __cplusplus
}
#endif
#endif

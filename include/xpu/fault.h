/* xpu/fault.h: errors found by kernels: an index out of range, or a failed assertion.
 *
 * The kernel skips the element, or ends the program, and writes a report.
 *
 * CPU devices, where work is done when the submitting call returns: that call returns the error.
 * Other devices: the error is deferred. The first report is kept on the device. The next call that waits for
 *     the device finishes its work and then fails once, with XPU_ERROR_INDEX or XPU_ERROR_ASSERTION. Such
 *     calls are xpu_stream_synchronize, xpu_device_synchronize, xpu_event_synchronize and a blocking
 *     xpu_memcpy.
 * The text of the error is the report. The device remains usable.
 *
 * OPENXPU_DEFERRED_ERRORS=1 makes CPU devices defer errors too, for tests. */
#ifndef XPU_FAULT_H
#define XPU_FAULT_H

#include <stdint.h>

#include "stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A report, and the memory into which kernels write it (src/kernels/fault.h).
 *
 * For a failed assertion, `which` is negative and the members have other meanings:
 * which: ~which is the assertion's number in the kernel. INT32_MIN is xpu_assert, and `op` is its text.
 * op: address of the texts of the kernel's assertions, a static array of const char *.
 * index: the program's x coordinate.
 * extent: its y and z coordinates, in the lower and upper half. */
typedef struct xpu_fault {
    int64_t index;  /* the index */
    int64_t extent; /* size of the indexed dimension */
    const char *op; /* name of the operation, a static text */
    int32_t which;  /* which of the operation's index tensors */
    int32_t state;  /* 0: no report, 1: being written, 2: complete */
} xpu_fault;

/* Before launching kernels on `stream` from this thread: gives the address to which they report. */
XPU_API xpu_status xpu_fault_watch(xpu_stream *stream, xpu_fault **slot);
/* After the launches: the report as far as it is known without waiting; its `state` is 2 or 0. */
XPU_API void xpu_fault_take(xpu_stream *stream, const xpu_fault *slot, xpu_fault *fault);
/* The same as a status: an error with the report as its text, or success if none is known. */
XPU_API xpu_status xpu_fault_raise(xpu_stream *stream, const xpu_fault *slot);

/* Asserts that the byte at `flag`, in device memory, is not 0 when the stream reaches this point. Otherwise
 * XPU_ERROR_ASSERTION with the text `message`, deferred as above. `message` must stay valid. */
XPU_API xpu_status xpu_assert(xpu_stream *stream, const void *flag, const char *message);

#ifdef __cplusplus
}
#endif
#endif

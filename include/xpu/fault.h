/* xpu/fault.h: an element that isn't there, asked for by an index in device memory; an assertion in a
 * compiled kernel that doesn't hold.
 *
 * The kernel leaves the element out, or ends the program, and makes a report. On a host device, where work is
 * done when the call that submits it returns, the call has the report. Elsewhere nothing waits for it: the
 * first one is kept on the device, and the next call that waits for the device (xpu_stream_synchronize,
 * xpu_device_synchronize, xpu_event_synchronize, a blocking xpu_memcpy) does its work and then fails once,
 * with XPU_ERROR_INDEX or XPU_ERROR_ASSERTION and the report as its text. The device goes on working after
 * that. OPENXPU_LATE_FAULTS=1 makes host devices report as late as the others, for tests. */
#ifndef XPU_FAULT_H
#define XPU_FAULT_H

#include <stdint.h>

#include "stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A report, and the memory where kernels write one (src/kernels/fault.h). Of an assertion `which` is
 * negative: ~which is its number in the kernel, `op` is the address of the kernel's assertions' texts (an
 * array of const char * that stays), `index` the program's number in x, `extent` those in y and z, in its
 * lower and upper half. The least `which` is xpu_assert's, whose text `op` is. */
typedef struct xpu_fault {
    int64_t index;  /* what was asked for */
    int64_t extent; /* how many there were to choose from */
    const char *op; /* the operation's name, a text that stays */
    int32_t which;  /* which of the operation's index tensors it was in */
    int32_t state;  /* 0: no report, 1: it is being written, 2: it is there */
} xpu_fault;

/* Gives, for kernels about to be launched on `stream` by this thread, where to report. */
XPU_API xpu_status xpu_fault_watch(xpu_stream *stream, xpu_fault **place);
/* After the launches: the report as far as it is known at once; `state` is 2 or 0. */
XPU_API void xpu_fault_take(xpu_stream *stream, const xpu_fault *place, xpu_fault *fault);
/* The same, as a failure with the report as its text; success where nothing is known. */
XPU_API xpu_status xpu_fault_raise(xpu_stream *stream, const xpu_fault *place);

/* Asserts that a byte of device memory isn't 0 when the stream comes to this: else XPU_ERROR_ASSERTION with
 * `message`, which stays where it is, as its text, reported as an index is. */
XPU_API xpu_status xpu_assert(xpu_stream *stream, const void *flag, const char *message);

#ifdef __cplusplus
}
#endif
#endif

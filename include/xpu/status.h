/* xpu/status.h: how every call of libxpu reports what happened.
 *
 * Every public function returns an xpu_status and gives its result through its last pointer, which is
 * written only on success. The text of the calling thread's last failure is kept by the library. */
#ifndef XPU_STATUS_H
#define XPU_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define XPU_API __declspec(dllexport)
#else
#define XPU_API __attribute__((visibility("default")))
#endif

typedef enum xpu_status {
    XPU_SUCCESS = 0,
    XPU_NOT_READY,                /* a query: the work asked about has not finished; not an error */
    XPU_ERROR_INVALID_ARGUMENT,   /* the caller broke the function's contract */
    XPU_ERROR_NOT_SUPPORTED,      /* this device, driver or build can't do it */
    XPU_ERROR_NO_DEVICE,          /* no OpenCL driver, or no device that OPENXPU_DEVICE admits */
    XPU_ERROR_OUT_OF_MEMORY,      /* the device's memory is used up, or the fraction set for it */
    XPU_ERROR_OUT_OF_HOST_MEMORY, /* malloc failed */
    XPU_ERROR_BUILD_FAILED,       /* the driver's compiler rejected a kernel */
    XPU_ERROR_DEVICE_LOST,        /* the device died; nothing on it can be trusted any more */
    XPU_ERROR_DRIVER,             /* any other OpenCL error */
    XPU_ERROR_BAD_FORK,           /* the process was forked after the device's first use */
    XPU_ERROR_IO,                 /* a file could not be read or written */
    XPU_ERROR_INDEX,              /* an index in device memory was out of range: see xpu/fault.h */
    XPU_ERROR_ASSERTION           /* an assertion in a compiled kernel failed: see xpu/fault.h */
} xpu_status;

/* The constant's own name, "XPU_ERROR_OUT_OF_MEMORY" say; never NULL. */
XPU_API const char *xpu_status_name(xpu_status status);

/* What the calling thread's last failed call said: the call, the condition, the device. Valid until
 * the thread's next failing call; "" if none failed yet. */
XPU_API const char *xpu_last_error(void);

/* Returns from the enclosing function when `expr` fails. XPU_NOT_READY is handed on too. */
#define XPU_TRY(expr)                                                                                        \
    do {                                                                                                     \
        xpu_status xpu_try_status_ = (expr);                                                                 \
        if (xpu_try_status_ != XPU_SUCCESS) return xpu_try_status_;                                          \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif

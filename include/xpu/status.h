/* xpu/status.h: status codes and error texts.
 *
 * Functions that can fail return an xpu_status and store their result through their last pointer, on success
 * only. The library keeps the text of each thread's last failure. */
#ifndef XPU_STATUS_H
#define XPU_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(xpu_EXPORTS) && defined(_WIN32) /* while libxpu is built */
#define XPU_API __declspec(dllexport)
#elif defined(_WIN32)
#define XPU_API __declspec(dllimport)
#else
#define XPU_API __attribute__((visibility("default")))
#endif

typedef enum xpu_status {
    XPU_SUCCESS = 0,
    XPU_NOT_READY,                /* of a query: the work has not finished; not an error */
    XPU_ERROR_INVALID_ARGUMENT,   /* the caller violated the contract */
    XPU_ERROR_NOT_SUPPORTED,      /* this device, driver or build can't do it */
    XPU_ERROR_NO_DEVICE,          /* no OpenCL driver, or no device that OPENXPU_DEVICE allows */
    XPU_ERROR_OUT_OF_MEMORY,      /* device memory, or the fraction set for it, is exhausted */
    XPU_ERROR_OUT_OF_HOST_MEMORY, /* malloc failed */
    XPU_ERROR_BUILD_FAILED,       /* the driver's compiler rejected a kernel */
    XPU_ERROR_DEVICE_LOST,        /* the device failed; its memory is no longer valid */
    XPU_ERROR_DRIVER,             /* any other OpenCL error */
    XPU_ERROR_BAD_FORK,           /* the process was forked after the device's first use */
    XPU_ERROR_IO,                 /* a file could not be read or written */
    XPU_ERROR_INDEX,              /* an index in device memory was out of range: see xpu/fault.h */
    XPU_ERROR_ASSERTION           /* an assertion in a compiled kernel failed: see xpu/fault.h */
} xpu_status;

/* The enumerator's name, such as "XPU_ERROR_OUT_OF_MEMORY"; never NULL. */
XPU_API const char *xpu_status_name(xpu_status status);

/* Describes the calling thread's last failure: the call, the condition, the device. Valid until the thread's
 * next failing call; "" if none has failed. */
XPU_API const char *xpu_last_error(void);

/* Returns from the enclosing function if `expr` does not succeed, with XPU_NOT_READY too. */
#define XPU_TRY(expr)                                                                                        \
    do {                                                                                                     \
        xpu_status xpu_try_status_ = (expr);                                                                 \
        if (xpu_try_status_ != XPU_SUCCESS) return xpu_try_status_;                                          \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif

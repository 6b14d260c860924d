/* The thread-local error text behind xpu_last_error (status.h). */
#include "core/status.h"

#include <stdio.h>
#include <string.h>

/* Longer texts, such as build logs, are truncated at the end. */
#define TEXT_SIZE 8192
static _Thread_local char last[TEXT_SIZE];

const char *xpu_status_name(xpu_status status) {
    switch (status) {
#define NAME(s)                                                                                              \
    case s: return #s;
        NAME(XPU_SUCCESS)
        NAME(XPU_NOT_READY)
        NAME(XPU_ERROR_INVALID_ARGUMENT)
        NAME(XPU_ERROR_NOT_SUPPORTED)
        NAME(XPU_ERROR_NO_DEVICE)
        NAME(XPU_ERROR_OUT_OF_MEMORY)
        NAME(XPU_ERROR_OUT_OF_HOST_MEMORY)
        NAME(XPU_ERROR_BUILD_FAILED)
        NAME(XPU_ERROR_DEVICE_LOST)
        NAME(XPU_ERROR_DRIVER)
        NAME(XPU_ERROR_BAD_FORK)
        NAME(XPU_ERROR_IO)
        NAME(XPU_ERROR_INDEX)
        NAME(XPU_ERROR_ASSERTION)
#undef NAME
    }
    return "unknown xpu_status";
}

const char *xpu_last_error(void) { return last; }

xpu_status xpu_fail_v(xpu_status status, const char *format, va_list args) {
    vsnprintf(last, sizeof last, format, args);
    return status;
}

xpu_status xpu_fail(xpu_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    xpu_fail_v(status, format, args);
    va_end(args);
    return status;
}

void xpu_fail_add(const char *format, ...) {
    size_t used = strlen(last);
    va_list args;
    va_start(args, format);
    vsnprintf(last + used, sizeof last - used, format, args);
    va_end(args);
}

/* Recording failures: the text that xpu_last_error() gives. */
#ifndef CORE_STATUS_H
#define CORE_STATUS_H

#include <stdarg.h>

#include "core/text.h"
#include "xpu/status.h"

/* Records the calling thread's error text and returns `status`. */
xpu_status xpu_fail(xpu_status status, const char *format, ...) TEXT_PRINTF(2, 3);
xpu_status xpu_fail_v(xpu_status status, const char *format, va_list args);

/* Puts more words behind the calling thread's error text. */
void xpu_fail_add(const char *format, ...) TEXT_PRINTF(1, 2);

/* Returns XPU_ERROR_INVALID_ARGUMENT from the enclosing function when `condition` holds; the rest says
 * what is wrong, printf-like. */
#define XPU_REJECT_IF(condition, ...)                                                                        \
    do {                                                                                                     \
        if (condition) {                                                                                     \
            xpu_fail(XPU_ERROR_INVALID_ARGUMENT, "%s: ", __func__);                                          \
            xpu_fail_add(__VA_ARGS__);                                                                       \
            return XPU_ERROR_INVALID_ARGUMENT;                                                               \
        }                                                                                                    \
    } while (0)

#endif

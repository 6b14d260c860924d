/* Error reporting: writes the text that xpu_last_error() returns. The text is thread-local and stays until
 * the thread's next failure. */
#ifndef CORE_STATUS_H
#define CORE_STATUS_H

#include <stdarg.h>

#include "core/text.h"
#include "xpu/status.h"

/* Sets the calling thread's error text and returns `status`. */
xpu_status xpu_fail(xpu_status status, const char *format, ...) TEXT_PRINTF(2, 3);
xpu_status xpu_fail_v(xpu_status status, const char *format, va_list args);

/* Appends to the calling thread's error text. */
void xpu_fail_add(const char *format, ...) TEXT_PRINTF(1, 2);

/* Returns XPU_ERROR_INVALID_ARGUMENT from the enclosing function if `condition` holds. The other arguments
 * are the error text, in printf format. */
#define XPU_REJECT_IF(condition, ...)                                                                        \
    do {                                                                                                     \
        if (condition) {                                                                                     \
            xpu_fail(XPU_ERROR_INVALID_ARGUMENT, "%s: ", __func__);                                          \
            xpu_fail_add(__VA_ARGS__);                                                                       \
            return XPU_ERROR_INVALID_ARGUMENT;                                                               \
        }                                                                                                    \
    } while (0)

#endif

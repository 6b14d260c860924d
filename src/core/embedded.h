/* Files of OpenCL C that lie in the library as text (cmake/embed.cmake). */
#ifndef CORE_EMBEDDED_H
#define CORE_EMBEDDED_H

#include <stddef.h>

#include "core/text.h"
#include "xpu/status.h"

typedef struct embedded_file {
    const char *name, *text; /* the text ends with a 0 that size doesn't count */
    size_t size;
} embedded_file;

/* The file of that name (`length` characters of it), or NULL. */
const embedded_file *embedded_find(const char *name, size_t length);

/* The files that a source has taken in so far: no more than there are, which embed.cmake has the compiler
 * check. */
enum { EMBEDDED_MOST = 256 };
typedef struct embedded_seen {
    const embedded_file *file[EMBEDDED_MOST];
    int count;
} embedded_seen;

/* Appends `source` with each line `#include "name"` replaced by that file, once in a program. What `out`
 * lacks memory for is left to it (text.h). */
xpu_status embedded_add(text *out, const char *source, size_t size, embedded_seen *seen);

#endif

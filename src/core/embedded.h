/* Files of OpenCL C that lie in the library as text (cmake/embed.cmake). */
#ifndef CORE_EMBEDDED_H
#define CORE_EMBEDDED_H

#include <stddef.h>

#include "core/text.h"
#include "xpu/status.h"

typedef struct embedded_file {
    const char *name; /* from src/kernels on: "gemm/gemm.cl" */
    const char *text; /* ends with a 0 that size doesn't count */
    size_t size;
} embedded_file;

/* The file of that name (`length` characters of it), or NULL. */
const embedded_file *embedded_find(const char *name, size_t length);

/* The file whose last part of the name it is ("gemm.cl"), or NULL. Programs, and requests for them that are
 * kept (request.h), name files so: whichever folder one lies in, it stays the same. */
const embedded_file *embedded_program(const char *last);

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

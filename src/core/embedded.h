/* OpenCL C sources that are embedded in the library as text (cmake/embed.cmake). The table is constant, so
 * any thread may call and returned pointers are valid for the process's lifetime. */
#ifndef CORE_EMBEDDED_H
#define CORE_EMBEDDED_H

#include <stddef.h>

#include "core/text.h"
#include "xpu/status.h"

typedef struct embedded_file {
    const char *name; /* path relative to src/kernels: "gemm/gemm.cl" */
    const char *text; /* NUL-terminated; size excludes the NUL */
    size_t size;
} embedded_file;

/* The file with this name of `length` characters, or NULL. */
const embedded_file *embedded_find(const char *name, size_t length);

/* The file whose base name is `last` ("gemm.cl"), or NULL. Programs and stored requests (request.h) use base
 * names, so a file can move between folders without invalidating them. */
const embedded_file *embedded_program(const char *last);

/* The files that a source already includes. embed.cmake generates a compile-time check that EMBEDDED_MOST is
 * large enough for all files. */
enum { EMBEDDED_MOST = 256 };
typedef struct embedded_seen {
    const embedded_file *file[EMBEDDED_MOST];
    int count;
} embedded_seen;

/* Appends `source` with each line `#include "name"` replaced by that file; each file is included once per
 * program. XPU_ERROR_INVALID_ARGUMENT for an unknown name. Lack of memory sets out->failed (text.h). */
xpu_status embedded_add(text_buffer *out, const char *source, size_t size, embedded_seen *seen);

/* Appends the file with this base name and what it includes. XPU_ERROR_INVALID_ARGUMENT for an unknown name,
 * XPU_ERROR_OUT_OF_HOST_MEMORY. */
xpu_status embedded_source(text_buffer *out, const char *last);

#endif

/* Lookup and inclusion of embedded kernel sources (embedded.h). */
#include "core/embedded.h"

#include <string.h>

#include "core/status.h"

extern const embedded_file embedded_files[]; /* generated; ends with a NULL name */

const embedded_file *embedded_find(const char *name, size_t length) {
    for (const embedded_file *f = embedded_files; f->name; f++)
        if (strlen(f->name) == length && !memcmp(f->name, name, length)) return f;
    return NULL;
}

const embedded_file *embedded_program(const char *last) {
    for (const embedded_file *f = embedded_files; f->name; f++) {
        const char *slash = strrchr(f->name, '/');
        if (!strcmp(slash ? slash + 1 : f->name, last)) return f;
    }
    return NULL;
}

static xpu_status add_file(text_buffer *out, const embedded_file *file, embedded_seen *seen) {
    for (int i = 0; i < seen->count; i++)
        if (seen->file[i] == file) return XPU_SUCCESS;
    seen->file[seen->count++] = file;
    return embedded_add(out, file->text, file->size, seen);
}

xpu_status embedded_add(text_buffer *out, const char *source, size_t size, embedded_seen *seen) {
    static const char directive[] = "#include \"";
    const size_t prefix = sizeof directive - 1;
    const char *end = source + size;
    while (source < end) {
        const char *line_end = memchr(source, '\n', (size_t)(end - source));
        const size_t length = line_end ? (size_t)(line_end + 1 - source) : (size_t)(end - source);
        if (length > prefix && !memcmp(source, directive, prefix)) {
            const char *name = source + prefix, *quote = memchr(name, '"', length - prefix);
            const embedded_file *file = quote ? embedded_find(name, (size_t)(quote - name)) : NULL;
            if (!file)
                return xpu_fail(XPU_ERROR_INVALID_ARGUMENT, "kernel source: no embedded file matches %.*s",
                                (int)length, source);
            XPU_TRY(add_file(out, file, seen));
        } else {
            text_append(out, source, length);
        }
        source += length;
    }
    text_add(out, "\n");
    return XPU_SUCCESS;
}

xpu_status embedded_source(text_buffer *out, const char *last) {
    embedded_seen seen = {0};
    const embedded_file *file = embedded_program(last);
    if (!file) return xpu_fail(XPU_ERROR_INVALID_ARGUMENT, "kernel source: no embedded file %s", last);
    XPU_TRY(embedded_add(out, file->text, file->size, &seen));
    if (out->failed)
        return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for the source of %s", last);
    return XPU_SUCCESS;
}

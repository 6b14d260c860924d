/* A growing text, zero-initialized by its owner, who frees it with text_free. If an append runs out of
 * memory, the text is marked `failed` and later appends do nothing, so one check at the end is enough. Not
 * thread-safe. */
#ifndef CORE_TEXT_H
#define CORE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Marks a function whose argument `format` is a printf format, with its values from argument `first` on. */
#if defined(__MINGW32__)
#define TEXT_PRINTF(format, first) __attribute__((__format__(gnu_printf, format, first)))
#else
#define TEXT_PRINTF(format, first) __attribute__((__format__(printf, format, first)))
#endif

typedef struct text_buffer {
    char *data; /* NUL-terminated once anything was appended; owned */
    size_t size, room;
    bool failed;
} text_buffer;

void text_append(text_buffer *t, const char *data, size_t size);
void text_add(text_buffer *t, const char *string);
void text_addf(text_buffer *t, const char *format, ...) TEXT_PRINTF(2, 3);
void text_free(text_buffer *t);

#endif

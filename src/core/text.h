/* A growing text. A failed append leaves it `failed`, and everything after is a no-op: check once. */
#ifndef CORE_TEXT_H
#define CORE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* A function whose argument number `format` is printf's, its values from number `first` on. */
#if defined(__MINGW32__)
#define TEXT_PRINTF(format, first) __attribute__((__format__(gnu_printf, format, first)))
#else
#define TEXT_PRINTF(format, first) __attribute__((__format__(printf, format, first)))
#endif

typedef struct text {
    char *data; /* NUL-terminated once anything was appended; owned */
    size_t size, room;
    bool failed;
} text;

void text_append(text *t, const char *data, size_t size);
void text_add(text *t, const char *string);
void text_addf(text *t, const char *format, ...) TEXT_PRINTF(2, 3);
void text_free(text *t);

#endif

/* A growing text. A failed append leaves it `failed`, and everything after is a no-op: check once. */
#ifndef CORE_TEXT_H
#define CORE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct text {
    char *data; /* NUL-terminated once anything was appended; owned */
    size_t size, room;
    bool failed;
} text;

void text_append(text *t, const char *data, size_t size);
void text_add(text *t, const char *string);
void text_addf(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_free(text *t);

#endif

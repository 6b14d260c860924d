/* Growing text (text.h); the room doubles. */
#include "core/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"

static bool reserve(text_buffer *t, size_t more) {
    if (t->failed) return false;
    if (t->size + more + 1 <= t->room) return true;
    size_t room = t->room ? t->room : 256;
    while (room < t->size + more + 1) room *= 2;
    char *data = core_realloc(t->data, room);
    if (!data) {
        t->failed = true;
        return false;
    }
    t->data = data;
    t->room = room;
    return true;
}

void text_append(text_buffer *t, const char *data, size_t size) {
    if (!reserve(t, size)) return;
    memcpy(t->data + t->size, data, size);
    t->size += size;
    t->data[t->size] = 0;
}

void text_add(text_buffer *t, const char *string) { text_append(t, string, strlen(string)); }

void text_addf(text_buffer *t, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int size = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (size >= 0 && reserve(t, (size_t)size)) {
        vsnprintf(t->data + t->size, (size_t)size + 1, format, again);
        t->size += (size_t)size;
    }
    va_end(again);
}

void text_free(text_buffer *t) {
    core_free(t->data);
    *t = (text_buffer){0};
}

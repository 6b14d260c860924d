/* Handles of a file: numbers from 1 on, the lowest free one first, as in the kernel. */
#include <stdlib.h>

#include "xe/xe.h"

uint32_t table_add(struct table *table, void *item) {
    uint32_t at = 1;
    while (at < table->count && table->items[at]) at++;
    if (at >= table->count) {
        uint32_t count = table->count ? 2 * table->count : 64;
        void **items = realloc(table->items, count * sizeof *items);
        if (!items) return 0;
        for (uint32_t i = table->count; i < count; i++) items[i] = NULL;
        table->items = items;
        table->count = count;
    }
    table->items[at] = item;
    return at;
}

void *table_get(const struct table *table, uint32_t handle) {
    return handle < table->count ? table->items[handle] : NULL;
}

void *table_remove(struct table *table, uint32_t handle) {
    void *item = table_get(table, handle);
    if (item) table->items[handle] = NULL;
    return item;
}

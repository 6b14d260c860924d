/* The choices of tuning.def, as they stand in this process: the table's, those that were measured on this
 * machine, or those that OPENXPU_TUNING pins. They decide speed alone. */
#ifndef CORE_TUNING_H
#define CORE_TUNING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "xpu/status.h"

typedef enum tunable {
#define X(name, ...) TUNE_##name,
#include "core/tuning.def"
#undef X
    TUNE_COUNT
} tunable;

enum { TUNING_HOST, TUNING_GPU, TUNING_CLASSES };
enum tuning_source { TUNING_TABLE, TUNING_MEASURED, TUNING_PINNED, TUNING_SET };

typedef struct tuning_line {
    const char *name; /* "share_from" */
    const char *unit, *benchmark, *text;
    int64_t initial[TUNING_CLASSES], least, most;
} tuning_line;

extern _Atomic int64_t tuning_values[TUNING_CLASSES][TUNE_COUNT];

/* TUNED(host, SHARE_FROM): the value for host devices, or for others. */
#define TUNED(host, name)                                                                                    \
    atomic_load_explicit(&tuning_values[(host) ? TUNING_HOST : TUNING_GPU][TUNE_##name], memory_order_relaxed)

/* Fills the values from the table and OPENXPU_TUNING=name=value,…; XPU_ERROR_INVALID_ARGUMENT with a text
 * that says what is wrong with it. Once, before any is read. */
xpu_status tuning_init(void);

const tuning_line *tuning_line_of(int number);
/* The number of a name, or -1. */
int tuning_named(const char *name, size_t length);
/* Sets a value that is within its bounds; one that is pinned stays where it was only measured. */
xpu_status tuning_set(int class, int number, int64_t value, enum tuning_source source);
enum tuning_source tuning_source_of(int class, int number);

#endif

/* The choices of tuning.def, as they stand in this process: the table's, those that were measured on this
 * machine, or those that OPENXPU_TUNING pins; and, the same way, the measured rates of the tiles in
 * matrix.def. They decide speed alone. */
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

enum { TUNING_HOST, TUNING_GPU, TUNING_CLASSES, TUNING_DEVICES = 32 };
enum tuning_source { TUNING_TABLE, TUNING_MEASURED, TUNING_PINNED, TUNING_SET };

typedef struct tuning_line {
    const char *name; /* "parallel_from" */
    const char *unit, *benchmark, *text;
    int64_t initial[TUNING_CLASSES], least, most;
} tuning_line;

extern _Atomic int64_t tuning_values[TUNING_CLASSES][TUNE_COUNT];

/* TUNED(host, PARALLEL_FROM): the value for host devices, or for others. */
#define TUNED(host, name)                                                                                    \
    atomic_load_explicit(&tuning_values[(host) ? TUNING_HOST : TUNING_GPU][TUNE_##name], memory_order_relaxed)

/* What each tile reached on a device, in multiply-adds a microsecond and compute unit, with products of these
 * operands, 0 to 2 of which lie along k; 0 where nobody has measured it. Their numbers follow those of the
 * choices. */
typedef enum rate_operand { RATE_HALF, RATE_INT8, RATE_FLOAT32, RATE_OPERANDS } rate_operand;
enum {
    TUNING_TILES = 0
#define X(...) +1
#include "core/matrix.def"
#undef X
    ,
    TUNING_RATES = TUNING_TILES * RATE_OPERANDS * 3,
    TUNING_ALL = TUNE_COUNT + TUNING_RATES
};
extern _Atomic int64_t tuning_rates[TUNING_DEVICES][TUNING_RATES];
static inline int tuning_rate_number(int tile, rate_operand operand, int along_k) {
    return TUNE_COUNT + (tile * RATE_OPERANDS + (int)operand) * 3 + along_k;
}
static inline int64_t tuning_rate(int device, int tile, rate_operand operand, int along_k) {
    const int number = tuning_rate_number(tile, operand, along_k);
    return atomic_load_explicit(&tuning_rates[device][number - TUNE_COUNT], memory_order_relaxed);
}

/* Grows when a value changes, so that what was worked out from them can be kept until then. */
extern _Atomic uint32_t tuning_changes;

/* Where a value is kept: choices by the device's class, rates by the device. */
typedef struct tuning_place {
    int class, device;
} tuning_place;

/* Fills the values from the table and OPENXPU_TUNING=name=value,…; XPU_ERROR_INVALID_ARGUMENT with a text
 * that says what is wrong with it. Once, before any is read. */
xpu_status tuning_init(void);

tuning_line tuning_line_of(int number);
/* The number of a name, or -1. */
int tuning_named(const char *name, size_t length);
/* Sets a value that is within its bounds; one that is pinned stays where it was only measured. */
xpu_status tuning_set(tuning_place place, int number, int64_t value, enum tuning_source source);
/* Takes back what TUNING_SET has set: the value, and its source, are those of before. */
void tuning_reset(tuning_place place, int number);
int64_t tuning_value(tuning_place place, int number);
enum tuning_source tuning_source_of(tuning_place place, int number);

#endif

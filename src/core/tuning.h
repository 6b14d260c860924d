/* Tuning values of this process: the thresholds of tuning.def, and the measured rates of the tiles in
 * matrix.def. A value comes from the table, from measurements on this machine, from OPENXPU_TUNING (pinned),
 * or from xpu_tuning_set. Values affect speed only, never results. They are atomic: any thread may read them
 * at any time. Writers must be serialized by the caller. */
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

/* TUNED(host, PARALLEL_FROM): the value for CPU devices (host != 0) or for all others. */
#define TUNED(host, name)                                                                                    \
    atomic_load_explicit(&tuning_values[(host) ? TUNING_HOST : TUNING_GPU][TUNE_##name], memory_order_relaxed)

/* The measured rate of each tile on a device, in multiply-adds per microsecond and compute unit, by operand
 * dtype and number of K-major operands (0 to 2); 0 if not measured. Their indices follow those of the
 * thresholds. */
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

/* Incremented by each change, so that callers can cache what they derive from the values. */
extern _Atomic uint32_t tuning_changes;

/* Where a value is stored: thresholds by device class, rates by device. */
typedef struct tuning_place {
    int class, device;
} tuning_place;

/* Initializes all values from the table and from OPENXPU_TUNING=name=value,…. Call it once, before any value
 * is read. XPU_ERROR_INVALID_ARGUMENT if the variable is malformed. */
xpu_status tuning_init(void);

tuning_line tuning_line_of(int number);
/* The index of a name, or -1. */
int tuning_named(const char *name, size_t length);
/* Sets a value; XPU_ERROR_INVALID_ARGUMENT outside its bounds. A measurement does not override a pinned
 * value. */
xpu_status tuning_set(tuning_place place, int number, int64_t value, enum tuning_source source);
/* Undoes TUNING_SET: restores the previous value and its source. */
void tuning_reset(tuning_place place, int number);
int64_t tuning_value(tuning_place place, int number);
enum tuning_source tuning_source_of(tuning_place place, int number);

#endif

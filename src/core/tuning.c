/* Storage of tuning values, and OPENXPU_TUNING (tuning.h). Measured values are loaded by runtime/tuning.c. */
#include "core/tuning.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"

#define NEVER (INT64_C(1) << 62)

/* Intel CPUs have their own column, because there PyTorch uses Intel's BLAS (MKL), which shifts the
 * thresholds. */
typedef struct parameter_line {
    tuning_line shown;
    int64_t on_intel;
} parameter_line;

static parameter_line lines[TUNE_COUNT] = {
#define X(name, unit, host, intel, gpu, least, most, benchmark, text)                                        \
    {{#name, unit, benchmark, text, {host, gpu}, least, most}, intel},
#include "core/tuning.def"
#undef X
};

_Atomic int64_t tuning_values[TUNING_CLASSES][TUNE_COUNT] = {
    {
#define X(name, unit, host, intel, gpu, ...) host,
#include "core/tuning.def"
#undef X
    },
    {
#define X(name, unit, host, intel, gpu, ...) gpu,
#include "core/tuning.def"
#undef X
    },
};
static char names[TUNE_COUNT][32];

_Atomic int64_t tuning_rates[TUNING_DEVICES][TUNING_RATES];
static char rate_names[TUNING_RATES][48];
_Atomic uint32_t tuning_changes;

/* Where a value came from, and what tuning_reset restores. */
typedef struct value_origin {
    _Atomic char source, source_before;
    _Atomic int64_t before;
} value_origin;
static value_origin origins[TUNING_CLASSES][TUNE_COUNT], rate_origins[TUNING_DEVICES][TUNING_RATES];

static bool is_intel(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_is("intel");
#else
    return false;
#endif
}

static bool is_rate(int number) { return number >= TUNE_COUNT; }

static _Atomic int64_t *value_at(tuning_place place, int number) {
    return is_rate(number) ? &tuning_rates[place.device][number - TUNE_COUNT]
                           : &tuning_values[place.class][number];
}
static value_origin *origin_of(tuning_place place, int number) {
    return is_rate(number) ? &rate_origins[place.device][number - TUNE_COUNT] : &origins[place.class][number];
}

tuning_line tuning_line_of(int number) {
    if (!is_rate(number)) return lines[number].shown;
    return (tuning_line){.name = rate_names[number - TUNE_COUNT],
                         .unit = "multiply-adds per microsecond and compute unit",
                         .benchmark = "c/matrix.c",
                         .text = "the tile's rate in a large matrix product; the fastest tile is chosen",
                         .least = 1,
                         .most = INT64_C(1) << 40};
}

int tuning_named(const char *name, size_t length) {
    for (int i = 0; i < TUNING_ALL; i++) {
        const char *known = is_rate(i) ? rate_names[i - TUNE_COUNT] : names[i];
        if (strlen(known) == length && !memcmp(known, name, length)) return i;
    }
    return -1;
}

int64_t tuning_value(tuning_place place, int number) {
    return atomic_load_explicit(value_at(place, number), memory_order_relaxed);
}

xpu_status tuning_set(tuning_place place, int number, int64_t value, enum tuning_source source) {
    const tuning_line line = tuning_line_of(number);
    value_origin *origin = origin_of(place, number);
    if (value < line.least || value > line.most)
        return xpu_fail(XPU_ERROR_INVALID_ARGUMENT, "%s is %lld: must be %lld to %lld (%s)", line.name,
                        (long long)value, (long long)line.least, (long long)line.most, line.unit);
    if (source == TUNING_MEASURED && origin->source == TUNING_PINNED) return XPU_SUCCESS;
    if (source == TUNING_SET && origin->source != TUNING_SET) {
        origin->source_before = origin->source;
        origin->before = tuning_value(place, number);
    }
    atomic_store_explicit(value_at(place, number), value, memory_order_relaxed);
    tuning_changes++;
    origin->source = (char)source;
    return XPU_SUCCESS;
}

void tuning_reset(tuning_place place, int number) {
    value_origin *origin = origin_of(place, number);
    if (origin->source != TUNING_SET) return;
    atomic_store_explicit(value_at(place, number), origin->before, memory_order_relaxed);
    tuning_changes++;
    origin->source = origin->source_before;
}

enum tuning_source tuning_source_of(tuning_place place, int number) {
    return (enum tuning_source)origin_of(place, number)->source;
}

static xpu_status pin(const char *given) {
    for (const char *at = given; *at;) {
        const size_t length = strcspn(at, ","), name = strcspn(at, "=,");
        const int number = tuning_named(at, name);
        if (number < 0)
            return xpu_fail(
                XPU_ERROR_INVALID_ARGUMENT,
                "OPENXPU_TUNING: no parameter \"%.*s\"; `openxpu info --tuning` lists the parameters",
                (int)name, at);
        char *end;
        const long long value = name < length ? strtoll(at + name + 1, &end, 10) : 0;
        if (name == length || end != at + length || end == at + name + 1)
            return xpu_fail(XPU_ERROR_INVALID_ARGUMENT, "OPENXPU_TUNING: \"%.*s\" is not name=number",
                            (int)length, at);
        for (int device = 0; device < TUNING_DEVICES; device++) { /* covers all classes, too */
            const tuning_place place = {device % TUNING_CLASSES, device};
            if (tuning_set(place, number, value, TUNING_PINNED) != XPU_SUCCESS) {
                xpu_fail_add(", in OPENXPU_TUNING");
                return XPU_ERROR_INVALID_ARGUMENT;
            }
        }
        at += length + (at[length] != 0);
    }
    return XPU_SUCCESS;
}

static void lower(const char *from, char *to, size_t room) {
    size_t n = 0;
    for (; from[n] && n < room - 1; n++) to[n] = (char)tolower((unsigned char)from[n]);
}

static void name_rates(void) {
    static const char *const tiles[] = {
#define X(unit, m, n, depth, subgroups_m, subgroups_n, ...)                                                  \
    "RATE_" #unit "_" #m "x" #n "x" #depth "_" #subgroups_m "x" #subgroups_n,
#include "core/matrix.def"
#undef X
    };
    static const char *const operands[] = {"half", "int8", "float32"};
    for (int tile = 0; tile < TUNING_TILES; tile++)
        for (int operand = 0; operand < RATE_OPERANDS; operand++)
            for (int along = 0; along < 3; along++) {
                char name[sizeof *rate_names];
                const int i = tuning_rate_number(tile, (rate_operand)operand, along) - TUNE_COUNT;
                snprintf(name, sizeof name, "%s_%s_%d", tiles[tile], operands[operand], along);
                lower(name, rate_names[i], sizeof *rate_names);
            }
}

xpu_status tuning_init(void) {
    const bool intel = is_intel();
    for (int i = 0; i < TUNE_COUNT; i++) {
        lower(lines[i].shown.name, names[i], sizeof names[i]);
        lines[i].shown.name = names[i];
        if (!intel) continue;
        lines[i].shown.initial[TUNING_HOST] = lines[i].on_intel;
        atomic_store(&tuning_values[TUNING_HOST][i], lines[i].on_intel);
    }
    name_rates();
    const char *given = getenv("OPENXPU_TUNING");
    return given ? pin(given) : XPU_SUCCESS;
}

#include "core/tuning.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"

#define NEVER (INT64_C(1) << 62)

/* The table has Intel's processors in a column of their own, for it is their library that PyTorch multiplies
 * with. */
typedef struct line {
    tuning_line shown;
    int64_t on_intel;
} line;

static line lines[TUNE_COUNT] = {
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
static _Atomic char sources[TUNING_CLASSES][TUNE_COUNT];
static char names[TUNE_COUNT][32];

static bool is_intel(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_is("intel");
#else
    return false;
#endif
}

const tuning_line *tuning_line_of(int number) { return &lines[number].shown; }

int tuning_named(const char *name, size_t length) {
    for (int i = 0; i < TUNE_COUNT; i++)
        if (strlen(names[i]) == length && !memcmp(names[i], name, length)) return i;
    return -1;
}

xpu_status tuning_set(int class, int number, int64_t value, enum tuning_source source) {
    const tuning_line *line = tuning_line_of(number);
    if (value < line->least || value > line->most)
        return xpu_fail(XPU_ERROR_INVALID_ARGUMENT, "%s is %lld: it may be %lld to %lld (%s)", line->name,
                        (long long)value, (long long)line->least, (long long)line->most, line->unit);
    if (source == TUNING_MEASURED && sources[class][number] == TUNING_PINNED) return XPU_SUCCESS;
    atomic_store_explicit(&tuning_values[class][number], value, memory_order_relaxed);
    sources[class][number] = (char)source;
    return XPU_SUCCESS;
}

enum tuning_source tuning_source_of(int class, int number) {
    return (enum tuning_source)sources[class][number];
}

static xpu_status pin(const char *given) {
    for (const char *at = given; *at;) {
        const size_t length = strcspn(at, ","), name = strcspn(at, "=,");
        const int number = tuning_named(at, name);
        if (number < 0)
            return xpu_fail(
                XPU_ERROR_INVALID_ARGUMENT,
                "OPENXPU_TUNING: there is no \"%.*s\"; `openxpu info --tuning` lists what there is",
                (int)name, at);
        char *end;
        const long long value = name < length ? strtoll(at + name + 1, &end, 10) : 0;
        if (name == length || end != at + length || end == at + name + 1)
            return xpu_fail(XPU_ERROR_INVALID_ARGUMENT, "OPENXPU_TUNING: \"%.*s\" is not name=number",
                            (int)length, at);
        for (int class = 0; class < TUNING_CLASSES; class++)
            if (tuning_set(class, number, value, TUNING_PINNED) != XPU_SUCCESS) {
                xpu_fail_add(", in OPENXPU_TUNING");
                return XPU_ERROR_INVALID_ARGUMENT;
            }
        at += length + (at[length] != 0);
    }
    return XPU_SUCCESS;
}

xpu_status tuning_init(void) {
    const bool intel = is_intel();
    for (int i = 0; i < TUNE_COUNT; i++) {
        const char *from = lines[i].shown.name;
        size_t n = 0;
        for (; from[n] && n < sizeof names[i] - 1; n++) names[i][n] = (char)tolower((unsigned char)from[n]);
        lines[i].shown.name = names[i];
        if (!intel) continue;
        lines[i].shown.initial[TUNING_HOST] = lines[i].on_intel;
        atomic_store(&tuning_values[TUNING_HOST][i], lines[i].on_intel);
    }
    const char *given = getenv("OPENXPU_TUNING");
    return given ? pin(given) : XPU_SUCCESS;
}

/* Measured tuning values per device, kept in a small text file beside the kernel cache. The file name is a
 * hash of device, driver and host; the first line is a hash of name and contents, so a damaged or foreign
 * file is ignored. Problems with a file are not errors: xpu_tuning_problem reports the first one. Values may
 * be read from any thread; xpu_tuning_set, _reset and _save are meant for one thread at a time. */
#include "xpu/tuning.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "core/hash.h"
#include "core/os.h"
#include "core/text.h"
#include "core/tuning.h"
#include "runtime/runtime.h"

static char libraries[256];
static os_mutex path_lock = OS_MUTEX_INIT; /* guards `paths` */
static char paths[CL_MAX_DEVICES][OS_PATH_SIZE];
static char problems[CL_MAX_DEVICES][OS_PATH_SIZE + 256]; /* first problem of each device's file */

_Static_assert((int)TUNING_DEVICES == (int)CL_MAX_DEVICES, "rates are stored per device");
static tuning_place place_of(int device) {
    const bool host = cl_devices[device].properties.type == XPU_DEVICE_CPU;
    return (tuning_place){host ? TUNING_HOST : TUNING_GPU, device};
}

static hash128 add_text(hash128 h, const char *text) { return hash128_add(h, text, strlen(text) + 1); }

static void find_path(int device, char *path) {
    const xpu_device_properties *p = &cl_devices[device].properties;
    const char *folder = xpu_cache_dir();
    const uint64_t features = cl_devices[device].host ? processor_features() : 0;
    hash128 h = add_text(HASH128_START, "tuning 1");
    const char *const with = place_of(device).class == TUNING_HOST ? libraries : "";
    const char *const texts[] = {p->name, p->platform_name, p->driver_version, p->version, with};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) h = add_text(h, texts[i]);
    h = hash128_add(h, &features, sizeof features);
    char digits[HASH128_DIGITS + 1];
    hash128_text(hash128_add(h, &p->max_compute_units, sizeof p->max_compute_units), digits);
    if (!*folder || snprintf(path, OS_PATH_SIZE, "%s/%s.tuning", folder, digits) >= OS_PATH_SIZE) *path = 0;
}

static const char *path_of(int device) {
    os_mutex_lock(&path_lock);
    if (!*paths[device]) find_path(device, paths[device]);
    os_mutex_unlock(&path_lock);
    return paths[device];
}

/* The first line: the hash of file name and remaining lines, ending in a newline instead of the 0. */
enum { HASH_LINE = HASH128_DIGITS + 1 };
static void write_hash(char line[HASH_LINE], const char *name, const char *text) {
    hash128_text(add_text(add_text(HASH128_START, name), text), line);
    line[HASH128_DIGITS] = '\n';
}

static const char *name_in(const char *path) {
    const char *name = path;
    for (const char *c = path; *c; c++)
        if (strchr(OS_SEPARATORS, *c)) name = c + 1;
    return name;
}

/* Choices are stored per device class, rates per device. With several GPU models, the choices of the model
 * that is used first apply to all GPUs. */
static bool has_choices(int device) {
    static atomic_int first[TUNING_CLASSES]; /* 1 more than the device */
    int owner = 0;
    const bool is_first = atomic_compare_exchange_strong(&first[place_of(device).class], &owner, device + 1);
    return is_first || owner == device + 1 || !strcmp(path_of(owner - 1), path_of(device));
}

/* Keeps the first problem of a file, with its position; the rest of the file still applies. */
static void complain(int device, int line, const char *format, ...) TEXT_PRINTF(3, 4);
static void complain(int device, int line, const char *format, ...) {
    char *to = problems[device];
    if (*to) return;
    const int used = line ? snprintf(to, sizeof *problems, "%s:%d: ", path_of(device), line)
                          : snprintf(to, sizeof *problems, "%s: ", path_of(device));
    va_list values;
    va_start(values, format);
    vsnprintf(to + used, sizeof *problems - (size_t)used, format, values);
    va_end(values);
}

/* Applies "name=value", line `at` of the device's file. */
static void take_line(int device, int at, char *line) {
    char *equals = strchr(line, '='), *end = NULL;
    const int number = equals ? tuning_named(line, (size_t)(equals - line)) : -1;
    const int64_t value = equals ? strtoll(equals + 1, &end, 10) : 0;
    if (!equals || end == equals + 1 || *end) {
        complain(device, at, "\"%.80s\" is not name=number", line);
    } else if (number < 0) {
        complain(device, at, "no parameter \"%.*s\"; `openxpu info --tuning` lists the parameters",
                 equals - line > 80 ? 80 : (int)(equals - line), line);
    } else if (number >= TUNE_COUNT || has_choices(device)) {
        if (tuning_set(place_of(device), number, value, TUNING_MEASURED) != XPU_SUCCESS)
            complain(device, at, "%s", xpu_last_error());
    }
}

void tuning_load(int device) {
    static atomic_bool loaded[CL_MAX_DEVICES];
    unsigned char *bytes;
    size_t size;
    if (atomic_exchange(&loaded[device], true)) return;
    const char *path = path_of(device);
    has_choices(device);
    if (!*path || !os_file_read(path, &bytes, &size)) return;
    char hash[HASH_LINE], *text = size > HASH_LINE ? core_calloc(1, size - HASH_LINE + 1) : NULL;
    if (text) {
        memcpy(text, bytes + HASH_LINE, size - HASH_LINE);
        write_hash(hash, name_in(path), text);
    }
    if (text && !memcmp(hash, bytes, HASH_LINE)) {
        int at = 2;
        for (char *line = text, *end; *line; line = end, at++) {
            end = line + strcspn(line, "\n");
            if (*end) *end++ = 0;
            take_line(device, at, line);
        }
    } else if (size != HASH_LINE) {
        complain(device, 0,
                 "damaged or from another machine, so it is ignored; run `openxpu tune` to measure again");
    }
    core_free(text);
    core_free(bytes);
}

int xpu_tuning_count(void) { return TUNE_COUNT; }
int xpu_tuning_rates(void) { return TUNING_RATES; }

int xpu_tuning_index(const char *name) {
    return cl_init() == XPU_SUCCESS && name ? tuning_named(name, strlen(name)) : -1;
}

int64_t xpu_tuning_value(int device, int number) { return tuning_value(place_of(device), number); }

static xpu_status check(int device, int number) {
    cl_device *found;
    XPU_TRY(cl_get(device, &found));
    XPU_REJECT_IF(number < 0 || number >= TUNING_ALL, "there is no tuning parameter %d", number);
    tuning_load(device);
    return XPU_SUCCESS;
}

xpu_status xpu_tuning_get(int device, int number, xpu_tuning *tuning) {
    static const char *const sources[] = {"table", "measured", "pinned", "set"};
    XPU_TRY(check(device, number));
    const tuning_line line = tuning_line_of(number);
    *tuning = (xpu_tuning){.name = line.name,
                           .unit = line.unit,
                           .benchmark = line.benchmark,
                           .text = line.text,
                           .source = sources[tuning_source_of(place_of(device), number)],
                           .value = xpu_tuning_value(device, number),
                           .least = line.least,
                           .most = line.most};
    return XPU_SUCCESS;
}

xpu_status xpu_tuning_set(int device, int number, int64_t value) {
    XPU_TRY(check(device, number));
    return tuning_set(place_of(device), number, value, TUNING_SET);
}

xpu_status xpu_tuning_reset(int device, int number) {
    XPU_TRY(check(device, number));
    tuning_reset(place_of(device), number);
    return XPU_SUCCESS;
}

void xpu_tuning_libraries(const char *given) { snprintf(libraries, sizeof libraries, "%s", given); }

xpu_status xpu_tuning_path(int device, const char **path) {
    XPU_TRY(check(device, 0));
    *path = path_of(device);
    return XPU_SUCCESS;
}

xpu_status xpu_tuning_problem(int device, const char **text) {
    XPU_TRY(check(device, 0));
    *text = problems[device];
    return XPU_SUCCESS;
}

/* Is the value saved with this device: set in this process, or read from its file? */
static bool is_kept(int device, int number) {
    const enum tuning_source source = tuning_source_of(place_of(device), number);
    return source == TUNING_SET ||
           (source == TUNING_MEASURED && (number >= TUNE_COUNT || has_choices(device)));
}

xpu_status xpu_tuning_save(int device) {
    XPU_TRY(check(device, 0));
    const char *path = path_of(device);
    if (!*path) return xpu_fail(XPU_ERROR_IO, "there is no kernel cache to store measurements in");
    text_buffer values = {0};
    text_add(&values, "");
    for (int i = 0; i < TUNING_ALL; i++)
        if (is_kept(device, i))
            text_addf(&values, "%s=%" PRId64 "\n", tuning_line_of(i).name, xpu_tuning_value(device, i));
    xpu_status status = XPU_SUCCESS;
    if (values.failed || !values.data) {
        status = xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for the measurements' text");
    } else {
        char hash[HASH_LINE];
        write_hash(hash, name_in(path), values.data);
        if (!os_file_write(path, (os_bytes[]){{hash, HASH_LINE}, {values.data, values.size}}, 2))
            status = xpu_fail(XPU_ERROR_IO, "could not write %s", path);
        else
            *problems[device] = 0;
    }
    text_free(&values);
    return status;
}

/* Tuning by device: what was measured is kept in a small text beside the kernel cache. Its name has what it
 * was measured on, its first line a hash of the rest, so that a damaged or foreign file is not used. */
#include "xpu/tuning.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/hash.h"
#include "core/os.h"
#include "core/text.h"
#include "core/tuning.h"
#include "runtime/runtime.h"

static char libraries[256];
static os_mutex path_lock = OS_MUTEX_INIT; /* guards `paths` */
static char paths[CL_MAX_DEVICES][OS_PATH_SIZE];

static int class_of(int device) {
    return cl_devices[device].properties.type == XPU_DEVICE_CPU ? TUNING_HOST : TUNING_GPU;
}

static hash128 add_text(hash128 h, const char *text) { return hash128_add(h, text, strlen(text) + 1); }

static void find_path(int device, char *path) {
    const xpu_device_properties *p = &cl_devices[device].properties;
    const char *folder = xpu_cache_dir();
    const uint64_t features = cl_devices[device].host ? processor_features() : 0;
    hash128 h = add_text(HASH128_START, "tuning 1");
    const char *const texts[] = {p->name, p->platform_name, p->driver_version, p->version, libraries};
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

/* A file's first line: the hash of its name and its other lines, with a line's end instead of the 0. */
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

/* Takes "name=value" lines; what this version doesn't know or allow keeps the table's value. */
static void take_values(int class, char *text) {
    for (char *line = text; *line;) {
        char *end = line + strcspn(line, "\n");
        const bool last = !*end;
        *end = 0;
        char *equals = strchr(line, '=');
        const int number = equals ? tuning_named(line, (size_t)(equals - line)) : -1;
        const tuning_line *known = number < 0 ? NULL : tuning_line_of(number);
        const int64_t value = known ? strtoll(equals + 1, NULL, 10) : 0;
        if (known && value >= known->least && value <= known->most)
            tuning_set(class, number, value, TUNING_MEASURED);
        line = end + !last;
    }
}

void tuning_load(int device) {
    static atomic_bool loaded[CL_MAX_DEVICES];
    unsigned char *bytes;
    size_t size;
    if (atomic_exchange(&loaded[device], true)) return;
    const char *path = path_of(device);
    if (!*path || !os_file_read(path, &bytes, &size)) return;
    char hash[HASH_LINE], *text = size > HASH_LINE ? core_calloc(1, size - HASH_LINE + 1) : NULL;
    if (text) {
        memcpy(text, bytes + HASH_LINE, size - HASH_LINE);
        write_hash(hash, name_in(path), text);
        if (!memcmp(hash, bytes, HASH_LINE)) take_values(class_of(device), text);
    }
    core_free(text);
    core_free(bytes);
}

int xpu_tuning_count(void) { return TUNE_COUNT; }

int xpu_tuning_number(const char *name) {
    return cl_init() == XPU_SUCCESS && name ? tuning_named(name, strlen(name)) : -1;
}

int64_t xpu_tuning_value(int device, int number) {
    return atomic_load_explicit(&tuning_values[class_of(device)][number], memory_order_relaxed);
}

static xpu_status check(int device, int number) {
    cl_device *found;
    XPU_TRY(cl_get(device, &found));
    XPU_REJECT_IF(number < 0 || number >= TUNE_COUNT, "no tuning has the number %d", number);
    tuning_load(device);
    return XPU_SUCCESS;
}

xpu_status xpu_tuning_get(int device, int number, xpu_tuning *tuning) {
    static const char *const sources[] = {"table", "measured", "pinned", "set"};
    XPU_TRY(check(device, number));
    const tuning_line *line = tuning_line_of(number);
    *tuning = (xpu_tuning){.name = line->name,
                           .unit = line->unit,
                           .benchmark = line->benchmark,
                           .text = line->text,
                           .source = sources[tuning_source_of(class_of(device), number)],
                           .value = xpu_tuning_value(device, number),
                           .least = line->least,
                           .most = line->most};
    return XPU_SUCCESS;
}

xpu_status xpu_tuning_set(int device, int number, int64_t value) {
    XPU_TRY(check(device, number));
    return tuning_set(class_of(device), number, value, TUNING_SET);
}

void xpu_tuning_libraries(const char *given) { snprintf(libraries, sizeof libraries, "%s", given); }

xpu_status xpu_tuning_path(int device, const char **path) {
    XPU_TRY(check(device, 0));
    *path = path_of(device);
    return XPU_SUCCESS;
}

xpu_status xpu_tuning_keep(int device) {
    XPU_TRY(check(device, 0));
    const int class = class_of(device);
    const char *path = path_of(device);
    if (!*path) return xpu_fail(XPU_ERROR_IO, "there is no kernel cache to keep measurements in");
    text values = {0};
    text_add(&values, "");
    for (int i = 0; i < TUNE_COUNT; i++)
        if (tuning_source_of(class, i) == TUNING_SET || tuning_source_of(class, i) == TUNING_MEASURED)
            text_addf(&values, "%s=%" PRId64 "\n", tuning_line_of(i)->name,
                      (int64_t)atomic_load(&tuning_values[class][i]));
    xpu_status status = XPU_SUCCESS;
    if (values.failed || !values.data) {
        status = xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "no memory for the measurements' text");
    } else {
        char hash[HASH_LINE];
        write_hash(hash, name_in(path), values.data);
        if (!os_file_write(path, (os_bytes[]){{hash, HASH_LINE}, {values.data, values.size}}, 2))
            status = xpu_fail(XPU_ERROR_IO, "could not write %s", path);
    }
    text_free(&values);
    return status;
}

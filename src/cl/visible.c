/* Device selection by ZE_AFFINITY_MASK, ONEAPI_DEVICE_SELECTOR and OPENXPU_DEVICE (visible.h). */
#include "cl/visible.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Does `text` start with the first `length` letters of `part`, ignoring case? */
static bool begins(const char *text, const char *part, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (tolower((unsigned char)text[i]) != tolower((unsigned char)part[i]) || !part[i]) return false;
    return true;
}

static bool contains(const char *text, const char *part, size_t length) {
    for (; *text; text++)
        if (begins(text, part, length)) return true;
    return false;
}

/* Is the word of `length` letters equal to `name`, ignoring case? */
static bool is_word(const char *word, size_t length, const char *name) {
    return length == strlen(name) && begins(word, name, length);
}

static bool is_set(const char *variable) { return variable && *variable; }

/* Are they one device, found both directly and through the loader? */
static bool is_twin(const cl_device *a, const cl_device *b) {
    return a->api != b->api && !strcmp(a->properties.name, b->properties.name) &&
           !strcmp(a->properties.driver_version, b->properties.driver_version);
}

/* --- ZE_AFFINITY_MASK --- */

static bool is_intel_gpu(const cl_device *device) {
    return device->properties.type == XPU_DEVICE_GPU && device->properties.vendor_id == XPU_VENDOR_INTEL;
}

/* compute-runtime ("Intel(R) OpenCL Graphics", earlier "Intel(R) OpenCL HD Graphics") applies the mask when
 * it is loaded. Applying it again would be wrong: "1" would select the second of the one device left. */
static bool masks_itself(const cl_device *device) {
    const char *platform = device->properties.platform_name;
    return !strncmp(platform, "Intel(R) OpenCL", 15) && strstr(platform, "Graphics");
}

static bool mask_names(const char *mask, long index) {
    while (*mask) {
        const size_t length = strcspn(mask, ",");
        char *end;
        const long entry = strtol(mask, &end, 10);
        if (end != mask && entry == index && end + strspn(end, " ") == mask + length) return true;
        mask += length + (mask[length] == ',');
    }
    return false;
}

static int apply_mask(const char *mask, cl_device *devices, int count) {
    int kept = 0;
    long index = 0;
    for (int i = 0; i < count; i++) {
        const bool counts = is_intel_gpu(&devices[i]) && !masks_itself(&devices[i]);
        if (!counts || mask_names(mask, index++)) devices[kept++] = devices[i];
    }
    return kept;
}

/* --- ONEAPI_DEVICE_SELECTOR --- */

enum backend { OPENCL, LEVEL_ZERO, CUDA, HIP, BACKENDS };
static const char *const backend_names[BACKENDS] = {"opencl", "level_zero", "cuda", "hip"};
/* SYCL backends that have no devices here. */
static const char *const other_backends[] = {"native_cpu", "offload", "esimd_emulator"};

/* A device's index in each backend; -1 if it is not in that backend. */
typedef struct views {
    int index[BACKENDS];
} views;

static void number_devices(const cl_device *devices, int count, views *all) {
    int next[BACKENDS] = {0};
    for (int i = 0; i < count; i++) {
        const xpu_device_properties *p = &devices[i].properties;
        const bool is_gpu = p->type == XPU_DEVICE_GPU;
        const bool member[BACKENDS] = {true, is_intel_gpu(&devices[i]),
                                       is_gpu && p->vendor_id == XPU_VENDOR_NVIDIA,
                                       is_gpu && p->vendor_id == 0x1002 /* AMD */};
        for (int b = 0; b < BACKENDS; b++) all[i].index[b] = member[b] ? next[b]++ : -1;
    }
}

typedef struct selector {
    const char *text; /* the whole variable, for error texts */
    const cl_device *devices;
    const views *all;
    int count;
    uint8_t accepted[CL_MAX_DEVICES], discarded[CL_MAX_DEVICES]; /* one bit per backend */
} selector;

static xpu_status bad(const selector *s, const char *part, size_t length, const char *what) {
    return xpu_fail(XPU_ERROR_INVALID_ARGUMENT, "ONEAPI_DEVICE_SELECTOR=%s: \"%.*s\" %s", s->text,
                    (int)length, part, what);
}

/* Marks the devices that a word of a term selects in `backends`. */
static xpu_status read_device(selector *s, const char *word, size_t length, unsigned backends,
                              uint8_t *marks) {
    static const char sub_device[] = "0123456789.*";
    const bool any = is_word(word, length, "*"), number = length && strspn(word, "0123456789") >= length;
    const bool cpu = is_word(word, length, "cpu"), gpu = is_word(word, length, "gpu");
    const bool fpga = is_word(word, length, "fpga") || is_word(word, length, "acc");
    if (!any && !number && !cpu && !gpu && !fpga) {
        if (!length || !memchr(word, '.', length) || strspn(word, sub_device) < length)
            return bad(s, word, length, "is not a device: use *, cpu, gpu, fpga or an index");
        return word[length - 1] == '*'
                   ? XPU_SUCCESS
                   : bad(s, word, length, "is a sub-device; only whole OpenCL devices can be selected");
    }
    for (int i = 0; i < s->count; i++) {
        const xpu_device_type type = s->devices[i].properties.type;
        const bool fits = any || (cpu && type == XPU_DEVICE_CPU) || (gpu && type == XPU_DEVICE_GPU) ||
                          (fpga && type == XPU_DEVICE_ACCELERATOR);
        for (int b = 0; b < BACKENDS; b++) {
            const int index = s->all[i].index[b];
            if (!(backends >> b & 1) || index < 0) continue;
            if (fits || (number && strtol(word, NULL, 10) == index)) marks[i] |= (uint8_t)(1u << b);
        }
    }
    return XPU_SUCCESS;
}

static xpu_status read_backend(const selector *s, const char *word, size_t length, unsigned *backends) {
    *backends = is_word(word, length, "*") ? (1u << BACKENDS) - 1 : 0;
    for (int b = 0; b < BACKENDS; b++)
        if (is_word(word, length, backend_names[b])) *backends = 1u << b;
    bool known = *backends;
    for (size_t i = 0; i < sizeof other_backends / sizeof *other_backends; i++)
        known |= is_word(word, length, other_backends[i]);
    return known
               ? XPU_SUCCESS
               : bad(s, word, length, "is not a backend: use *, opencl, level_zero, cuda, hip or native_cpu");
}

static xpu_status read_term(selector *s, const char *term, size_t length, uint8_t *marks) {
    const char *colon = memchr(term, ':', length), *end = term + length;
    if (!colon) return bad(s, term, length, "has no colon: each term must be backend:devices");
    unsigned backends;
    XPU_TRY(read_backend(s, term, (size_t)(colon - term), &backends));
    for (const char *word = colon + 1;; word++) {
        const char *comma = memchr(word, ',', (size_t)(end - word));
        const char *stop = comma ? comma : end;
        XPU_TRY(read_device(s, word, (size_t)(stop - word), backends, marks));
        if (!comma) return XPU_SUCCESS;
        word = comma;
    }
}

static xpu_status apply_selector(const char *text, cl_device *devices, int *count) {
    views all[CL_MAX_DEVICES];
    selector s = {.text = text, .devices = devices, .all = all, .count = *count};
    bool accepts = false, discards = false;
    number_devices(devices, *count, all);
    for (const char *term = text; *term;) {
        const size_t length = strcspn(term, ";");
        const bool discard = *term == '!';
        if (length && discards && !discard)
            return bad(&s, term, length,
                       "accepts devices after a term that discards some: put discarding terms last");
        if (length)
            XPU_TRY(read_term(&s, term + discard, length - discard, discard ? s.discarded : s.accepted));
        accepts |= length && !discard;
        discards |= length && discard;
        term += length + (term[length] == ';');
    }
    if (!accepts)
        memset(s.accepted, 0xff,
               sizeof s.accepted); /* without accepting terms, everything is accepted that is not discarded */
    int kept = 0;
    for (int i = 0; i < *count; i++) {
        unsigned in = 0;
        for (int b = 0; b < BACKENDS; b++) in |= (all[i].index[b] >= 0 ? 1u : 0u) << b;
        if (in & s.accepted[i] & ~(unsigned)s.discarded[i]) devices[kept++] = devices[i];
    }
    *count = kept;
    return XPU_SUCCESS;
}

/* --- OPENXPU_DEVICE --- */

/* Does this word match the device's type or name? */
static bool names(const char *word, size_t length, const cl_device *device) {
    const xpu_device_properties *p = &device->properties;
    if (is_word(word, length, "gpu")) return p->type == XPU_DEVICE_GPU;
    if (is_word(word, length, "cpu")) return p->type == XPU_DEVICE_CPU;
    return length && (contains(p->name, word, length) || contains(p->platform_name, word, length));
}

/* How often the list names this device: the number of times that its first matching word occurs. */
static int times_chosen(const char *choice, const cl_device *device) {
    const char *first = NULL;
    size_t first_length = 0;
    int times = 0;
    while (*choice) {
        const size_t length = strcspn(choice, ",");
        if (!first && names(choice, length, device)) {
            first = choice;
            first_length = length;
        }
        times += first && length == first_length && !strncmp(choice, first, length);
        choice += length + (choice[length] == ',');
    }
    return times;
}

/* The devices of `found` without duplicates, host CPUs last. */
static int list_once(const cl_device *found, int count, cl_device *all) {
    int listed = 0;
    for (int hosts = 0; hosts < 2; hosts++) {
        for (int i = 0; i < count && listed < CL_MAX_DEVICES; i++) {
            bool skip = (found[i].properties.type == XPU_DEVICE_CPU) != hosts;
            for (int j = 0; j < listed && !skip; j++) skip = is_twin(&all[j], &found[i]);
            if (!skip) all[listed++] = found[i];
        }
    }
    return listed;
}

xpu_status visible_devices(const visible_rules *rules, const cl_device *found, int count, cl_device *to,
                           int room, int *seen) {
    cl_device *all = core_malloc(CL_MAX_DEVICES * sizeof *all);
    if (!all) return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory while listing the devices");
    int listed = list_once(found, count, all);
    if (is_set(rules->mask)) listed = apply_mask(rules->mask, all, listed);
    xpu_status status = XPU_SUCCESS;
    if (is_set(rules->selector)) status = apply_selector(rules->selector, all, &listed);
    bool has_host = false;
    *seen = 0;
    for (int i = 0; i < listed && status == XPU_SUCCESS; i++) {
        const bool host = all[i].properties.type == XPU_DEVICE_CPU;
        int times = is_set(rules->choice) ? times_chosen(rules->choice, &all[i]) : !(host && has_host);
        has_host |= host;
        while (times-- > 0 && *seen < room) to[(*seen)++] = all[i];
    }
    core_free(all);
    return status;
}

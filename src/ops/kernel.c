/* The kernel cache: one open-addressed hash table per device, by kernel_key. Readers don't lock: a slot's key
 * is written before its kernel is published, and never changes. A full table is replaced by a larger copy;
 * the old one stays alive for readers that still use it. */
#include "ops/kernel.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/embedded.h"
#include "core/memory.h"
#include "core/os.h"
#include "core/prune.h"
#include "core/status.h"
#include "core/text.h"

typedef struct slot {
    _Atomic(xpu_kernel *) kernel; /* NULL: the slot is free */
    kernel_key key;
} slot;

typedef struct table {
    struct table *older; /* kept for readers */
    size_t mask, used;
    slot slots[];
} table;

#define MAX_DEVICES 64
#define FIRST_SLOTS 256
static _Atomic(table *) tables[MAX_DEVICES];
static os_mutex tables_lock = OS_MUTEX_INIT; /* guards insertion */

static inline uint64_t key_hash(const kernel_key *key) {
    uint64_t h = key->family * 0x9E3779B97F4A7C15u;
    for (int i = 0; i < 3; i++) {
        h ^= key->word[i];
        h *= 0xD6E8FEB86659FD93u;
        h ^= h >> 32;
    }
    return h;
}

static inline bool same_key(const kernel_key *a, const kernel_key *b) {
    return a->family == b->family && a->word[0] == b->word[0] && a->word[1] == b->word[1] &&
           a->word[2] == b->word[2];
}

/* The key's slot, or the free one where it belongs. There is always a free one. */
static slot *probe(table *t, const kernel_key *key, xpu_kernel **kernel) {
    for (size_t i = key_hash(key) & t->mask;; i = (i + 1) & t->mask) {
        slot *s = &t->slots[i];
        *kernel = atomic_load_explicit(&s->kernel, memory_order_acquire);
        if (!*kernel || same_key(&s->key, key)) return s;
    }
}

xpu_kernel *kernel_find(int device, const kernel_spec *spec) {
    if (device < 0 || device >= MAX_DEVICES) return NULL;
    table *t = atomic_load_explicit(&tables[device], memory_order_acquire);
    xpu_kernel *kernel = NULL;
    if (t) probe(t, &spec->key, &kernel);
    return kernel;
}

static void publish(table *t, slot *s, const kernel_key *key, xpu_kernel *kernel) {
    s->key = *key;
    t->used++;
    atomic_store_explicit(&s->kernel, kernel, memory_order_release);
}

static table *grown(table *old) {
    size_t count = old ? 2 * (old->mask + 1) : FIRST_SLOTS;
    table *t = core_calloc(1, sizeof *t + count * sizeof(slot));
    if (!t) return NULL;
    t->mask = count - 1;
    t->older = old;
    for (size_t i = 0; old && i <= old->mask; i++) {
        xpu_kernel *kernel = atomic_load_explicit(&old->slots[i].kernel, memory_order_relaxed), *none;
        if (kernel) publish(t, probe(t, &old->slots[i].key, &none), &old->slots[i].key, kernel);
    }
    return t;
}

/* Inserts `kernel` under `key`, or returns the one that another thread inserted first. */
static xpu_status file_kernel(int device, const kernel_key *key, xpu_kernel **kernel) {
    xpu_status status = XPU_SUCCESS;
    os_mutex_lock(&tables_lock);
    table *t = atomic_load_explicit(&tables[device], memory_order_relaxed);
    if (!t || 4 * (t->used + 1) > 3 * (t->mask + 1)) { /* more than three quarters full? */
        t = grown(t);
        if (t) atomic_store_explicit(&tables[device], t, memory_order_release);
    }
    if (!t) {
        status = xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY,
                          "out of host memory for the kernel table of device %d", device);
    } else {
        xpu_kernel *first;
        slot *s = probe(t, key, &first);
        if (first)
            *kernel = first;
        else
            publish(t, s, key, *kernel);
    }
    os_mutex_unlock(&tables_lock);
    return status;
}

/* --- source text --- */

/* An offline compiler for another device replaces these by -DXPU_CAPABILITIES and its own defines. */
static void define_capabilities(text_buffer *out, const xpu_device_properties *p) {
    const uint64_t xe2 = 20u << 22; /* CL_DEVICE_IP_VERSION_INTEL */
    const struct {
        const char *name;
        bool on;
    } lines[] = {
        {"XPU_HAS_FP64", p->has_fp64},
        {"XPU_HAS_FP16", p->has_fp16},
        {"XPU_HAS_SUBGROUPS", p->has_subgroups},
        {"XPU_HAS_ATOMIC64", p->has_atomic64},
        {"XPU_HAS_FLOAT_ATOMICS", p->has_float_atomics},
        {"XPU_HAS_INLINE_PTX", p->has_inline_ptx},
        {"XPU_HAS_PTX_BF16", p->has_inline_ptx && p->architecture >= 80},
        {"XPU_HAS_PTX_FP8", p->has_inline_ptx && p->architecture >= 89},
        {"XPU_HAS_BLOCK_OFFSETS", p->has_subgroup_2d_block_io && p->architecture >= xe2},
        {"XPU_IS_CPU", p->type == XPU_DEVICE_CPU},
        {"XPU_BUILT_FOR_CPU", p->built_for_cpu},
        {"XPU_IS_NVIDIA", p->vendor_id == XPU_VENDOR_NVIDIA},
        {"XPU_IS_INTEL_GPU", p->vendor_id == XPU_VENDOR_INTEL && p->type == XPU_DEVICE_GPU},
    };
    text_add(out, "#ifndef XPU_CAPABILITIES\n");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (lines[i].on) text_addf(out, "#define %s 1\n", lines[i].name);
    text_add(out, "#endif\n");
}

/* The XPU_PLAIN lines of prelude.cl. */
static void define_plain_dtypes(text_buffer *out, bool fp64) {
    if (fp64) text_add(out, "#ifdef XPU_HAS_FP64\n");
    for (int d = 0; d < XPU_DTYPE_COUNT; d++) {
        const dtype_row *row = &dtype_table[d];
        if (row->class != DTYPE_CLASS_BOOL && row->bits % 8 == 0 && row->needs_fp64 == fp64 &&
            !strcmp(row->stored, row->computed))
            text_addf(out, "XPU_PLAIN(%s, %s)\n", row->token, row->computed);
    }
    if (fp64) text_add(out, "#endif\n");
}

static bool mentions(const kernel_build_spec *build_spec, const char *word) {
    return (build_spec->options && strstr(build_spec->options, word)) ||
           (build_spec->text && strstr(build_spec->text, word));
}

/* float8.cl and its lines, only if the build spec uses such a dtype: shorter sources compile faster. */
static xpu_status define_float8(text_buffer *out, const kernel_build_spec *build_spec, embedded_seen *seen) {
    static const char include[] = "#include \"float8.cl\"\n";
    for (int d = 0; d < XPU_DTYPE_COUNT; d++) {
        if (dtype_table[d].class != DTYPE_CLASS_NARROW || !mentions(build_spec, dtype_table[d].token))
            continue;
        XPU_TRY(embedded_add(out, include, sizeof include - 1, seen));
        text_addf(out, "XPU_FLOAT8(%s)\n", dtype_table[d].token);
    }
    return XPU_SUCCESS;
}

static xpu_status compose(text_buffer *out, const xpu_device_properties *properties,
                          const kernel_build_spec *build_spec) {
    static const char prelude[] = "#include \"prelude.cl\"\n";
    embedded_seen seen = {0};
    define_capabilities(out, properties);
    XPU_TRY(embedded_add(out, prelude, sizeof prelude - 1, &seen));
    define_plain_dtypes(out, false);
    define_plain_dtypes(out, true);
    XPU_TRY(define_float8(out, build_spec, &seen));
    if (build_spec->file) {
        const embedded_file *file = embedded_program(build_spec->file);
        if (!file)
            return xpu_fail(XPU_ERROR_INVALID_ARGUMENT, "kernel source: no embedded file %s",
                            build_spec->file);
        XPU_TRY(embedded_add(out, file->text, file->size, &seen));
    }
    if (build_spec->text) XPU_TRY(embedded_add(out, build_spec->text, strlen(build_spec->text), &seen));
    if (out->failed)
        return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for the source of kernel %s",
                        build_spec->name);
    return XPU_SUCCESS;
}

xpu_status kernel_source(text_buffer *out, const xpu_device_properties *properties,
                         const kernel_build_spec *build_spec) {
    text_buffer all = {0};
    xpu_status status = compose(&all, properties, build_spec);
    if (status == XPU_SUCCESS) {
        prune_source(out, all.data, build_spec->options);
        if (out->failed)
            status = xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for the source of kernel %s",
                              build_spec->name);
    }
    text_free(&all);
    return status;
}

static xpu_status build(int device, const kernel_build_spec *build_spec, xpu_kernel **kernel) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    XPU_REJECT_IF(device >= MAX_DEVICES, "device index %d: libxpu supports at most %d devices", device,
                  MAX_DEVICES);
    record_build_request(device, build_spec);
    text_buffer source = {0};
    xpu_status status = kernel_source(&source, properties, build_spec);
    if (status == XPU_SUCCESS)
        status = xpu_kernel_create(device, source.data, build_spec->options, build_spec->name,
                                   build_spec->label, kernel);
    text_free(&source);
    return status;
}

xpu_status kernel_build(int device, const kernel_spec *spec, const kernel_build_spec *build_spec,
                        xpu_kernel **kernel) {
    text_buffer options = {0};
    xpu_kernel *made = NULL;
    xpu_status status = spec_options(spec, build_spec->label, &options);
    if (status == XPU_SUCCESS) {
        kernel_build_spec whole = *build_spec;
        whole.options = options.data;
        status = build(device, &whole, &made);
    }
    text_free(&options);
    XPU_TRY(status);
    XPU_TRY(file_kernel(device, &spec->key, &made));
    *kernel = made;
    return XPU_SUCCESS;
}

xpu_status kernel_from_file(int device, const kernel_spec *spec, const char *file, const char *name,
                            xpu_kernel **kernel, const char *label, ...) {
    char words[128];
    va_list args;
    va_start(args, label);
    vsnprintf(words, sizeof words, label, args);
    va_end(args);
    return kernel_build(device, spec, &(kernel_build_spec){.file = file, .name = name, .label = words},
                        kernel);
}

xpu_status op_fail(xpu_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    xpu_fail_v(status, format, args);
    va_end(args);
    return status;
}

xpu_status op_unsupported_dtype(const char *operation, xpu_dtype dtype, const xpu_device_properties *device) {
    char name[64];
    size_t n = 0;
    for (; operation[n] && n < sizeof name - 1; n++) name[n] = (char)tolower((unsigned char)operation[n]);
    name[n] = 0;
    const bool without = device && !device->has_fp64 && dtype_needs_fp64(dtype);
    return op_fail(XPU_ERROR_NOT_SUPPORTED, "\"%s\" not implemented for '%s'%s%s%s", name,
                   dtype_table[dtype].title, without ? " on " : "", without ? device->name : "",
                   without ? ", which has no fp64" : "");
}

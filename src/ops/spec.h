/* Kernel specs: what a kernel is built for, entry by entry. An entry is added both to the key, by which a
 * built kernel is found, and to the build options, so that the two can't disagree:
 *
 *     kernel_spec spec;
 *     spec_begin(&spec, FAMILY_SORT);
 *     spec_dtype(&spec, "T", dtype);              -DT=f32
 *     spec_int(&spec, "LOCAL", local, 16);        -DLOCAL=64
 *     spec_flag(&spec, "DESCENDING", descending); -DDESCENDING, or nothing
 *     *kernel = kernel_find(device, &spec);
 *     if (*kernel) return XPU_SUCCESS;
 *
 * Always add the same entries in the same order: conditional entries make keys ambiguous. Names and texts
 * must outlive the spec. The option text is only composed when a kernel is built. A value that doesn't fit
 * its bits makes the key match no kernel, and kernel_build fails. */
#ifndef XPU_OPS_SPEC_H
#define XPU_OPS_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "core/text.h"
#include "xpu/ops.h"
#include "xpu/status.h"

/* Each family has its own value, so that keys of different families never collide. */
typedef enum kernel_family {
    FAMILY_NONE,
#define X(name) FAMILY_##name,
#include "families.def"
#undef X
    FAMILY_COUNT
} kernel_family;

#define KEY_WORDS 3
#define SPEC_MAX_ENTRIES 48

/* Unused words are 0. */
typedef struct kernel_key {
    uint64_t family;
    uint64_t word[KEY_WORDS];
} kernel_key;

typedef enum spec_entry_kind {
    SPEC_ENTRY_INT,
    SPEC_ENTRY_DTYPE,
    SPEC_ENTRY_TEXT,
    SPEC_ENTRY_OPTIONS
} spec_entry_kind;

typedef struct spec_entry {
    const char *name;
    union {
        int64_t number;
        const char *text;
    } value;
    spec_entry_kind form;
} spec_entry;

typedef struct kernel_spec {
    kernel_key key;
    unsigned used; /* bits of the key */
    int count;
    struct { /* the last value that didn't fit; bits = 0: none */
        const char *name;
        int64_t value;
        int bits;
    } refused;
    spec_entry fact[SPEC_MAX_ENTRIES];
} kernel_spec;

static inline void spec_begin(kernel_spec *spec, kernel_family family) {
    spec->key = (kernel_key){.family = (uint64_t)family};
    spec->used = 0;
    spec->count = 0;
    spec->refused.bits = 0;
}

/* These compile to a few constant shifts and stores, so they are always inlined. */
#define SPEC_INLINE static inline __attribute__((always_inline))

/* Makes the key match no kernel. */
SPEC_INLINE void spec_refuse(kernel_spec *spec, const char *name, int64_t value, int bits) {
    spec->key.family = FAMILY_NONE;
    spec->refused.name = name;
    spec->refused.value = value;
    spec->refused.bits = bits;
}

/* Adds bits to the key without a build option, e.g. which kernel of a file it is. */
SPEC_INLINE void spec_key_only(kernel_spec *spec, const char *name, int64_t value, int bits) {
    const unsigned width = (unsigned)bits;
    unsigned at = spec->used;
    if (at % 64 + width > 64) at = (at / 64 + 1) * 64; /* no entry straddles two words */
    spec->used = at + width;
    if (__builtin_expect(at + width > 64 * KEY_WORDS || (width < 64 && (uint64_t)value >> width), 0))
        spec_refuse(spec, name, value, bits);
    else
        spec->key.word[at / 64] |= (uint64_t)value << at % 64;
}

SPEC_INLINE spec_entry *spec_next(kernel_spec *spec, const char *name, spec_entry_kind form) {
    if (__builtin_expect(spec->count == SPEC_MAX_ENTRIES, 0)) { /* more than any family has */
        spec_refuse(spec, name, spec->count, 1);
        spec->count--;
    }
    spec_entry *fact = &spec->fact[spec->count++];
    fact->name = name;
    fact->form = form;
    return fact;
}

/* -DNAME=value */
SPEC_INLINE void spec_int(kernel_spec *spec, const char *name, int64_t value, int bits) {
    spec_key_only(spec, name, value, bits);
    spec_next(spec, name, SPEC_ENTRY_INT)->value.number = value;
}

/* -DNAME=0 or -DNAME=1 */
SPEC_INLINE void spec_bool(kernel_spec *spec, const char *name, bool value) {
    spec_int(spec, name, value, 1);
}

/* -DNAME=f32 */
SPEC_INLINE void spec_dtype(kernel_spec *spec, const char *name, xpu_dtype dtype) {
    spec_key_only(spec, name, dtype, 8);
    spec_next(spec, name, SPEC_ENTRY_DTYPE)->value.number = dtype;
}

/* A build option that follows from other entries: -D, `name` and `text`, e.g. ("ACC=", "float") or ("KIND_",
 * "pair"). Nothing if `text` is NULL. */
SPEC_INLINE void spec_option(kernel_spec *spec, const char *name, const char *text) {
    if (text) spec_next(spec, name, SPEC_ENTRY_TEXT)->value.text = text;
}

/* The same with an integer, -DNAME=value, and as a flag, -DNAME if `shown`. */
SPEC_INLINE void spec_option_int(kernel_spec *spec, const char *name, int64_t value) {
    spec_next(spec, name, SPEC_ENTRY_INT)->value.number = value;
}
SPEC_INLINE void spec_option_flag(kernel_spec *spec, const char *name, bool shown) {
    spec_option(spec, name, shown ? "" : NULL);
}
/* The same with literal options, "-DT=f32 -DFLOAT_T=1", or "". */
SPEC_INLINE void spec_option_text(kernel_spec *spec, const char *options) {
    if (*options) spec_next(spec, "", SPEC_ENTRY_OPTIONS)->value.text = options;
}

/* -DNAME if `value` */
SPEC_INLINE void spec_flag(kernel_spec *spec, const char *name, bool value) {
    spec_key_only(spec, name, value, 1);
    spec_option_flag(spec, name, value);
}

/* One of several words: -D, `name` and words[which]. */
SPEC_INLINE void spec_enum(kernel_spec *spec, const char *name, const char *const *words, int64_t which,
                           int bits) {
    spec_key_only(spec, name, which, bits);
    spec_option(spec, name, (uint64_t)which >> bits ? NULL : words[which]);
}

/* An integer whose option is only added if `shown`, which must follow from other entries or from the value.
 */
SPEC_INLINE void spec_int_if(kernel_spec *spec, bool shown, const char *name, int64_t value, int bits) {
    spec_key_only(spec, name, value, bits);
    if (shown) spec_option_int(spec, name, value);
}

/* The option text, "-DT=f32 -DLOCAL=64". XPU_ERROR_INVALID_ARGUMENT if a value didn't fit its bits; the
 * message names `kernel`. */
xpu_status spec_options(const kernel_spec *spec, const char *kernel, text_buffer *options);

#endif

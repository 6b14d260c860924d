/* What a kernel is built for, fact by fact. Each fact goes into the key, by which the kernel is found again,
 * and into the options that it is built with, so that neither can know what the other doesn't:
 *
 *     kernel_spec spec;
 *     spec_begin(&spec, FAMILY_SORT);
 *     spec_dtype(&spec, "T", dtype);              -DT=f32
 *     spec_number(&spec, "LOCAL", local, 16);     -DLOCAL=64
 *     spec_flag(&spec, "DESCENDING", descending); -DDESCENDING, or nothing
 *     *kernel = kernel_find(device, &spec);
 *     if (*kernel) return XPU_SUCCESS;
 *
 * Add the same facts in the same order whatever they are: what is left out only sometimes makes keys
 * ambiguous. Names and texts must outlive the spec. The options' text is made when the kernel is. A number
 * that doesn't fit its bits finds no kernel, and kernel_make refuses it. */
#ifndef XPU_OPS_SPEC_H
#define XPU_OPS_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "core/text.h"
#include "xpu/ops.h"
#include "xpu/status.h"

/* Give each family its own number, so that keys of two families never meet. */
typedef enum kernel_family {
    FAMILY_NONE,
#define X(name) FAMILY_##name,
#include "families.def"
#undef X
    FAMILY_COUNT
} kernel_family;

#define KEY_WORDS 3
#define SPEC_FACTS 48

/* Unused words are 0. */
typedef struct kernel_key {
    uint64_t family;
    uint64_t word[KEY_WORDS];
} kernel_key;

typedef enum fact_form { FACT_NUMBER, FACT_DTYPE, FACT_TEXT, FACT_OPTIONS } fact_form;

typedef struct kernel_fact {
    const char *name;
    union {
        int64_t number;
        const char *text;
    } value;
    fact_form form;
} kernel_fact;

typedef struct kernel_spec {
    kernel_key key;
    unsigned used; /* bits of the key */
    int count;
    struct { /* the last that doesn't fit; bits 0: none */
        const char *name;
        int64_t value;
        int bits;
    } refused;
    kernel_fact fact[SPEC_FACTS];
} kernel_spec;

static inline void spec_begin(kernel_spec *spec, kernel_family family) {
    spec->key = (kernel_key){.family = (uint64_t)family};
    spec->used = 0;
    spec->count = 0;
    spec->refused.bits = 0;
}

/* All of these end up as a few shifts by constants and stores, so they are inlined whatever the compiler
 * thinks of it. */
#define SPEC_INLINE static inline __attribute__((always_inline))

/* Makes the key that of no kernel. */
SPEC_INLINE void spec_refuse(kernel_spec *spec, const char *name, int64_t value, int bits) {
    spec->key.family = FAMILY_NONE;
    spec->refused.name = name;
    spec->refused.value = value;
    spec->refused.bits = bits;
}

/* What has no option of its own, as which of a file's kernels it is, goes into the key alone. */
SPEC_INLINE void spec_pack(kernel_spec *spec, const char *name, int64_t value, int bits) {
    const unsigned width = (unsigned)bits;
    unsigned at = spec->used;
    if (at % 64 + width > 64) at = (at / 64 + 1) * 64; /* no fact lies in two words */
    spec->used = at + width;
    if (__builtin_expect(at + width > 64 * KEY_WORDS || (width < 64 && (uint64_t)value >> width), 0))
        spec_refuse(spec, name, value, bits);
    else
        spec->key.word[at / 64] |= (uint64_t)value << at % 64;
}

SPEC_INLINE kernel_fact *spec_next(kernel_spec *spec, const char *name, fact_form form) {
    if (__builtin_expect(spec->count == SPEC_FACTS, 0)) { /* more than any family has */
        spec_refuse(spec, name, spec->count, 1);
        spec->count--;
    }
    kernel_fact *fact = &spec->fact[spec->count++];
    fact->name = name;
    fact->form = form;
    return fact;
}

/* -DNAME=value */
SPEC_INLINE void spec_number(kernel_spec *spec, const char *name, int64_t value, int bits) {
    spec_pack(spec, name, value, bits);
    spec_next(spec, name, FACT_NUMBER)->value.number = value;
}

/* -DNAME=0 or -DNAME=1 */
SPEC_INLINE void spec_bool(kernel_spec *spec, const char *name, bool value) {
    spec_number(spec, name, value, 1);
}

/* -DNAME=f32 */
SPEC_INLINE void spec_dtype(kernel_spec *spec, const char *name, xpu_dtype dtype) {
    spec_pack(spec, name, dtype, 8);
    spec_next(spec, name, FACT_DTYPE)->value.number = dtype;
}

/* What follows from the other facts: -D, `name` and `text`, as ("ACC=", "float") or ("KIND_", "pair").
 * Nothing where `text` is NULL. */
SPEC_INLINE void spec_follows(kernel_spec *spec, const char *name, const char *text) {
    if (text) spec_next(spec, name, FACT_TEXT)->value.text = text;
}

/* The same with a number, -DNAME=value, and with nothing but its name, where it is so. */
SPEC_INLINE void spec_follows_number(kernel_spec *spec, const char *name, int64_t value) {
    spec_next(spec, name, FACT_NUMBER)->value.number = value;
}
SPEC_INLINE void spec_follows_flag(kernel_spec *spec, const char *name, bool shown) {
    spec_follows(spec, name, shown ? "" : NULL);
}
/* … and with options as they are, "-DT=f32 -DFLOAT_T=1", or "". */
SPEC_INLINE void spec_follows_options(kernel_spec *spec, const char *options) {
    if (*options) spec_next(spec, "", FACT_OPTIONS)->value.text = options;
}

/* -DNAME where it is so */
SPEC_INLINE void spec_flag(kernel_spec *spec, const char *name, bool value) {
    spec_pack(spec, name, value, 1);
    spec_follows_flag(spec, name, value);
}

/* One of some words: -D, `name` and the word. */
SPEC_INLINE void spec_choice(kernel_spec *spec, const char *name, const char *const *words, int64_t which,
                             int bits) {
    spec_pack(spec, name, which, bits);
    spec_follows(spec, name, (uint64_t)which >> bits ? NULL : words[which]);
}

/* A number with an option where `shown`, which other facts or the number itself decide. */
SPEC_INLINE void spec_number_if(kernel_spec *spec, bool shown, const char *name, int64_t value, int bits) {
    spec_pack(spec, name, value, bits);
    if (shown) spec_follows_number(spec, name, value);
}

/* The options' text, "-DT=f32 -DLOCAL=64". XPU_ERROR_INVALID_ARGUMENT where a fact was refused; `kernel` is
 * named in the message. */
xpu_status spec_options(const kernel_spec *spec, const char *kernel, text *options);

#endif

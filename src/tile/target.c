/* Compilation targets: lookup by name, by device, and conversion to and from text. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "tile/tile.h"
#include "xpu/device.h"

static const xpu_tile_target targets[] = {
    /* name, CPU, subgroups, fp16, fp64, 64-bit atomics, float atomics, lanes, work-items, local memory, PTX,
     * PTX bf16, matrix engine lanes, matrix engine tf32, 4-way 8-bit dot product, 2D block reads */
    {"cpu", true, true, true, true, true, true, 16, 8192, 2 << 20, false, false, 0, false, false, false},
    {"bmg", false, true, true, true, true, true, 16, 1024, 128 << 10, false, false, 16, true, true, true},
    {"lnl", false, true, true, true, true, true, 16, 1024, 128 << 10, false, false, 16, true, true, true},
    {"ptl", false, true, true, true, true, true, 16, 1024, 128 << 10, false, false, 16, true, true, true},
    {"pvc", false, true, true, true, true, true, 16, 1024, 128 << 10, false, false, 16, true, true, true},
    {"dg2", false, true, true, false, true, true, 16, 1024, 64 << 10, false, false, 8, false, true, false},
    {"mtl", false, true, true, true, true, true, 16, 1024, 64 << 10, false, false, 0, false, true, false},
    {"arl-h", false, true, true, true, true, true, 16, 1024, 64 << 10, false, false, 8, false, true, false},
    {"tgllp", false, true, true, false, true, true, 16, 512, 64 << 10, false, false, 0, false, true, false},
    {"adl-p", false, true, true, false, true, true, 16, 512, 64 << 10, false, false, 0, false, true, false},
    {"nvidia", false, false, false, true, true, false, 32, 1024, 48 << 10, true, true, 32, true, false,
     false},
    {"generic", false, false, false, false, false, false, 32, 256, 32 << 10, false, false, 0, false, false,
     false},
};
enum { TARGETS = sizeof targets / sizeof *targets };

xpu_status xpu_tile_target_find(const char *name, xpu_tile_target *target) {
    XPU_REJECT_IF(!name || !target, "NULL");
    for (int i = 0; i < TARGETS; i++) {
        if (strcmp(targets[i].name, name)) continue;
        *target = targets[i];
        return XPU_SUCCESS;
    }
    xpu_fail(XPU_ERROR_INVALID_ARGUMENT, "unknown target \"%s\"; known targets:", name);
    for (int i = 0; i < TARGETS; i++) xpu_fail_add("%s %s", i ? "," : "", targets[i].name);
    return XPU_ERROR_INVALID_ARGUMENT;
}

xpu_status xpu_tile_target_of_device(int device, xpu_tile_target *target) {
    const xpu_device_properties *p;
    XPU_REJECT_IF(!target, "NULL");
    XPU_TRY(xpu_device_get_properties(device, &p));
    xpu_tile_target t = {
        .is_cpu = p->type == XPU_DEVICE_CPU && p->has_subgroup_size,
        .has_subgroups = p->has_subgroups && p->has_subgroup_shuffle && p->has_subgroup_size,
        .has_fp16 = p->has_fp16,
        .has_fp64 = p->has_fp64,
        .has_atomic64 = p->has_atomic64,
        .has_float_atomics = p->has_float_atomics,
        .lanes = p->has_inline_ptx ? 32 : 16,
        .max_lanes = (int)p->max_work_group_size,
        .local_memory = p->local_mem_size,
        .has_inline_ptx = p->has_inline_ptx,
        .has_ptx_bf16 = p->has_inline_ptx && p->architecture >= 80,
        .has_matrix_tf32 = p->has_subgroup_matrix_multiply_accumulate_tensor_float32,
        .has_packed_dot = p->has_integer_dot_product,
        .has_block_2d = p->has_subgroup_2d_block_io,
    };
    if (t.has_subgroups && !t.is_cpu) t.matrix_lanes = (int)p->matrix_lanes;
    if (t.has_ptx_bf16) t.matrix_lanes = 32, t.has_matrix_tf32 = true;
    snprintf(t.name, sizeof t.name, "%s", p->type == XPU_DEVICE_CPU ? "cpu" : "gpu");
    *target = t;
    return XPU_SUCCESS;
}

/* --- structs as text: "field=value" in any order, separated by spaces --- */

typedef struct field {
    const char *name;
    size_t offset, size;
} field;
#define FIELD(type, name) {#name, offsetof(type, name), sizeof(((type *)0)->name)}

static const field target_fields[] = {
#define X(type, name) FIELD(xpu_tile_target, name),
    XPU_TILE_TARGET_FIELDS(X)
#undef X
};
static const field option_fields[] = {
    FIELD(xpu_tile_options, num_warps),
    FIELD(xpu_tile_options, comments),
    FIELD(xpu_tile_options, debug_asserts),
    FIELD(xpu_tile_options, dump_after),
};
enum {
    TARGET_FIELDS = sizeof target_fields / sizeof *target_fields,
    OPTION_FIELDS = sizeof option_fields / sizeof *option_fields
};

/* The size identifies a field's type: _Bool; int or an enum; uint64_t. */
_Static_assert(sizeof(bool) == 1 && sizeof(int) == 4 && sizeof(xpu_tile_stage) == 4, "three sizes");

static unsigned long long get(const void *from, const field *f) {
    const char *at = (const char *)from + f->offset;
    if (f->size == sizeof(bool)) return *(const bool *)at;
    if (f->size == sizeof(int)) return (unsigned long long)*(const int *)at;
    return *(const uint64_t *)at;
}

static bool set(void *to, const field *f, unsigned long long setting) {
    char *at = (char *)to + f->offset;
    if (f->size == sizeof(uint64_t)) *(uint64_t *)at = setting;
    if (f->size == sizeof(int)) *(int *)at = (int)setting;
    if (f->size == sizeof(bool)) *(bool *)at = setting;
    return f->size == sizeof(uint64_t) || setting <= (f->size == sizeof(bool) ? 1 : INT32_MAX);
}

/* Parses the fields in `text`. If a field occurs twice, the last one counts. `seen` gets one bit per field.
 */
static xpu_status read_fields(const char *text, const field *fields, int count, void *to, uint64_t *seen) {
    *seen = 0;
    for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
        size_t size = strcspn(text, " "), name = strcspn(text, "= ");
        int which = 0;
        while (which < count &&
               (strlen(fields[which].name) != name || strncmp(fields[which].name, text, name)))
            which++;
        const char *digits = text + name + 1;
        char *end = NULL;
        bool is_number = name + 1 < size && *digits >= '0' && *digits <= '9' && size - name < 20;
        unsigned long long setting = is_number ? strtoull(digits, &end, 10) : 0;
        if (which == count || end != text + size || !set(to, &fields[which], setting))
            return xpu_fail(XPU_ERROR_INVALID_ARGUMENT, "\"%.*s\" is not a known field with a valid value",
                            (int)(size < 100 ? size : 100), text);
        *seen |= (uint64_t)1 << which;
        text += size;
    }
    return XPU_SUCCESS;
}

xpu_status tile_read_options(const char *text, xpu_tile_options *options) {
    uint64_t seen;
    XPU_TRY(read_fields(text ? text : "", option_fields, OPTION_FIELDS, options, &seen));
    if ((unsigned)options->dump_after < XPU_TILE_STAGES) return XPU_SUCCESS;
    return xpu_fail(XPU_ERROR_INVALID_ARGUMENT, "unknown compiler stage %d", (int)options->dump_after);
}

xpu_status xpu_tile_target_read(const char *text, xpu_tile_target *target) {
    XPU_REJECT_IF(!text || !target, "NULL");
    xpu_tile_target t = {0};
    size_t size = strcspn(text, " ");
    if (!text[size]) return xpu_tile_target_find(text, target);
    XPU_REJECT_IF(!size || size >= sizeof t.name, "a target's name must have 1 to %zu bytes",
                  sizeof t.name - 1);
    memcpy(t.name, text, size);
    uint64_t seen;
    XPU_TRY(read_fields(text + size, target_fields, TARGET_FIELDS, &t, &seen));
    for (int i = 0; i < TARGET_FIELDS; i++)
        XPU_REJECT_IF(!(seen >> i & 1), "field \"%s\" is missing in the target \"%.200s\"",
                      target_fields[i].name, text);
    XPU_REJECT_IF(t.lanes != 16 && t.lanes != 32, "lanes=%d: must be 16 or 32", t.lanes);
    XPU_REJECT_IF(t.max_lanes < t.lanes, "max_lanes=%d: must be at least the subgroup size %d", t.max_lanes,
                  t.lanes);
    XPU_REJECT_IF(t.matrix_lanes && t.matrix_lanes != 8 && t.matrix_lanes != 16 && t.matrix_lanes != 32,
                  "matrix_lanes=%d: must be 0, 8, 16 or 32", t.matrix_lanes);
    XPU_REJECT_IF(t.matrix_lanes == 32 && (!t.has_ptx_bf16 || t.lanes != 32),
                  "matrix_lanes=32 needs inline PTX and warps of 32");
    *target = t;
    return XPU_SUCCESS;
}

xpu_status xpu_tile_target_write(const xpu_tile_target *target, char *text, size_t size) {
    XPU_REJECT_IF(!target || !text, "NULL");
    XPU_REJECT_IF(!target->name[0] || strchr(target->name, ' '), "the target's name must be one word");
    size_t used = (size_t)snprintf(text, size, "%s", target->name);
    for (int i = 0; i < TARGET_FIELDS && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, " %s=%llu", target_fields[i].name,
                                 get(target, &target_fields[i]));
    XPU_REJECT_IF(used >= size, "the buffer of %zu bytes is too small", size);
    return XPU_SUCCESS;
}

size_t xpu_tile_target_text_size(void) { return XPU_TILE_TARGET_TEXT; }

xpu_status xpu_tile_target_check(const char *text, int device) {
    xpu_tile_target wanted, has;
    const xpu_device_properties *p;
    XPU_REJECT_IF(!text, "NULL");
    if (!*text) return XPU_SUCCESS;
    XPU_TRY(xpu_tile_target_read(text, &wanted));
    XPU_TRY(xpu_device_get_properties(device, &p));
    XPU_TRY(xpu_tile_target_of_device(device, &has));
    /* Sizes are not compared: the image states what the kernel requires. */
    const char *lacks = wanted.is_cpu != has.is_cpu                                      ? "is_cpu"
                        : wanted.lanes != has.lanes                                      ? "lanes"
                        : wanted.matrix_lanes && wanted.matrix_lanes != has.matrix_lanes ? "matrix_lanes"
                                                                                         : NULL;
#define MORE_bool(field)                                                                                     \
    if (!lacks && wanted.field > has.field) lacks = #field;
#define MORE_int(field)
#define MORE_uint64_t(field)
#define X(type, field) MORE_##type(field)
    XPU_TILE_TARGET_FIELDS(X)
#undef X
    if (lacks)
        return xpu_fail(
            XPU_ERROR_NOT_SUPPORTED,
            "a kernel was compiled for another kind of device than %s, which differs in %s: %.300s", p->name,
            lacks, text);
    return XPU_SUCCESS;
}

xpu_status xpu_tile_describe_device(int device, char *text, size_t size) {
    xpu_tile_target target;
    XPU_TRY(xpu_tile_target_of_device(device, &target));
    return xpu_tile_target_write(&target, text, size);
}

/* The compiler's public functions: targets, stages, one compilation. */
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/os.h"
#include "core/status.h"
#include "tile/tile.h"
#include "xpu/device.h"

#define MAX_TEXT (64 << 20) /* bytes of a module */

static const xpu_tile_target targets[] = {
    /* name, cpu, subgroups, fp16, fp64, atomic64, float atomics, lanes, items, local memory, PTX, its bf16,
     * lanes of matrix units, their tf32, products of bytes by four, block reads */
    {"cpu", true, true, true, true, true, true, 16, 8192, 256 << 10, false, false, 0, false, false, false},
    {"bmg", false, true, true, true, true, true, 16, 1024, 128 << 10, false, false, 16, true, true, true},
    {"lnl", false, true, true, true, true, true, 16, 1024, 128 << 10, false, false, 16, true, true, true},
    {"ptl", false, true, true, true, true, true, 16, 1024, 128 << 10, false, false, 16, true, true, true},
    {"pvc", false, true, true, true, true, true, 16, 1024, 128 << 10, false, false, 16, true, true, true},
    {"dg2", false, true, true, false, true, true, 16, 1024, 64 << 10, false, false, 8, false, true, false},
    {"mtl", false, true, true, true, true, true, 16, 1024, 64 << 10, false, false, 0, false, true, false},
    {"arl-h", false, true, true, true, true, true, 16, 1024, 64 << 10, false, false, 8, false, true, false},
    {"tgllp", false, true, true, false, true, true, 16, 512, 64 << 10, false, false, 0, false, true, false},
    {"adl-p", false, true, true, false, true, true, 16, 512, 64 << 10, false, false, 0, false, true, false},
    {"nvidia", false, false, false, true, true, false, 32, 1024, 48 << 10, true, true, 0, false, false,
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
    xpu_fail(XPU_ERROR_INVALID_ARGUMENT, "no target is called \"%s\"; there are", name);
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
    /* The units' subgroups are of the smallest size that there is, says the extension. */
    if (p->has_subgroup_matrix_multiply_accumulate && t.has_subgroups && !t.is_cpu)
        for (int i = 0; p->sub_group_sizes[i]; i++)
            if (!t.matrix_lanes || (int)p->sub_group_sizes[i] < t.matrix_lanes)
                t.matrix_lanes = (int)p->sub_group_sizes[i];
    if (t.matrix_lanes != 8 && t.matrix_lanes != 16) t.matrix_lanes = 0;
    snprintf(t.name, sizeof t.name, "%.31s", t.is_cpu ? "cpu" : p->name);
    *target = t;
    return XPU_SUCCESS;
}

static const char *const stage_names[XPU_TILE_STAGES] = {"none",    "parse",  "verify",
                                                         "analyse", "layout", "emit"};

const char *xpu_tile_stage_name(xpu_tile_stage stage) {
    return (unsigned)stage < XPU_TILE_STAGES ? stage_names[stage] : NULL;
}

/* What the caller gets: the public struct, and the texts it points to. */
typedef struct result {
    xpu_tile_program program;
    text source, dump;
} result;

static void (*const stages[XPU_TILE_STAGES])(tile *t) = {
    [XPU_TILE_PARSE] = tile_parse,   [XPU_TILE_VERIFY] = tile_verify, [XPU_TILE_ANALYSE] = tile_analyse,
    [XPU_TILE_LAYOUT] = tile_layout, [XPU_TILE_EMIT] = tile_emit,
};

/* Runs the stages; an error comes back here. */
static xpu_status run(tile *t, result *r) {
    if (setjmp(t->fail)) return t->status;
    double start = os_seconds();
    for (int stage = XPU_TILE_PARSE; stage < XPU_TILE_STAGES; stage++) {
        if (stages[stage]) stages[stage](t);
        double end = os_seconds();
        r->program.seconds[stage] = end - start;
        start = end;
        if (t->options->dump_after == (xpu_tile_stage)stage) {
            if (stage == XPU_TILE_EMIT)
                text_append(&r->dump, r->source.data, r->source.size);
            else
                module_print(t, &r->dump);
            if (r->dump.failed) tile_no_memory(t);
            r->program.dump = r->dump.data;
            break;
        }
    }
    return XPU_SUCCESS;
}

xpu_status xpu_tile_compile(const char *input, size_t size, const xpu_tile_options *options,
                            xpu_tile_program **program) {
    static const xpu_tile_options defaults = {0};
    XPU_REJECT_IF((!input && size) || !program, "NULL");
    XPU_REJECT_IF(size > MAX_TEXT, "a text of %zu bytes; %d are the limit", size, MAX_TEXT);
    tile *t = core_calloc(1, sizeof *t);
    result *r = core_calloc(1, sizeof *r);
    char *copy = core_malloc(size + 1);
    xpu_status status = XPU_ERROR_OUT_OF_HOST_MEMORY;
    if (!t || !r || !copy) {
        xpu_fail(status, "no memory for compiling a Triton module");
        goto done;
    }
    memcpy(copy, input, size);
    copy[size] = 0; /* so that every scan ends */
    t->text = copy;
    t->end = copy + size;
    t->options = options ? options : &defaults;
    t->target = t->options->target ? *t->options->target : targets[0];
    t->source = &r->source;
    t->program = &r->program;
    status = run(t, r);
    tile_free_all(t);
done:
    core_free(t);
    core_free(copy);
    if (status == XPU_SUCCESS)
        *program = &r->program;
    else if (r)
        xpu_tile_program_free(&r->program);
    return status;
}

void xpu_tile_program_free(xpu_tile_program *program) {
    if (!program) return;
    result *r = (result *)program;
    text_free(&r->source);
    text_free(&r->dump);
    core_free((void *)(uintptr_t)program->params);
    core_free((void *)(uintptr_t)program->asserts);
    core_free((void *)(uintptr_t)program->name);
    core_free((void *)(uintptr_t)program->build_options);
    core_free(r);
}

/* The compiler's public functions: targets, stages, one compilation. */
#include <stdio.h>
#include <string.h>

#include "core/status.h"
#include "xpu/device.h"
#include "xpu/tile.h"

static const xpu_tile_target targets[] = {
    /* name, cpu, subgroups, fp16, fp64, atomic64, float atomics, lanes, work-items, local memory */
    {"cpu", true, true, true, true, true, true, 16, 8192, 256 << 10},
    {"bmg", false, true, true, true, true, true, 16, 1024, 128 << 10},
    {"lnl", false, true, true, true, true, true, 16, 1024, 128 << 10},
    {"ptl", false, true, true, true, true, true, 16, 1024, 128 << 10},
    {"pvc", false, true, true, true, true, true, 16, 1024, 128 << 10},
    {"dg2", false, true, true, false, true, true, 16, 1024, 64 << 10},
    {"mtl", false, true, true, true, true, true, 16, 1024, 64 << 10},
    {"arl-h", false, true, true, true, true, true, 16, 1024, 64 << 10},
    {"tgllp", false, true, true, false, true, true, 16, 512, 64 << 10},
    {"adl-p", false, true, true, false, true, true, 16, 512, 64 << 10},
    {"generic", false, false, false, false, false, false, 32, 256, 32 << 10},
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
    };
    snprintf(t.name, sizeof t.name, "%.31s", t.is_cpu ? "cpu" : p->name);
    *target = t;
    return XPU_SUCCESS;
}

static const char *const stage_names[XPU_TILE_STAGES] = {"none",    "parse",  "verify",
                                                         "analyse", "layout", "emit"};

const char *xpu_tile_stage_name(xpu_tile_stage stage) {
    return (unsigned)stage < XPU_TILE_STAGES ? stage_names[stage] : NULL;
}

xpu_status xpu_tile_compile(const char *text, size_t size, const xpu_tile_options *options,
                            xpu_tile_program **program) {
    return xpu_fail(XPU_ERROR_NOT_SUPPORTED, "xpu_tile_compile: not there yet");
}

void xpu_tile_program_free(xpu_tile_program *program) {}

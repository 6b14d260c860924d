/* Launch shapes of row groups (row_group.h), and the scheduling policy for CPUs. */
#include "team.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/tuning.h"
#include "kernel.h"

#define SUBGROUP_LANES 16
#define WARPS_IN_GROUP 8

bool plans_for_processor(const xpu_device_properties *device) {
    static atomic_int asked; /* 0: not yet; 1: by the device's type; 2: as GPUs */
    int known = atomic_load_explicit(&asked, memory_order_relaxed);
    if (!known) {
        const char *plans = getenv("OPENXPU_PLANS");
        known = plans && !strcmp(plans, "gpu") ? 2 : 1;
        atomic_store_explicit(&asked, known, memory_order_relaxed);
    }
    return device->type == XPU_DEVICE_CPU && known == 1;
}

bool xpu_plans_for_processor(int device) {
    const xpu_device_properties *properties;
    return xpu_device_get_properties(device, &properties) == XPU_SUCCESS && plans_for_processor(properties);
}

static bool can_demand(const xpu_device_properties *device, uint64_t lanes) {
    if (!device->has_subgroups || !device->has_subgroup_size) return false;
    for (int i = 0; i < XPU_PROPERTY_LIST_SIZE && device->sub_group_sizes[i]; i++)
        if (device->sub_group_sizes[i] == lanes) return true;
    return false;
}

team team_for(const xpu_device_properties *device, int64_t length) {
    if (can_demand(device, SUBGROUP_LANES) &&
        (plans_for_processor(device) || length <= TUNED(false, LONG_ROW)))
        return (team){.lanes = SUBGROUP_LANES, .subgroup = true};
    int lanes = 32;
    while (lanes < 256 && lanes * 4 < length && (uint64_t)lanes * 2 <= device->max_work_group_size)
        lanes *= 2;
    return (team){.lanes = lanes};
}

static int power_above(int64_t n) {
    int p = 1;
    while (p < n) p *= 2;
    return p;
}

row_plan plan_row(const xpu_device_properties *device, int64_t length, size_t widest, uintptr_t addresses) {
    row_plan p = {.team = team_for(device, length), .pack = 1};
    bool host = plans_for_processor(device);
    if (!host && !p.team.subgroup) {
        int pack = widest >= 16 ? 1 : (int)(16 / widest);
        if (length % pack == 0 && addresses % (widest * (size_t)pack) == 0) p.pack = pack;
        int lanes = 32;
        while (lanes * (length > TUNED(false, LONG_ROW) ? TUNED(false, HELD) : TUNED(true, HELD)) < length &&
               (uint64_t)lanes * 2 <= device->max_work_group_size)
            lanes *= 2;
        p.team.lanes = lanes;
        if (lanes == 32 && device->vendor_id == XPU_VENDOR_NVIDIA) p.team.teams = WARPS_IN_GROUP;
    }
    int64_t elements = (length + p.team.lanes - 1) / p.team.lanes;
    const bool whole = length % p.team.lanes == 0; /* no masks: twice as many elements pay off */
    if (elements <= TUNED(host || p.team.subgroup, HELD) * (host && whole ? 2 : 1)) {
        p.registers = power_above(elements);
        if (p.registers < p.pack) p.registers = p.pack;
        if (host && whole) p.length = (int)length; /* no masks, no branches */
    } else {
        p = (row_plan){.team = team_for(device, length), .pack = 1};
    }
    return p;
}

const char *pack_type(int pack, xpu_dtype dtype) {
    switch ((size_t)pack * xpu_dtype_size(dtype)) {
    case 4: return "uint";
    case 8: return "uint2";
    case 16: return "uint4";
    default: return "uchar"; /* unused: elements are moved one by one */
    }
}

uint32_t team_rows(const xpu_device_properties *device, int64_t length, int64_t rows) {
    if (!plans_for_processor(device)) return 1;
    int64_t worth = TUNED(true, ROWS_TOGETHER) / (length > SUBGROUP_LANES ? length : SUBGROUP_LANES);
    int64_t fair = rows / (TUNED(true, ROW_GROUPS) * (int64_t)device->max_compute_units);
    if (worth > fair) worth = fair;
    return worth < 1 ? 1 : (uint32_t)worth;
}

void team_spec(kernel_spec *spec, team t, xpu_dtype compute) {
    const bool wide = compute == XPU_FLOAT64;
    spec_number(spec, "LANES", t.lanes, 16);
    spec_number(spec, "TEAMS", t.teams ? t.teams : 1, 8);
    spec_flag(spec, "TEAM_SUBGROUP", t.subgroup);
    spec_pack(spec, "ACC", wide, 1);
    spec_follows(spec, "ACC=", wide ? "double" : "float");
    spec_follows_flag(spec, "ACC_IS_DOUBLE", wide);
}

xpu_range team_range(team t, uint64_t teams, uint64_t work) {
    uint64_t in_group = t.teams ? (uint64_t)t.teams : 1;
    return (xpu_range){.dims = in_group > 1 ? 2 : 1,
                       .groups = {(teams + in_group - 1) / in_group, 1},
                       .local = {(size_t)t.lanes, in_group},
                       .work = work};
}

xpu_status check_floating(const xpu_device_properties *device, const char *op, xpu_dtype dtype) {
    if (dtype < XPU_FLOAT16 || dtype > XPU_FLOAT64 || (dtype == XPU_FLOAT64 && !device->has_fp64))
        return op_lacks(op, dtype, device);
    return XPU_SUCCESS;
}

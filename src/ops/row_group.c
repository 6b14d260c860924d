/* Launch shapes of row groups (row_group.h), and the scheduling policy for CPUs. */
#include "row_group.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/tuning.h"
#include "kernel.h"

#define SUBGROUP_LANES 16
#define WARPS_IN_GROUP 8

bool uses_cpu_policy(const xpu_device_properties *device) {
    static atomic_int asked; /* 0: not yet; 1: by the device's type; 2: as GPUs */
    int known = atomic_load_explicit(&asked, memory_order_relaxed);
    if (!known) {
        const char *plans = getenv("OPENXPU_POLICY");
        known = plans && !strcmp(plans, "gpu") ? 2 : 1;
        atomic_store_explicit(&asked, known, memory_order_relaxed);
    }
    return device->type == XPU_DEVICE_CPU && known == 1;
}

bool xpu_uses_cpu_policy(int device) {
    const xpu_device_properties *properties;
    return xpu_device_get_properties(device, &properties) == XPU_SUCCESS && uses_cpu_policy(properties);
}

static bool can_require_subgroup_size(const xpu_device_properties *device, uint64_t lanes) {
    if (!device->has_subgroups || !device->has_subgroup_size) return false;
    for (int i = 0; i < XPU_PROPERTY_LIST_SIZE && device->sub_group_sizes[i]; i++)
        if (device->sub_group_sizes[i] == lanes) return true;
    return false;
}

row_group row_group_for(const xpu_device_properties *device, int64_t length) {
    if (can_require_subgroup_size(device, SUBGROUP_LANES) &&
        (uses_cpu_policy(device) || length <= TUNED(false, LONG_ROW)))
        return (row_group){.lanes = SUBGROUP_LANES, .subgroup = true};
    int lanes = 32;
    while (lanes < 256 && lanes * 4 < length && (uint64_t)lanes * 2 <= device->max_work_group_size)
        lanes *= 2;
    return (row_group){.lanes = lanes};
}

static int power_above(int64_t n) {
    int p = 1;
    while (p < n) p *= 2;
    return p;
}

row_plan plan_row(const xpu_device_properties *device, int64_t length, size_t widest, uintptr_t addresses) {
    row_plan p = {.row_group = row_group_for(device, length), .pack = 1};
    bool host = uses_cpu_policy(device);
    if (!host && !p.row_group.subgroup) {
        int pack = widest >= 16 ? 1 : (int)(16 / widest);
        if (length % pack == 0 && addresses % (widest * (size_t)pack) == 0) p.pack = pack;
        int lanes = 32;
        while (lanes * (length > TUNED(false, LONG_ROW) ? TUNED(false, HELD) : TUNED(true, HELD)) < length &&
               (uint64_t)lanes * 2 <= device->max_work_group_size)
            lanes *= 2;
        p.row_group.lanes = lanes;
        if (lanes == 32 && device->vendor_id == XPU_VENDOR_NVIDIA) p.row_group.row_groups = WARPS_IN_GROUP;
    }
    int64_t elements = (length + p.row_group.lanes - 1) / p.row_group.lanes;
    const bool whole = length % p.row_group.lanes == 0; /* no masks: twice as many elements pay off */
    if (elements <= TUNED(host || p.row_group.subgroup, HELD) * (host && whole ? 2 : 1)) {
        p.registers = power_above(elements);
        if (p.registers < p.pack) p.registers = p.pack;
        if (host && whole) p.length = (int)length; /* no masks, no branches */
    } else {
        p = (row_plan){.row_group = row_group_for(device, length), .pack = 1};
    }
    return p;
}

const char *vector_type(int pack, xpu_dtype dtype) {
    switch ((size_t)pack * xpu_dtype_size(dtype)) {
    case 4: return "uint";
    case 8: return "uint2";
    case 16: return "uint4";
    default: return "uchar"; /* unused: elements are moved one by one */
    }
}

uint32_t rows_per_row_group_for(const xpu_device_properties *device, int64_t length, int64_t rows) {
    if (!uses_cpu_policy(device)) return 1;
    int64_t worth = TUNED(true, ROW_BATCH) / (length > SUBGROUP_LANES ? length : SUBGROUP_LANES);
    int64_t fair = rows / (TUNED(true, ROW_GROUPS) * (int64_t)device->max_compute_units);
    if (worth > fair) worth = fair;
    return worth < 1 ? 1 : (uint32_t)worth;
}

void row_group_spec(kernel_spec *spec, row_group t, xpu_dtype compute) {
    const bool wide = compute == XPU_FLOAT64;
    spec_int(spec, "LANES", t.lanes, 16);
    spec_int(spec, "SUBGROUPS", t.row_groups ? t.row_groups : 1, 8);
    spec_flag(spec, "ROW_GROUP_IS_SUBGROUP", t.subgroup);
    spec_key_only(spec, "ACC", wide, 1);
    spec_option(spec, "ACC=", wide ? "double" : "float");
    spec_option_flag(spec, "ACC_IS_DOUBLE", wide);
}

xpu_range row_group_range(row_group t, uint64_t row_groups, uint64_t work) {
    uint64_t in_group = t.row_groups ? (uint64_t)t.row_groups : 1;
    return (xpu_range){.dims = in_group > 1 ? 2 : 1,
                       .groups = {(row_groups + in_group - 1) / in_group, 1},
                       .local = {(size_t)t.lanes, in_group},
                       .work = work};
}

xpu_status check_floating(const xpu_device_properties *device, const char *op, xpu_dtype dtype) {
    if (dtype < XPU_FLOAT16 || dtype > XPU_FLOAT64 || (dtype == XPU_FLOAT64 && !device->has_fp64))
        return op_unsupported_dtype(op, dtype, device);
    return XPU_SUCCESS;
}

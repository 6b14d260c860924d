#include "team.h"

#include <stdio.h>

#include "kernel.h"

#define SUBGROUP_LANES 16
#define LONG_ROW 1024 /* from here on a GPU puts a whole work-group on a row */
#define HOST_GROUP_ELEMENTS 4096

static bool can_demand(const xpu_device_properties *device, uint64_t lanes) {
    if (!device->has_subgroups || !device->has_subgroup_size) return false;
    for (int i = 0; i < XPU_PROPERTY_LIST_SIZE && device->sub_group_sizes[i]; i++)
        if (device->sub_group_sizes[i] == lanes) return true;
    return false;
}

team team_for(const xpu_device_properties *device, int64_t length) {
    if (can_demand(device, SUBGROUP_LANES) && (device->type == XPU_DEVICE_CPU || length <= LONG_ROW))
        return (team){SUBGROUP_LANES, true};
    int lanes = 32;
    while (lanes < 256 && lanes * 4 < length && (uint64_t)lanes * 2 <= device->max_work_group_size)
        lanes *= 2;
    return (team){lanes, false};
}

uint32_t team_rows(const xpu_device_properties *device, int64_t length) {
    if (device->type != XPU_DEVICE_CPU || length >= HOST_GROUP_ELEMENTS) return 1;
    return (uint32_t)(HOST_GROUP_ELEMENTS / (length > SUBGROUP_LANES ? length : SUBGROUP_LANES));
}

int team_options(team t, xpu_dtype compute, char *options, size_t size) {
    return snprintf(options, size, "-DLANES=%d%s%s", t.lanes, t.subgroup ? " -DTEAM_SUBGROUP" : "",
                    compute == XPU_FLOAT64 ? " -DACC=double -DACC_IS_DOUBLE" : " -DACC=float");
}

xpu_range team_range(team t, uint64_t teams, uint64_t work) {
    return (xpu_range){.dims = 1, .groups = {teams}, .local = {(size_t)t.lanes}, .work = work};
}

xpu_status check_floating(const xpu_device_properties *device, const char *op, xpu_dtype dtype) {
    if (dtype == XPU_FLOAT64 && !device->has_fp64)
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "%s: device %s has no float64", op, device->name);
    if (dtype != XPU_FLOAT16 && dtype != XPU_BFLOAT16 && dtype != XPU_FLOAT32 && dtype != XPU_FLOAT64)
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "%s: not implemented for dtype %s", op,
                       xpu_dtype_name(dtype));
    return XPU_SUCCESS;
}

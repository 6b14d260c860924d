/* Row groups: the work-items that share a row (src/kernels/row_group.h), and their launch shapes. */
#ifndef XPU_OPS_ROW_GROUP_H
#define XPU_OPS_ROW_GROUP_H

#include <stdbool.h>

#include "ops/spec.h"
#include "xpu/device.h"
#include "xpu/ops.h"
#include "xpu/policy.h"
#include "xpu/program.h"

typedef struct row_group {
    int lanes;
    bool subgroup;
    int row_groups; /* per work-group; 0 means 1 */
} row_group;

/* xpu_strategy_is_cpu for callers that already have the properties. */
bool uses_cpu_policy(const xpu_device_properties *device);

/* The row group for rows of `length` elements. */
row_group row_group_for(const xpu_device_properties *device, int64_t length);

/* The row group that keeps a row of `length` elements in registers: `registers` elements per lane, in vectors
 * of `pack` contiguous elements. `widest` is the size in bytes of the widest dtype of the rows, `addresses`
 * the bitwise or of the addresses of all rows. If a row doesn't fit: the result of row_group_for, and
 * registers = 0. */
typedef struct row_plan {
    row_group row_group;
    int registers, pack;
    int length; /* the rows' length if the kernel is specialized for it (option LENGTH), else 0 */
} row_plan;
row_plan plan_row(const xpu_device_properties *device, int64_t length, size_t widest, uintptr_t addresses);

/* The kernel type of a vector of `pack` elements of `dtype`, for build options. */
const char *vector_type(int pack, xpu_dtype dtype);

/* Number of consecutive rows per row group, so that work-groups on CPUs are worth their start-up cost. */
uint32_t rows_per_row_group_for(const xpu_device_properties *device, int64_t length, int64_t rows);

/* Adds the row group's options: LANES, SUBGROUPS, ROW_GROUP_IS_SUBGROUP, and ACC for `compute` (XPU_FLOAT32
 * or XPU_FLOAT64). */
void row_group_spec(kernel_spec *spec, row_group t, xpu_dtype compute);

/* The launch range of that many row groups; `work`: elements of the whole launch. */
xpu_range row_group_range(row_group t, uint64_t row_groups, uint64_t work);

/* The dtype that floating dtypes are computed in: fp64 for fp64, else fp32. */
static inline xpu_dtype compute_dtype(xpu_dtype dtype) {
    return dtype == XPU_FLOAT64 ? XPU_FLOAT64 : XPU_FLOAT32;
}
/* XPU_ERROR_NOT_SUPPORTED for a dtype that is not floating, or fp64 on a device without it. */
xpu_status check_floating(const xpu_device_properties *device, const char *op, xpu_dtype dtype);

#endif

/* Who works on a row: a team of lanes, as src/kernels/team.h has it. */
#ifndef XPU_OPS_TEAM_H
#define XPU_OPS_TEAM_H

#include <stdbool.h>

#include "ops/spec.h"
#include "xpu/device.h"
#include "xpu/ops.h"
#include "xpu/plans.h"
#include "xpu/program.h"

typedef struct team {
    int lanes;
    bool subgroup;
    int teams; /* in a work-group; 0 is 1 */
} team;

/* xpu_plans_for_processor for who has the properties at hand. */
bool plans_for_processor(const xpu_device_properties *device);

/* The team for rows of `length` elements. */
team team_for(const xpu_device_properties *device, int64_t length);

/* The team that holds a row of `length` elements in registers, if there is one: `registers` elements a lane,
 * in packs of `pack` neighbours. `widest` is the size in bytes of the widest dtype of the rows, `addresses`
 * the addresses of all rows' starts, or'ed. Without one, team_for's team and 0 registers. */
typedef struct row_plan {
    team team;
    int registers, pack;
    int length; /* the rows' length if the kernel should be for that alone (option LENGTH), else 0 */
} row_plan;
row_plan plan_row(const xpu_device_properties *device, int64_t length, size_t widest, uintptr_t addresses);

/* The type in kernels of `pack` elements of `dtype`, for options. */
const char *pack_type(int pack, xpu_dtype dtype);

/* How many of the `rows` of `length` elements a team goes through, one after the other, so that a host
 * processor gets work-groups that are worth starting. */
uint32_t team_rows(const xpu_device_properties *device, int64_t length, int64_t rows);

/* The team's facts: -DLANES=16 -DTEAMS=1 -DTEAM_SUBGROUP, and ACC for `compute`, XPU_FLOAT32 or XPU_FLOAT64.
 */
void team_spec(kernel_spec *spec, team t, xpu_dtype compute);

/* A range of that many teams; `work` is the whole launch's. */
xpu_range team_range(team t, uint64_t teams, uint64_t work);

/* What floating dtypes are computed in: fp64 for fp64, else fp32. */
static inline xpu_dtype compute_dtype(xpu_dtype dtype) {
    return dtype == XPU_FLOAT64 ? XPU_FLOAT64 : XPU_FLOAT32;
}
/* XPU_ERROR_NOT_SUPPORTED for a dtype that is not floating, or fp64 on a device without it. */
xpu_status check_floating(const xpu_device_properties *device, const char *op, xpu_dtype dtype);

#endif

/* xpu/policy.h: the execution policy of a device. */
#ifndef XPU_PLANS_H
#define XPU_PLANS_H

#include <stdbool.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* True if operations use the CPU policy on this device: few work-groups, each with much work. Otherwise they
 * use the GPU policy. OPENXPU_POLICY=gpu in the environment selects the GPU policy on CPUs, for tests. */
XPU_API bool xpu_plans_for_processor(int device);

#ifdef __cplusplus
}
#endif
#endif

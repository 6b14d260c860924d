/* xpu/policy.h: the execution policy of a device. */
#ifndef XPU_POLICY_H
#define XPU_POLICY_H

#include <stdbool.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* True if operations use the CPU policy on this device: few work-groups, each with much work. Otherwise they
 * use the GPU policy. OPENXPU_POLICY=gpu in the environment selects the GPU policy on CPUs, for tests. */
XPU_API bool xpu_uses_cpu_policy(int device);

#ifdef __cplusplus
}
#endif
#endif

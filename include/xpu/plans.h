/* xpu/plans.h: how operations go about their work on a device. */
#ifndef XPU_PLANS_H
#define XPU_PLANS_H

#include <stdbool.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As suits a processor, with few large parts? OPENXPU_PLANS=gpu in the environment makes processors do what
 * GPUs do: for tests. */
XPU_API bool xpu_plans_for_processor(int device);

#ifdef __cplusplus
}
#endif
#endif

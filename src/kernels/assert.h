/* The parameters of assert_flag. */
#ifndef XPU_KERNELS_ASSERT_H
#define XPU_KERNELS_ASSERT_H
#include "fault.h"

struct assert_params {
    xpu_addr flag; /* one byte */
    struct fault_watch watch;
};
#endif

/* How a kernel reports an element that isn't there: xpu_fault in xpu/fault.h, the first report stays. */
#ifndef XPU_KERNELS_FAULT_H
#define XPU_KERNELS_FAULT_H
#include "shared.h"

struct fault {
    xpu_i64 index, extent;
    xpu_u64 op; /* the address of a text of the host */
    xpu_i32 which, state;
};

#define FAULT_TEXT (-2147483647 - 1) /* `which` of an assertion whose text `op` is itself */

/* A member of kernels' parameters. */
struct fault_watch {
    xpu_addr place; /* struct fault, or 0: nobody asks */
    xpu_u64 op;
};

#ifdef __OPENCL_VERSION__
/* `which`, negative, of an assertion in a compiled kernel: see xpu/fault.h. */
static inline void fault_report(struct fault_watch watch, int which, long index, long extent) {
    if (!watch.place) return;
    __global struct fault *f = (__global struct fault *)watch.place;
    if (atomic_cmpxchg((volatile __global int *)&f->state, 0, 1) != 0) return;
    f->index = index;
    f->extent = extent;
    f->op = watch.op;
    f->which = which;
    mem_fence(CLK_GLOBAL_MEM_FENCE); /* the host may look before the kernel's end */
    atomic_xchg((volatile __global int *)&f->state, 2);
}
#endif
#endif

/* How a kernel reports an out-of-range index (xpu_fault in xpu/fault.h). The first report is kept. */
#ifndef XPU_KERNELS_FAULT_H
#define XPU_KERNELS_FAULT_H
#include "shared.h"

struct fault {
    xpu_i64 index, extent;
    xpu_u64 op; /* host address of the operator's name */
    xpu_i32 which, state;
};

#define FAULT_TEXT (-2147483647 - 1) /* `which` of an assertion: `op` is its text */

/* A member of the parameter structs of kernels that report faults. */
struct fault_watch {
    xpu_addr place; /* address of a struct fault, or 0: faults are not recorded */
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
    mem_fence(CLK_GLOBAL_MEM_FENCE); /* the host may poll before the kernel ends */
    atomic_xchg((volatile __global int *)&f->state, 2);
}
#endif
#endif

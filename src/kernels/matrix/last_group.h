/* Work-groups of a launch that agree on which of them comes last: it finds what all the others wrote, in the
 * same launch (xpu_workspace_counters). */
static inline void fence_for_groups(void) {
#ifdef XPU_HAS_INLINE_PTX
    __asm__ volatile("membar.gl;" : : : "memory");
#elif defined(__opencl_c_atomic_order_acq_rel) && defined(__opencl_c_atomic_scope_device)
    atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acq_rel, memory_scope_device);
#else
    mem_fence(CLK_GLOBAL_MEM_FENCE);
#endif
}

/* All work-items of `count` groups call it once they have written; in one group it is true, which leaves the
 * counter 0. `room`: a number of the group's. */
static inline bool is_last_group(volatile __global uint *counter, uint count, __local uint *room) {
    const bool is_first_item = get_local_id(0) == 0 && get_local_id(1) == 0;
#ifdef XPU_HAS_INLINE_PTX
    /* A fence is for all that its work-item has seen, and by the barrier that is what the group wrote. */
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (is_first_item) {
        fence_for_groups();
        *room = atomic_inc(counter);
        fence_for_groups();
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    const bool is_last = *room + 1 == count;
    if (is_last && is_first_item) *counter = 0;
#else
    fence_for_groups();
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (is_first_item) *room = atomic_inc(counter);
    barrier(CLK_LOCAL_MEM_FENCE);
    const bool is_last = *room + 1 == count;
    if (is_last) {
        fence_for_groups();
        if (is_first_item) *counter = 0;
    }
#endif
    return is_last;
}

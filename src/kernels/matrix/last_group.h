/* "Last work-group" detection: the work-groups of a launch increment a counter, and the last one sees what
 * all the others wrote in the same launch (xpu_workspace_counters). The counter is reset to 0. */
static inline void fence_between_groups(void) {
#ifdef XPU_HAS_INLINE_PTX
    __asm__ volatile("membar.gl;" : : : "memory");
#elif defined(__opencl_c_atomic_order_acq_rel) && defined(__opencl_c_atomic_scope_device)
    atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acq_rel, memory_scope_device);
#else
    mem_fence(CLK_GLOBAL_MEM_FENCE);
#endif
}

/* Called by all work-items of `count` work-groups after their writes; true in exactly one group. `room`: a
 * word of local memory. */
static inline bool is_last_group(volatile __global uint *counter, uint count, __local uint *room) {
    const bool is_first_item = get_local_id(0) == 0 && get_local_id(1) == 0;
#ifdef XPU_HAS_INLINE_PTX
    /* PTX fences are cumulative: after the barrier, one work-item's fence covers the writes of the whole
     * group. */
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (is_first_item) {
        fence_between_groups();
        *room = atomic_inc(counter);
        fence_between_groups();
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    const bool is_last = *room + 1 == count;
    if (is_last && is_first_item) *counter = 0;
#else
    fence_between_groups();
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (is_first_item) *room = atomic_inc(counter);
    barrier(CLK_LOCAL_MEM_FENCE);
    const bool is_last = *room + 1 == count;
    if (is_last) {
        fence_between_groups();
        if (is_first_item) *counter = 0;
    }
#endif
    return is_last;
}

// last_group: each group writes the sum of its 64 numbers; the group that counts last adds these up.
//
//     FAULT 1: race: no release before the counter
//     FAULT 2: race: no acquire behind the counter
//     FAULT 3: race: another work-item counts than wrote the sum, and no barrier is between them
//     FAULT 4: race: the work-item that reads the sums has not waited for the one that counts
//     FAULT 5: uninitialized: one group writes no sum
//     FAULT 6: global memory: the last group reads the element before the sums
//     FAULT 7: race: the groups count without atomics
//     FAULT 8: global memory: the last group reads one sum more
//     FAULT 9: race: the release orders memory within the group only
#define DEVICE memory_scope_device
kernel void last_group(global const int *x, global int *sums, global int *state, global int *y) {
    local int part[64], is_last;
    const int i = get_local_id(0), group = get_group_id(0), groups = get_num_groups(0);
    volatile global atomic_int *counter = (volatile global atomic_int *)state;
    part[i] = x[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int n = 32; n; n /= 2) {
        if (i < n) part[i] += part[i + n];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (i == 0 && (FAULT != 5 || group != 2)) sums[group] = part[0];
    if (i == (FAULT == 3 ? 63 : 0)) {
#if FAULT == 9
        atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_release, memory_scope_work_group);
#elif FAULT != 1
        atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_release, DEVICE);
#endif
        const int before =
            FAULT == 7 ? state[0]++ : atomic_fetch_add_explicit(counter, 1, memory_order_relaxed, DEVICE);
#if FAULT != 2
        atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acquire, DEVICE);
#endif
        is_last = before == groups - 1;
    }
#if FAULT == 4
    if (group == groups - 1 && i == 40) {
#else
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (is_last && i == 40) {
#endif
        int sum = 0;
        for (int k = FAULT == 6 ? -1 : 0; k < groups + (FAULT == 8); k++) sum += sums[k];
        y[0] = sum;
    }
}

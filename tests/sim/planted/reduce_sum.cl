// reduce_sum: sums of 256 numbers each, by a tree in local memory.
//
//     FAULT 1: race: no barrier between the stores and the tree
//     FAULT 2: race: no barrier between the tree's levels
//     FAULT 3: local memory: the last level reads one element behind the array
//     FAULT 4: uninitialized: the last work-item stores nothing
//     FAULT 5: global memory: the sum is written one element behind the output
//     FAULT 6: global memory: the first work-item reads the element before the input
//     FAULT 7: divergent barrier: half of the work-items leave the tree early
kernel void reduce_sum(global const int *x, global int *sums) {
    local int part[256];
    const int i = get_local_id(0), at = get_global_id(0);
#if FAULT == 4
    if (i != 255)
#endif
        part[i] = x[FAULT == 6 ? at - 1 : at];
#if FAULT != 1
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    for (int n = 128; n; n /= 2) {
        if (FAULT == 7 && i >= 128) return;
        if (i < n) part[i] += part[i + n + (FAULT == 3 && n == 128)];
#if FAULT != 2
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
    }
    if (!i) sums[get_group_id(0) + (FAULT == 5)] = part[0];
}

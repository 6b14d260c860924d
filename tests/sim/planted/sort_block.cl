// sort_block: 256 keys in ascending order, by a bitonic network in local memory.
//
//     FAULT 1: race: no barrier between the steps
//     FAULT 2: race: a subgroup's barrier where the work-group's is needed
//     FAULT 3: local memory: the partner of the last key lies behind the array
//     FAULT 4: uninitialized: sorts one key more than were loaded
//     FAULT 5: divergent barrier: the barrier stands in the branch of one half
//     FAULT 6: global memory: the keys are written back one element before
kernel void sort_block(global const int *x, global int *y) {
    local int keys[256];
    const int i = get_local_id(0), at = get_global_id(0);
    if (FAULT != 4 || i) keys[i] = x[at];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int size = 2; size <= 256; size *= 2)
        for (int distance = size / 2; distance; distance /= 2) {
            const int other = FAULT == 3 && distance == 1 ? i + 1 : i ^ distance;
            if (other > i) {
                const int a = keys[i], b = keys[other];
                if ((a > b) == !(i & size)) {
                    keys[i] = b;
                    keys[other] = a;
                }
#if FAULT == 5
                barrier(CLK_LOCAL_MEM_FENCE);
#endif
            }
#if FAULT == 2
            sub_group_barrier(CLK_LOCAL_MEM_FENCE);
#elif FAULT != 1 && FAULT != 5
            barrier(CLK_LOCAL_MEM_FENCE);
#endif
        }
    y[at - (FAULT == 6)] = keys[i];
}

// histogram: counts of 256 values, in local memory by atomics, then added to the counts of all groups.
//
//     FAULT 1: race: no barrier between clearing and counting
//     FAULT 2: race: no barrier between counting and adding
//     FAULT 3: race: counts without atomics
//     FAULT 4: uninitialized: the counts are not cleared
//     FAULT 5: local memory: the largest value is counted behind the counts
//     FAULT 6: race: the groups add without atomics
//     FAULT 7: global memory: the counts of 257 values are added
//     FAULT 8: uninitialized: the last count is not cleared
kernel void histogram(global const uchar *x, global int *counts, int n) {
    local int own[256];
    const int i = get_local_id(0);
#if FAULT != 4
    for (int k = i; k < 256 - (FAULT == 8); k += get_local_size(0)) own[k] = 0;
#endif
#if FAULT != 1
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    for (int k = get_global_id(0); k < n; k += get_global_size(0)) {
        const int value = x[k];
        if (FAULT == 3)
            own[value]++;
        else
            atomic_inc(&own[FAULT == 5 ? value + 1 : value]);
    }
#if FAULT != 2
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    for (int k = i; k < 256 + (FAULT == 7); k += get_local_size(0)) {
        const int count = own[FAULT == 7 ? k & 255 : k];
        if (FAULT == 6)
            counts[k] += count;
        else
            atomic_add(&counts[k], count);
    }
}

// exchange_global: a group's work-items write to global memory and read what others wrote.
//
//     FAULT 1: race: no barrier
//     FAULT 2: race: the barrier orders local memory only
//     FAULT 3: uninitialized: one work-item writes nothing
//     FAULT 4: global memory: the neighbor's place is taken without wrapping around
kernel void exchange_global(global const int *x, global int *scratch, global int *y) {
    const int i = get_local_id(0), n = get_local_size(0), first = get_group_id(0) * n;
    if (FAULT != 3 || i != 7) scratch[first + i] = x[first + i] * 5;
#if FAULT == 2
    barrier(CLK_LOCAL_MEM_FENCE);
#elif FAULT != 1
    barrier(CLK_GLOBAL_MEM_FENCE);
#endif
    y[first + i] = scratch[first + (FAULT == 4 ? i + 37 : (i + 37) % n)] + 1;
}

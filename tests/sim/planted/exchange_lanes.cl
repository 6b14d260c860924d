// exchange_lanes: a subgroup's work-items read what others of it wrote to local memory.
//
//     FAULT 1: none: no barrier of the subgroup, whose lanes run in lockstep: compilers emit nothing for it
//     FAULT 2: race: reads what the next subgroup wrote
//     FAULT 3: uninitialized: one lane writes nothing
kernel void exchange_lanes(global const int *x, global int *y) {
    local int part[128];
    const int i = get_local_id(0), lane = get_sub_group_local_id(), lanes = get_sub_group_size();
    const int first = i - lane + (FAULT == 2 ? lanes : 0);
    if (FAULT != 3 || i != 7) part[i] = x[get_global_id(0)] * 7;
#if FAULT != 1
    sub_group_barrier(CLK_LOCAL_MEM_FENCE);
#endif
    y[get_global_id(0)] = part[(first + (lane ^ 5)) & 127] + 1;
}

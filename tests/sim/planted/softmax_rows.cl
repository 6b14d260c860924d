// softmax_rows: a work-group of 128 for each row of 500 floats; subgroups reduce by themselves, then all of
// them through local memory.
//
//     FAULT 1: race: no barrier before the subgroups' results are read
//     FAULT 2: race: the second reduction reuses the first one's memory without a barrier
//     FAULT 3: uninitialized: the results of more subgroups than there are
//     FAULT 4: global memory: the row has one element more
//     FAULT 5: global memory: the first element is the one before the row
//     FAULT 6: divergent barrier: work-items without an element leave
kernel void softmax_rows(global const float *x, global float *y, int n) {
    local float part[64];
    const int i = get_local_id(0), row = get_group_id(0), subgroup = get_sub_group_id();
    const int subgroups = get_num_sub_groups() + (FAULT == 3), end = n + (FAULT == 4);
    const int first = FAULT == 5 ? i - 1 : i;
    global const float *from = x + row * n;
    float top = -INFINITY, sum = 0;
    for (int k = first; k < end; k += 128) top = max(top, from[k]);
    top = sub_group_reduce_max(top);
    if (!get_sub_group_local_id()) part[subgroup] = top;
#if FAULT != 1
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    for (int k = 0; k < subgroups; k++) top = max(top, part[k]);
#if FAULT == 6
    if (i >= n - 384) return;
#endif
#if FAULT != 2
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    for (int k = i; k < n; k += 128) sum += exp(from[k] - top);
    sum = sub_group_reduce_add(sum);
    if (!get_sub_group_local_id()) part[subgroup] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    sum = 0;
    for (int k = 0; k < get_num_sub_groups(); k++) sum += part[k];
    for (int k = i; k < n; k += 128) y[row * n + k] = exp(from[k] - top) / sum;
}

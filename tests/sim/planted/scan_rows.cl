// scan_rows: inclusive sums of 128 numbers each (Hillis and Steele), in two buffers of local memory.
//
//     FAULT 1: race: no barrier between the steps
//     FAULT 2: race: the steps work in place
//     FAULT 3: local memory: reads the element before the first buffer
//     FAULT 4: uninitialized: a step leaves out the elements that it copies
//     FAULT 5: global memory: an exclusive scan that writes before the output
//     FAULT 6: local memory: stores behind the second buffer
kernel void scan_rows(global const int *x, global int *y) {
    local int part[2][128];
    const int i = get_local_id(0), at = get_global_id(0);
    int now = 0;
    part[0][i] = x[at];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int n = 1; n < 128; n *= 2) {
        const int next = FAULT == 2 ? now : now ^ 1;
        if (i >= n - (FAULT == 3 && n == 1))
            part[next][i + (FAULT == 6 && next)] = part[now][i] + part[now][i - n];
        else if (FAULT != 4)
            part[next][i] = part[now][i];
        now = next;
#if FAULT != 1
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
    }
    y[at - (FAULT == 5)] = part[now][i];
}

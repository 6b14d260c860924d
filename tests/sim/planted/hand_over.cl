// hand_over: one work-item of each group writes a message and sets a flag; one of another subgroup waits for
// it.
//
//     FAULT 1: race: the flag is set without a release
//     FAULT 2: race: the flag is read without an acquire
//     FAULT 3: race: the flag is set before the message is complete
//     FAULT 4: race: the flag is not waited for
//     FAULT 5: race: the flag is no atomic
#define GROUP memory_scope_work_group
kernel void hand_over(global const int *x, global int *message, global int *state, global int *y) {
    const int i = get_local_id(0), group = get_group_id(0);
    volatile global atomic_int *flag = (volatile global atomic_int *)(state + group);
    global int *box = message + 8 * group;
    if (i == 0) {
        for (int k = 0; k < (FAULT == 3 ? 7 : 8); k++) box[k] = 3 * x[8 * group + k];
        if (FAULT == 5) {
            atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_release, GROUP);
            *(volatile global int *)flag = 1;
        } else {
            atomic_store_explicit(flag, 1, FAULT == 1 ? memory_order_relaxed : memory_order_release, GROUP);
        }
        if (FAULT == 3) box[7] = 3 * x[8 * group + 7];
    } else if (i == 64) {
        if (FAULT == 5) {
            while (!*(volatile global int *)flag) {}
            atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acquire, GROUP);
        } else if (FAULT != 4) {
            while (!atomic_load_explicit(flag, FAULT == 2 ? memory_order_relaxed : memory_order_acquire,
                                         GROUP)) {}
        }
        int sum = 0;
        for (int k = 0; k < 8; k++) sum += box[k];
        y[group] = sum;
    }
}

// blur: averages of five neighbors in a row of n floats, staged in local memory with two elements on each
// side; the row's ends are repeated.
//
//     FAULT 1: global memory: the left end is not repeated
//     FAULT 2: global memory: the right end is not repeated
//     FAULT 3: global memory: a result is written behind the row
//     FAULT 4: uninitialized: the right side is stored one element further
//     FAULT 5: uninitialized: the right side is not staged
//     FAULT 6: race: no barrier between staging and reading
//     FAULT 7: uninitialized: the right side comes from memory that nobody wrote
//     FAULT 8: local memory: the right side is stored behind the array
kernel void blur(global const float *x, global float *y, global const float *spare, int n) {
    local float staged[68];
    const int i = get_local_id(0), at = get_global_id(0);
    const int left = FAULT == 1 ? at - 2 : max(at - 2, 0), right = FAULT == 2 ? at + 2 : min(at + 2, n - 1);
    staged[i + 2] = x[min(at, n - 1)];
    if (i < 2) staged[i] = x[min(left, n - 1)];
    if (i >= 62 && FAULT != 5)
        staged[i + 4 + (FAULT == 4) + 8 * (FAULT == 8)] = FAULT == 7 ? spare[right] : x[right];
#if FAULT != 6
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    float sum = 0;
    for (int k = 0; k < 5; k++) sum += staged[i + k];
    if (at < n + (FAULT == 3)) y[at] = sum / 5;
}

// attend: one query a group against `keys` keys of 32 floats: scores in local memory, then their softmax
// times V.
//
//     FAULT 1: race: no barrier between scores and weights
//     FAULT 2: race: no barrier between weights and the second product
//     FAULT 3: uninitialized: the second product uses a padded number of keys
//     FAULT 4: global memory: one key more is read
//     FAULT 5: global memory: one row of V more is read
//     FAULT 6: local memory: room for as many scores as there are work-items
//     FAULT 7: race: two work-items compute each of the last weights
//     FAULT 8: uninitialized: the query is staged by too few work-items
kernel void attend(global const float *q, global const float *k, global const float *v, global float *y,
                   int keys) {
    local float scores[FAULT == 6 ? 64 : 128], query[32];
    const int i = get_local_id(0), row = get_group_id(0), size = get_local_size(0);
    float top = -INFINITY, sum = 0, result = 0;
    if (i < 32 - (FAULT == 8)) query[i] = q[32 * row + i];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int j = i; j < keys + (FAULT == 4); j += size) {
        float score = 0;
        for (int d = 0; d < 32; d++) score += query[d] * k[32 * j + d];
        scores[j] = score;
    }
#if FAULT != 1
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    for (int j = 0; j < keys; j++) top = max(top, scores[j]);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int j = i; j < keys; j += FAULT == 7 ? size / 2 : size) scores[j] = exp(scores[j] - top);
#if FAULT != 2
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    if (i < 32) {
        for (int j = 0; j < (FAULT == 3 ? 128 : keys + (FAULT == 5)); j++) {
            const int row_of_v = FAULT == 3 ? min(j, keys - 1) : j;
            const float weight = scores[FAULT == 5 ? min(j, keys - 1) : j];
            sum += weight;
            result += weight * v[32 * row_of_v + i];
        }
        y[32 * row + i] = result / sum;
    }
}

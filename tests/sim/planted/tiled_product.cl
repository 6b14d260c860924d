// tiled_product: C = A B of n × n floats, n a multiple of 16, by tiles of 16 × 16 in two buffers of local
// memory: the next tiles are loaded while the present ones are multiplied.
//
//     FAULT 1: race: no barrier after the loads
//     FAULT 2: race: one buffer instead of two
//     FAULT 3: uninitialized: the first product uses the buffer that is not loaded yet
//     FAULT 4: global memory: loads one tile beyond the last one
//     FAULT 5: local memory: a row beyond the second buffer is stored
//     FAULT 6: global memory: results are written one element behind
//     FAULT 7: uninitialized: one column of the tile of B is not loaded
//     FAULT 8: divergent barrier: one row of work-items skips the last barrier
kernel void tiled_product(global const float *a, global const float *b, global float *c, int n) {
    local float left[2][16][16], right[2][16][16];
    const int x = get_local_id(0), y = get_local_id(1), column = get_global_id(0), row = get_global_id(1);
    const int tiles = n / 16;
    float sum = 0;
#if FAULT != 3
    left[0][y][x] = a[row * n + x];
    right[0][y][x] = b[y * n + column];
#endif
    for (int t = 0; t < tiles; t++) {
        const int now = FAULT == 2 ? 0 : t & 1, next = FAULT == 2 ? 0 : now ^ 1;
#if FAULT == 8
        if (y == 3 && t + 1 == tiles) break;
#endif
#if FAULT != 1
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
        if (t + 1 < tiles + (FAULT == 4)) {
            left[next][y][x] = a[row * n + 16 * (t + 1) + x];
            if (FAULT != 7 || x != 5)
                right[next][y + (FAULT == 5 && next)][x] = b[(16 * (t + 1) + y) * n + column];
        }
        for (int k = 0; k < 16; k++) sum = fma(left[now][y][k], right[now][k][x], sum);
    }
    c[row * n + column + (FAULT == 6)] = sum;
}

// transpose_tiles: rows × columns halves (as ushort) to columns × rows, by tiles of 16 × 16 in local memory.
//
//     FAULT 1: race: no barrier between the stores and the loads
//     FAULT 2: local memory: rows of 17 elements in an array for rows of 16
//     FAULT 3: uninitialized: the tile's last row is not loaded
//     FAULT 4: global memory: the last column is taken for one more
//     FAULT 5: race: the next tile is stored before all have read this one
//     FAULT 6: global memory: the bound of the rows is not checked when results are written
kernel void transpose_tiles(global const ushort *x, global ushort *y, int rows, int columns) {
    local ushort tile[16 * (FAULT == 2 ? 16 : 17)];
    const int i = get_local_id(0), j = get_local_id(1), left = 16 * get_group_id(0);
    for (int top = 0; top < rows; top += 16) {
        const int row = top + j, column = left + i;
        if (row < rows && column < columns + (FAULT == 4) && (FAULT != 3 || j != 15))
            tile[17 * j + i] = x[row * columns + column];
#if FAULT != 1
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
        if (left + j < columns && (top + i < rows || FAULT == 6)) {
            y[(left + j) * rows + top + i] = tile[17 * i + j] ^ 1;
        }
#if FAULT != 5
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
    }
}

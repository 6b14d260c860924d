// copy_blocks: y = x + 1 of a matrix of halves (as ushort) by 2D block messages of 8 rows of 16, a subgroup
// each.
//
//     FAULT 1: 2D block: the base is not aligned to 64 bytes
//     FAULT 2: 2D block: the pitch is no multiple of 8 bytes
//     FAULT 3: 2D block: the width is no multiple of 4 bytes
//     FAULT 4: 2D block: the column is odd, so the block does not begin at a dword
//     FAULT 5: global memory: the surface has a row more than the matrix
//     FAULT 6: 2D block: the base of what is written is not aligned to 64 bytes
//     FAULT 7: 2D block: the width is less than 64 bytes
//     FAULT 8: uninitialized: the block is read from the output
#pragma OPENCL EXTENSION cl_intel_subgroup_2d_block_io : enable
__attribute__((intel_reqd_sub_group_size(16))) kernel void copy_blocks(global ushort *x, global ushort *y,
                                                                       int rows, int columns) {
    const int column = 16 * (get_global_id(0) / 16), row = 8 * get_global_id(1);
    const int pitch = 2 * columns, height = rows;
    int width = pitch, read_pitch = pitch, read_height = height, from = column;
    global ushort *base = x, *to = y;
    if (FAULT == 1) base = x + 16, from = column - 16;
    if (FAULT == 2) read_pitch = pitch + 4;
    if (FAULT == 3) width = pitch - 2;
    if (FAULT == 4) from = column + 1;
    if (FAULT == 5) read_height = height + 8;
    if (FAULT == 6) to = y + 16;
    if (FAULT == 7) width = 48;
    if (FAULT == 8) base = y;
    ushort v[8];
    intel_sub_group_2d_block_read_16b_8r16x1c(base, width, read_height, read_pitch,
                                              (int2)(from, FAULT == 5 ? row + 8 : row), v);
    for (int r = 0; r < 8; r++) v[r]++;
    intel_sub_group_2d_block_write_16b_8r16x1c(to, pitch, height, pitch, (int2)(column, row), v);
}

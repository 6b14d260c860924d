/* host_pack_panel: packs a matrix as fp32 into panels of 16 columns, for CPU kernels. Option: T: f32, f16 or
 * bf16. */
#include "vector16.h"

#define TRANSPOSE_SIZE 16
#include "transpose_tile.h"

/* panel[column / 16][k][column % 16] = M[k][column] for a `depth` x `columns` matrix, 0 in columns past the
 * last; a panel has space for `room` rows k. M starts at `from` with strides `down` (k) and `across`
 * (columns); `k_major`: `down` is 1. */
static inline void host_pack_panel(__local float *panel, int room, __global const STORED(T) *from, long down,
                                   long across, bool k_major, int depth, int columns) {
    for (int n = 0; n < columns; n += 16) {
        __local float *to = panel + n * room;
        int k = 0;
        if (n + 16 <= columns && k_major) {
            for (; k + 16 <= depth; k += 16) {
                float16 row[16];
                _Pragma("unroll") for (int i = 0; i < 16; i++)
                    row[i] = LOAD16(from + (n + i) * across + k);
                TRANSPOSE_REGISTERS(row, float16)
                _Pragma("unroll") for (int i = 0; i < 16; i++) vstore16(row[i], 0, to + (k + i) * 16);
            }
        } else if (n + 16 <= columns && across == 1) {
            for (; k < depth; k++) vstore16(LOAD16(from + k * down + n), 0, to + k * 16);
        }
        for (; k < depth; k++)
            for (int i = 0; i < 16; i++)
                to[k * 16 + i] = n + i < columns ? LOAD(T, from, k * down + (n + i) * across) : 0;
    }
}

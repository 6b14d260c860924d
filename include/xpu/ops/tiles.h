/* xpu/ops/tiles.h: the tiles of matrix products and convolutions, for tuning.
 *
 * Selection: a product uses the tile with the lowest expected time. It follows from the tile's rate in a
 *     large product, in multiply-adds per microsecond and compute unit.
 * Rates: libxpu has a table of estimates. Rates that `openxpu tune` measured are stored per device
 *     (xpu/tuning.h) and take precedence. docs/matrix.md describes the model. */
#ifndef XPU_OPS_TILES_H
#define XPU_OPS_TILES_H

#include <stdbool.h>
#include <stdint.h>

#include "xpu/dtype.h"
#include "xpu/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xpu_tile {
    bool is_candidate; /* usable for the dtype on the device; otherwise only `m` and `n` are set */
    int m, n;          /* rows and columns of the result per work-group */
    int depth;         /* of one step along K */
    /* For 0, 1 or 2 K-major operands: the rate's index in xpu/tuning.h (-1 if there is no such product), and
     * the rate in effect, measured or estimated. */
    int rate_index[3];
    double rate[3];
} xpu_tile;

/* Tiles have the indices from 0 to one less than this. They are the values of the parameter matrix_tile,
 * which pins one. */
XPU_API int xpu_tile_count(void);
/* dtype: of the operands. tf32: float32 as xpu_gemm_tf32 computes it. */
XPU_API xpu_status xpu_tile_get(int device, xpu_dtype dtype, bool tf32, int index, xpu_tile *tile);
/* The rate of a tile that makes a product of m x n x k, pinned to it, take `seconds`, with all other rates
 * as they are.
 * The product should be large enough to give each compute unit several work-groups.
 *
 * Errors: XPU_ERROR_INVALID_ARGUMENT if the time is shorter than at any rate. */
XPU_API xpu_status xpu_tile_rate(int device, xpu_dtype dtype, bool tf32, int index, int64_t m, int64_t n,
                                 int64_t k, int k_major_operands, double seconds, double *rate);

#ifdef __cplusplus
}
#endif
#endif

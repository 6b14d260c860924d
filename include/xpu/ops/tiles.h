/* xpu/ops/tiles.h: the tiles that matrix products and convolutions choose from, for who measures them.
 *
 * A product takes the tile that is expected to take least time, by what each reaches in a large product: its
 * rate, in multiply-adds a microsecond and compute unit. libxpu has a table of tiles with guesses; measured
 * rates are kept for a device as numbers of xpu/tuning.h, and go before the guesses. `openxpu tune` measures
 * them. docs/internals/matmul.md has the model. */
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
    bool is_candidate; /* for products of the dtype on the device; if not, `m` and `n` alone are filled */
    int m, n;          /* rows and columns of the result that a work-group computes */
    int depth;         /* of a step along k */
    /* With 0, 1 or 2 operands lying along k: the numbers in xpu/tuning.h, -1 where there is no such product,
     * and the rates that hold, measured or guessed. */
    int rate_number[3];
    double rate[3];
} xpu_tile;

/* Numbers go from 0 to one less than this; they are values of the choice matrix_tile, which pins one. */
XPU_API int xpu_tile_count(void);
/* `dtype` is that of the operands; `tf32`: of float32 as xpu_gemm_tf32 takes them. */
XPU_API xpu_status xpu_tile_get(int device, xpu_dtype dtype, bool tf32, int number, xpu_tile *tile);
/* The rate that a candidate has if a product of m x n x k, pinned to it, takes so long while other rates are
 * as they are now. The product should be large enough to give each compute unit several work-groups.
 * XPU_ERROR_INVALID_ARGUMENT where the time is shorter than what a product of any rate takes. */
XPU_API xpu_status xpu_tile_rate(int device, xpu_dtype dtype, bool tf32, int number, int64_t m, int64_t n,
                                 int64_t k, int along_k, double seconds, double *rate);

#ifdef __cplusplus
}
#endif
#endif

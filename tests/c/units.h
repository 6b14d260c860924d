/* The matrix engine that the device uses in half precision, as the library reports it. */
#ifndef TESTS_UNITS_H
#define TESTS_UNITS_H

#include "device_test.h"
#include "xpu/ops/tiles.h"

typedef enum unit_kind { UNITS_NONE, UNITS_PTX, UNITS_XMX, UNITS_XMX8, UNITS_FMA } unit_kind;

/* Determined by a small tile of each engine, which fits every device that has it (index in core/matrix.def).
 * On a CPU it is the one that OPENXPU_MATRIX selects, or none. */
static inline unit_kind units_of_device(void) {
    static const struct {
        int tile;
        unit_kind kind;
    } all[] = {{6, UNITS_PTX}, {10, UNITS_XMX}, {24, UNITS_XMX8}, {20, UNITS_FMA}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        xpu_tile tile;
        SUCCEEDS(xpu_tile_get(0, XPU_BFLOAT16, false, all[i].tile, &tile));
        if (tile.is_candidate) return all[i].kind;
    }
    return UNITS_NONE;
}

/* `tile` or, where it needs more registers or local memory than the device has, the first after it that fits.
 */
static inline int tile_that_fits(xpu_dtype dtype, int tile) {
    for (int i = tile; i < xpu_tile_count(); i++) {
        xpu_tile found;
        SUCCEEDS(xpu_tile_get(0, dtype, false, i, &found));
        if (found.is_candidate) return i;
    }
    return tile;
}

/* Does int8 use dot products of four while half precision has no engine? Then int8 tiles have separate
 * rates. */
static inline bool has_dot(void) {
    xpu_tile bytes, singles;
    SUCCEEDS(xpu_tile_get(0, XPU_INT8, false, 20, &bytes));
    SUCCEEDS(xpu_tile_get(0, XPU_FLOAT32, false, 20, &singles));
    return bytes.is_candidate && singles.is_candidate && bytes.rate_index[2] != singles.rate_index[2];
}

#endif

/* How the work-items of a work-group share the copies of a local-memory tile: adjacent work-items copy
 * adjacent vectors.
 *
 * The includer defines the elements of a vector (VECTOR_ELEMENTS), TILE_K and THREADS. */

/* Vectors per work-item and step, for `tile` rows (or columns). */
#define COPIES(tile) ((tile) * TILE_K / PIECE / THREADS)

/* Vector i of a work-item: its row in the tile, and its index in that row of `pieces` vectors. */
#define COPY_ROW(i, pieces) (((uint)get_local_id(0) + (i) * THREADS) / (pieces))
#define COPY_PIECE(i, pieces) (((uint)get_local_id(0) + (i) * THREADS) % (pieces))

/* Adds the product over `slabs` steps to `sum`, with double buffering. FETCH(step) loads the tiles of a step
 * into registers, one step ahead (also past the last step; the result is unused). KEEP(tile) stores them to
 * local memory. `stages` has two stages of STAGE elements; `stage` is the offset of the next one to be
 * filled, on entry and exit. */
#define PRODUCT_BY_TURNS(sum, stages, stage, slabs, FETCH, KEEP)                                             \
    do {                                                                                                     \
        if ((slabs) > 0) {                                                                                   \
            FETCH(0);                                                                                        \
            KEEP((stages) + stage);                                                                          \
        }                                                                                                    \
        for (int s_ = 0; s_ < (slabs); s_++) {                                                               \
            FETCH(s_ + 1);                                                                                   \
            barrier(CLK_LOCAL_MEM_FENCE); /* this tile is there, the one before has been read */             \
            multiply_slab(sum, (stages) + stage);                                                            \
            stage = (s_ + 1) % 2 * STAGE;                                                                    \
            KEEP((stages) + stage);                                                                          \
        }                                                                                                    \
    } while (0)

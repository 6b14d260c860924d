/* How the work-items of a work-group share the copies of a local-memory tile: adjacent work-items copy
 * adjacent vectors.
 *
 * The includer defines the elements of a vector (VECTOR_ELEMENTS), TILE_K and THREADS. */

/* Vectors per work-item and step, for `tile` rows (or columns). */
#define VECTORS_PER_ITEM(tile) ((tile) * TILE_K / VECTOR_ELEMENTS / THREADS)

/* Vector i of a work-item: its row in the tile, and its index in that row of `vecs` vectors. */
#define COPY_ROW(i, vecs) (((uint)get_local_id(0) + (i) * THREADS) / (vecs))
#define COPY_COLUMN(i, vecs) (((uint)get_local_id(0) + (i) * THREADS) % (vecs))

/* Adds the product over `local_tiles` steps to `sum`, with double buffering. FETCH(step) loads the tiles of a
 * step into registers, one step ahead (also past the last step; the result is unused). KEEP(tile) stores them
 * to local memory. `stages` has two stages of STAGE elements; `stage` is the offset of the next one to be
 * filled, on entry and exit. */
#define PRODUCT_DOUBLE_BUFFERED(sum, stages, stage, local_tiles, FETCH, KEEP)                                \
    do {                                                                                                     \
        if ((local_tiles) > 0) {                                                                             \
            FETCH(0);                                                                                        \
            KEEP((stages) + stage);                                                                          \
        }                                                                                                    \
        for (int s_ = 0; s_ < (local_tiles); s_++) {                                                         \
            FETCH(s_ + 1);                                                                                   \
            barrier(CLK_LOCAL_MEM_FENCE); /* this tile is stored, and the previous one has been read */      \
            multiply_local_tile(sum, (stages) + stage);                                                      \
            stage = (s_ + 1) % 2 * STAGE;                                                                    \
            KEEP((stages) + stage);                                                                          \
        }                                                                                                    \
    } while (0)

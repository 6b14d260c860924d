/* How a work-group's work-items share a slab's pieces, of which a row of the slab has `pieces`: neighbours
 * take neighbours. Wants PIECE: the elements of a piece, which is brought in at once; TILE_K and THREADS. */

/* How many each work-item brings in at a step, of a slab of `tile` rows (or columns). */
#define COPIES(tile) ((tile) * TILE_K / PIECE / THREADS)

/* Number i of a work-item: its row in the slab, and the piece of that row. */
#define COPY_ROW(i, pieces) (((uint)get_local_id(0) + (i) * THREADS) / (pieces))
#define COPY_PIECE(i, pieces) (((uint)get_local_id(0) + (i) * THREADS) % (pieces))

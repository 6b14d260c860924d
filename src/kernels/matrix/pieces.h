/* How a work-group's work-items share a slab's pieces, of which a row of the slab has `pieces`: neighbours
 * take neighbours. Wants PIECE: the elements of a piece, which is brought in at once; TILE_K and THREADS. */

/* How many each work-item brings in at a step, of a slab of `tile` rows (or columns). */
#define COPIES(tile) ((tile) * TILE_K / PIECE / THREADS)

/* Number i of a work-item: its row in the slab, and the piece of that row. */
#define COPY_ROW(i, pieces) (((uint)get_local_id(0) + (i) * THREADS) / (pieces))
#define COPY_PIECE(i, pieces) (((uint)get_local_id(0) + (i) * THREADS) % (pieces))

/* Adds the product over `slabs` slabs to `sum`, by multiply_slab(sum, slab). FETCH(step) reads slab number
 * `step` into registers, one step ahead: also the one after the last, at which nobody looks. KEEP(slab)
 * writes down what was read. `stages` has two stages, of STAGE elements, `stage` is where the next slab's
 * begins, at first and in the end. */
#define PRODUCT_BY_TURNS(sum, stages, stage, slabs, FETCH, KEEP)                                             \
    do {                                                                                                     \
        if ((slabs) > 0) {                                                                                   \
            FETCH(0);                                                                                        \
            KEEP((stages) + stage);                                                                          \
        }                                                                                                    \
        for (int s_ = 0; s_ < (slabs); s_++) {                                                               \
            FETCH(s_ + 1);                                                                                   \
            barrier(CLK_LOCAL_MEM_FENCE); /* this slab is there, the one before has been read */             \
            multiply_slab(sum, (stages) + stage);                                                            \
            stage = (s_ + 1) % 2 * STAGE;                                                                    \
            KEEP((stages) + stage);                                                                          \
        }                                                                                                    \
    } while (0)

/* How far apart the rows of a slab lie in local memory, counted in pieces of 16 bytes, of which a row has
 * `pieces`: host and kernels reckon with it. Pieces change places within the row (slab_place, ptx_units.h),
 * or, where their number doesn't suit that, rows are an odd number of pieces apart. */
#ifndef XPU_KERNELS_SLAB_H
#define XPU_KERNELS_SLAB_H

#define SLAB_TURNS(pieces) ((pieces) % 8 == 0 || (pieces) == 4 || (pieces) == 2)
#define SLAB_PITCH(pieces) (SLAB_TURNS(pieces) ? (pieces) : (pieces) | 1)

#endif

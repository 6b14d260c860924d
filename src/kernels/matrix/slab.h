/* Pitch of the rows of a local-memory tile, in vectors of 16 bytes; used by host and kernels. A row has the
 * given number of vectors. They are swizzled within the row (swizzled_offset in ptx_mma.h) or, if their
 * number doesn't allow that, rows are padded to an odd number of vectors. */
#ifndef XPU_KERNELS_SLAB_H
#define XPU_KERNELS_SLAB_H

#define SLAB_TURNS(pieces) ((pieces) % 8 == 0 || (pieces) == 4 || (pieces) == 2)
#define SLAB_PITCH(pieces) (SLAB_TURNS(pieces) ? (pieces) : (pieces) | 1)

#endif

/* Pitch of the rows of a local-memory tile, in vectors of 16 bytes; used by host and kernels. A row has the
 * given number of vectors. They are swizzled within the row (swizzled_offset in ptx_mma.h) or, if their
 * number doesn't allow that, rows are padded to an odd number of vectors. */
#ifndef XPU_KERNELS_LOCAL_TILE_H
#define XPU_KERNELS_LOCAL_TILE_H

#define IS_SWIZZLED(vecs) ((vecs) % 8 == 0 || (vecs) == 4 || (vecs) == 2)
#define LOCAL_TILE_PITCH(vecs) (IS_SWIZZLED(vecs) ? (vecs) : (vecs) | 1)

#endif

/* Parameters and flags of a pass of the FFT kernels (fft.cl, fft_length.cl): one pass over all rows. */
#ifndef XPU_KERNELS_FFT_H
#define XPU_KERNELS_FFT_H
#include "row_walk.h"

#define FFT_COLUMNS 128       /* per work-group, at most */
#define FFT_VALUES_PER_ITEM 8 /* values of a work-item, of those in local memory */

/* Flags. Swapping real and imaginary parts inverts a transform: …_SWAPPED for the whole transform,
 * INNER_SWAPPED for the inverse transform inside Bluestein's algorithm. */
#define FFT_READ_REAL 1u         /* input is real */
#define FFT_READ_HALF 2u         /* input is Hermitian: signal / 2 + 1 elements are stored */
#define FFT_READ_CHIRP 4u        /* no input: the conjugate of the chirp, both ways */
#define FFT_READ_SWAPPED 8u      /* swap real and imaginary parts of the input */
#define FFT_READ_TIMES_CHIRP 16u /* multiply by the chirp */
#define FFT_ROWS_FIRST 32u       /* adjacent columns belong to adjacent rows */
#define FFT_READ_BY_COLUMN 64u   /* adjacent work-items read adjacent columns, else along a column */
#define FFT_WRITE_BY_COLUMN 128u
#define FFT_WRITE_INNER_SWAPPED 256u
#define FFT_WRITE_TIMES_CHIRP 512u /* multiply by the chirp */
#define FFT_WRITE_SWAPPED 1024u
#define FFT_WRITE_REAL 2048u /* store real parts only */

typedef struct fft_params {
    xpu_addr in, out;
    xpu_addr spectrum; /* the input is multiplied by these elements; or 0 */
    xpu_u64 radices;   /* 4 bits each, the first radix in the lowest bits */
    xpu_u64 scale[2];  /* factor of the output: bits of the type computed in */
    xpu_i64 first_row, rows;
    xpu_i64 columns;     /* rows n / length */
    row_walk walk;       /* of in, out */
    xpu_u32 n;           /* the transform's length */
    xpu_u32 length;      /* the pass's factor of it */
    xpu_u32 done;        /* product of the factors of earlier passes */
    xpu_u32 signal;      /* length of the signal that the chirp belongs to */
    xpu_u32 stored;      /* value_t of elements written */
    xpu_u32 column_bits; /* a work-group has 1 << column_bits columns */
    xpu_u32 flags, reserved;
} fft_params;
#endif

/* Products by matrix units: which unit a device has, and which tile a product takes. */
#ifndef XPU_OPS_MATRIX_H
#define XPU_OPS_MATRIX_H

#include "ops/kernel.h"

/* How products are multiplied on a device. */
typedef enum matrix_unit {
    MATRIX_UNIT_NONE,
    MATRIX_UNIT_PTX, /* NVIDIA's, from compute capability 8.0 on (kernels/matrix/matrix.h) */
    MATRIX_UNIT_XMX, /* Intel's of 16 lanes (kernels/matrix/matrix_xmx.h) */
    MATRIX_UNIT_FMA, /* none: GPUs' multiply-adds, for all dtypes (kernels/matrix/matrix_fma.h) */
    MATRIX_UNIT_DOT, /* none: the same of int8, four at a time */
    MATRIX_UNIT_XMX8 /* Intel's of 8 lanes (kernels/matrix/matrix_squares.h) */
} matrix_unit;
/* Of float16 and bfloat16. With OPENXPU_MATRIX=ptx, xmx or xmx8 every device has that one, in plain OpenCL C
 * where it lacks it, and with fma or dot none: for tests. */
matrix_unit matrix_unit_of(const xpu_device_properties *properties, xpu_dtype dtype, bool *emulated);
/* The one for products of numbers of this dtype; of fp32 where `tf32` allows it. */
matrix_unit matrix_unit_for(const xpu_device_properties *properties, xpu_dtype dtype, bool tf32,
                            bool *emulated);
/* MATRIX_UNIT_FMA on GPUs. */
matrix_unit matrix_fma_of(const xpu_device_properties *properties);
/* MATRIX_UNIT_DOT for int8 where the device has products of four, or where OPENXPU_MATRIX=dot wants them. */
matrix_unit matrix_dot_of(const xpu_device_properties *properties, xpu_dtype dtype, bool *emulated);
/* The first of these that there is: what products take that suit it. */
matrix_unit matrix_first_unit(const xpu_device_properties *properties, xpu_dtype dtype, bool tf32,
                              bool *emulated);

/* For people. */
const char *matrix_unit_text(matrix_unit unit, xpu_dtype dtype, bool emulated);

/* A line of core/matrix.def. */
typedef struct matrix_tile {
    matrix_unit unit;
    int m, n;             /* sums of a work-group */
    int step;             /* depth of a step: bytes of a line for units, else numbers in local memory */
    int teams_m, teams_n; /* of matrix_team(unit) work-items */
    int stages;           /* steps that local memory holds */
    int together;         /* work-groups that a compute unit runs at a time */
    int rate[3];          /* of 2 bytes, or fp32 by FMA: multiply-adds a clock of a full compute unit, by the
                             operands that lie along k; where `openxpu tune` hasn't measured */
} matrix_tile;
/* of work-items that multiply together */
static inline int matrix_team(matrix_unit unit) {
    return unit == MATRIX_UNIT_XMX ? 16 : unit == MATRIX_UNIT_XMX8 ? 8 : 32;
}

/* The depth of a step in numbers of the operands. */
int matrix_step(const matrix_tile *tile, matrix_unit unit, xpu_dtype dtype);

/* What one product takes. */
typedef struct matrix_choice {
    int device;
    matrix_unit unit;
    bool emulated;
    int b_bits;   /* of B's elements, of which numbers are made as they are read, or 0 */
    int gathers;  /* asked for by a convolution: 1 for y and x of images, 2 and 3 where more registers are
                     wanted */
    int tile;     /* a line of matrix.def */
    bool is_tall; /* … twice as high and half as wide */
    int a_piece, b_piece; /* bytes at which all lines of an operand are aligned: 16, 8, 4, 2 */
    bool out_pairs;       /* two numbers beside each other can be written as one */
    bool wide;            /* on Intel's GPUs: needs twice the usual registers */
    int lanes;            /* there, without units: of the smallest subgroups, whose lanes have most */
} matrix_choice;

/* An operand, or the result, as the kernel goes through it: neighbours in memory, and the distance of lines
 * of these. */
typedef struct matrix_lines {
    const void *data;
    int64_t along, across, batch; /* elements; `along` has to be 1 */
} matrix_lines;
/* The most bytes, 16 at most, by which all lines are aligned. */
int matrix_alignment(const matrix_lines *lines, xpu_dtype dtype);

/* Do the lines, `count` of `length` elements, keep to the rules of Intel's block reads
 * (kernels/matrix/matrix_xmx.h)? */
bool matrix_reads_blocks(const matrix_lines *lines, int64_t length, int64_t count, xpu_dtype dtype);

const matrix_tile *matrix_tile_of(const matrix_choice *choice);
/* The tile of the choice's unit that is expected to take least time on its device, or -1, and into how many
 * slices k is cut then; sets the choice's is_tall. `along_k` operands, 0 to 2, lie along k. */
int matrix_tile_for(matrix_choice *choice, xpu_dtype dtype, const xpu_device_properties *properties,
                    int64_t batch, int64_t m, int64_t n, int64_t k, int along_k, int64_t *slices);
/* The clocks that it is expected to take, and those of a launch that moves so many bytes. */
double matrix_clocks(const matrix_choice *choice, xpu_dtype dtype, const xpu_device_properties *properties,
                     int64_t batch, int64_t m, int64_t n, int64_t k, int along_k, int64_t slices);
double matrix_clocks_moved(const xpu_device_properties *properties, int64_t bytes);
/* How many times the table's rate the choice's tile was measured to reach on the device; 1 where it wasn't.
 */
double matrix_beside_table(const matrix_choice *choice, xpu_dtype dtype, int along_k);
/* Is a tile of the unit's pinned by OPENXPU_TUNING? */
bool matrix_is_pinned(matrix_unit unit, xpu_dtype dtype, const xpu_device_properties *properties);
/* The smallest subgroup of Intel's GPUs, whose lanes have most registers; 0 on other devices. */
int matrix_intel_lanes(const xpu_device_properties *properties);
/* Bytes of a work-item's sums that fit into registers with what tiles read ahead. */
size_t matrix_most_sums(const xpu_device_properties *properties);
/* What Intel's GPUs are told for a choice with its unit and tile. */
void matrix_for_intel(matrix_choice *choice, const xpu_device_properties *properties);
/* Adds what every kernel by matrix units is told: the unit, the dtype, and what it is built with; `wide`:
 * with all registers of Intel's threads. */
void matrix_unit_spec(kernel_spec *spec, matrix_unit unit, bool emulated, bool wide, xpu_dtype dtype);
/* Adds the choice's facts; nothing but their places in the key where its unit is none. */
void matrix_spec(kernel_spec *spec, const matrix_choice *choice, xpu_dtype dtype);

#endif

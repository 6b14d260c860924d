/* Matrix engines: which engine a device has, and which tile a product uses. */
#ifndef XPU_OPS_MATRIX_H
#define XPU_OPS_MATRIX_H

#include "ops/kernel.h"

/* The instructions that multiply. */
typedef enum matrix_unit {
    MATRIX_UNIT_NONE,
    MATRIX_UNIT_PTX, /* NVIDIA tensor cores, compute capability 8.0 and later (kernels/matrix/matrix.h) */
    MATRIX_UNIT_XMX, /* XMX with 16 lanes (kernels/matrix/matrix_xmx.h) */
    MATRIX_UNIT_FMA, /* no engine: multiply-adds of GPUs, for all dtypes (kernels/matrix/matrix_fma.h) */
    MATRIX_UNIT_DOT, /* no engine: int8 dot products of four */
    MATRIX_UNIT_XMX8 /* XMX with 8 lanes (kernels/matrix/matrix_xmx8.h) */
} matrix_unit;
/* The engine for float16 and bfloat16. For tests, OPENXPU_MATRIX=ptx, xmx or xmx8 selects that engine on CPU
 * devices, emulated in OpenCL C (a GPU may lack the subgroup size), fma or dot selects none on any device. */
matrix_unit matrix_unit_of(const xpu_device_properties *properties, xpu_dtype dtype, bool *emulated);
/* The engine for operands of this dtype; fp32 only if `tf32` allows it. */
matrix_unit matrix_unit_for(const xpu_device_properties *properties, xpu_dtype dtype, bool tf32,
                            bool *emulated);
/* MATRIX_UNIT_FMA on GPUs. */
matrix_unit matrix_fma_of(const xpu_device_properties *properties);
/* MATRIX_UNIT_DOT for int8 if the device has dot products of four, or OPENXPU_MATRIX=dot. */
matrix_unit matrix_dot_of(const xpu_device_properties *properties, xpu_dtype dtype, bool *emulated);
/* The first available of these. */
matrix_unit matrix_first_unit(const xpu_device_properties *properties, xpu_dtype dtype, bool tf32,
                              bool *emulated);

/* A description for messages. */
const char *matrix_unit_text(matrix_unit unit, xpu_dtype dtype, bool emulated);

/* A line of core/matrix.def. */
typedef struct matrix_tile {
    matrix_unit unit;
    int m, n; /* sums of a work-group */
    int step; /* depth of a step: bytes of a row on matrix engines, else elements in local memory */
    int subgroups_m, subgroups_n; /* of matrix_subgroup_size(unit) work-items */
    int stages;                   /* steps that local memory holds */
    int occupancy;                /* resident work-groups per compute unit */
    int rate[3]; /* multiply-adds per clock of a full compute unit for 0, 1 and 2 K-major operands, in
                    half precision (FMA: fp32); used until `openxpu tune` has measured */
} matrix_tile;
/* Work-items that execute a matrix instruction. */
static inline int matrix_subgroup_size(matrix_unit unit) {
    return unit == MATRIX_UNIT_XMX ? 16 : unit == MATRIX_UNIT_XMX8 ? 8 : 32;
}

/* The depth of a step in elements. */
int matrix_step(const matrix_tile *tile, matrix_unit unit, xpu_dtype dtype);

/* The choice for one product. */
typedef struct matrix_choice {
    int device;
    matrix_unit unit;
    bool emulated;
    int b_bits;      /* bits of quantized elements of B that are dequantized on the fly, or 0 */
    int im2col_mode; /* convolution: 1 for forward and gradient of x, 2 and 3 if im2col needs more registers
                      */
    int tile;        /* a line of matrix.def */
    bool is_tall;    /* … twice as high and half as wide */
    int a_alignment, b_alignment; /* alignment in bytes of all rows of an operand: 16, 8, 4, 2 */
    bool out_pairs;               /* two adjacent results can be stored as one */
    bool wide;                    /* Intel GPUs: needs large register mode */
    int lanes; /* Intel GPUs without engine: the smallest subgroup size, which has most registers per lane */
} matrix_choice;

/* An operand or the result: strides along the contiguous dimension, between rows, and of the batch. */
typedef struct strided_view {
    const void *data;
    int64_t along, across, batch; /* elements; `along` has to be 1 */
} strided_view;
/* The alignment in bytes of all rows, at most 16. */
int matrix_alignment(const strided_view *lines, xpu_dtype dtype);

/* Do `count` rows of `length` elements satisfy the rules of Intel's 2D block reads
 * (kernels/matrix/matrix_xmx.h)? */
bool matrix_reads_blocks(const strided_view *lines, int64_t length, int64_t count, xpu_dtype dtype);

const matrix_tile *matrix_tile_of(const matrix_choice *choice);
/* The tile with the lowest estimated time, or -1, and its number of split-K slices; sets choice->is_tall.
 * `along_k`: number of K-major operands, 0 to 2. */
int matrix_tile_for(matrix_choice *choice, xpu_dtype dtype, const xpu_device_properties *properties,
                    int64_t batch, int64_t m, int64_t n, int64_t k, int along_k, int64_t *slices);
/* Estimated clock cycles of the product, and of a launch that moves `bytes`. */
double matrix_clocks(const matrix_choice *choice, xpu_dtype dtype, const xpu_device_properties *properties,
                     int64_t batch, int64_t m, int64_t n, int64_t k, int along_k, int64_t slices);
double matrix_clocks_of_traffic(const xpu_device_properties *properties, int64_t bytes);
/* Measured over tabulated rate of the choice's tile on the device; 1 if it was not measured. */
double matrix_measured_over_table(const matrix_choice *choice, xpu_dtype dtype, int along_k);
/* Is a tile of the engine pinned by OPENXPU_TUNING? */
bool matrix_is_pinned(matrix_unit unit, xpu_dtype dtype, const xpu_device_properties *properties);
/* The smallest subgroup size of an Intel GPU, which has most registers per lane; 0 on other devices. */
int matrix_intel_lanes(const xpu_device_properties *properties);
/* Bytes of accumulators per work-item that fit into registers beside the prefetched tiles. */
size_t matrix_accumulator_bytes(const xpu_device_properties *properties);
/* Sets the fields of the choice that only Intel GPUs need. */
void matrix_for_intel(matrix_choice *choice, const xpu_device_properties *properties);
/* Adds the options of every matrix engine kernel: engine, dtype and compiler options; `wide`: large register
 * mode. */
void matrix_unit_spec(kernel_spec *spec, matrix_unit unit, bool emulated, bool wide, xpu_dtype dtype);
/* Adds the choice's options; only its bits of the key if there is no engine. */
void matrix_spec(kernel_spec *spec, const matrix_choice *choice, xpu_dtype dtype);

#endif

/* Kernel parameters of a quantized operand (xpu_quant_params): rows of elements, scales and zero points. */
#ifndef XPU_KERNELS_QUANTIZED_H
#define XPU_KERNELS_QUANTIZED_H
#include "fault.h"
#include "gemm/gemm.h"

/* Scales or zero points, one per group; strides count groups. */
typedef struct quantized_part {
    xpu_addr data;
    xpu_i64 batch, across, along;
} quantized_part;

/* Scales may be in NVIDIA's swizzled (blocked) layout: a tile has the scales of 128 rows and 4 groups along
 * them, [row % 32][row / 32 % 4][group % 4]; tiles are contiguous along rows, and scale.across is the stride
 * between rows of tiles. */
#define SCALE_TILE_ROWS 128
#define SCALE_TILE_GROUPS 4
#define SCALE_TILE_SIZE (SCALE_TILE_ROWS * SCALE_TILE_GROUPS)

typedef struct quantized_lines {
    xpu_addr data;
    xpu_i64 batch, across, along; /* elements from one to the next */
    quantized_part scale, zero;
    xpu_i64 group_across, group_along; /* lines, and elements of a line, that share a scale and a zero */
    xpu_u32 along_factor, along_shift; /* i / group_along is (mul_hi(i, factor) + i) >> shift for i < 2^31 */
    xpu_i32 zero_offset, unused;
} quantized_lines;

typedef struct dequantize_params {
    quantized_lines from;
    xpu_addr out;
    xpu_i64 out_batch, out_across; /* elements; neighbors in a line are contiguous */
    xpu_i64 lines, length, batch;
    xpu_i64 span;   /* elements of a line that a work-group has: a multiple of 8 */
    xpu_i64 padded; /* up to where zeros follow a line */
    /* With -DCUT: before what line, or element of them, each of `groups` ends (int32), and how many scales
     * there are, or 0: those of all. */
    xpu_addr ends;
    xpu_i64 groups, scales;
} dequantize_params;

/* What of an operand belongs to groups: a line, a matrix of the batch, or a part of each line. */
#define CUT_NONE 0
#define CUT_ROWS 1
#define CUT_BATCH 2
#define CUT_ALONG 3

/* A product whose B is read as it lies. */
typedef struct gemm_quantized_params {
    gemm_params gemm;
    quantized_lines b;
} gemm_quantized_params;

/* One of several right operands, where the first has `gemm.b` and `b`. */
#define GEMM_PARTS 4
typedef struct gemm_part {
    xpu_addr b, scale, zero, b_scale, c;
    xpu_i64 scale_along, zero_along;
    xpu_i64 n, first; /* columns, and its first one in the result */
    xpu_i64 block;    /* its first work-group along n */
} gemm_part;

/* Queries, keys and values of one token a row, by heads of `depth`: queries and keys are turned by angles,
 * keys and values go into caches. Number i of a head's first half and i + depth / 2 are a pair, and a column
 * of what follows. */
typedef struct kv_cache_view {
    xpu_addr data;
    xpu_i64 row, head, place; /* elements; a head's are contiguous */
} kv_cache_view;
typedef struct gemm_qkv_params {
    kv_cache_view cache[2];
    xpu_addr cos, sin; /* `depth` numbers, 0: nothing is turned */
    xpu_i64 angle_row; /* elements from a row's to the next one's */
    xpu_addr position; /* int64: the place in the caches, of `length`; negative ones count from their end */
    xpu_i64 length;
    struct fault_watch watch;
    xpu_i32 depth;
    float first_sign; /* what the second half is multiplied by in the first */
    /* Of queries' and keys' heads that are normed: `depth` numbers each, pairs of float for each row, head
     * and pair, and for each head a number that work-groups count in. */
    xpu_addr norm[2], pairs, counters;
    float norm_eps;
    xpu_i32 head_groups; /* work-groups that have a head */
} gemm_qkv_params;

/* Products that share A. */
typedef struct gemm_fused_params {
    gemm_quantized_params given;
    gemm_part part[GEMM_PARTS]; /* of pairs where there are caches */
    gemm_qkv_params cached;
    xpu_addr norm; /* k numbers that A's rows are multiplied by, and eps */
    float eps;
    xpu_i32 unused;
} gemm_fused_params;
#endif

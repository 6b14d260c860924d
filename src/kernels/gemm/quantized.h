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
    xpu_i64 out_batch, out_across; /* elements; adjacent elements of a row are contiguous */
    xpu_i64 lines, length, batch;
    xpu_i64 span;   /* elements of a row per work-group: a multiple of 8 */
    xpu_i64 padded; /* rows are padded with zeros up to here */
    /* With -DCUT: int32 exclusive ends of the `groups` groups, in rows or in elements of them; and the number
     * of scales, or 0 if there is one for all. */
    xpu_addr ends;
    xpu_i64 groups, scales;
} dequantize_params;

/* How an operand is divided into groups: not at all, by rows, by matrices of the batch, or each row into
 * parts. */
#define CUT_NONE 0
#define CUT_ROWS 1
#define CUT_BATCH 2
#define CUT_ALONG 3

/* A product whose B is dequantized on the fly. */
typedef struct gemm_quantized_params {
    gemm_params gemm;
    quantized_lines b;
} gemm_quantized_params;

/* One of several right operands; that of the first part is in `gemm.b` and `b`. */
#define GEMM_PARTS 4
typedef struct gemm_part {
    xpu_addr b, scale, zero, b_scale, c;
    xpu_i64 scale_along, zero_along;
    xpu_i64 n, first; /* columns, and its first one in the result */
    xpu_i64 block;    /* its first work-group along n */
} gemm_part;

/* Fused QKV projection of one token per row, with heads of `depth` elements: RoPE is applied to queries and
 * keys; keys and values are written to the KV cache. Elements i and i + depth / 2 of a head are a pair, which
 * is a column below. */
typedef struct kv_cache_view {
    xpu_addr data;
    xpu_i64 row, head, place; /* strides in elements; a head is contiguous */
} kv_cache_view;
typedef struct gemm_qkv_params {
    kv_cache_view cache[2];
    xpu_addr cos, sin; /* `depth` elements per row; 0: no RoPE */
    xpu_i64 angle_row; /* stride between rows, in elements; 0 if all share one */
    xpu_addr
        position; /* int64 position in the caches, which have `length`; negative ones count from the end */
    xpu_i64 length;
    struct fault_watch watch;
    xpu_i32 depth;
    float first_sign; /* factor of the second half in the rotated first half */
    /* For normalized heads of queries and keys: `depth` weights each; workspace with a pair of floats per
     * row, head and pair; a counter per head for the work-groups that have parts of it. */
    xpu_addr norm[2], pairs, counters;
    float norm_eps;
    xpu_i32 head_groups; /* work-groups per head */
} gemm_qkv_params;

/* Several products of the same A. */
typedef struct gemm_fused_params {
    gemm_quantized_params given;
    gemm_part part[GEMM_PARTS]; /* with a KV cache, columns are pairs */
    gemm_qkv_params cached;
    xpu_addr norm; /* K weights of the RMS norm of A's rows, and its epsilon */
    float eps;
    xpu_i32 unused;
} gemm_fused_params;
#endif

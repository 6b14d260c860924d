/* How libxpu's own kernels go about a product: what it is, which kernel takes it, and how its launch is cut.
 */
#ifndef OPS_GEMM_PLAN_H
#define OPS_GEMM_PLAN_H

#include "ops/gemm/gemm.h"
#include "ops/gemm/gemm_joined.h"
#include "ops/gemm/matrix.h"
#include "ops/gemm/product.h"

/* One product: xpu_gemm_args, and what operands have that are narrower than the result. */
typedef struct gemm_problem {
    xpu_dtype dtype, operand; /* of C and the result; of A and B */
    xpu_ending ending;
    bool conjugate_a, conjugate_b;
    int64_t batch, m, n, k;
    xpu_matrix a, b, c, out, other;
    xpu_scalar alpha, beta;
    bool a_unsigned, b_unsigned; /* operand: int8 */
    gemm_after after;
    const quantised_operand *lines; /* B, where it is quantised */
    joined_form joined;
    xpu_grouped grouped; /* 0: all of the batch are alike */
    const int32_t *ends; /* of groups */
} gemm_problem;

xpu_ending gemm_ending_of(const xpu_gemm_args *args);
gemm_problem gemm_problem_of(const xpu_gemm_args *args);
/* The same results, as those of the transposed product. */
void gemm_transpose(gemm_problem *args);
/* All but how k is cut. */
gemm_params gemm_params_for(const gemm_problem *args);

/* What a product of a batch has, or one of groups on average. */
typedef struct groups_shape {
    int64_t m, n, k;
} groups_shape;
groups_shape gemm_shape_of_groups(const gemm_problem *args);
/* How many tiles there are, at most: each group can have one that isn't full. */
int64_t gemm_tiles_of(const gemm_problem *args, int64_t tile_m, int64_t tile_n);

typedef enum gemm_kernel {
    KERNEL_TILES,
    KERNEL_HOST,
    KERNEL_MATRIX,
    KERNEL_ROW,
    KERNEL_THIN,
    KERNEL_VECTOR,
    KERNEL_FINISH,
    KERNEL_ROWS
} gemm_kernel;

typedef struct gemm_choice {
    gemm_kernel kernel;
    tile_shape tile;
    matrix_choice matrix;
    bool a_k_fast, b_k_fast, sliced;
    int rows, streams; /* KERNEL_THIN: rows of A and columns of B at once; KERNEL_HOST: rows;
                        * KERNEL_FINISH: work-items for an element */
    int out_piece, c_piece,
        other_piece; /* KERNEL_MATRIX: bytes beside each other that are written or read at a time, or 0 */
    bool has_c;
    int lanes, teams, columns; /* KERNEL_VECTOR */
    bool a_whole;
    int neighbours; /* KERNEL_ROWS */
} gemm_choice;

/* Found, or built. */
xpu_status gemm_kernel_of(int device, const gemm_problem *args, gemm_choice choice, xpu_kernel **kernel);

/* A launch: which kernel, how many groups of which shape for one slice, and into how many slices k is cut. */
typedef struct gemm_plan {
    gemm_choice choice;
    int64_t groups, slices, slice;
    size_t local[2];
} gemm_plan;

/* By the unit, or by the device's units and else GPUs' multiply-adds: false where they don't do it, and
 * `args` is as it was. The product may be turned: so that rows of results lie in memory, or so that the left
 * operand lies along k. */
bool gemm_plan_unit(int device, matrix_unit unit, bool emulated, const xpu_device_properties *properties,
                    gemm_problem *args, gemm_plan *plan);
bool gemm_plan_matrix(int device, const xpu_device_properties *properties, gemm_problem *args,
                      matrix_unit unit, bool emulated, gemm_plan *plan);
/* By a kernel that every device has. */
void gemm_plan_plain(const xpu_device_properties *properties, gemm_problem *args, gemm_plan *plan);
xpu_status gemm_launch(xpu_stream *stream, const gemm_problem *args, gemm_plan *plan);

/* Each operand as lines of neighbours: along k, or along its rows or columns. */
bool gemm_find_lines(const xpu_matrix *matrix, int64_t x_stride, int64_t k_stride, bool *k_fast,
                     matrix_lines *lines);
/* Within a tile places are 32-bit numbers of bytes. */
bool gemm_is_near(const matrix_lines *lines, xpu_dtype dtype);

/* --- operands that a unit can't read well, or not at all, are copied first (gemm_pack.c) --- */

/* An operand as the unit goes through it: `count` rows of A, or columns of B, and k. */
typedef struct gemm_operand {
    xpu_matrix *matrix;
    int64_t *stride, *k_stride;
    int64_t count, k, batch;
    bool is_cut[2]; /* neighbours across k, or along it, are of several groups: none begins at a multiple */
    void *workspace;
} gemm_operand;
gemm_operand gemm_left_of(gemm_problem *args);
gemm_operand gemm_right_of(gemm_problem *args);
/* Copies what the unit, or else a GPU's multiply-adds, would read badly; each side's `workspace` is then the
 * caller's to give back. */
xpu_status gemm_pack(xpu_stream *stream, const xpu_device_properties *properties, gemm_problem *args,
                     matrix_unit unit, gemm_operand sides[2]);

#endif

/* Plans of libxpu's own product kernels: the problem, the choice of a kernel, and the split of its launch. */
#ifndef OPS_GEMM_PLAN_H
#define OPS_GEMM_PLAN_H

#include "ops/gemm/gemm.h"
#include "ops/gemm/gemm_fused.h"
#include "ops/gemm/matrix.h"
#include "ops/gemm/product.h"

/* One product: xpu_gemm_args, and properties of operands that are narrower than the result. */
typedef struct gemm_problem {
    xpu_dtype dtype, operand; /* of C and the result; of A and B */
    xpu_post_ops ending;
    bool conjugate_a, conjugate_b;
    int64_t batch, m, n, k;
    xpu_matrix a, b, c, out, other;
    xpu_scalar alpha, beta;
    bool a_unsigned, b_unsigned; /* operand: int8 */
    gemm_post_process after;
    const quantized_operand *lines; /* B, where it is quantized */
    fused_form fused;
    xpu_grouped grouped; /* 0: all products of the batch share them */
    const int32_t *ends; /* of groups */
    xpu_fault *fault;    /* where those out of range are reported */
} gemm_problem;

xpu_post_ops gemm_post_ops_of(const xpu_gemm_args *args);
gemm_problem gemm_problem_of(const xpu_gemm_args *args);
/* Rewrites the problem as the transposed product with the same result. */
void gemm_transpose(gemm_problem *args);
/* All parameters except the split of k. */
gemm_params gemm_params_for(const gemm_problem *args);

/* The shape of a product of a batch, or the average shape of a group. */
typedef struct groups_shape {
    int64_t m, n, k;
} groups_shape;
groups_shape gemm_shape_of_groups(const gemm_problem *args);
/* The largest possible number of tiles: every group can have a partial one. */
int64_t gemm_tiles_of(const gemm_problem *args, int64_t tile_m, int64_t tile_n);

typedef enum gemm_kernel {
    KERNEL_TILES,
    KERNEL_HOST,
    KERNEL_MATRIX,
    KERNEL_GEMV_PORTABLE,
    KERNEL_SKINNY,
    KERNEL_GEMV,
    KERNEL_FINISH,
    KERNEL_EPILOGUE
} gemm_kernel;

typedef struct gemm_choice {
    gemm_kernel kernel;
    tile_shape tile;
    matrix_choice matrix;
    bool a_k_major, b_k_major, sliced;
    int rows, streams; /* KERNEL_SKINNY: rows of A and columns of B at once; KERNEL_HOST: rows;
                        * KERNEL_FINISH: work-items per element */
    int out_vector_bytes, c_vector_bytes,
        other_vector_bytes; /* KERNEL_MATRIX: contiguous bytes that are stored or loaded at a time, or 0 */
    bool has_c;
    int lanes, subgroups, columns; /* KERNEL_GEMV */
    bool a_whole;
    int neighbors; /* KERNEL_EPILOGUE */
} gemm_choice;

/* Finds or builds the kernel. */
xpu_status gemm_kernel_of(int device, const gemm_problem *args, gemm_choice choice, xpu_kernel **kernel);

/* A launch: kernel, work-groups per slice and their shape, and the split of k. */
typedef struct gemm_plan {
    gemm_choice choice;
    int64_t groups, slices, slice;
    size_t local[2];
} gemm_plan;

/* Plans for one matrix engine, or for the device's matrix engine with a fallback to multiply-adds. False,
 * with `args` unchanged, if it is not supported. The product may be transposed, so that rows of the result
 * are contiguous or the left operand is K-major. */
bool gemm_plan_unit(int device, matrix_unit unit, bool emulated, const xpu_device_properties *properties,
                    gemm_problem *args, gemm_plan *plan);
bool gemm_plan_matrix(int device, const xpu_device_properties *properties, gemm_problem *args,
                      matrix_unit unit, bool emulated, gemm_plan *plan);
/* Plans a portable kernel. */
void gemm_plan_plain(const xpu_device_properties *properties, gemm_problem *args, gemm_plan *plan);
xpu_status gemm_launch(xpu_stream *stream, const gemm_problem *args, gemm_plan *plan);

/* Describes an operand by its contiguous dimension: k, or its rows or columns. */
bool gemm_find_layout(const xpu_matrix *matrix, int64_t x_stride, int64_t k_stride, bool *k_major,
                      strided_view *lines);
/* Do byte offsets within a tile fit 32 bits? */
bool gemm_offsets_fit_32bit(const strided_view *lines, xpu_dtype dtype);

/* --- packing (gemm_pack.c) --- */

/* An operand from the kernel's point of view: `count` rows of A or columns of B, and k. */
typedef struct gemm_operand {
    xpu_matrix *matrix;
    int64_t *stride, *k_stride;
    int64_t count, k, batch;
    bool is_cut[2]; /* the dimension (0: rows or columns, 1: k) spans several groups, which start at any
                       element */
    void *workspace;
} gemm_operand;
gemm_operand gemm_left_of(gemm_problem *args);
gemm_operand gemm_right_of(gemm_problem *args);
/* Packs operands that the kernel would read inefficiently. The caller releases each side's `workspace`. */
xpu_status gemm_pack(xpu_stream *stream, const xpu_device_properties *properties, gemm_problem *args,
                     matrix_unit unit, gemm_operand sides[2]);

#endif

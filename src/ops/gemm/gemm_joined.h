/* Several right operands that share a few rows of A, in one launch (kernels/gemm/gemm_joined.h). */
#ifndef OPS_GEMM_JOINED_H
#define OPS_GEMM_JOINED_H

#include "kernels/gemm/quantised.h"
#include "ops/gemm/gemm.h"

/* What kernels are built for; `parts` is 0 where nothing is joined. */
typedef struct joined_form {
    int parts;
    bool gated, normed, plus_one;
    int cached; /* 1; 2 where heads are normed */
} joined_form;
void joined_spec(kernel_spec *spec, const joined_form *form);

typedef struct joined_product {
    const xpu_joined *given;
    joined_form form;
    gemm_joined_params params;
} joined_product;

/* Counts the work-groups along n of each part, of `lines` lines each, and returns their number. */
int64_t joined_blocks(joined_product *product, int lines);
/* Do work-groups of so many lines have heads between them that are normed? Then it is written down how many
 * have one. True where nothing is. */
bool joined_shares_heads(joined_product *product, int64_t blocks_m, int lines);
/* args with the part's matrix in place of B. */
xpu_gemm_args joined_args(const xpu_gemm_args *args, const xpu_gemm_part *part);

/* Both: XPU_ERROR_NOT_SUPPORTED, with nothing done, where the kernel doesn't do it. */
xpu_status joined_as_read(xpu_stream *stream, const xpu_device_properties *properties,
                          const xpu_gemm_args *args, joined_product *product);
xpu_status joined_by_vector(xpu_stream *stream, const xpu_device_properties *properties,
                            const xpu_gemm_args *args, joined_product *product);

#endif

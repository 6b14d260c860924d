/* Horizontally fused products: several right operands share a few rows of A in one launch
 * (kernels/gemm/gemm_fused.h). */
#ifndef OPS_GEMM_JOINED_H
#define OPS_GEMM_JOINED_H

#include "kernels/gemm/quantized.h"
#include "ops/gemm/gemm.h"

/* Build options of fused kernels; `parts` is 0 for a single product. */
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

/* Sets the number of work-groups along n of each part, with `lines` columns each, and returns the total. */
int64_t joined_blocks(joined_product *product, int lines);
/* Can work-groups of `lines` columns share normalized heads? If so, sets the number of work-groups per head.
 * True if no heads are normalized. */
bool joined_shares_heads(joined_product *product, int64_t blocks_m, int lines);
/* `args` with the part's matrix as B. */
xpu_gemm_args joined_args(const xpu_gemm_args *args, const xpu_gemm_part *part);

/* Both return XPU_ERROR_NOT_SUPPORTED, without effect, if the kernel doesn't support the product. */
xpu_status joined_as_read(xpu_stream *stream, const xpu_device_properties *properties,
                          const xpu_gemm_args *args, joined_product *product);
xpu_status joined_by_vector(xpu_stream *stream, const xpu_device_properties *properties,
                            const xpu_gemm_args *args, joined_product *product);

#endif

/* Horizontally fused products: several right operands share a few rows of A in one launch
 * (kernels/gemm/gemm_fused.h). */
#ifndef OPS_GEMM_FUSED_H
#define OPS_GEMM_FUSED_H

#include "kernels/gemm/quantized.h"
#include "ops/gemm/gemm.h"

/* Build options of fused kernels; `parts` is 0 for a single product. */
typedef struct fused_form {
    int parts;
    bool gated, normed, plus_one;
    int cached; /* 1; 2 where heads are normed */
} fused_form;
void fused_spec(kernel_spec *spec, const fused_form *form);

typedef struct fused_product {
    const xpu_gemm_fusion *given;
    fused_form form;
    gemm_fused_params params;
} fused_product;

/* Sets the number of work-groups along n of each part, with `lines` columns each, and returns the total. */
int64_t fused_blocks(fused_product *product, int lines);
/* Can work-groups of `lines` columns share normalized heads? If so, sets the number of work-groups per head.
 * True if no heads are normalized. */
bool fused_shares_heads(fused_product *product, int64_t blocks_m, int lines);
/* `args` with the part's matrix as B. */
xpu_gemm_args fused_args(const xpu_gemm_args *args, const xpu_gemm_part *part);

/* Both return XPU_ERROR_NOT_SUPPORTED, without effect, if the kernel doesn't support the product. */
xpu_status fused_on_the_fly(xpu_stream *stream, const xpu_device_properties *properties,
                            const xpu_gemm_args *args, fused_product *product);
xpu_status fused_by_gemv(xpu_stream *stream, const xpu_device_properties *properties,
                         const xpu_gemm_args *args, fused_product *product);

#endif

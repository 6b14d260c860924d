/* What the op library knows of dtypes and iterations. */
#include "xpu/ops.h"


size_t xpu_dtype_size(xpu_dtype dtype) {
    static const unsigned char sizes[] = {
#define X(name, token, size, kind) size,
        XPU_DTYPES(X)
#undef X
    };
    return (unsigned)dtype < XPU_DTYPE_COUNT ? sizes[dtype] : 0;
}

const char *xpu_dtype_name(xpu_dtype dtype) {
    static const char *const names[] = {
#define X(name, token, size, kind) #token,
        XPU_DTYPES(X)
#undef X
    };
    return (unsigned)dtype < XPU_DTYPE_COUNT ? names[dtype] : "unknown";
}

int64_t xpu_iter_numel(const xpu_iter *iter) {
    int64_t count = 1;
    for (int d = 0; d < iter->dims; d++) count *= iter->size[d];
    return count;
}

/* Dimension `d` goes on where dimension `to` ends, in every operand. */
static bool follows(const xpu_iter *iter, int to, int d) {
    for (int i = 0; i < iter->outputs + iter->inputs; i++) {
        const int64_t *stride = iter->operand[i].stride;
        if (stride[d] != stride[to] * iter->size[to]) return false;
    }
    return true;
}

static void move_dim(xpu_iter *iter, int to, int from) {
    iter->size[to] = iter->size[from];
    for (int i = 0; i < iter->outputs + iter->inputs; i++)
        iter->operand[i].stride[to] = iter->operand[i].stride[from];
}

void xpu_iter_coalesce(xpu_iter *iter) {
    int dims = 0;
    for (int d = 0; d < iter->dims; d++) {
        if (iter->size[d] == 1) continue;
        if (dims > 0 && follows(iter, dims - 1, d))
            iter->size[dims - 1] *= iter->size[d];
        else
            move_dim(iter, dims++, d);
    }
    iter->dims = dims;
}

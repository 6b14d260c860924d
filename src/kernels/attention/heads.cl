/* Splits a fused QKV projection into heads:
 *   out[k][b][h][t] = (projected[row(b, t)][k][h] + bias[k][h]) * (k == 0 ? scale : 1), vectors of `depth`
 *   elements
 *
 * Launch: a work-group per (b, t). Rows that an item doesn't have count as zeros.
 * Options: T=f16|bf16|f32|f64; LANES, work-group size. */
#include "attention/attention.h"

typedef STORED(T) stored;
typedef COMPUTED(T) computed;

__kernel void split_heads(const struct heads_params p) {
    const long row = XPU_GROUP(0), item = row / p.length, t = row - item * p.length;
    long source = row;
    if (p.offset) {
        __global const long *offset = XPU_CPTR(long, p.offset) + item;
        source = offset[0] + t < offset[1] ? offset[0] + t : -1;
    }
    const long width = p.heads * p.depth;
    for (int k = 0; k < 3; k++) {
        __global const stored *in = XPU_CPTR(stored, p.projected) + source * 3 * width + k * width;
        __global const stored *bias = XPU_CPTR(stored, p.bias) + k * width;
        __global stored *out = XPU_PTR(stored, p.out[k]) + (item * p.heads * p.length + t) * p.depth;
#ifdef FP64
        const computed scale = k == 0 ? as_double(p.scale64) : 1.0;
#else
        const computed scale = k == 0 ? p.scale : 1.0f;
#endif
        for (long h = 0; h < p.heads; h++, in += p.depth, bias += p.depth, out += p.length * p.depth)
            for (long i = get_local_id(0); i < p.depth; i += LANES) {
                const computed x = source < 0 ? 0 : LOAD(T, in, i);
                STORE(T, out, i, (x + LOAD(T, bias, i)) * scale);
            }
    }
}

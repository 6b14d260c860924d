/* Winograd convolution F(2x2, 3x3): transforms between tensors and planes (A. Lavin, S. Gray, Fast Algorithms
 * for Convolutional Neural Networks, 2015, section 4.1). Portable; planes are fp32.
 *
 * In one dimension, with d the four pixels of x that two pixels of y depend on and g the taps:
 *
 *     y = A'((G g) * (B' d)); gradient of g: G'((A y) * (B' d))
 *
 * In two dimensions each transform is applied along both. Launch: a work-item has one window of one channel.
 * Options: T, dtype of the tensor; WAY=0 x, 4 x 4 windows that overlap by 2: B'; 1 taps: G; 2 gradient of y,
 * 2 x 2: A; 3 back to 2 x 2 pixels: A'; 4 back to taps: G'; CHANNELS_CONTIGUOUS=1, adjacent work-items have
 * adjacent channels, 0 adjacent windows. */
#include "conv/conv_winograd.h"

#define UNROLL _Pragma("unroll")
#define LEAVES (WAY >= 3)
#define SIDE (WAY == 0 ? 4 : WAY == 1 || WAY == 4 ? 3 : 2) /* elements of a window */
#define FROM (LEAVES ? 4 : SIDE)
#define TO (LEAVES ? SIDE : 4)

/* Transforms one row or column; elements of `to` and `from` are `step` apart. */
static inline void along(float *to, const float *from, int to_step, int from_step) {
    const float a = from[0], b = from[from_step];
    const float c = FROM > 2 ? from[2 * from_step] : 0, d = FROM > 3 ? from[3 * from_step] : 0;
#if WAY == 0
    to[0] = a - c, to[to_step] = b + c, to[2 * to_step] = c - b, to[3 * to_step] = b - d;
#elif WAY == 1
    to[0] = a, to[to_step] = 0.5f * (a + b + c), to[2 * to_step] = 0.5f * (a - b + c), to[3 * to_step] = c;
#elif WAY == 2
    to[0] = a, to[to_step] = a + b, to[2 * to_step] = a - b, to[3 * to_step] = -b;
#elif WAY == 3
    to[0] = a + b + c, to[to_step] = b - c - d;
#else
    to[0] = a + 0.5f * (b + c), to[to_step] = 0.5f * (b - c), to[2 * to_step] = 0.5f * (b + c) + d;
#endif
}

__kernel void conv_winograd(const conv_winograd_params p) {
    const size_t i = XPU_GROUP(0) * get_local_size(0) + get_local_id(0);
    if (i >= (size_t)p.windows * p.channels) return;
#if CHANNELS_CONTIGUOUS
    const uint window = (uint)(i / p.channels), channel = (uint)(i - (size_t)window * p.channels);
#else
    const uint channel = (uint)(i / p.windows), window = (uint)(i - (size_t)channel * p.windows);
#endif
    const uint lines = window / p.across[1], n = lines / p.across[0];
    const int h0 = (int)(lines - n * p.across[0]) * 2 - p.padding[0];
    const int w0 = (int)(window - lines * p.across[1]) * 2 - p.padding[1];
    const long image = (long)n * p.stride[0] + (long)channel * p.stride[1];
    const long planes = (long)window * p.window + (long)channel * p.channel;

    float from[FROM * FROM], lines_done[TO * FROM], to[TO * TO];
#if LEAVES
    UNROLL for (int k = 0; k < 16; k++)
        from[k] = XPU_CPTR(float, p.planes)[planes + k * p.plane];
#else
    UNROLL for (int k = 0; k < FROM * FROM; k++) {
        const long h = h0 + k / FROM, w = w0 + k % FROM;
        const bool inside = h >= 0 && h < p.size[0] && w >= 0 && w < p.size[1];
        from[k] =
            inside ? LOAD(T, XPU_CPTR(STORED(T), p.data), image + h * p.stride[2] + w * p.stride[3]) : 0;
    }
#endif
    UNROLL for (int w = 0; w < FROM; w++)
        along(lines_done + w, from + w, FROM, FROM);
    UNROLL for (int h = 0; h < TO; h++)
        along(to + h * TO, lines_done + h * FROM, 1, 1);
#if LEAVES
    const float bias = p.bias ? LOAD(T, XPU_CPTR(STORED(T), p.bias), (long)channel * p.bias_stride) : 0;
    UNROLL for (int k = 0; k < TO * TO; k++) {
        const long h = h0 + k / TO, w = w0 + k % TO;
        if (h < p.size[0] && w < p.size[1])
            STORE(T, XPU_PTR(STORED(T), p.data), image + h * p.stride[2] + w * p.stride[3], to[k] + bias);
    }
#else
    UNROLL for (int k = 0; k < 16; k++)
        XPU_PTR(float, p.planes)[planes + k * p.plane] = to[k];
#endif
}

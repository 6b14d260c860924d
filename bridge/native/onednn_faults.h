// Convolutions that oneDNN up to 3.13 gets wrong.
#pragma once

#include <algorithm>
#include <c10/util/ArrayRef.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace openxpu {

inline bool has_amx() {
#if defined(__x86_64__)
    static const bool has = [] {
        unsigned a = 0, b = 0, c = 0, d = 0;
        return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 24 & 1); // AMX-TILE
    }();
    return has;
#else
    return false;
#endif
}

// On processors with AMX, in half precision and int8: https://github.com/pytorch/pytorch/pull/188426 and
// https://github.com/uxlfoundation/oneDNN/pull/5494.
// True for results of one column, and for kernels that are shorter or shallower than their strides, unless
// they have a single tap and no padding: that is another of oneDNN's kernels. `output` and `weight` are
// whole sizes.
inline bool is_wrong_with_amx(c10::IntArrayRef output, c10::IntArrayRef weight, c10::IntArrayRef stride,
                              c10::IntArrayRef padding) {
    if (!has_amx() || output.empty()) return false;
    if (output.back() == 1) return true;
    const auto kernel = weight.slice(2);
    bool skips = false, is_single = true;
    for (size_t i = 0; i < kernel.size(); i++) {
        is_single &= kernel[i] == 1 && padding[i] == 0;
        skips |= i + 1 < kernel.size() && stride[i] > kernel[i];
    }
    return skips && !is_single;
}

// On all processors: https://github.com/uxlfoundation/oneDNN/issues/6035. The gradient of the weight of a
// kernel of one tap that skips pixels is wrong, and is computed in memory beyond oneDNN's workspace, if
// pixels have fewer channels than the processor's vectors have elements (up to 16). `channels` are those of a
// group.
inline bool has_wrong_weight_gradient(c10::IntArrayRef weight, int64_t channels, c10::IntArrayRef stride,
                                      c10::IntArrayRef padding) {
    const auto is = [](c10::IntArrayRef sizes, int64_t wanted) {
        return std::all_of(sizes.begin(), sizes.end(), [=](int64_t size) { return size == wanted; });
    };
    return channels < 16 && is(weight.slice(2), 1) && is(padding, 0) && !is(stride, 1);
}

// On processors with AVX-512: the gradient of the input of a transposed convolution with one channel a group
// is computed from uninitialized memory if the input has one column and channels lie last. `input` and
// `weight` are whole sizes.
inline bool has_wrong_transposed_gradient(c10::IntArrayRef input, c10::IntArrayRef weight) {
    return weight[1] == 1 && input.back() == 1;
}

// On processors with AVX-512, for small images: if in some dimension no window lies wholly inside `wide` (the
// input, or the result of a transposed convolution), as with a kernel of 3 and a padding of 1 on 2 pixels,
// the weight's gradient may be computed from uninitialized memory. If no tap touches a pixel either, the
// forward pass ends the process: https://github.com/uxlfoundation/oneDNN/issues/5942. With zeros around
// `wide` instead of padding both are right. `wide`, `narrow` and `weight` are whole sizes.
inline bool has_no_whole_window(c10::IntArrayRef wide, c10::IntArrayRef narrow, c10::IntArrayRef weight,
                                c10::IntArrayRef stride, c10::IntArrayRef padding,
                                c10::IntArrayRef dilation) {
    for (size_t i = 0; i < stride.size(); i++) {
        const int64_t first = (padding[i] + stride[i] - 1) / stride[i]; // that starts inside
        const int64_t end = first * stride[i] - padding[i] + (weight[i + 2] - 1) * dilation[i];
        if (first >= narrow[i + 2] || end >= wide[i + 2]) return true;
    }
    return false;
}

} // namespace openxpu

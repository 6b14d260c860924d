// Convolutions that oneDNN up to 3.13 gets wrong on processors with AMX, in half precision and int8.
// https://github.com/pytorch/pytorch/pull/188426, https://github.com/uxlfoundation/oneDNN/pull/5494
#pragma once

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

} // namespace openxpu

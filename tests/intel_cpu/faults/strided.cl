// A loop index that grows by the subgroup size, and values with other strides over the lanes.
//
// If (i + lane) is compared and the loop also computes with narrower types, the pass
// sycl-kernel-loop-strided-code-motion hoists (765 - 3 * i) - 3 * lane out of the loop with its value in the
// first iteration. Seen with 2026.2.
//
// Workaround: the emitter's loops count iterations and multiply. The increments of other loop-carried values
// are hidden from the compiler.

typedef struct params {
    ulong a, b, c, d;
    int grid[3], padding;
} params;

__attribute__((intel_reqd_sub_group_size(16))) __attribute__((reqd_work_group_size(16, 1, 1))) __kernel void
fault(const params p) {
    __global int *c = (__global int *)p.c;
    __global const short *b = (__global const short *)p.b;
    __global char *d = (__global char *)p.d;
    const int lane = (int)get_sub_group_local_id(), first = (int)get_group_id(0) * 256;
#ifdef AVOIDED
    __attribute__((opencl_unroll_hint(1))) for (int n = 0; n < 16; n++) {
        const int i = n * 16;
#else
    __attribute__((opencl_unroll_hint(1))) for (int i = 0; i < 256; i += 16) {
#endif
        d[first + i + lane] = (char)b[i + lane];
        const int down = 765 - i * 3;
        if (i + lane >= 1) c[first + i + lane] = down + -3 * lane;
    }
}

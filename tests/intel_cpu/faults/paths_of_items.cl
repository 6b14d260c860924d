// Like paths.cl, in a kernel without a required subgroup size and with loops to be unrolled, as in the op
// library.
//
// It needs 32-bit indices. About twenty variants of such loops were all correct if the index or the lane
// number had 64 bits, for every kind of select and bound. (strided.cl and carried.cl are also correct then,
// and without a required subgroup size.)
//
// Workaround: kernels of the op library index with size_t and long.
#ifdef AVOIDED
#define INDEX size_t
#else
#define INDEX int
#endif

typedef struct params {
    ulong a, b, c, d;
    int grid[3], padding;
} params;

__attribute__((reqd_work_group_size(16, 1, 1))) __kernel void fault(const params p) {
    __global const float *a = (__global const float *)p.a, *b = (__global const float *)p.b;
    __global float *c = (__global float *)p.c;
    const INDEX lane = (INDEX)get_local_id(0), first = (INDEX)get_group_id(0) * 64;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        const INDEX i = first + n * 16;
        const bool is_inside = i < 128;
        const float x = is_inside ? a[i + lane] : 0, y = is_inside ? b[i + lane] : 0;
        const float z = lane & 1 ? y : x;
        if (is_inside) c[i + lane] = z;
    }
}

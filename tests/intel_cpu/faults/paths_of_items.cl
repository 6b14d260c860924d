// As paths.cl, in a kernel that asks for no subgroups, with loops that shall be unrolled: as the op library has them.
//
// It takes indices of 32 bits: of some twenty forms of such loops none came out wrong where the index or the lane's
// number had 64, whatever was chosen by and wherever the bound came from. (Nor did strided.cl and carried.cl then,
// nor without a required size of subgroups.)
//
// Avoided: the op library's kernels index by size_t and long.
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

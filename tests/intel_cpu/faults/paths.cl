// A loop of few iterations with a select by lane and a uniform branch.
//
// The loop is unrolled and unswitched, which gives two paths for two sets of lanes. The common part of their
// last iterations is merged again after the branch. There the vectorizer (pass vplan-vec) uses the first
// active lane's pointers and values for all lanes. Seen from 2024.2 to 2026.2, for selects between loads,
// between values and between store addresses.
//
// Workaround: the emitter disables unrolling.
#ifdef AVOIDED
#define LOOP __attribute__((opencl_unroll_hint(1)))
#else
#define LOOP
#endif

typedef struct params {
    ulong a, b, c, d;
    int grid[3], padding;
} params;

__attribute__((intel_reqd_sub_group_size(16))) __attribute__((reqd_work_group_size(16, 1, 1))) __kernel void
fault(const params p) {
    __global const float *a = (__global const float *)p.a, *b = (__global const float *)p.b;
    __global float *c = (__global float *)p.c;
    const int lane = (int)get_sub_group_local_id(), first = (int)get_group_id(0) * 64;
    LOOP for (int n = 0; n < 4; n++) {
        const int i = first + n * 16;
        const bool is_inside = i < 128;
        const float x = is_inside ? a[i + lane] : 0, y = is_inside ? b[i + lane] : 0;
        const float z = lane & 1 ? y : x;
        if (is_inside) c[i + lane] = z;
    }
}

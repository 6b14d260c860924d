// A sum in a loop that is not unrolled. Each lane selects between uniform values.
//
// Loop unswitching hoists the select, which gives two loops for two sets of lanes. In each loop the sum is
// uniform, so the vectorizer treats the merged result as uniform too: every lane gets the first lane's. Seen
// from 2024.2 to 2026.2, with sums and products of all types. It does not happen if the loop is unrolled, so
// the workaround for paths.cl triggers it.
//
// Workaround: a subgroup barrier in each iteration, which prevents unswitching. (sub_group_barrier must not
// be in a divergent branch; the compiler itself may crash.)
#ifdef AVOIDED
#define MEET sub_group_barrier(0)
#else
#define MEET
#endif

typedef struct params {
    ulong a, b, c, d;
    int grid[3], padding;
} params;

__attribute__((intel_reqd_sub_group_size(16))) __attribute__((reqd_work_group_size(16, 1, 1))) __kernel void
fault(const params p) {
    __global const int *a = (__global const int *)p.a;
    __global int *c = (__global int *)p.c;
    const int lane = (int)get_sub_group_local_id();
    float sum = -0.0f;
    __attribute__((opencl_unroll_hint(1))) for (int k = 0; k < 4; k++) {
        const float x = a[k];
        sum += lane & 1 ? x * 2 : x;
        MEET;
    }
    c[get_group_id(0) * 16 + lane] = (int)sum;
}

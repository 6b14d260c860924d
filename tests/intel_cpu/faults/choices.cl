// A sum, in a loop that stays one, of numbers that all lanes share and of which each lane takes its own.
//
// The choice is made before the loop ("loop unswitching"), so that there are two loops for two sorts of lanes. In each
// of them the sum is the same in all lanes, and so the vectorizer takes what comes of either for the same in all:
// every lane gets the first one's. Seen from 2024.2 to 2026.2, with sums and products of all types; not where the loop
// is unrolled, so what avoids paths.cl brings this about.
//
// Avoided: lanes meet in each iteration, which keeps the loop in one piece. (sub_group_barrier must not stand in a
// branch that some lanes don't take: the compiler itself may crash.)
#ifdef AVOIDED
#define MEET sub_group_barrier(0)
#else
#define MEET
#endif

typedef struct params {
    ulong a, b, c, d;
    int grid[3], padding;
} params;

__attribute__((intel_reqd_sub_group_size(16))) __attribute__((reqd_work_group_size(16, 1, 1)))
__kernel void fault(const params p) {
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

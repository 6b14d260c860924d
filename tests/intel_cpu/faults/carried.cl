// Like strided.cl, for a loop-carried value other than the index.

typedef struct params {
    ulong a, b, c, d;
    int grid[3], padding;
} params;

#ifdef AVOIDED
#define SUM(x) sub_group_broadcast(x, 0)
#else
#define SUM(x) (x)
#endif

__attribute__((intel_reqd_sub_group_size(16)))
__attribute__((reqd_work_group_size(16, 1, 1))) __kernel void fault(const params p) {
    __global int *c = (__global int *)p.c;
    __global const short *b = (__global const short *)p.b;
    __global char *d = (__global char *)p.d;
    const int lane = (int)get_sub_group_local_id(), first = (int)get_group_id(0) * 256;
    int i = 0;
    __attribute__((opencl_unroll_hint(1))) for (int n = 0; n < 16; n++) {
        d[first + i + lane] = (char)b[i + lane];
        const int down = 765 - i * 3;
        if (i + lane >= 1) c[first + i + lane] = down + -3 * lane;
        i = SUM(i + 16);
    }
}

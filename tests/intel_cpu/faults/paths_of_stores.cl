// Like paths.cl, with lanes that store to two addresses.
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
    __global const int *a = (__global const int *)p.a;
    __global int *c = (__global int *)p.c, *d = (__global int *)p.d;
    const int lane = (int)get_sub_group_local_id(), first = (int)get_group_id(0) * 64;
    LOOP for (int n = 0; n < 4; n++) {
        const int i = first + n * 16;
        if (i < 128) {
            if (lane & 1)
                c[i + lane] = a[i + lane];
            else
                d[i + lane] = a[i + lane];
        }
    }
}

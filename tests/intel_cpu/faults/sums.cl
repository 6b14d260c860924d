/* A sum in a loop, in the order of the elements. The compiler makes 8 or 16 sums of it and adds them up, as
 * if floating-point addition were associative. A loop that is not vectorized keeps the order. */
typedef struct params {
    ulong to, from, unused[2];
    uint grid[4];
} params;

__kernel void fault(const params p) {
    __global const float *from = (__global const float *)p.from;
    __global float *to = (__global float *)p.to;
    const long i = get_global_id(0), count = 1000 + ((__global int *)p.to)[0] % 2;
    if (i > 0) return;
    for (long k = 0; k < count; k++) to[k] = 0.1f * (float)((__global const int *)from)[k];
    float sum = 0.0f;
#ifdef AVOIDED
#pragma clang loop vectorize(disable)
#endif
    for (long k = 1; k < count; k++) sum += to[k];
    to[0] = sum;
}

// A variable without an initial value, set by the first iteration of a loop for some of the lanes.
//
// The vectorizer leaves a value undefined where the other lanes' would be, and pass simplifycfg concludes
// that the code after it is never reached. It removes that code, and with it the exit of a loop that stands
// before: the loop then writes until the process crashes. Without such a loop, as here, only stores are
// missing. Seen with 2026.2 for minima and maxima of values selected by lane.
//
// Workaround: the emitter gives every accumulator an initial value.
#ifdef AVOIDED
#define INITIAL = 0
#else
#define INITIAL
#endif

typedef struct params {
    ulong a, b, c, d;
    int grid[3], padding;
} params;

__attribute__((intel_reqd_sub_group_size(16))) __attribute__((reqd_work_group_size(16, 1, 1))) __kernel void
fault(const params p) {
    __global const int *a = (__global const int *)p.a;
    __global int *c = (__global int *)p.c;
    const int lane = (int)get_sub_group_local_id(), first = (int)get_group_id(0) * 256;
    int most INITIAL;
    __attribute__((opencl_unroll_hint(1))) for (int n = 0; n < 16; n++) {
        if (lane < 8) {
            const int x = a[n], y = lane & 1 ? x : x * 2;
            if (n == 0) {
                most = y;
            } else {
                most = max(most, y);
            }
            c[first + n * 16 + lane] = most;
        }
    }
}

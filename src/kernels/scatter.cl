/* Scatter with combination, for all coordinates c of the values: out[c + Σ_k index_k[c] * step_k] op= in[c]
 *
 * Deterministic kernels:
 *   scatter_deterministic   dimensions 0 … PDIMS - 1 of the walk reach different destinations for different
 *                           work-items and run in parallel; the others run in order within the work-item
 *   scatter_blocks   CPU, one serial dimension: a work-group has `block` elements of dimension 0.
 *                    ROW_LANES=16: rows have one index each and are contiguous, that many work-items share a
 *                    block; ROW_LANES=1: one work-item, not vectorized, because scattered elements are faster
 *                    one by one; SERIAL_FIRST=1: it finishes the serial dimension for each element, where
 *                    strides are smaller; SERIAL_FLAT=1: values and indices are contiguous along it;
 *                    IS_CONTIGUOUS_DIM=1: so is the indexed dimension; WRAPS=1: negative indices count from
 *                    the end
 *   scatter_count_parts, scatter_partition, scatter_combine_parts   the same for one long line, with
 *   PARTITIONED=1: work-groups of the first two have `block` elements each, and partition all elements stably
 *   by the part of the destinations' memory that they go to; a work-group of the third combines the elements
 *   of a part
 *   scatter_find_destinations, scatter_ordered   CPU, contiguous rows with one index each: the rows of each
 *   destination are listed first, and a work-group goes from destination to destination, so that each is
 *   read, written and rounded once
 *   scatter_keys, scatter_runs   GPU, where few work-items would walk far: the destinations of the serial
 *                                dimensions' elements are stored and sorted stably (xpu_sort). If the order
 *                                within a destination is free: scatter_count counts the elements of each
 *                                (`heads`, one more for those out of range), the host scans the counts, and
 *                                scatter_spread writes keys and order downwards from the ends. A work-item
 *                                combines `block` of them, and the rest of the last run of equal keys; runs
 *                                of more than WHOLE_RUN are split where blocks end, and scatter_merge_runs
 *                                combines their parts
 * Others:
 *   scatter_even   with IF_EVEN=1, in place of the kernels after scatter_count if no destination has more
 *                  than MOST_RIVALS elements (`crowded` is 0)
 *   scatter_atomic   one work-item per element; atomic instructions of the device, otherwise compare and swap
 *   scatter_init_copies, scatter_merge_copies   with MERGE_COPIES=1, before and after one of the others
 *   into `serial` copies of the destinations of dtype T: they initialize the copies with the neutral
 *   element, and combine out, of dtype S, with all of them; IS_FLAT=1: both are contiguous
 * Options: T, dtype of the destinations; S, of the elements; OP=0 set, 1 add, 2 multiply, 3 minimum, 4
 * maximum (NaN wins); SORTED=1 for scatter_keys and scatter_runs; ORDERED=1 for scatter_find_destinations and
 * scatter_ordered; NI, DIMS, I, OS0, IS0, KS0 as in index.cl; PDIMS; ATOMIC=0|1; SIZE, bytes of an element;
 * T_<dtype>; KIND_b|i|u|f|c. */
#if ORDERED
#define INDEX_X (long)(XPU_GROUP(0) % (ulong)parts * p.block)
#elif defined ROW_LANES
#define INDEX_X (long)(XPU_GROUP(0) * p.block)
#endif
#include "atomic_add.h"
#include "index.h"

#if ATOMIC && SIZE >= 8
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#endif

typedef STORED(T) stored;
typedef STORED(S) source;
typedef COMPUTED(T) computed;

static inline computed combine(computed old, computed v) {
#if OP == 0
    return v;
#elif OP == 1
#if defined(KIND_b)
    return old | v;
#else
    return old + v;
#endif
#elif OP == 2
#if defined(KIND_b)
    return old & v;
#elif defined(KIND_c)
    return (computed)(old.x * v.x - old.y * v.y, old.x * v.y + old.y * v.x);
#else
    return old * v;
#endif
#elif OP == 3
#if defined(KIND_f)
    return old != old || old < v ? old : v;
#else
    return old < v ? old : v;
#endif
#else
#if defined(KIND_f)
    return old != old || old > v ? old : v;
#else
    return old > v ? old : v;
#endif
#endif
}

#if ORDERED || IS_FLAT
/* Sixteen elements at a time, on CPUs. Sums of integers need no wider type. */
#if defined(KIND_f)
#include "vector16.h"
#define EXTREME16(old, v) select(v, old, (old != old) | (OP == 3 ? old < v : old > v))
#else
#define LOAD16(from) vload16(0, from)
#define STORE16(v, to) vstore16(v, 0, to)
#define EXTREME16(old, v) (OP == 3 ? min(old, v) : max(old, v))
#endif
#if OP == 0
#define COMBINE16(old, v) v
#elif OP == 1
#define COMBINE16(old, v) old + v
#elif OP == 2
#define COMBINE16(old, v) old *v
#else
#define COMBINE16(old, v) EXTREME16(old, v)
#endif
#endif

#if MERGE_COPIES

#define DTYPE_BITS (8 * SIZE)
#if OP == 1
#if defined(KIND_f)
#define NEUTRAL (-(computed)0) /* -0: adding it keeps a -0 */
#elif defined(KIND_c)
#define NEUTRAL (computed)(-0.0f, -0.0f)
#else
#define NEUTRAL (computed)0
#endif
#elif OP == 2
#if defined(KIND_c)
#define NEUTRAL (computed)(1, 0)
#else
#define NEUTRAL (computed)1
#endif
#elif defined(KIND_f)
#define NEUTRAL (computed)(OP == 3 ? INFINITY : -INFINITY)
#elif defined(KIND_b)
#define NEUTRAL (computed)(OP == 3)
#elif defined(KIND_u)
#define NEUTRAL (computed)(OP == 3 ? ~0ul : 0ul)
#else
#define NEUTRAL (computed)(OP == 3 ? (1ul << (DTYPE_BITS - 1)) - 1 : 1ul << (DTYPE_BITS - 1))
#endif

__kernel void scatter_init_copies(struct index_params p) {
    const ulong i = get_global_id(0);
    if (i < (ulong)p.rows) STORE(T, XPU_PTR(stored, p.in), i, NEUTRAL);
}

/* A destination whose copies are all neutral keeps its bits. */
static inline bool is_neutral(computed v) {
#if defined(KIND_c)
    return v.x == NEUTRAL.x && v.y == NEUTRAL.y;
#elif defined(KIND_f) && SIZE == 8
    return as_ulong(v) == as_ulong(NEUTRAL);
#elif defined(KIND_f)
    return as_uint(v) == as_uint(NEUTRAL);
#else
    return v == NEUTRAL;
#endif
}

/* Combines the copies' element. (Loads don't wait for each other.) */
static inline computed combine_copies(xpu_addr from, ulong element, long by_copy, long copies) {
    computed v = LOAD(T, XPU_CPTR(stored, from), element);
    long c = 1;
    if (copies > 8) {
        computed w[4] = {NEUTRAL, NEUTRAL, NEUTRAL, NEUTRAL};
        for (; c + 4 <= copies; c += 4)
#pragma unroll
            for (int e = 0; e < 4; e++)
                w[e] = combine(w[e], LOAD(T, XPU_CPTR(stored, from + (c + e) * by_copy), element));
        v = combine(combine(v, w[0]), combine(w[1], combine(w[2], w[3])));
    }
    for (; c < copies; c++) v = combine(v, LOAD(T, XPU_CPTR(stored, from + c * by_copy), element));
    return v;
}

static inline void merge(__global source *to, ulong element, computed v) {
    if (!is_neutral(v)) STORE(S, to, element, combine(LOAD(S, to, element), v));
}

#if IS_FLAT

/* A work-item has p.block elements. Their bits are kept by blending, because CPUs without AVX-512 store
 * single elements of 16 bits one by one. */
XPU_NO_VECTORIZE __kernel void scatter_merge_copies(struct index_params p) {
    ulong i = get_global_id(0) * p.block;
    const ulong end = min(i + p.block, (ulong)p.rows);
    __global source *to = XPU_PTR(source, p.out);
    const long by_copy = p.step[0], copies = p.serial;
    for (; i + 16 <= end; i += 16) {
        __typeof__(LOAD16(XPU_CPTR(stored, p.in))) v = LOAD16(XPU_CPTR(stored, p.in) + i), next;
        for (long c = 1; c < copies; c++) {
            next = LOAD16(XPU_CPTR(stored, p.in + c * by_copy) + i);
            v = COMBINE16(v, next);
        }
#if SIZE == 8
        const long16 keep = as_long16(v) == as_long((computed)NEUTRAL);
#else
        const int16 keep = as_int16(v) == as_int((computed)NEUTRAL);
#endif
        if (all(keep)) continue;
        next = XPU_CAT(load16_, S)(to + i);
        XPU_CAT(blend16_, S)(COMBINE16(next, v), keep, to + i);
    }
    for (; i < end; i++) merge(to, i, combine_copies(p.in, i, by_copy, copies));
}

#else

__kernel void scatter_merge_copies(struct index_params p) {
    const ulong i = get_global_id(0);
    if (i >= (ulong)p.rows) return;
    ulong rest = i;
    long out = 0, in = 0;
#pragma unroll
    for (int d = 0; d < DIMS; d++) {
        const ulong q = d + 1 < DIMS ? rest / (ulong)p.size[d] : 0, r = rest - q * p.size[d];
        out += r * p.out_stride[d];
        in += r * p.in_stride[d];
        rest = q;
    }
    merge(XPU_PTR(source, p.out + out), 0, combine_copies(p.in + in, 0, p.step[0], p.serial));
}

#endif

#else

/* Moves along the parallel dimensions to element `rest` of them. */
#define MOVE_PARALLEL(rest)                                                                                  \
    _Pragma("unroll") for (int d = 0; d < PDIMS; d++) {                                                      \
        const long q = (long)((ulong)rest / (ulong)p.size[d]), r = rest - q * p.size[d];                     \
        INDEX_MOVE(d, r);                                                                                    \
        rest = q;                                                                                            \
    }

/* Moves along the serial dimensions to element s of them. */
#define WALK_SERIAL(s)                                                                                       \
    do {                                                                                                     \
        long left = s;                                                                                       \
        _Pragma("unroll") for (int d = PDIMS; d < DIMS; d++) {                                               \
            const long q = d + 1 < DIMS ? (long)((ulong)left / (ulong)p.size[d]) : 0;                        \
            const long r = left - q * p.size[d];                                                             \
            INDEX_MOVE(d, r);                                                                                \
            left = q;                                                                                        \
        }                                                                                                    \
    } while (0)

/* Combines the elements at index `n` from both addresses; passing an index shows the compiler that lanes are
 * contiguous. */
static inline void put(xpu_addr to, xpu_addr from, size_t n) {
    __global stored *place = XPU_PTR(stored, to);
    const computed v = LOAD(S, XPU_CPTR(source, from), n);
#if OP == 0
    STORE(T, place, n, v);
#else
    STORE(T, place, n, combine(LOAD(T, place, n), v));
#endif
}

#if ORDERED

/* The destination of element s; `extent` if its index is out of range. */
static inline long place_at(const struct index_params *p, long s) {
    const long given = *XPU_CPTR(index_t, p->index[0] + s * p->index_stride[0][PDIMS]), extent = p->extent[0];
    const long index = given < 0 && p->wrap ? given + extent : given;
    if ((ulong)index < (ulong)extent) return index;
    fault_report(p->watch, 0, given, extent);
    return extent;
}

/* If the elements are sorted by destination, finds where those of each destination end. */
static inline bool find_sorted_destinations(const struct index_params *p, __global int *end) {
    long last = 0;
    for (long s = 0; s < p->serial; s++) {
        const long place = place_at(p, s);
        if (place < last) return false;
        for (; last < place; last++) end[last] = (int)s;
    }
    for (; last <= p->extent[0]; last++) end[last] = (int)p->serial;
    return true;
}

/* Lists the elements of each destination: order[end[i-1] … end[i]-1] for destination i, from order[0] on for
 * the first; elements with an index out of range come last. */
XPU_NO_VECTORIZE __kernel void scatter_find_destinations(struct index_params p) {
    __global int *end = XPU_PTR(int, p.keys), *order = XPU_PTR(int, p.order);
    /* Tried first, because counting equal indices is slow: each count waits for the one before it. */
    if (find_sorted_destinations(&p, end)) {
        for (long s = 0; s < p.serial; s++) order[s] = (int)s;
        return;
    }
    for (long i = 0; i <= p.extent[0]; i++) end[i] = 0;
    for (long s = 0; s < p.serial; s++) end[place_at(&p, s)]++;
    for (int i = 0, sum = 0; i <= p.extent[0]; i++) {
        const int count = end[i];
        end[i] = sum;
        sum += count;
    }
    for (long s = 0; s < p.serial; s++) order[end[place_at(&p, s)]++] = (int)s;
}

/* The rows order[s … end-1], from column c of them on, into a destination's columns. (Written out, because
 * the compiler keeps small arrays in memory.) */
#define START16(e) __typeof__(LOAD16(to)) v##e = LOAD16(to + c + e * 16);
#define TAKE16(e)                                                                                            \
    {                                                                                                        \
        const __typeof__(v##e) next = LOAD16(row + c + e * 16);                                              \
        v##e = COMBINE16(v##e, next);                                                                        \
    }
#define END16(e) STORE16(v##e, to + c + e * 16);
#define PUT_COLUMNS(EACH)                                                                                    \
    {                                                                                                        \
        EACH(START16)                                                                                        \
        for (long k = s; k < end; k++) {                                                                     \
            __global const source *row = XPU_CPTR(source, from + order[k] * by_row);                         \
            EACH(TAKE16)                                                                                     \
        }                                                                                                    \
        EACH(END16)                                                                                          \
    }
#define ONE(X) X(0)
#if SIZE == 8
#define AT_ONCE 2
#define ALL(X) X(0) X(1)
#else
#define AT_ONCE 4
#define ALL(X) X(0) X(1) X(2) X(3)
#endif

/* The first destination whose elements end after element s of the order. */
static inline long place_of(__global const int *ends, long extent, long s) {
    long from = 0, to = extent;
    while (from < to) {
        const long middle = (from + to) / 2;
        if (ends[middle] > s)
            to = middle;
        else
            from = middle + 1;
    }
    return from;
}

XPU_NO_VECTORIZE __kernel void scatter_ordered(struct index_params p) {
    const long parts = (p.size[0] + p.block - 1) / p.block, chunk = (long)XPU_GROUP(0) / parts;
    INDEX_WALK(PDIMS)
    const long columns = min((long)p.block, p.size[0] - x), by_row = p.in_stride[PDIMS];
    __global const int *ends = XPU_CPTR(int, p.keys), *order = XPU_CPTR(int, p.order);
    const xpu_addr from = p.in + in;
    const long count = ends[p.extent[0] - 1];
    const long first = chunk * count / p.rows, last = (chunk + 1) * count / p.rows;
    /* destinations whose first element is in the chunk */
    long i = first == 0 ? 0 : place_of(ends, p.extent[0], first - 1) + 1;
    for (long s = i ? ends[i - 1] : 0; s < last; i++) {
        const long end = ends[i];
        if (s == end) continue;
        __global stored *to = XPU_PTR(stored, p.out + out + i * p.step[0]);
        long c = 0;
        for (; c + 16 * AT_ONCE <= columns; c += 16 * AT_ONCE) PUT_COLUMNS(ALL)
        for (; c + 16 <= columns; c += 16) PUT_COLUMNS(ONE)
        for (; c < columns; c++) {
            computed v = LOAD(T, to, c);
            for (long k = s; k < end; k++)
                v = combine(v, LOAD(S, XPU_CPTR(source, from + order[k] * by_row), c));
            STORE(T, to, c, v);
        }
        s = end;
    }
}

#elif defined ROW_LANES

#if ROW_LANES == 1

#define IN_FLIGHT 4 /* elements whose indices are loaded before any is combined */

/* Elements in a line: their addresses, with those of their destinations for index 0, and the strides. */
struct line {
    xpu_addr place, from, indices[NI];
    long by_place, by_source, by_index[NI];
};

static inline long step_of(const struct index_params *p, int k) {
#if IS_CONTIGUOUS_DIM
    return k == NI - 1 ? SIZE : p->step[k];
#else
    return p->step[k];
#endif
}

/* Element e's offset among the destinations; *found is set to false if an index is out of range. */
static inline long offset_at(const struct index_params *p, const struct line *line, long e, bool *found) {
    long offset = 0;
#pragma unroll
    for (int k = 0; k < NI; k++) {
        long index = *XPU_CPTR(index_t, line->indices[k] + e * line->by_index[k]);
#if WRAPS
        index += index >> 63 & p->extent[k];
#endif
        *found &= (ulong)index < (ulong)p->extent[k];
        offset += index * step_of(p, k);
    }
    return offset;
}

static inline void report_line(const struct index_params *p, const struct line *line, long e) {
    for (int k = 0; k < NI; k++) {
        const long given = *XPU_CPTR(index_t, line->indices[k] + e * line->by_index[k]);
        const long index = given < 0 && WRAPS ? given + p->extent[k] : given;
        if ((ulong)index >= (ulong)p->extent[k]) {
            fault_report(p->watch, k, given, p->extent[k]);
            return;
        }
    }
}

static inline void combine_line(const struct index_params *p, struct line line, long length) {
    for (long i = 0; i < length;) {
        for (; i + IN_FLIGHT <= length; i += IN_FLIGHT) {
            long offset[IN_FLIGHT];
            computed value[IN_FLIGHT];
            bool found = true;
#pragma unroll
            for (int e = 0; e < IN_FLIGHT; e++) {
                offset[e] = offset_at(p, &line, e, &found);
                value[e] = LOAD(S, XPU_CPTR(source, line.from + e * line.by_source), 0);
            }
            if (!found) break;
#pragma unroll
            for (int e = 0; e < IN_FLIGHT; e++) {
                __global stored *to = XPU_PTR(stored, line.place + e * line.by_place + offset[e]);
#if OP == 0
                STORE(T, to, 0, value[e]);
#else
                STORE(T, to, 0, combine(LOAD(T, to, 0), value[e]));
#endif
            }
            line.place += IN_FLIGHT * line.by_place, line.from += IN_FLIGHT * line.by_source;
            for (int k = 0; k < NI; k++) line.indices[k] += IN_FLIGHT * line.by_index[k];
        }
        /* the remainder, and elements with an index out of range */
        for (const long end = min(i + IN_FLIGHT, length); i < end; i++) {
            bool found = true;
            const long offset = offset_at(p, &line, 0, &found);
            if (found)
                put(line.place + offset, line.from, 0);
            else
                report_line(p, &line, 0);
            line.place += line.by_place, line.from += line.by_source;
            for (int k = 0; k < NI; k++) line.indices[k] += line.by_index[k];
        }
    }
}

#if PARTITIONED

/* The destinations' memory in at most p.items parts of 1 << shift bytes, from offset `least` on. */
struct parts {
    long least;
    int shift;
};

static inline struct parts parts_of(const struct index_params *p) {
    struct parts parts = {.shift = 6};
    ulong last = SIZE - 1;
    for (int k = 0; k < NI; k++) {
        const long end = (p->extent[k] - 1) * p->step[k];
        parts.least += min(end, 0L);
        last += (ulong)max(end, -end);
    }
    while (last >> parts.shift >= (ulong)p->items) parts.shift++;
    return parts;
}

/* The line's elements of the work-group; *length of them. */
static inline struct line block_of(const struct index_params *p, long *length) {
    const long begin = (long)XPU_GROUP(0) * p->block;
    *length = min((long)p->block, (long)p->serial - begin);
#if SERIAL_FLAT
    struct line line = {.by_source = sizeof(source)};
    for (int k = 0; k < NI; k++) line.by_index[k] = sizeof(index_t);
#else
    struct line line = {.by_source = p->in_stride[PDIMS]};
    for (int k = 0; k < NI; k++) line.by_index[k] = p->index_stride[k][PDIMS];
#endif
    line.from = p->in + begin * line.by_source;
    for (int k = 0; k < NI; k++) line.indices[k] = p->index[k] + begin * line.by_index[k];
    return line;
}

XPU_NO_VECTORIZE __kernel void scatter_count_parts(struct index_params p) {
    const struct parts parts = parts_of(&p);
    __global int *count = XPU_PTR(int, p.heads) + XPU_GROUP(0) * p.items;
    long length;
    const struct line line = block_of(&p, &length);
    for (long part = 0; part < p.items; part++) count[part] = 0;
    for (long e = 0; e < length; e++) {
        bool found = true;
        const long offset = offset_at(&p, &line, e, &found);
        if (found)
            count[offset - parts.least >> parts.shift]++;
        else
            report_line(&p, &line, e);
    }
}

/* A part's elements begin after those of the parts before it, and after its own of the blocks before this. */
XPU_NO_VECTORIZE __kernel void scatter_partition(struct index_params p) {
    const struct parts parts = parts_of(&p);
    const long block = (long)XPU_GROUP(0), blocks = p.rows;
    __global const int *counts = XPU_CPTR(int, p.heads);
    __global int *next = XPU_PTR(int, p.tails) + (block + 1) * p.items, *ends = XPU_PTR(int, p.tails);
    int sum = 0;
    for (long part = 0; part < p.items; part++) {
        int before = 0, all = 0;
        for (long b = 0; b < blocks; b++) {
            before += b < block ? counts[b * p.items + part] : 0;
            all += counts[b * p.items + part];
        }
        next[part] = sum + before;
        sum += all;
        if (block == 0) ends[part] = sum;
    }
    __global long *offsets = XPU_PTR(long, p.keys);
    __global source *values = XPU_PTR(source, p.order);
    long length;
    const struct line line = block_of(&p, &length);
    for (long e = 0; e < length; e++) {
        bool found = true;
        const long offset = offset_at(&p, &line, e, &found);
        if (!found) continue;
        const int i = next[offset - parts.least >> parts.shift]++;
        offsets[i] = offset;
        values[i] = *XPU_CPTR(source, line.from + e * line.by_source);
    }
}

XPU_NO_VECTORIZE __kernel void scatter_combine_parts(struct index_params p) {
    const long part = (long)XPU_GROUP(0);
    __global const int *ends = XPU_CPTR(int, p.tails);
    __global const long *offsets = XPU_CPTR(long, p.keys);
    for (long i = part ? ends[part - 1] : 0, end = ends[part]; i < end; i++)
        put(p.out + offsets[i], p.order + i * (long)sizeof(source), 0);
}

#else

XPU_NO_VECTORIZE __kernel void scatter_blocks(struct index_params p) {
    INDEX_WALK(PDIMS)
    const long columns = min((long)p.block, p.size[0] - x);
    struct line line = {.place = p.out + out, .from = p.in + in};
    for (int k = 0; k < NI; k++) line.indices[k] = p.index[k] + at[k];
#if SERIAL_FIRST
    line.by_place = 0;
#if SERIAL_FLAT
    line.by_source = sizeof(source);
    for (int k = 0; k < NI; k++) line.by_index[k] = sizeof(index_t);
#else
    line.by_source = p.in_stride[PDIMS];
    for (int k = 0; k < NI; k++) line.by_index[k] = p.index_stride[k][PDIMS];
#endif
    for (long i = 0; i < columns; i++) {
        combine_line(&p, line, p.serial);
        line.place += OS0, line.from += IS0;
        for (int k = 0; k < NI; k++) line.indices[k] += INDEX_STRIDE0(k);
    }
#else
    line.by_place = OS0, line.by_source = IS0;
    for (int k = 0; k < NI; k++) line.by_index[k] = INDEX_STRIDE0(k);
    for (long s = 0; s < p.serial; s++) {
        combine_line(&p, line, columns);
        line.from += p.in_stride[PDIMS];
        for (int k = 0; k < NI; k++) line.indices[k] += p.index_stride[k][PDIMS];
    }
#endif
}

#endif

#else

__attribute__((intel_reqd_sub_group_size(ROW_LANES))) __kernel void scatter_blocks(struct index_params p) {
    INDEX_WALK(PDIMS)
    const long columns = min((long)p.block, p.size[0] - x);
    const uint lane = get_sub_group_local_id();
    for (long s = 0; s < p.serial; s++) {
        INDEX_RESOLVE(offset, found, 0)
        if (found) {
            long i = 0;
            for (; i + ROW_LANES <= columns; i += ROW_LANES) put(p.out + out + offset, p.in + in, i + lane);
            if (i + lane < columns) put(p.out + out + offset, p.in + in, i + lane);
        }
        INDEX_MOVE(PDIMS, 1);
    }
}

#endif

#elif SORTED

#define NOWHERE LONG_MAX

__kernel void scatter_keys(struct index_params p) {
    const long s = get_global_id(0), row = get_global_id(1);
    if (s >= p.serial || row >= p.rows) return;
    long out = 0, in = 0, at[NI], rest = row;
    for (int k = 0; k < NI; k++) at[k] = 0;
    MOVE_PARALLEL(rest)
    WALK_SERIAL(s);
    __global long *key = XPU_PTR(long, p.keys) + row * p.serial + s;
    INDEX_RESOLVE(offset, found, 0)
    *key = found ? offset : NOWHERE;
}

/* For destinations numbered over p.extent[0] × … × p.extent[NI - 1], last index fastest: the work-item's
 * element, its number, and the address of its counter. */
#define PLACE_START                                                                                          \
    const long s = get_global_id(0);                                                                         \
    if (s >= p.serial) return;                                                                               \
    long out = 0, in = 0, at[NI];                                                                            \
    for (int k = 0; k < NI; k++) at[k] = 0;                                                                  \
    WALK_SERIAL(s);                                                                                          \
    INDEX_RESOLVE(offset, found, 0)                                                                          \
    long place = 0, places = 1;                                                                              \
    for (int k = 0; k < NI; k++) {                                                                           \
        const long given = *XPU_CPTR(index_t, p.index[k] + at[k]);                                           \
        place = place * p.extent[k] + (given < 0 && p.wrap ? given + p.extent[k] : given);                   \
        places *= p.extent[k];                                                                               \
    }                                                                                                        \
    volatile __global int *count = XPU_PTR(int, p.heads) + (found ? place : places);

#define MOST_RIVALS 32 /* elements per destination that compare and swap; some retries each */
#define LEAVE_IF_EVEN                                                                                        \
    if (p.crowded && *XPU_CPTR(int, p.crowded) == 0) return;

__kernel void scatter_count(struct index_params p) {
    PLACE_START
    if (atomic_inc(count) == MOST_RIVALS && found && p.crowded) *XPU_PTR(int, p.crowded) = 1;
}

__kernel void scatter_spread(struct index_params p) {
    LEAVE_IF_EVEN
    PLACE_START
    const int i = atomic_dec(count) - 1;
    XPU_PTR(long, p.keys)[i] = found ? offset : NOWHERE;
    XPU_PTR(long, p.order)[i] = s;
}

#define WHOLE_RUN 1024

/* Number of sorted keys that are less than `key` or, with `and_equal`, less than or equal. */
static inline long keys_before(__global const long *keys, long count, long key, bool and_equal) {
    long low = 0, high = count;
    while (low < high) {
        const long middle = low + (high - low) / 2, k = keys[middle];
        if (k < key || (and_equal && k == key))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The work-item's element of the parallel dimensions, and its chunk of the order. */
#define RUNS_START                                                                                           \
    const long x = get_global_id(0), chunk = get_global_id(1), others = get_global_id(2);                    \
    const long begin = chunk * p.block;                                                                      \
    if (x >= p.size[0] || begin >= p.serial) return;                                                         \
    const long item = x + p.size[0] * others, items = p.items;                                               \
    const long row = p.rows > 1 ? item : 0, end = min(begin + p.block, (long)p.serial);                      \
    __global const long *keys = XPU_CPTR(long, p.keys) + row * p.serial;                                     \
    long out = x * OS0, in = x * IS0, at[NI], z = others;                                                    \
    for (int k = 0; k < NI; k++) at[k] = 0;                                                                  \
    _Pragma("unroll") for (int d = 1; d < PDIMS; d++) {                                                      \
        const long q = d + 1 < PDIMS ? (long)((ulong)z / (ulong)p.size[d]) : 0, r = z - q * p.size[d];       \
        INDEX_MOVE(d, r);                                                                                    \
        z = q;                                                                                               \
    }

/* v combined with elements from … to-1 of the order, one after the other. (Intel's CPU compiler would split
 * a vectorized loop into several sums.) */
#define COMBINE_RUN(v, from, to)                                                                             \
    _Pragma("clang loop vectorize(disable)") for (long i_ = from; i_ < (to); i_++) {                         \
        in = in0;                                                                                            \
        WALK_SERIAL(order[i_]);                                                                              \
        v = combine(v, LOAD(S, XPU_CPTR(source, p.in + in), 0));                                             \
    }

__kernel void scatter_runs(struct index_params p) {
    LEAVE_IF_EVEN
    RUNS_START
    __global const long *order = XPU_CPTR(long, p.order) + row * p.serial;
    const long in0 = in;
    long i = begin;
    if (begin > 0 && keys[begin - 1] == keys[begin]) { /* a run that starts in an earlier chunk */
        const long key = keys[begin];
        if (key == NOWHERE) return;
        const long last = keys_before(keys, p.serial, key, true);
        if (last - keys_before(keys, p.serial, key, false) > WHOLE_RUN) {
            WALK_SERIAL(order[begin]);
            computed v = LOAD(S, XPU_CPTR(source, p.in + in), 0);
            COMBINE_RUN(v, begin + 1, min(last, end))
            XPU_PTR(computed, p.heads)[chunk * items + item] = v;
        }
        i = last;
    }
    while (i < end) {
        const long key = keys[i];
        if (key == NOWHERE) return;
        long last = i + 1;
        while (last < end && keys[last] == key) last++;
        bool is_cut = false;
        if (last == end && end < p.serial && keys[end] == key) {
            const long whole = keys_before(keys, p.serial, key, true);
            is_cut = whole - i > WHOLE_RUN;
            if (!is_cut) last = whole;
        }
        __global stored *place = XPU_PTR(stored, p.out + out + key);
        computed v = LOAD(T, place, 0);
        COMBINE_RUN(v, i, last)
        if (is_cut)
            XPU_PTR(computed, p.tails)[chunk * items + item] = v;
        else
            STORE(T, place, 0, v);
        i = last;
    }
}

/* Combines the parts of the runs that begin in a chunk and are split at its end. */
__kernel void scatter_merge_runs(struct index_params p) {
    LEAVE_IF_EVEN
    RUNS_START
    if (end >= p.serial || keys[end] != keys[end - 1] || keys[end] == NOWHERE) return;
    const long key = keys[end], first = keys_before(keys, p.serial, key, false);
    const long last = keys_before(keys, p.serial, key, true);
    if (first < begin || last - first <= WHOLE_RUN) return;
    computed v = XPU_CPTR(computed, p.tails)[chunk * items + item];
    __global const computed *head = XPU_CPTR(computed, p.heads) + (chunk + 1) * items + item;
    long parts = (last - 1) / p.block - chunk;
    for (; parts >= 4; parts -= 4, head += 4 * items) { /* loads that don't wait for each other */
        const computed a = head[0], b = head[items], c = head[2 * items], d = head[3 * items];
        v = combine(combine(combine(combine(v, a), b), c), d);
    }
    for (; parts > 0; parts--, head += items) v = combine(v, *head);
    STORE(T, XPU_PTR(stored, p.out + out + key), 0, v);
}

#elif !ATOMIC

__kernel void scatter_deterministic(struct index_params p) {
    INDEX_WALK(PDIMS)
#if DIMS == PDIMS + 1
    for (long s = 0; s < p.serial; s++) {
        INDEX_RESOLVE(offset, found, 0)
        if (found) put(p.out + out + offset, p.in + in, 0);
        INDEX_MOVE(PDIMS, 1);
    }
#else
    const long out0 = out, in0 = in;
    long at0[NI];
    for (int k = 0; k < NI; k++) at0[k] = at[k];
    for (long s = 0; s < p.serial; s++) {
        out = out0, in = in0;
        for (int k = 0; k < NI; k++) at[k] = at0[k];
        long rest = s;
#pragma unroll
        for (int d = PDIMS; d < DIMS; d++) {
            const long q = d + 1 < DIMS ? (long)((ulong)rest / (ulong)p.size[d]) : 0;
            const long r = rest - q * p.size[d];
            INDEX_MOVE(d, r);
            rest = q;
        }
        INDEX_RESOLVE(offset, found, 0)
        if (found) put(p.out + out + offset, p.in + in, 0);
    }
#endif
}

#else

#if SIZE < 4
/* The bits of an element of 1 or 2 bytes, and back. */
static inline computed from_bits(uint bits) { return WIDEN(T, (RAW(T))bits); }
static inline uint to_bits(computed v) { return NARROW(T, v); }

/* Compare and swap of the dword that contains the element; allocations are aligned, so all of it is
 * accessible. */
static inline void update(xpu_addr address, computed v) {
    volatile __global uint *word = (volatile __global uint *)(address & ~(xpu_addr)3);
    const uint shift = (uint)(address & 3) * 8;
    const uint mask = SIZE == 1 ? 0xffu : 0xffffu;
    uint seen = *word, old;
    do {
        old = seen;
        const uint fresh = to_bits(combine(from_bits((old >> shift) & mask), v)) & mask;
        const uint now = (old & ~(mask << shift)) | (fresh << shift);
        if (now == old) return;
        seen = atomic_cmpxchg(word, old, now);
    } while (seen != old);
}

#elif defined(KIND_c)
/* Sums only: real and imaginary part separately. */
#if SIZE == 8
#define PART float
#else
#define PART double
#endif
XPU_ATOMIC_ADD_GLOBAL(PART, add)
static inline void update(xpu_addr address, computed v) {
    add(XPU_PTR(PART, address), v.x);
    add(XPU_PTR(PART, address) + 1, v.y);
}

#elif OP == 1 && defined(T_f32)
XPU_ATOMIC_ADD_GLOBAL(float, add)
static inline void update(xpu_addr address, computed v) { add(XPU_PTR(float, address), v); }

#elif OP == 1 && defined(T_f64)
XPU_ATOMIC_ADD_GLOBAL(double, add)
static inline void update(xpu_addr address, computed v) { add(XPU_PTR(double, address), v); }

#elif OP == 1 && SIZE == 4
static inline void update(xpu_addr address, computed v) {
    atomic_add((volatile __global computed *)address, v);
}

#elif OP == 1
static inline void update(xpu_addr address, computed v) {
    atom_add((volatile __global computed *)address, v);
}

#elif OP >= 3 && SIZE == 4
#if OP == 3
#define ATOMIC_FIRST atomic_min
#define ATOMIC_LAST atomic_max
#else
#define ATOMIC_FIRST atomic_max
#define ATOMIC_LAST atomic_min
#endif
static inline void update(xpu_addr address, computed v) {
#if defined(KIND_f)
    /* The bits of positive floats are ordered like integers, those of negative ones in reverse. NaN wins and
     * is never replaced. */
    const float old = *(volatile __global float *)address;
    if (old != old || (OP == 3 ? v >= old : v <= old)) return;
    if (v != v) v = as_float(OP == 3 ? 0xffc00000u : 0x7fc00000u);
    if (as_int(v) >= 0)
        ATOMIC_FIRST((volatile __global int *)address, as_int(v));
    else
        ATOMIC_LAST((volatile __global uint *)address, as_uint(v));
#else
    ATOMIC_FIRST((volatile __global computed *)address, v);
#endif
}

#else
#if SIZE == 4
typedef uint bits_t;
#define SWAP atomic_cmpxchg
#define AS_BITS as_uint
#else
typedef ulong bits_t;
#define SWAP atom_cmpxchg
#define AS_BITS as_ulong
#endif
#if defined(T_f32)
#define AS_VALUE as_float
#elif defined(T_f64)
#define AS_VALUE as_double
#else
#define AS_VALUE (computed)
#endif
/* Most minima and maxima find that nothing changes, so few contend. */
static inline void update(xpu_addr address, computed v) {
    volatile __global bits_t *word = (volatile __global bits_t *)address;
    bits_t seen = *word, old;
    do {
        old = seen;
        const bits_t now = AS_BITS(combine(AS_VALUE(old), v));
        if (now == old) return;
        seen = SWAP(word, old, now);
    } while (seen != old);
}
#endif

#if IF_EVEN
/* A work-item has an element of the serial dimensions and one of the `items` of the parallel ones. */
__kernel void scatter_even(struct index_params p) {
    if (*XPU_CPTR(int, p.crowded)) return;
    const ulong i = get_global_id(0), s = i / (ulong)p.items;
    if (s >= (ulong)p.serial) return;
    long out = 0, in = 0, at[NI], rest = i - s * p.items;
    for (int k = 0; k < NI; k++) at[k] = 0;
    MOVE_PARALLEL(rest)
    WALK_SERIAL(s);
    INDEX_RESOLVE(offset, found, 0)
    if (found) update(p.out + out + offset, LOAD(S, XPU_CPTR(source, p.in + in), 0));
}
#else
__kernel void scatter_atomic(struct index_params p) {
    INDEX_WALK(DIMS)
    INDEX_RESOLVE(offset, found, 0)
    if (!found) return;
    update(p.out + out + offset, LOAD(S, XPU_CPTR(source, p.in + in), 0));
}
#endif
#endif
#endif

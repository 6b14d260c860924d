/* Embedding bags: out[b] = the sum, mean or maximum of the weight's rows that bag b lists; and gradients.
 * Portable and deterministic.
 *
 * Launch: a work-group is FEATURES × ROWS; a work-item has VECTOR_SIZE contiguous features.
 *   bag_forward            ROWS work-items share a split of a bag (SHARED), or each has a bag of its own
 *   bag_finish             merges the splits of a bag
 *   rows_gradient          out[k] = sum of the rows of `grad` whose index is k: the sorted indices are split
 *                          into chunks, one per row of work-items; runs that cross a chunk's boundary are
 *                          left for
 *   rows_gradient_finish
 *   bag_weights            gradient of the per-sample weights: a row of work-items per index
 * Options: T, dtype of the weight; ACC; I, dtype of the indices; MAX; VECTOR_SIZE and BITS, a type of a
 * vector's size; BY_ELEMENT, vectors are loaded element by element, which CPU compilers vectorize. */
#include "embedding.h"

#define LANE get_local_id(0)
#define ROW get_local_id(1)
#ifdef BY_ELEMENT
#define EMBEDDING_KERNEL XPU_NO_VECTORIZE __attribute__((reqd_work_group_size(FEATURES, ROWS, 1))) __kernel
#else
#define EMBEDDING_KERNEL __attribute__((reqd_work_group_size(FEATURES, ROWS, 1))) __kernel
#endif

typedef STORED(I) index_t;

typedef struct pack {
    ACC v[VECTOR_SIZE];
} pack;

static inline pack load_vector(__global const STORED(T) *p, size_t i) {
    pack r;
#if VECTOR_SIZE > 1 && !defined BY_ELEMENT
    union {
        BITS whole;
        RAW(T) element[VECTOR_SIZE];
    } u;
    u.whole = *(__global const BITS *)(p + i);
#pragma unroll
    for (uint k = 0; k < VECTOR_SIZE; k++) r.v[k] = WIDEN(T, u.element[k]);
#else
#pragma unroll
    for (uint k = 0; k < VECTOR_SIZE; k++) r.v[k] = LOAD(T, p, i + k);
#endif
    return r;
}

static inline void store_vector_of(__global STORED(T) *p, size_t i, pack r) {
#if VECTOR_SIZE > 1 && !defined BY_ELEMENT
    union {
        BITS whole;
        RAW(T) element[VECTOR_SIZE];
    } u;
#pragma unroll
    for (uint k = 0; k < VECTOR_SIZE; k++) u.element[k] = NARROW(T, r.v[k]);
    *(__global BITS *)(p + i) = u.whole;
#else
#pragma unroll
    for (uint k = 0; k < VECTOR_SIZE; k++) STORE(T, p, i + k, r.v[k]);
#endif
}

#ifdef BUILD_bag

/* The partial result of a bag; for maxima with their positions, -1 for none. */
typedef struct part {
    pack sum;
#ifdef MAX
    long at[VECTOR_SIZE];
#endif
} part;

static inline part nothing(void) {
    part r;
    for (uint k = 0; k < VECTOR_SIZE; k++) {
        r.sum.v[k] = 0;
#ifdef MAX
        r.at[k] = -1;
#endif
    }
    return r;
}

static inline part joined(part a, part b) {
#pragma unroll
    for (uint k = 0; k < VECTOR_SIZE; k++) {
#ifdef MAX
        const bool greater = b.sum.v[k] > a.sum.v[k] || (b.sum.v[k] == a.sum.v[k] && b.at[k] < a.at[k]);
        if (b.at[k] >= 0 && (a.at[k] < 0 || greater)) {
            a.sum.v[k] = b.sum.v[k];
            a.at[k] = b.at[k];
        }
#else
        a.sum.v[k] += b.sum.v[k];
#endif
    }
    return a;
}

/* Merges the partial results of the work-group's rows into row 0. */
#if ROWS > 1
#define ROWS_SCRATCH                                                                                         \
    __local part scratch[ROWS * FEATURES];                                                                   \
    __local long counts[ROWS];
static inline part merge_rows(part mine, long *count, __local part *scratch, __local long *counts) {
    scratch[ROW * FEATURES + LANE] = mine;
    if (LANE == 0) counts[ROW] = *count;
    barrier(CLK_LOCAL_MEM_FENCE);
    *count = 0;
    for (uint row = 0; row < ROWS; row++) *count += counts[row];
    for (uint half_ = ROWS / 2; half_ > 0; half_ /= 2) {
        if (ROW < half_) {
            mine = joined(mine, scratch[(ROW + half_) * FEATURES + LANE]);
            scratch[ROW * FEATURES + LANE] = mine;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    return mine;
}
#define JOIN_ROWS(mine, count) mine = merge_rows(mine, &count, scratch, counts);
#else
#define ROWS_SCRATCH
#define JOIN_ROWS(mine, count)
#endif

/* The indices of a bag. Offsets beyond the indices, or that fall, are reported. */
static inline void bounds(const bag_params *p, long bag, long *begin, long *end) {
    __global const index_t *offsets = XPU_CPTR(index_t, p->offsets);
    *begin = clamp((long)offsets[bag], 0L, (long)p->count);
    *end = bag + 1 < p->bags || p->last_is_end ? clamp((long)offsets[bag + 1], *begin, (long)p->count)
                                               : p->count;
    if (offsets[bag] != *begin) fault_report(p->watch, 1, offsets[bag], p->count);
    if ((bag + 1 < p->bags || p->last_is_end) && offsets[bag + 1] != *end)
        fault_report(p->watch, 1, offsets[bag + 1], p->count);
}

static inline bool counts_in(const bag_params *p, long index) {
    return index != p->padding_index && (ulong)index < (ulong)p->rows;
}

static inline void store_bag(const bag_params *p, long bag, ulong column, part r, long count) {
    if (column == 0) XPU_PTR(index_t, p->sizes)[bag] = (index_t)count;
#ifdef MAX
    __global const index_t *indices = XPU_CPTR(index_t, p->indices);
    if (count == 0) {
        for (uint k = 0; k < VECTOR_SIZE; k++) r.sum.v[k] = 0;
    } else { /* nothing compares greater than NaN, so NaN stays */
        long at, end;
        bounds(p, bag, &at, &end);
        while (at + 1 < end && !counts_in(p, indices[at])) at++;
        const pack first =
            load_vector(XPU_CPTR(STORED(T), p->weight), (ulong)indices[at] * (ulong)p->row_stride + column);
        for (uint k = 0; k < VECTOR_SIZE; k++)
            if (first.v[k] != first.v[k]) {
                r.sum.v[k] = first.v[k];
                r.at[k] = at;
            }
    }
    // clang-format off
    for (uint k = 0; k < VECTOR_SIZE; k++)
        XPU_PTR(index_t, p->max_indices)
            [(ulong)bag * p->width + column + k] = count == 0 ? (index_t)-1 : indices[r.at[k]];
    // clang-format on
#else
    if (p->mean && count > 1)
        for (uint k = 0; k < VECTOR_SIZE; k++) r.sum.v[k] /= count;
#endif
    store_vector_of(XPU_PTR(STORED(T), p->out), (ulong)bag * p->width + column, r.sum);
}

#define AHEAD 4 /* rows of the weight whose loads are in flight */

EMBEDDING_KERNEL void bag_forward(bag_params p) {
#ifdef SHARED
    ROWS_SCRATCH
    const ulong task = XPU_GROUP(0);
    const uint row = ROW, step = ROWS;
#else
    const ulong task = XPU_GROUP(0) * ROWS + ROW;
    const uint row = 0, step = 1;
    if (task >= (ulong)p.bags) return;
#endif
    const long bag = (long)(task / p.splits);
    const uint split = (uint)(task - (ulong)bag * p.splits);
    const ulong column = (XPU_GROUP(1) * FEATURES + LANE) * VECTOR_SIZE;
    __global const index_t *indices = XPU_CPTR(index_t, p.indices);
    long begin, end;
    bounds(&p, bag, &begin, &end);
    if (XPU_GROUP(1) == 0) { /* indices before the first bag or after the last one count as theirs */
        const long from = bag == 0 ? 0 : begin, to = bag + 1 < p.bags ? end : p.count;
        const long all = (long)step * FEATURES;
        for (long i = from + split * all + row * FEATURES + LANE; i < to; i += p.splits * all)
            XPU_PTR(index_t, p.bag)[i] = (index_t)bag;
    }
    const long length = end - begin, to = begin + length * (split + 1) / p.splits;
    long count = 0;
    part r = nothing();
    for (long i = begin + length * split / p.splits + row; i < to; i += AHEAD * step) {
        long index[AHEAD];
        bool in[AHEAD];
#pragma unroll
        for (uint a = 0; a < AHEAD; a++) {
            const bool there = i + a * step < to;
            index[a] = there ? (long)indices[i + a * step] : -1;
            in[a] = there && counts_in(&p, index[a]);
            count += in[a];
            if (there && (ulong)index[a] >= (ulong)p.rows) fault_report(p.watch, 0, index[a], p.rows);
        }
        if (column >= p.width) continue;
        pack x[AHEAD];
#pragma unroll
        for (uint a = 0; a < AHEAD; a++)
            if (in[a])
                x[a] = load_vector(XPU_CPTR(STORED(T), p.weight),
                                   (ulong)index[a] * (ulong)p.row_stride + column);
#pragma unroll
        for (uint a = 0; a < AHEAD; a++) {
            if (!in[a]) continue;
            const long at = i + a * step;
#ifdef MAX
#pragma unroll
            for (uint k = 0; k < VECTOR_SIZE; k++)
                if (x[a].v[k] == x[a].v[k] && (r.at[k] < 0 || x[a].v[k] > r.sum.v[k])) {
                    r.sum.v[k] = x[a].v[k];
                    r.at[k] = at;
                }
#else
            ACC factor = 1;
            if (p.sample_weights)
                factor = LOAD(T, XPU_CPTR(STORED(T), p.sample_weights), at * p.sample_weight_stride);
#pragma unroll
            for (uint k = 0; k < VECTOR_SIZE; k++) r.sum.v[k] += x[a].v[k] * factor;
#endif
        }
    }
#ifdef SHARED
    JOIN_ROWS(r, count)
    if (ROW > 0) return;
#endif
    if (column >= p.width) {
        if (column == 0) XPU_PTR(index_t, p.sizes)[bag] = (index_t)count; /* rows of no elements */
        return;
    }
    if (p.splits == 1) {
        store_bag(&p, bag, column, r, count);
        return;
    }
    for (uint k = 0; k < VECTOR_SIZE; k++) {
        XPU_PTR(ACC, p.parts)[task * p.width + column + k] = r.sum.v[k];
#ifdef MAX
        XPU_PTR(long, p.part_positions)[task * p.width + column + k] = r.at[k];
#endif
    }
    if (column == 0) XPU_PTR(long, p.part_counts)[task] = count;
}

EMBEDDING_KERNEL void bag_finish(bag_params p) {
    ROWS_SCRATCH
    const long bag = (long)XPU_GROUP(0);
    const ulong column = (XPU_GROUP(1) * FEATURES + LANE) * VECTOR_SIZE;
    part r = nothing();
    long count = 0;
    for (ulong s = ROW; s < p.splits; s += ROWS) {
        const ulong task = (ulong)bag * p.splits + s;
        count += XPU_CPTR(long, p.part_counts)[task];
        if (column >= p.width) continue;
        part one;
        for (uint k = 0; k < VECTOR_SIZE; k++) {
            one.sum.v[k] = XPU_CPTR(ACC, p.parts)[task * p.width + column + k];
#ifdef MAX
            one.at[k] = XPU_CPTR(long, p.part_positions)[task * p.width + column + k];
#endif
        }
        r = joined(r, one);
    }
    JOIN_ROWS(r, count)
    if (ROW == 0 && column < p.width) store_bag(&p, bag, column, r, count);
}
#endif

#ifdef BUILD_rows

/* Number of sorted keys that are less than `key` or, with `and_equal`, less than or equal. */
static inline long keys_before(const rows_gradient_params *p, long key, bool and_equal) {
    __global const index_t *keys = XPU_CPTR(index_t, p->keys);
    long low = 0, high = p->count;
    while (low < high) {
        const long middle = low + (high - low) / 2, k = keys[middle];
        if (k < key || (and_equal && k == key))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static inline void store_row(const rows_gradient_params *p, long key, ulong column, pack sum) {
    if (key == p->padding_index) return;
    if ((ulong)key >= (ulong)p->rows) {
        if (column == 0) fault_report(p->watch, 0, key, p->rows);
        return;
    }
    if (p->by_frequency) {
        const ACC times = keys_before(p, key, true) - keys_before(p, key, false);
        for (uint k = 0; k < VECTOR_SIZE; k++) sum.v[k] /= times;
    }
    store_vector_of(XPU_PTR(STORED(T), p->out), (ulong)key * p->width + column, sum);
}

static inline void store_sum(xpu_addr sums, ulong at, pack sum) {
    for (uint k = 0; k < VECTOR_SIZE; k++) XPU_PTR(ACC, sums)[at + k] = sum.v[k];
}

EMBEDDING_KERNEL void rows_gradient(rows_gradient_params p) {
    const long chunk = (long)(XPU_GROUP(0) * ROWS + ROW);
    const ulong column = (XPU_GROUP(1) * FEATURES + LANE) * VECTOR_SIZE;
    if (chunk >= p.chunks || column >= p.width) return;
    __global const index_t *keys = XPU_CPTR(index_t, p.keys), *bags = XPU_CPTR(index_t, p.bag);
    __global const index_t *sizes = XPU_CPTR(index_t, p.sizes);
    __global const long *places = XPU_CPTR(long, p.places);
    const long begin = chunk * p.chunk, end = min(begin + (long)p.chunk, (long)p.count);
    pack sum;
    for (uint k = 0; k < VECTOR_SIZE; k++) sum.v[k] = 0;
    bool shared = begin > 0 && keys[begin - 1] == keys[begin]; /* with the previous chunk */
    for (long i = begin; i < end; i++) {
        const long key = keys[i], place = places[i], given = p.bag ? (long)bags[place] : place;
        const bool is_bag = (ulong)given < (ulong)p.bags;
        const long row = is_bag ? given : 0;
        if (!is_bag && column == 0) fault_report(p.watch, 1, given, p.bags);
        const pack x = load_vector(XPU_CPTR(STORED(T), p.grad), (ulong)row * p.width + column);
        ACC factor = 1;
        if (p.sample_weights)
            factor = LOAD(T, XPU_CPTR(STORED(T), p.sample_weights), place * p.sample_weight_stride);
        if (p.sizes) factor /= max((long)sizes[row], 1L);
#pragma unroll
        for (uint k = 0; k < VECTOR_SIZE; k++) sum.v[k] += x.v[k] * factor;
        const bool more = i + 1 < p.count && keys[i + 1] == key;
        if (more && i + 1 < end) continue;
        if (shared)
            store_sum(p.heads, (ulong)chunk * p.width + column, sum);
        else if (more)
            store_sum(p.tails, (ulong)chunk * p.width + column, sum);
        else
            store_row(&p, key, column, sum);
        for (uint k = 0; k < VECTOR_SIZE; k++) sum.v[k] = 0;
        shared = false;
    }
}

/* Adds up the runs that begin in a chunk and end in a later one. */
EMBEDDING_KERNEL void rows_gradient_finish(rows_gradient_params p) {
    const long chunk = (long)(XPU_GROUP(0) * ROWS + ROW);
    const ulong column = (XPU_GROUP(1) * FEATURES + LANE) * VECTOR_SIZE;
    if (chunk >= p.chunks || column >= p.width) return;
    __global const index_t *keys = XPU_CPTR(index_t, p.keys);
    const long begin = chunk * p.chunk;
    long end = begin + p.chunk;
    if (end >= p.count) return;
    const long key = keys[end];
    if (keys[end - 1] != key || (begin > 0 && keys[begin - 1] == key)) return;
    pack sum;
    for (uint k = 0; k < VECTOR_SIZE; k++)
        sum.v[k] = XPU_CPTR(ACC, p.tails)[(ulong)chunk * p.width + column + k];
    for (long next = chunk + 1; end < p.count && keys[end] == key; next++) {
        for (uint k = 0; k < VECTOR_SIZE; k++)
            sum.v[k] += XPU_CPTR(ACC, p.heads)[(ulong)next * p.width + column + k];
        end += p.chunk;
        if (end < p.count && keys[end - 1] != key) break;
    }
    store_row(&p, key, column, sum);
}
#endif

#ifdef BUILD_weights
EMBEDDING_KERNEL void bag_weights(bag_weights_params p) {
    __local ACC scratch[ROWS][FEATURES];
    const ulong i = XPU_GROUP(0) * ROWS + ROW;
    const bool there = i < (ulong)p.count;
    const long index = there ? (long)XPU_CPTR(index_t, p.indices)[i] : -1;
    const long bag = there ? (long)XPU_CPTR(index_t, p.bag)[i] : -1;
    const bool in = (ulong)index < (ulong)p.rows && (ulong)bag < (ulong)p.bags && index != p.padding_index;
    if (there && LANE == 0 && (ulong)index >= (ulong)p.rows) fault_report(p.watch, 0, index, p.rows);
    if (there && LANE == 0 && (ulong)bag >= (ulong)p.bags) fault_report(p.watch, 1, bag, p.bags);
    ACC sum = 0;
    if (in)
        for (ulong column = LANE * VECTOR_SIZE; column < p.width; column += FEATURES * VECTOR_SIZE) {
            const pack g = load_vector(XPU_CPTR(STORED(T), p.grad), (ulong)bag * p.width + column);
            const pack w =
                load_vector(XPU_CPTR(STORED(T), p.weight), (ulong)index * (ulong)p.row_stride + column);
#pragma unroll
            for (uint k = 0; k < VECTOR_SIZE; k++) sum += g.v[k] * w.v[k];
        }
    scratch[ROW][LANE] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint half_ = FEATURES / 2; half_ > 0; half_ /= 2) {
        if (LANE < half_) scratch[ROW][LANE] += scratch[ROW][LANE + half_];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (there && LANE == 0) STORE(T, XPU_PTR(STORED(T), p.out), i, scratch[ROW][0]);
}
#endif

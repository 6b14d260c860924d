/* Sparse tensors; formulas in xpu/ops/sparse.h. Portable. One of:
 *   KEYS      sparse_keys: linear index of every coordinate; one work-item per key
 *   CHECK     sparse_check: reports row starts that don't rise from 0 to the number of elements, and columns
 *             out of range; one work-item per start and column; I, their dtype
 *   SEARCH    sparse_search: binary search; one work-item per key; I, O, dtypes of keys and positions (i32
 *             or i64)
 *   REDUCE    sparse_reduce: one work-item per result; T, dtype, KIND_b|i|u|f|c,
 *             REDUCTION_SUM|MAXIMUM|PRODUCT
 *   PRODUCT   sparse_product: one work-item per result; T, dtype, COMPLEX_T, FLOAT_T, DOUBLE_T; I, dtype of
 *             the indices
 * REDUCE and PRODUCT with WIDE: a work-group runs along one row; otherwise over all results. */
#include "sparse.h"

#ifdef WIDE
#define PLACE(rows)                                                                                          \
    const long lanes = get_local_size(0), blocks = (p.width + lanes - 1) / lanes;                            \
    const long row = XPU_GROUP(0) / blocks,                                                                  \
               column = (XPU_GROUP(0) - row * blocks) * lanes + get_local_id(0);                             \
    if (column >= p.width) return;
#else
#define PLACE(rows)                                                                                          \
    const long place = get_global_id(0);                                                                     \
    if (place >= rows * p.width) return;                                                                     \
    const long row = place / p.width, column = place - row * p.width;
#endif

#ifdef KEYS
__kernel void sparse_keys(struct sparse_keys_params p) {
    const long i = get_global_id(0);
    if (i >= p.count) return;
    __global const long *indices = XPU_CPTR(long, p.indices) + i * p.column_stride;
    long key = 0;
    for (int d = 0; d < p.dims; d++) {
        const long index = indices[d * p.row_stride];
        if ((ulong)index >= (ulong)p.size[d]) fault_report(p.watch, d, index, p.size[d]);
        key += index * p.step[d];
    }
    XPU_PTR(long, p.keys)[i] = key;
}
#endif

#ifdef CHECK
__kernel void sparse_check(struct sparse_check_params p) {
    const long i = get_global_id(0);
    if (p.columns && i < p.batch * p.count) {
        const long column = XPU_CPTR(STORED(I), p.columns)[i];
        if ((ulong)column >= (ulong)p.width) fault_report(p.bad_column, 0, column, p.width);
    }
    if (i >= p.batch * p.length) return;
    const long row = i % p.length;
    __global const STORED(I) *starts = XPU_CPTR(STORED(I), p.starts);
    const bool rises = row ? starts[i] >= starts[i - 1] : starts[i] == 0;
    if (!rises || (row == p.length - 1 && starts[i] != p.count)) fault_report(p.bad_starts, FAULT_TEXT, 0, 0);
}
#endif

#ifdef SEARCH
__kernel void sparse_search(struct sparse_search_params p) {
    const long i = get_global_id(0);
    if (i >= p.count) return;
    const long key = p.keys ? (long)LOAD(I, XPU_CPTR(STORED(I), p.keys), i) : i;
    __global const STORED(I) *sorted = XPU_CPTR(STORED(I), p.sorted);
    long low = 0, high = p.length;
    while (low < high) {
        const long middle = low + (high - low) / 2, seen = LOAD(I, sorted, middle);
        if (seen < key || (p.upper && seen == key))
            low = middle + 1;
        else
            high = middle;
    }
    STORE(O, XPU_PTR(STORED(O), p.positions), i, (COMPUTED(O))low);
}
#endif

#ifdef REDUCE
typedef COMPUTED(T) computed;

static inline computed combine(computed old, computed v) {
#if defined(REDUCTION_MAXIMUM) && defined(KIND_f)
    return old != old || old > v ? old : v;
#elif defined(REDUCTION_MAXIMUM)
    return old > v ? old : v;
#elif defined(REDUCTION_PRODUCT) && defined(KIND_c)
    return (computed)(old.x * v.x - old.y * v.y, old.x * v.y + old.y * v.x);
#elif defined(REDUCTION_PRODUCT)
    return old * v;
#elif defined(KIND_b)
    return old | v;
#else
    return old + v;
#endif
}

__kernel void sparse_reduce(struct sparse_reduce_params p) {
    PLACE(p.segments)
    __global const STORED(T) *values = XPU_CPTR(STORED(T), p.values);
    __global const long *positions = XPU_CPTR(long, p.positions), *starts = XPU_CPTR(long, p.starts);
    long k = starts[row];
    const long end = row + 1 < p.segments ? starts[row + 1] : p.count;
    computed sum = LOAD(T, values, (positions ? positions[k] : k) * p.width + column);
    for (k++; k < end; k++)
        sum = combine(sum, LOAD(T, values, (positions ? positions[k] : k) * p.width + column));
    STORE(T, XPU_PTR(STORED(T), p.out), row * p.width + column, sum);
}
#endif

#ifdef PRODUCT
#include "gemm/gemm_tile.h"

__kernel void sparse_product(struct sparse_product_params p) {
    PLACE(p.rows)
    __global const STORED(I) *starts = XPU_CPTR(STORED(I), p.starts),
                             *columns = XPU_CPTR(STORED(I), p.columns);
    __global const long *positions = XPU_CPTR(long, p.positions);
    acc_t sum = (acc_t)0;
    const long first = starts[row], last = starts[row + 1], end = min(last, (long)p.count);
    long outside = 0;
    bool columns_fit = true;
    for (long k = max(first, 0L); k < end; k++) {
        const long e = positions ? positions[k] : k, from = columns[e];
        if ((ulong)from >= (ulong)p.height) {
            outside = from;
            columns_fit = false;
            continue;
        }
        sum = multiply_add(sum, FETCH(p.values, e), FETCH(p.dense, from * p.dense_stride + column));
    }
    if (column == 0) {
        const bool starts_fit =
            first <= last && (row > 0 || first == 0) && (row + 1 < p.rows || last == p.count);
        if (!starts_fit) fault_report(p.bad_starts, FAULT_TEXT, 0, 0);
        if (!columns_fit) fault_report(p.bad_column, 0, outside, p.height);
    }
    acc_t v = multiply(SCALAR(p.alpha), sum);
    const acc_t beta = SCALAR(p.beta);
    if (!is_zero(beta)) v = multiply_add(v, beta, FETCH(p.in, row * p.in_row + column * p.in_column));
    KEEP(p.out, row * p.width + column, v);
}
#endif

/* One time step of a recurrent network: the recurrent product and the cell in one launch; formulas in
 * xpu/ops/rnn.h.
 *   forward    product = previous states × hidden weights, transposed; then the cell
 *   BACKWARD   product = gradients of the next step's gates × hidden weights (the gradient of this step's
 *              hidden state); then the cell's gradients. Rows that this step lacks end here: their gradient
 *              is the one of the initial state.
 *
 * Launch: a work-group has ROWS rows and UNITS hidden units, with all PARTS columns of the product that
 * belong to a unit (a gate each forward, one backward). Its work-items split the depth; their partial sums
 * are reduced in local memory, and from there on a work-item has one unit of one row. Weights are read along
 * the depth (transposed for gradients).
 * Options: T=<floating dtype>, half-precision computed in fp32; LSTM, GRU, RNN_TANH or RNN_RELU; GATES;
 * BACKWARD=0|1; ROWS, UNITS; and
 *   portable        ALIGNED=1, rows can be read four elements at a time; SIDE, SIDE_UNITS, rows and units of
 *                   a work-item
 *   matrix engine   MATRIX_T, as T; rows are aligned to 16 bytes, ROWS is a multiple of 16 and UNITS * PARTS
 *                   of 8 */
#include "rnn.h"

typedef COMPUTED(T) real;

#define THREADS 256
#define PARTS (BACKWARD ? 1 : GATES)
#define CELLS (ROWS * UNITS)
#define SUMS (CELLS * PARTS)
#define PITCH (SUMS + 4) /* padded so that slices start in different banks */
#define SIZE ((int)sizeof(STORED(T)))

#define READ(address, i) LOAD(T, XPU_CPTR(STORED(T), address), i)
#define WRITE(address, i, v) STORE(T, XPU_PTR(STORED(T), address), i, v)

static inline real sigmoid(real v) { return 1 / (1 + exp(-v)); }

/* A row of the left operand, clamped to the last one. */
static inline xpu_addr left_row(const rnn_step_params *p, long row) {
#if BACKWARD
    return p->left + min(row, p->taken - 1) * p->depth * SIZE;
#else
    row = min(row, p->rows - 1);
    return (row < p->taken ? p->left : p->hx) + row * p->depth * SIZE;
#endif
}
static inline xpu_addr right_row(const rnn_step_params *p, long part, long unit) {
    return p->weight + (part * p->hidden + min(unit, p->hidden - 1)) * p->depth * SIZE;
}

#ifdef MATRIX_T
#include "matrix/matrix_ptx.h"
#define SLICES (THREADS / MATRIX_SUBGROUP_SIZE)
#define KERNEL MATRIX_KERNEL
#define ROW_BLOCKS (ROWS / 16)
#define COLUMN_BLOCKS (UNITS * PARTS / 8)
#ifdef MATRIX_EMULATED
#define STAGES 1
#else
#define STAGES (ROW_BLOCKS * 2 + COLUMN_BLOCKS > 6 ? 2 : 4)
#endif
/* A work-item reads 8 contiguous elements of each row's 32: the order along the depth is free. */
#define CHUNK 32

static inline uint4 piece(xpu_addr row, long k, bool there) {
    return there ? *XPU_CPTR(uint4, row + k * SIZE) : (uint4)(0);
}

/* A subgroup handles every SLICES-th chunk of the depth and loads STAGES of them before it multiplies. */
static inline void multiply(const rnn_step_params *p, long r0, long u0, __local real *sums) {
    const uint lane = MATRIX_LANE, subgroup = get_local_id(0) / MATRIX_SUBGROUP_SIZE;
    const long own = lane % 4 * 8;
    xpu_addr left[ROW_BLOCKS][2], right[COLUMN_BLOCKS];
    float4 sum[ROW_BLOCKS][COLUMN_BLOCKS];
    UNROLL for (uint i = 0; i < ROW_BLOCKS; i++) UNROLL
        for (uint u = 0; u < 2; u++) left[i][u] = left_row(p, r0 + i * 16 + u * 8 + lane / 4);
    UNROLL for (uint j = 0; j < COLUMN_BLOCKS; j++) {
        const uint column = j * 8 + lane / 4;
        right[j] = right_row(p, column / UNITS, u0 + column % UNITS);
    }
    UNROLL for (uint i = 0; i < ROW_BLOCKS; i++) UNROLL
        for (uint j = 0; j < COLUMN_BLOCKS; j++) sum[i][j] = 0;
    for (long k = subgroup * CHUNK; k < p->depth; k += STAGES * SLICES * CHUNK) {
        uint4 a[STAGES][ROW_BLOCKS][2], b[STAGES][COLUMN_BLOCKS];
        UNROLL for (uint s = 0; s < STAGES; s++) {
            const long at = k + s * SLICES * CHUNK + own;
            const bool there = at < p->depth;
            UNROLL for (uint i = 0; i < ROW_BLOCKS; i++) UNROLL
                for (uint u = 0; u < 2; u++) a[s][i][u] = piece(left[i][u], at, there);
            UNROLL for (uint j = 0; j < COLUMN_BLOCKS; j++)
                b[s][j] = piece(right[j], at, there);
        }
        UNROLL for (uint s = 0; s < STAGES; s++) UNROLL
            for (uint i = 0; i < ROW_BLOCKS; i++) {
                const uint4 upper = a[s][i][0], lower = a[s][i][1];
                UNROLL for (uint j = 0; j < COLUMN_BLOCKS; j++) {
                    multiply_blocks(&sum[i][j], (uint4)(upper.x, lower.x, upper.y, lower.y), b[s][j].xy);
                    multiply_blocks(&sum[i][j], (uint4)(upper.z, lower.z, upper.w, lower.w), b[s][j].zw);
                }
            }
    }
    __local real *to = sums + subgroup * PITCH;
    UNROLL for (uint i = 0; i < ROW_BLOCKS; i++) UNROLL
        for (uint j = 0; j < COLUMN_BLOCKS; j++) {
            const float4 s = sum[i][j];
            const uint row = i * 16 + lane / 4, column = j * 8 + lane % 4 * 2;
            __local real *one = to + column / UNITS * CELLS + column % UNITS;
            __local real *next = to + (column + 1) / UNITS * CELLS + (column + 1) % UNITS;
            one[row * UNITS] = s.x, next[row * UNITS] = s.y;
            one[(row + 8) * UNITS] = s.z, next[(row + 8) * UNITS] = s.w;
        }
}
#else
#define KERNEL __kernel
#ifdef XPU_BUILT_FOR_CPU
#define UNROLL
#define STAGES 1
#else
#define UNROLL _Pragma("unroll")
#define STAGES 2
#endif
#define SLICES (THREADS / (ROWS / SIDE * (UNITS / SIDE_UNITS)))
#define COLUMNS (SIDE_UNITS * PARTS)

/* Four contiguous elements of a row; zeros past its end, without reading there. */
#define FOUR_f64 double4
#define FOUR_f32 float4
#define FOUR_f16 ushort4
#define FOUR_bf16 ushort4
#define REAL4_f64 double4
#define REAL4_f32 float4
#define REAL4_f16 float4
#define REAL4_bf16 float4
typedef XPU_CAT(REAL4_, T) real4;
static inline real4 four(xpu_addr row, long k, long depth) {
    if (k >= depth) return 0;
#if ALIGNED
    const XPU_CAT(FOUR_, T) v = *XPU_CPTR(XPU_CAT(FOUR_, T), row + k * SIZE);
    return (real4)(WIDEN(T, v.x), WIDEN(T, v.y), WIDEN(T, v.z), WIDEN(T, v.w));
#else
    return (real4)(READ(row, k), k + 1 < depth ? READ(row, k + 1) : 0, k + 2 < depth ? READ(row, k + 2) : 0,
                   k + 3 < depth ? READ(row, k + 3) : 0);
#endif
}

/* Adjacent work-items load adjacent vectors of four along the depth, STAGES of them in flight. */
static inline void multiply(const rnn_step_params *p, long r0, long u0, __local real *sums) {
    const uint slice = get_local_id(0) % SLICES, tile = get_local_id(0) / SLICES;
    const uint row = tile / (UNITS / SIDE_UNITS) * SIDE, unit = tile % (UNITS / SIDE_UNITS) * SIDE_UNITS;
    xpu_addr left[SIDE], right[COLUMNS];
    real sum[SIDE][COLUMNS];
    UNROLL for (uint i = 0; i < SIDE; i++)
        left[i] = left_row(p, r0 + row + i);
    UNROLL for (uint c = 0; c < COLUMNS; c++)
        right[c] = right_row(p, c / SIDE_UNITS, u0 + unit + c % SIDE_UNITS);
    UNROLL for (uint i = 0; i < SIDE; i++) UNROLL
        for (uint c = 0; c < COLUMNS; c++) sum[i][c] = 0;
    for (long k = slice * 4; k < p->depth; k += STAGES * SLICES * 4) {
        real4 a[STAGES][SIDE], b[STAGES][COLUMNS];
        UNROLL for (uint s = 0; s < STAGES; s++) {
            const long at = k + s * SLICES * 4;
            UNROLL for (uint i = 0; i < SIDE; i++)
                a[s][i] = four(left[i], at, p->depth);
            UNROLL for (uint c = 0; c < COLUMNS; c++)
                b[s][c] = four(right[c], at, p->depth);
        }
        UNROLL for (uint s = 0; s < STAGES; s++) UNROLL
            for (uint i = 0; i < SIDE; i++) UNROLL
                for (uint c = 0; c < COLUMNS; c++) {
                    const real4 u = a[s][i], v = b[s][c];
                    sum[i][c] = fma(u.x, v.x, fma(u.y, v.y, fma(u.z, v.z, fma(u.w, v.w, sum[i][c]))));
                }
    }
    __local real *to = sums + slice * PITCH + row * UNITS + unit;
    UNROLL for (uint i = 0; i < SIDE; i++) UNROLL
        for (uint c = 0; c < COLUMNS; c++)
            to[c / SIDE_UNITS * CELLS + i * UNITS + c % SIDE_UNITS] = sum[i][c];
}
#endif

/* If there are fewer cells than work-items, all work-items first reduce the slices to LEFT; then one
 * work-item per cell adds these up. */
#if CELLS < THREADS
#define LEFT (SUMS >= THREADS ? 1 : THREADS / SUMS < SLICES ? THREADS / SUMS : SLICES)
#else
#define LEFT SLICES
#endif
static inline void add_slices(__local real *sums) {
    for (uint e = get_local_id(0); e < SUMS * LEFT; e += THREADS) {
        __local real *at = sums + e % SUMS;
        real sum = 0;
        for (uint s = e / SUMS; s < SLICES; s += LEFT) sum += at[s * PITCH];
        at[e / SUMS * PITCH] = sum;
    }
}

/* The sum over the slices of one column of a cell. */
static inline real total(__local const real *sums, uint part, uint cell) {
    real sum = 0;
    for (uint s = 0; s < LEFT; s++) sum += sums[s * PITCH + part * CELLS + cell];
    return sum;
}

/* A work-item's cell: index of its unit in the rows of states and of gates. */
typedef struct place {
    long row, unit, at, gate;
} place;

/* The hidden state at the start of the step. */
static inline real old_state(const rnn_step_params *p, const place *c, long rows) {
    return c->row < rows ? READ(p->old_y, c->at) : READ(p->hx, c->at);
}
#ifdef LSTM
static inline real old_cell(const rnn_step_params *p, const place *c, long rows) {
    return c->row < rows ? XPU_CPTR(real, p->old_cells)[c->at] : READ(p->cx, c->at);
}
#endif

#if !BACKWARD
static inline void forward(const rnn_step_params *p, const place *c, const real *sum) {
    real in[GATES], hidden[GATES], h;
    for (uint n = 0; n < GATES; n++) {
        in[n] = READ(p->gates, c->gate + n * p->hidden);
        hidden[n] = sum[n] + (p->bias ? READ(p->bias, n * p->hidden + c->unit) : 0);
    }
#if defined(LSTM)
    for (uint n = 0; n < 4; n++) in[n] = n == 2 ? tanh(in[n] + hidden[n]) : sigmoid(in[n] + hidden[n]);
    const real cy = in[1] * old_cell(p, c, p->taken) + in[0] * in[2];
    h = in[3] * tanh(cy);
    XPU_PTR(real, p->cells)[c->at] = cy;
    if (c->row >= p->kept) WRITE(p->cy, c->at, cy);
#elif defined(GRU)
    in[0] = sigmoid(in[0] + hidden[0]), in[1] = sigmoid(in[1] + hidden[1]);
    in[2] = tanh(in[2] + in[0] * hidden[2]);
    h = in[2] + in[1] * (old_state(p, c, p->taken) - in[2]);
    if (p->cells) XPU_PTR(real, p->cells)[c->at] = hidden[2];
#elif defined(RNN_TANH)
    h = tanh(in[0] + hidden[0]);
#else
    h = in[0] + hidden[0];
    h = h < 0 ? 0 : h; /* NaN stays */
#endif
#if defined(LSTM) || defined(GRU)
    if (p->kept_gates)
        for (uint n = 0; n < GATES; n++) WRITE(p->gates, c->gate + n * p->hidden, in[n]);
#endif
    WRITE(p->y, c->at, h);
    if (c->row >= p->kept) WRITE(p->hy, c->at, h);
}
#else
static inline void backward(const rnn_step_params *p, const place *c, real sum) {
    const bool follows = c->row < p->taken;
    real grad = follows ? sum : p->grad_hy ? READ(p->grad_hy, c->at) : 0;
#if defined(LSTM) || defined(GRU)
    real carried = follows ? XPU_CPTR(real, p->carried)[c->at] : 0;
#endif
#ifdef LSTM
    if (!follows && p->grad_cy) carried = READ(p->grad_cy, c->at);
#elif defined(GRU)
    grad += carried;
#endif
    if (c->row >= p->rows) {
        WRITE(p->grad_hx, c->at, grad);
#ifdef LSTM
        WRITE(p->grad_cx, c->at, carried);
#endif
        return;
    }
    if (p->grad_y) grad += READ(p->grad_y, c->at);
    const real old = old_state(p, c, p->old_rows);
    WRITE(p->states, c->at, old);
#if defined(LSTM) || defined(GRU)
    real gate[GATES];
    for (uint n = 0; n < GATES; n++) gate[n] = READ(p->gates, c->gate + n * p->hidden);
#endif
#define GRAD(to, n, v) WRITE(p->to, c->gate + (n) * p->hidden, v)
#if defined(LSTM)
    const real in = gate[0], forget = gate[1], cell = gate[2], out = gate[3];
    const real squashed = tanh(XPU_CPTR(real, p->cells)[c->at]);
    const real grad_c = grad * out * (1 - squashed * squashed) + carried;
    GRAD(grad_gates, 0, grad_c * cell * in * (1 - in));
    GRAD(grad_gates, 1, grad_c * old_cell(p, c, p->old_rows) * forget * (1 - forget));
    GRAD(grad_gates, 2, grad_c * in * (1 - cell * cell));
    GRAD(grad_gates, 3, grad * squashed * out * (1 - out));
    XPU_PTR(real, p->carried)[c->at] = grad_c * forget;
#elif defined(GRU)
    const real reset = gate[0], update = gate[1], fresh = gate[2], hidden = XPU_CPTR(real, p->cells)[c->at];
    const real grad_fresh = grad * (1 - update) * (1 - fresh * fresh);
    const real grad_update = grad * (old - fresh) * update * (1 - update);
    const real grad_reset = grad_fresh * hidden * reset * (1 - reset);
    GRAD(grad_gates, 0, grad_reset);
    GRAD(grad_gates, 1, grad_update);
    GRAD(grad_gates, 2, grad_fresh);
    GRAD(grad_hidden_gates, 0, grad_reset);
    GRAD(grad_hidden_gates, 1, grad_update);
    GRAD(grad_hidden_gates, 2, grad_fresh * reset);
    XPU_PTR(real, p->carried)[c->at] = grad * update;
#else
    const real h = READ(p->y, c->at);
#ifdef RNN_TANH
    GRAD(grad_gates, 0, grad * (1 - h * h));
#else
    GRAD(grad_gates, 0, h > 0 ? grad : 0);
#endif
#endif
}
#endif

KERNEL __attribute__((reqd_work_group_size(THREADS, 1, 1))) void rnn_step(const rnn_step_params p) {
    __local real sums[SLICES * PITCH];
    const long across = (p.hidden + UNITS - 1) / UNITS, group = XPU_GROUP(0);
    const long r0 = group / across * ROWS, u0 = group % across * UNITS;
    if (p.depth) {
        multiply(&p, r0, u0, sums);
        barrier(CLK_LOCAL_MEM_FENCE);
#if CELLS < THREADS
        add_slices(sums);
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
    }
    for (uint e = get_local_id(0); e < CELLS; e += THREADS) {
        const long row = r0 + e / UNITS, unit = u0 + e % UNITS;
        if (row >= (BACKWARD ? max(p.rows, p.taken) : p.rows) || unit >= p.hidden) continue;
        const place c = {row, unit, row * p.hidden + unit, row * GATES * p.hidden + unit};
#if BACKWARD
        backward(&p, &c, p.depth ? total(sums, 0, e) : 0);
#else
        real sum[GATES];
        for (uint n = 0; n < GATES; n++) sum[n] = total(sums, n, e);
        forward(&p, &c, sum);
#endif
    }
}

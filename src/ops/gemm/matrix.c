/* Choice of matrix engine and tile by a cost model or measured rates (matrix.h). */
#include "ops/gemm/matrix.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ops/gemm/product.h"
#include "xpu/ops/tiles.h"

static const matrix_tile table[] = {
#define X(unit, m, n, k, subgroups_m, subgroups_n, stages, occupancy, ...)                                   \
    {MATRIX_UNIT_##unit, m, n, k, subgroups_m, subgroups_n, stages, occupancy, {__VA_ARGS__}},
#include "core/matrix.def"
#undef X
};
enum { TILES = sizeof table / sizeof *table };

/* The same tiles with twice the height and half the width: XMX with 16 lanes uses the largest ones for
 * quantized B, so that a dequantized element serves more rows. */
static const matrix_tile tall[] = {
#define X(unit, m, n, k, subgroups_m, subgroups_n, stages, occupancy, ...)                                   \
    {MATRIX_UNIT_##unit, 2 * (m),      (n) / 2, k, 2 * (subgroups_m), (subgroups_n) / 2, stages,             \
     occupancy,          {__VA_ARGS__}},
#include "core/matrix.def"
#undef X
};
/* Subgroups of a work-group that share dequantized elements, and the local memory for these
 * (kernels/gemm/gemm_xmx_dequant.h). */
enum { SHARING = 32, SHARED_BYTES = 2 * SHARING << 10 };
static int subgroups_of(const matrix_tile *t) { return t->subgroups_m * t->subgroups_n; }

/* The engine that OPENXPU_MATRIX selects, or none. */
static matrix_unit wanted(void) {
    static atomic_int answer; /* 0 not read yet, else 1 more than the engine */
    int known = atomic_load_explicit(&answer, memory_order_relaxed);
    if (known == 0) {
        const char *value = getenv("OPENXPU_MATRIX");
        known = 1 + (!value                   ? MATRIX_UNIT_NONE
                     : !strcmp(value, "ptx")  ? MATRIX_UNIT_PTX
                     : !strcmp(value, "xmx")  ? MATRIX_UNIT_XMX
                     : !strcmp(value, "fma")  ? MATRIX_UNIT_FMA
                     : !strcmp(value, "dot")  ? MATRIX_UNIT_DOT
                     : !strcmp(value, "xmx8") ? MATRIX_UNIT_XMX8
                                              : MATRIX_UNIT_NONE);
        atomic_store_explicit(&answer, known, memory_order_relaxed);
    }
    return (matrix_unit)(known - 1);
}

static matrix_unit any_unit(const xpu_device_properties *p, bool *emulated) {
    matrix_unit own = MATRIX_UNIT_NONE;
    if (p->has_inline_ptx && p->architecture >= 80) own = MATRIX_UNIT_PTX;
    if (p->matrix_lanes == 16 && p->has_subgroup_2d_block_io) own = MATRIX_UNIT_XMX;
    if (p->matrix_lanes == 8) own = MATRIX_UNIT_XMX8;
    const matrix_unit other = wanted();
    *emulated = false;
    if (other == MATRIX_UNIT_FMA || other == MATRIX_UNIT_DOT) return MATRIX_UNIT_NONE;
    *emulated = other != MATRIX_UNIT_NONE && other != own && p->type == XPU_DEVICE_CPU &&
                p->has_subgroup_size && p->has_subgroup_shuffle;
    return *emulated ? other : own;
}

matrix_unit matrix_unit_of(const xpu_device_properties *p, xpu_dtype dtype, bool *emulated) {
    const bool is_half = dtype == XPU_BFLOAT16 || dtype == XPU_FLOAT16;
    return is_half ? any_unit(p, emulated) : MATRIX_UNIT_NONE;
}

matrix_unit matrix_unit_for(const xpu_device_properties *p, xpu_dtype dtype, bool tf32, bool *emulated) {
    const bool is_half = dtype == XPU_BFLOAT16 || dtype == XPU_FLOAT16;
    if (!is_half && dtype != XPU_INT8 && !(dtype == XPU_FLOAT32 && tf32)) return MATRIX_UNIT_NONE;
    const matrix_unit unit = any_unit(p, emulated);
    const bool lacks_tf32 =
        dtype == XPU_FLOAT32 &&
        (unit == MATRIX_UNIT_XMX8 || (unit == MATRIX_UNIT_XMX && !*emulated &&
                                      !p->has_subgroup_matrix_multiply_accumulate_tensor_float32));
    return lacks_tf32 ? MATRIX_UNIT_NONE : unit;
}

static bool wants_none(void) { return wanted() == MATRIX_UNIT_FMA || wanted() == MATRIX_UNIT_DOT; }

matrix_unit matrix_fma_of(const xpu_device_properties *p) {
    return p->type != XPU_DEVICE_CPU || wants_none() ? MATRIX_UNIT_FMA : MATRIX_UNIT_NONE;
}

matrix_unit matrix_dot_of(const xpu_device_properties *p, xpu_dtype dtype, bool *emulated) {
    const bool has = p->has_integer_dot_product || (p->has_inline_ptx && p->architecture >= 61);
    const bool is_wanted =
        p->type != XPU_DEVICE_CPU ? has && wanted() != MATRIX_UNIT_FMA : wanted() == MATRIX_UNIT_DOT;
    if (dtype != XPU_INT8 || !is_wanted) return MATRIX_UNIT_NONE;
    *emulated = !has;
    return MATRIX_UNIT_DOT;
}

matrix_unit matrix_first_unit(const xpu_device_properties *p, xpu_dtype dtype, bool tf32, bool *emulated) {
    matrix_unit unit = matrix_unit_for(p, dtype, tf32, emulated);
    if (unit == MATRIX_UNIT_NONE) unit = matrix_dot_of(p, dtype, emulated);
    return unit == MATRIX_UNIT_NONE ? matrix_fma_of(p) : unit;
}

static bool has_none(matrix_unit unit) { return unit == MATRIX_UNIT_FMA || unit == MATRIX_UNIT_DOT; }

int matrix_step(const matrix_tile *tile, matrix_unit unit, xpu_dtype dtype) {
    if (has_none(unit)) return tile->step * (unit == MATRIX_UNIT_DOT ? 4 : 1);
    return tile->step / (int)xpu_dtype_size(dtype);
}

const char *matrix_unit_text(matrix_unit unit, xpu_dtype dtype, bool emulated) {
    static const char *const texts[2][2][2] = {
        {{"NVIDIA tensor cores", "NVIDIA tensor cores, emulated"},
         {"NVIDIA tensor cores in tf32", "NVIDIA tensor cores in tf32, emulated"}},
        {{"Intel XMX", "Intel XMX, emulated"}, {"Intel XMX in tf32", "Intel XMX in tf32, emulated"}}};
    switch (unit) {
    case MATRIX_UNIT_PTX:
    case MATRIX_UNIT_XMX:
    case MATRIX_UNIT_XMX8: return texts[unit != MATRIX_UNIT_PTX][dtype == XPU_FLOAT32][emulated];
    case MATRIX_UNIT_FMA: return "multiply-add instructions";
    case MATRIX_UNIT_DOT: return emulated ? "4-way int8 dot products, emulated" : "4-way int8 dot products";
    case MATRIX_UNIT_NONE: break;
    }
    return "portable kernels";
}

int matrix_alignment(const strided_view *lines, xpu_dtype dtype) {
    const uint64_t element = xpu_dtype_size(dtype);
    const uint64_t all = (uint64_t)(uintptr_t)lines->data | (uint64_t)lines->across * element |
                         (uint64_t)lines->batch * element | 16;
    return (int)(all & (~all + 1));
}

bool matrix_reads_blocks(const strided_view *lines, int64_t length, int64_t count, xpu_dtype dtype) {
    const int64_t element = (int64_t)xpu_dtype_size(dtype), most = 1 << 24;
    const int64_t width = length * element, pitch = lines->across * element;
    return (uintptr_t)lines->data % 64 == 0 && lines->batch * element % 64 == 0 && width >= 64 &&
           width % 4 == 0 && width < most && count > 0 && count < most && pitch >= width && pitch % 16 == 0 &&
           pitch < most;
}

/* Constants of the cost model, from an NVIDIA H200: clocks per microsecond; clocks until the first operands
 * of a work-group arrive, and of an additional launch; bytes of memory per clock and compute unit. Shorter
 * slices than min_slice are dominated by the latency of the first step. */
enum {
    CLOCKS = 2000,
    FIRST_STEP = 2000,
    LAUNCH = 6000,
    BYTES = 12,
    MOST_SLICES = 1024,
    POWERS = 7,
    FILLED = 4
};
static int64_t min_slice(matrix_unit unit) { return has_none(unit) ? 64 : 256; }

static int threads_of(const matrix_tile *t) {
    return t->subgroups_m * t->subgroups_n * matrix_subgroup_size(t->unit);
}

static bool is_intel(const xpu_device_properties *p) {
    return p->type == XPU_DEVICE_GPU && p->vendor_id == XPU_VENDOR_INTEL;
}

/* Elements that a work-item prefetches, without a matrix engine. */
static int prefetched_per_item(const matrix_tile *t) { return (t->m + t->n) * t->step / threads_of(t); }

/* Intel GPUs before Xe-HP (Tiger Lake, Alder Lake) have no more than 128 registers, where as much as sums may
 * be read ahead. */
size_t matrix_accumulator_bytes(const xpu_device_properties *p) {
    const uint64_t xe_hp = 12u << 22 | 50u << 14; /* CL_DEVICE_IP_VERSION_INTEL */
    return is_intel(p) && p->architecture && p->architecture < xe_hp ? 128 : 256;
}

/* Has the device enough registers (for 64 accumulators of 4 bytes) and local memory? Tiles of matrix engines
 * always fit. */
static bool fits(const matrix_tile *t, size_t sum, const xpu_device_properties *properties) {
    if (t->unit != MATRIX_UNIT_FMA) return true;
    const size_t slabs = (size_t)(t->stages * t->step * (t->m + 4 + t->n + 4)) * sum;
    const size_t most = matrix_accumulator_bytes(properties);
    if (most < 256 && (size_t)prefetched_per_item(t) * sum > most) return false;
    return (size_t)(t->m * t->n / threads_of(t)) * sum <= most && slabs <= properties->local_mem_size &&
           (uint64_t)threads_of(t) <= properties->max_work_group_size;
}

/* XMX with 8 lanes: the largest tile leaves no registers for the im2col of a convolution. The same holds for
 * more than two vectors of rows per work-item if both operands are transposed, strides make phases, or there
 * are three spatial dimensions; in the last two cases also for more than two vectors of columns. */
static bool suits(const matrix_tile *t, int im2col_mode) {
    if (im2col_mode == 0 || t->unit != MATRIX_UNIT_XMX8) return true;
    return t->m * t->n <= 32 * 32 * subgroups_of(t) && (im2col_mode < 2 || t->m <= threads_of(t)) &&
           (im2col_mode < 3 || t->n <= threads_of(t));
}

/* The share of its rate that a compute unit reaches with `some` work-groups; nearly all from 512 work-items
 * on. */
static double busy(const matrix_tile *t, int64_t some) {
    const double part = (double)some * threads_of(t) / 512;
    return part < 1 ? 1.15 * part / (part + 0.15) : 1;
}

/* The same for a single small work-group of an unquantized product with two K-major operands: no other work
 * hides its memory latency. Measured on an H200 at 512 x 4096 x 4096. */
static double busy_alone(const matrix_choice *choice, const matrix_tile *t, int along_k) {
    const bool is_plain = !choice->b_bits && choice->im2col_mode == 0;
    return t->unit == MATRIX_UNIT_PTX && is_plain && along_k == 2 && threads_of(t) <= 128 ? 0.85 : 1;
}

/* At the end of a wave, a compute unit with room for two work-groups may get two of the remaining ones while
 * others get none, so the last wave takes as long as the others. Measured on an H200 for 256 to 1,024 rows
 * times quantized weights; not measured for unquantized products. */
static bool ends_full(const matrix_choice *choice) {
    return choice->b_bits && choice->unit == MATRIX_UNIT_PTX;
}

/* 4-bit weights need so many registers that three work-groups of 128 work-items do not fit. */
static int occupancy_of(const matrix_choice *choice, const matrix_tile *t) {
    const bool are_few = choice->b_bits == 4 && choice->unit == MATRIX_UNIT_PTX && t->occupancy == 3;
    return are_few ? 2 : t->occupancy;
}

/* Input of the cost model: a product and a tile. */
typedef struct tiled_product {
    const matrix_tile *tile;
    int64_t units, batch, m, n, k;
    int step;           /* elements along K */
    double rate, alone; /* multiply-adds per clock of a full compute unit; busy_alone */
    int occupancy;      /* occupancy_of */
    bool ends_full;
    size_t sum; /* bytes of a sum */
} tiled_product;

/* Estimated clocks: the products of the busiest compute unit, the memory latency of the first steps, and the
 * traffic of partial sums. */
static double clocks_of(const tiled_product *p, int64_t cut) {
    const matrix_tile *t = p->tile;
    const int64_t groups = div_up(tiles(p->m, t->m) * tiles(p->n, t->n) * p->batch * cut, p->units);
    const int64_t waves = div_up(groups, p->occupancy);
    const int64_t last = p->ends_full && waves > 1 ? p->occupancy : groups - (waves - 1) * p->occupancy;
    const double each = (double)(t->m * t->n) * (double)align_up(div_up(p->k, cut), p->step) / p->rate;
    double clocks = each * (double)((waves - 1) * p->occupancy) / busy(t, p->occupancy) +
                    each * (double)last / (busy(t, last) * (last == 1 ? p->alone : 1)) +
                    (double)waves * FIRST_STEP;
    if (cut > 1)
        clocks += LAUNCH + (double)(2 * cut + 1) * (double)(p->batch * p->m * p->n) * (double)p->sum /
                               (double)p->units / BYTES;
    return clocks;
}

/* The lowest estimate over the numbers of slices: powers of two, and one to four times what fills all compute
 * units; or the estimate for `pinned` slices. */
static double cut_for(const tiled_product *p, int64_t pinned, int64_t *slices) {
    const matrix_tile *t = p->tile;
    double least = 0;
    if (pinned <= MOST_SLICES) {
        *slices = pinned <= div_up(p->k, p->step) ? pinned : 1;
        return clocks_of(p, *slices);
    }
    const int64_t groups = tiles(p->m, t->m) * tiles(p->n, t->n) * p->batch,
                  at_once = p->units * p->occupancy;
    for (int64_t i = 0; i < POWERS + FILLED; i++) {
        int64_t cut = (int64_t)1 << i;
        if (i >= POWERS) cut = groups > 0 ? (i - POWERS + 1) * at_once / groups : 0;
        if (cut < 1 || cut > MOST_SLICES || (cut > 1 && p->k / cut < min_slice(t->unit))) continue;
        const double clocks = clocks_of(p, cut);
        if (least > 0 && clocks >= least) continue;
        least = clocks, *slices = cut;
    }
    return least;
}

/* The engine whose lines of matrix.def are used, and the factor to their rates. */
static matrix_unit lines_of(matrix_unit unit) { return unit == MATRIX_UNIT_DOT ? MATRIX_UNIT_FMA : unit; }
static double faster_than_lines(matrix_unit unit, xpu_dtype dtype) {
    return unit == MATRIX_UNIT_DOT ? 4 : unit == MATRIX_UNIT_FMA ? 1 : 2 / (double)xpu_dtype_size(dtype);
}

bool matrix_is_pinned(matrix_unit unit, xpu_dtype dtype, const xpu_device_properties *properties) {
    const int64_t pinned = TUNED(properties->type == XPU_DEVICE_CPU, MATRIX_TILE);
    return pinned < TILES && table[pinned].unit == lines_of(unit) &&
           fits(&table[pinned], product_sum_size(dtype), properties);
}

/* The dtype in the names of the rates. Without a matrix engine, fp32's rate serves all dtypes. */
static rate_operand operand_of(matrix_unit unit, xpu_dtype dtype) {
    if (has_none(unit)) return unit == MATRIX_UNIT_DOT ? RATE_INT8 : RATE_FLOAT32;
    return xpu_dtype_size(dtype) == 1 ? RATE_INT8 : xpu_dtype_size(dtype) == 2 ? RATE_HALF : RATE_FLOAT32;
}

/* Multiply-adds per clock of a full compute unit: as measured by `openxpu tune`, else from matrix.def. */
static double guess_of(matrix_unit unit, xpu_dtype dtype, int tile, int along_k) {
    return faster_than_lines(unit, dtype) * table[tile].rate[along_k];
}
static double rate_of(int device, matrix_unit unit, xpu_dtype dtype, int tile, int along_k) {
    const int64_t measured = tuning_rate(device, tile, operand_of(unit, dtype), along_k);
    return measured > 0 ? (double)measured / CLOCKS : guess_of(unit, dtype, tile, along_k);
}

/* Dequantizing B costs the more the fewer rows share it. XMX: tiles of up to 128 rows dequantize as often per
 * product; half of the cost is counted, because it overlaps with other work. Tensor cores: a step must be
 * dequantized before the next one, so long steps cost less:
 * an H200's times for 20 to 1,024 rows times 4096 x 4096. */
static double rate_for(const matrix_choice *choice, const matrix_tile *t, int64_t m, double rate) {
    if (!choice->b_bits) return rate;
    if (choice->unit == MATRIX_UNIT_PTX)
        return rate * (t->step < 128 ? 1.05 : 1.5) / (1 + 64.0 / (double)(m < t->m ? m : t->m));
    return choice->unit == MATRIX_UNIT_XMX ? rate / (1 + 32.0 / (t->m > 128 ? t->m : 128)) : rate;
}

static int find_conv_tile(matrix_choice *choice, xpu_dtype dtype, const xpu_device_properties *properties,
                          int64_t batch, int64_t m, int64_t n, int64_t k, int along_k, int64_t *slices) {
    const size_t sum = product_sum_size(dtype);
    const int64_t units = (int64_t)properties->gpu_subslice_count;
    const matrix_unit unit = choice->unit, lines = lines_of(unit);
    const int64_t pinned = TUNED(properties->type == XPU_DEVICE_CPU, MATRIX_TILE);
    const int64_t slices_pinned = TUNED(properties->type == XPU_DEVICE_CPU, MATRIX_SPLIT_K);
    const bool is_pinned =
        matrix_is_pinned(unit, dtype, properties) && suits(&table[pinned], choice->im2col_mode);
    int best = -1;
    double least = 0;
    for (int i = 0; i < TILES; i++) {
        if (is_pinned ? i != pinned : table[i].unit != lines || !fits(&table[i], sum, properties)) continue;
        if (!suits(&table[i], choice->im2col_mode)) continue;
        const double rate = rate_of(choice->device, unit, dtype, i, along_k);
        const bool may_be_tall =
            choice->b_bits && unit == MATRIX_UNIT_XMX && subgroups_of(&table[i]) >= SHARING;
        if (may_be_tall && properties->local_mem_size < SHARED_BYTES) continue;
        for (int is_tall = 0; is_tall <= may_be_tall; is_tall++) {
            const matrix_tile *t = is_tall ? &tall[i] : &table[i];
            const tiled_product product = {.tile = t,
                                           .units = units,
                                           .batch = batch,
                                           .m = m,
                                           .n = n,
                                           .k = k,
                                           .step = matrix_step(t, unit, dtype),
                                           .rate = rate_for(choice, t, m, rate),
                                           .alone = busy_alone(choice, t, along_k),
                                           .occupancy = occupancy_of(choice, t),
                                           .ends_full = ends_full(choice),
                                           .sum = sum};
            int64_t cut;
            const double clocks = cut_for(&product, slices_pinned, &cut);
            if (least > 0 && clocks >= least) continue;
            best = i, least = clocks, *slices = cut, choice->is_tall = is_tall;
        }
    }
    return best;
}

/* Weighing all tiles takes up to 2 us and products repeat, so a thread caches some answers. */
int matrix_tile_for(matrix_choice *choice, xpu_dtype dtype, const xpu_device_properties *properties,
                    int64_t batch, int64_t m, int64_t n, int64_t k, int along_k, int64_t *slices) {
    enum { KEPT = 32 };
    static _Thread_local struct {
        int64_t question[11], slices;
        int tile;
        bool is_tall;
    } kept[KEPT];
    const uint32_t changes = atomic_load_explicit(&tuning_changes, memory_order_acquire);
    const int64_t question[11] = {choice->unit,   choice->device,     dtype, along_k, batch, m, n, k, changes,
                                  choice->b_bits, choice->im2col_mode};
    const uint64_t mixed = ((uint64_t)m * 31 + (uint64_t)n) * 31 + (uint64_t)k + (uint64_t)along_k;
    const size_t at = (mixed * 0x9e3779b97f4a7c15u >> 32) % KEPT;
    if (memcmp(kept[at].question, question, sizeof question)) {
        kept[at].tile = find_conv_tile(choice, dtype, properties, batch, m, n, k, along_k, &kept[at].slices);
        kept[at].is_tall = choice->is_tall;
        memcpy(kept[at].question, question, sizeof question);
    }
    *slices = kept[at].slices, choice->is_tall = kept[at].is_tall;
    return kept[at].tile;
}

double matrix_clocks(const matrix_choice *choice, xpu_dtype dtype, const xpu_device_properties *properties,
                     int64_t batch, int64_t m, int64_t n, int64_t k, int along_k, int64_t slices) {
    const matrix_tile *tile = matrix_tile_of(choice);
    const tiled_product product = {.tile = tile,
                                   .units = (int64_t)properties->gpu_subslice_count,
                                   .batch = batch,
                                   .m = m,
                                   .n = n,
                                   .k = k,
                                   .step = matrix_step(tile, choice->unit, dtype),
                                   .rate =
                                       rate_of(choice->device, choice->unit, dtype, choice->tile, along_k),
                                   .alone = busy_alone(choice, tile, along_k),
                                   .occupancy = occupancy_of(choice, tile),
                                   .ends_full = ends_full(choice),
                                   .sum = product_sum_size(dtype)};
    return clocks_of(&product, slices);
}

double matrix_measured_over_table(const matrix_choice *choice, xpu_dtype dtype, int along_k) {
    return rate_of(choice->device, choice->unit, dtype, choice->tile, along_k) /
           guess_of(choice->unit, dtype, choice->tile, along_k);
}

double matrix_clocks_of_traffic(const xpu_device_properties *properties, int64_t bytes) {
    return LAUNCH + (double)bytes / (double)properties->gpu_subslice_count / BYTES;
}

/* --- measuring rates --- */

/* Does the engine support products with this number of K-major operands? */
static bool multiplies(matrix_unit unit, xpu_dtype dtype, int along_k) {
    const int least = unit == MATRIX_UNIT_DOT || unit == MATRIX_UNIT_XMX8     ? 2
                      : unit == MATRIX_UNIT_XMX && xpu_dtype_size(dtype) != 2 ? 1
                                                                              : 0;
    return along_k >= least;
}

int xpu_tile_count(void) { return TILES; }

xpu_status xpu_tile_get(int device, xpu_dtype dtype, bool tf32, int number, xpu_tile *tile) {
    const xpu_device_properties *properties;
    bool emulated = false;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    if ((unsigned)dtype >= XPU_DTYPE_COUNT || number < 0 || number >= TILES)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "tiles: unknown dtype %d or tile %d", (int)dtype, number);
    const matrix_unit unit = matrix_first_unit(properties, dtype, tf32, &emulated);
    const matrix_tile *t = &table[number];
    *tile = (xpu_tile){.m = t->m, .n = t->n, .is_candidate = t->unit == lines_of(unit)};
    if (tile->is_candidate) tile->is_candidate = fits(t, product_sum_size(dtype), properties);
    if (tile->is_candidate) tile->depth = matrix_step(t, unit, dtype);
    for (int along = 0; along < 3; along++) {
        tile->rate_index[along] = -1;
        if (!tile->is_candidate || !multiplies(unit, dtype, along)) continue;
        tile->rate_index[along] = tuning_rate_number(number, operand_of(unit, dtype), along);
        const int64_t measured = tuning_rate(device, number, operand_of(unit, dtype), along);
        tile->rate[along] = measured > 0 ? (double)measured : guess_of(unit, dtype, number, along) * CLOCKS;
    }
    return XPU_SUCCESS;
}

xpu_status xpu_tile_rate(int device, xpu_dtype dtype, bool tf32, int number, int64_t m, int64_t n, int64_t k,
                         int along_k, double seconds, double *rate) {
    xpu_tile tile;
    XPU_TRY(xpu_tile_get(device, dtype, tf32, number, &tile));
    if (along_k < 0 || along_k > 2 || tile.rate_index[along_k] < 0 || m <= 0 || n <= 0 || k <= 0 ||
        !(seconds > 0))
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "tiles: the rate of tile %d can't be derived from this measurement", number);
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    /* clocks = products / rate + first */
    tiled_product product = {.tile = &table[number],
                             .units = (int64_t)properties->gpu_subslice_count,
                             .batch = 1,
                             .m = m,
                             .n = n,
                             .k = k,
                             .step = tile.depth,
                             .rate = tile.rate[along_k] / CLOCKS,
                             .alone = busy_alone(&(matrix_choice){.im2col_mode = 0}, &table[number], along_k),
                             .occupancy = table[number].occupancy,
                             .sum = product_sum_size(dtype)};
    const int64_t pinned = TUNED(properties->type == XPU_DEVICE_CPU, MATRIX_SPLIT_K);
    int64_t cut;
    cut_for(&product, pinned, &cut);
    product.rate = 1;
    const double at_one = clocks_of(&product, cut);
    product.rate = 2;
    const double at_two = clocks_of(&product, cut);
    const double products = 2 * (at_one - at_two), first = at_one - products;
    const double clocks = seconds * 1e6 * CLOCKS - first;
    if (clocks <= 0)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "tiles: a product of %lld x %lld x %lld is too small to derive a rate from",
                       (long long)m, (long long)n, (long long)k);
    *rate = products / clocks * CLOCKS;
    return XPU_SUCCESS;
}

int matrix_intel_lanes(const xpu_device_properties *properties) {
    int least = 0;
    for (int i = 0; is_intel(properties) && i < XPU_PROPERTY_LIST_SIZE && properties->sub_group_sizes[i];
         i++) {
        const int lanes = (int)properties->sub_group_sizes[i];
        if (least == 0 || lanes < least) least = lanes;
    }
    return least;
}

void matrix_for_intel(matrix_choice *choice, const xpu_device_properties *properties) {
    if (!is_intel(properties)) return;
    const matrix_tile *tile = &table[choice->tile];
    const bool by_fma = has_none(choice->unit);
    const int sums = tile->m * tile->n / threads_of(tile);
    choice->wide =
        by_fma ? (sums >= 64 || prefetched_per_item(tile) >= 32) && matrix_accumulator_bytes(properties) > 128
               : !choice->emulated;
    if (by_fma) choice->lanes = matrix_intel_lanes(properties);
}

const matrix_tile *matrix_tile_of(const matrix_choice *choice) {
    return choice->is_tall ? &tall[choice->tile] : &table[choice->tile];
}

void matrix_unit_spec(kernel_spec *spec, matrix_unit unit, bool emulated, bool wide, xpu_dtype dtype) {
    static const char *const units[] = {NULL,         "MATRIX_PTX", "MATRIX_XMX",
                                        "MATRIX_FMA", "MATRIX_FMA", "MATRIX_XMX8"};
    const bool used = unit != MATRIX_UNIT_NONE;
    spec_key_only(spec, "unit", unit, 3);
    spec_option_flag(spec, units[unit], used);
    spec_option_flag(spec, "MATRIX_DOT", unit == MATRIX_UNIT_DOT);
    spec_flag(spec, "MATRIX_EMULATED", emulated);
    if (emulated) spec_option_text(spec, "-cl-opt-disable"); /* or CPU compilers take minutes */
    spec_key_only(spec, "wide", wide, 1);
    if (wide) spec_option_text(spec, "-cl-intel-256-GRF-per-thread");
    spec_option(spec, "MATRIX_T=", used ? dtype_token(dtype) : NULL);
}

void matrix_spec(kernel_spec *spec, const matrix_choice *choice, xpu_dtype dtype) {
    const bool used = choice->unit != MATRIX_UNIT_NONE;
    const matrix_tile *tile = matrix_tile_of(choice);
    const int depth = has_none(choice->unit) ? tile->step : matrix_step(tile, choice->unit, dtype);
    matrix_unit_spec(spec, choice->unit, choice->emulated, choice->wide, dtype);
    spec_int_if(spec, choice->lanes > 0, "LANES", choice->lanes, 7);
    spec_key_only(spec, "tile", choice->tile, 6);
    spec_key_only(spec, "is_tall", choice->is_tall, 1);
    const struct {
        const char *name;
        int value;
    } facts[] = {{"TILE_M", tile->m},
                 {"TILE_N", tile->n},
                 {"TILE_K", depth},
                 {"SUBGROUPS_M", tile->subgroups_m},
                 {"SUBGROUPS_N", tile->subgroups_n},
                 {"STAGES", tile->stages},
                 {"BAND", 1024 / tile->m}};
    for (size_t i = 0; i < sizeof facts / sizeof *facts && used; i++)
        spec_option_int(spec, facts[i].name, facts[i].value);
    spec_int_if(spec, used, "A_ALIGNMENT", choice->a_alignment, 5);
    spec_int_if(spec, used, "B_ALIGNMENT", choice->b_alignment, 5);
    spec_bool(spec, "OUT_PAIRS", choice->out_pairs);
}

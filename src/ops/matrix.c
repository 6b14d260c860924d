#include "matrix.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "product.h"

static const matrix_tile table[] = {
#define X(unit, m, n, k, teams_m, teams_n, stages, together, ...)                                            \
    {MATRIX_UNIT_##unit, m, n, k, teams_m, teams_n, stages, together, {__VA_ARGS__}},
#include "ops/matrix.def"
#undef X
};
enum { TILES = sizeof table / sizeof *table };

/* The unit that the environment wants, or none. */
static matrix_unit wanted(void) {
    static atomic_int answer; /* 0 not asked yet, else 1 more than the unit */
    int known = atomic_load_explicit(&answer, memory_order_relaxed);
    if (known == 0) {
        const char *value = getenv("OPENXPU_MATRIX");
        known = 1 + (!value                  ? MATRIX_UNIT_NONE
                     : !strcmp(value, "ptx") ? MATRIX_UNIT_PTX
                     : !strcmp(value, "xmx") ? MATRIX_UNIT_XMX
                                             : MATRIX_UNIT_NONE);
        atomic_store_explicit(&answer, known, memory_order_relaxed);
    }
    return (matrix_unit)(known - 1);
}

matrix_unit matrix_unit_of(const xpu_device_properties *p, xpu_dtype dtype, bool *emulated) {
    if (dtype != XPU_BFLOAT16 && dtype != XPU_FLOAT16) return MATRIX_UNIT_NONE;
    matrix_unit own = MATRIX_UNIT_NONE;
    if (p->has_inline_ptx && p->architecture >= 80) own = MATRIX_UNIT_PTX;
    if (p->matrix_lanes == 16 && p->has_subgroup_2d_block_io) own = MATRIX_UNIT_XMX;
    const matrix_unit other = wanted();
    *emulated = other != MATRIX_UNIT_NONE && other != own && p->has_subgroup_size && p->has_subgroup_shuffle;
    return *emulated ? other : own;
}

int matrix_alignment(const matrix_lines *lines, xpu_dtype dtype) {
    const uint64_t element = xpu_dtype_size(dtype);
    const uint64_t all = (uint64_t)(uintptr_t)lines->data | (uint64_t)lines->across * element |
                         (uint64_t)lines->batch * element | 16;
    return (int)(all & (~all + 1));
}

bool matrix_reads_blocks(const matrix_lines *lines, int64_t length, int64_t count, xpu_dtype dtype) {
    const int64_t element = (int64_t)xpu_dtype_size(dtype), most = 1 << 24;
    const int64_t width = length * element, pitch = lines->across * element;
    return (uintptr_t)lines->data % 64 == 0 && lines->batch * element % 64 == 0 && width >= 64 &&
           width % 4 == 0 && width < most && count > 0 && count < most && pitch >= width && pitch % 16 == 0 &&
           pitch < most;
}

/* Of the model below, on an NVIDIA H200: clocks until a group has its first numbers and of one more launch,
 * bytes of memory a clock and unit. A slice shorter than this is mostly the way there. */
enum { FIRST_STEP = 2000, LAUNCH = 6000, BYTES = 12, MOST_SLICES = 16, SHORTEST_SLICE = 256 };

/* Clocks: those of the products where all work-groups of a unit are busy, which fewer hardly shorten; of the
 * first step's way from memory; and of the slices' sums there and back. */
static double clocks_of(const matrix_tile *t, int64_t units, int64_t batch, int64_t m, int64_t n, int64_t k,
                        int along_k, int64_t cut) {
    const int64_t waves = divided_up(tiles(m, t->m) * tiles(n, t->n) * batch * cut, units * t->together);
    const double products =
        (double)(t->m * t->n * t->together) * (double)rounded_up(divided_up(k, cut), t->k);
    double clocks = (double)waves * (products / t->rate[along_k] + FIRST_STEP);
    if (cut > 1)
        clocks +=
            LAUNCH + (double)(cut + 1) * (double)(batch * m * n) * sizeof(float) / (double)units / BYTES;
    return clocks;
}

int matrix_tile_for(matrix_unit unit, const xpu_device_properties *properties, int64_t batch, int64_t m,
                    int64_t n, int64_t k, int along_k, int64_t *slices) {
    const int64_t units = (int64_t)properties->gpu_subslice_count;
    const int64_t pinned = TUNED(properties->type == XPU_DEVICE_CPU, MATRIX_TILE);
    int best = 0;
    double least = 0;
    for (int i = 0; i < TILES; i++) {
        if (table[i].unit != unit || (pinned < TILES && table[pinned].unit == unit && pinned != i)) continue;
        for (int64_t cut = 1; cut <= MOST_SLICES; cut *= 2) {
            if (cut > 1 && k / cut < SHORTEST_SLICE) break;
            const double clocks = clocks_of(&table[i], units, batch, m, n, k, along_k, cut);
            if (least > 0 && clocks >= least) continue;
            best = i, least = clocks, *slices = cut;
        }
    }
    return best;
}

const matrix_tile *matrix_tile_of(const matrix_choice *choice) { return &table[choice->tile]; }

void matrix_spec(kernel_spec *spec, const matrix_choice *choice, xpu_dtype dtype) {
    static const char *const units[] = {NULL, "MATRIX_PTX", "MATRIX_XMX"};
    const bool used = choice->unit != MATRIX_UNIT_NONE;
    const matrix_tile *tile = &table[choice->tile];
    spec_pack(spec, "unit", choice->unit, 2);
    spec_follows_flag(spec, units[choice->unit], used);
    spec_flag(spec, "MATRIX_EMULATED", choice->emulated);
    if (choice->unit == MATRIX_UNIT_XMX && !choice->emulated)
        spec_follows_options(spec, "-cl-intel-256-GRF-per-thread");
    if (choice->unit == MATRIX_UNIT_PTX && choice->emulated)
        spec_follows_options(spec, MATRIX_EMULATION_OPTIONS);
    spec_follows(spec, "MATRIX_T=", used ? dtype_token(dtype) : NULL);
    spec_pack(spec, "tile", choice->tile, 6);
    const struct {
        const char *name;
        int value;
    } facts[] = {{"TILE_M", tile->m},        {"TILE_N", tile->n},        {"TILE_K", tile->k},
                 {"TEAMS_M", tile->teams_m}, {"TEAMS_N", tile->teams_n}, {"STAGES", tile->stages},
                 {"BAND", 1024 / tile->m}};
    for (size_t i = 0; i < sizeof facts / sizeof *facts && used; i++)
        spec_follows_number(spec, facts[i].name, facts[i].value);
    spec_number_if(spec, used, "A_PIECE", choice->a_piece, 5);
    spec_number_if(spec, used, "B_PIECE", choice->b_piece, 5);
    spec_bool(spec, "OUT_PAIRS", choice->out_pairs);
}

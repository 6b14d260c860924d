/* Predicts the time of a walk: that of the busiest part of a core, or that of memory traffic if it is longer.
 * The model knows no latency, so walks of few threads are predicted too fast. It does not know the size of
 * the L2 cache either: memory is read and written once, however often the walk touches it.
 *
 * Two published measurements of a product limit its predictions. Matrix engines sustain the share of their
 * peak that the vendor's library reaches in a product of 8192 x 8192 x 8192 in float16. Memory sustains the
 * share of its bandwidth that a copy reaches. Cores are assumed to sustain the first share of their issue
 * slots, too. */
#include "predict.h"

#include <math.h>
#include <string.h>

#define LAUNCH 3e-6 /* seconds of a walk that does nothing, a guess */

struct rates {
    const char *product;
    double clock;        /* Hz */
    double memory;       /* bytes/s, as the product's page says */
    double core_share;   /* measured share of the matrix engines' peak */
    double memory_share; /* measured share of `memory` */
    double matrix_row;   /* clocks of a row of a matrix instruction */
    double l1, l2;       /* bytes per clock and core: guesses */
};

/* Published: B580 93 of 116.5 TFLOP/s and 410 GB/s, B70 154 of 183.5 and 532, A770 92 to 99 of 137.5. The
 * others have the shares of their generation, which is a guess. */
static const struct rates table[] = {
    {"bmg", 2.85e9, 456e9, 0.80, 0.90, 2, 128, 64},   {"bmg-g31", 2.8e9, 608e9, 0.84, 0.875, 2, 128, 64},
    {"lnl", 2.05e9, 136e9, 0.80, 0.90, 2, 128, 64},   {"ptl", 2.4e9, 154e9, 0.80, 0.90, 2, 128, 64},
    {"pvc", 1.6e9, 1638e9, 0.80, 0.90, 1, 512, 64},   {"dg2", 2.1e9, 560e9, 0.69, 0.90, 2, 128, 64},
    {"arl-h", 2.35e9, 134e9, 0.69, 0.90, 2, 128, 64},
};

static const struct rates *rates_of(const struct sim_product *product) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].product, product->name)) return &table[i];
    return NULL;
}

void predict(const struct sim_product *product, const struct walk_costs *c, struct prediction *to) {
    const struct rates *const r = rates_of(product);
    if (!r) {
        to->unknown = true;
        return;
    }
    /* of the core with the most groups, and its engine with the most threads */
    const double cores = product->slices * product->cores_per_slice;
    const double groups = ceil(c->groups / cores), share = groups / c->groups;
    const double threads = ceil(groups * c->threads / product->units_per_core);
    const double engine = threads / (c->groups * c->threads) / r->core_share / r->clock;
    const double bytes = fmin(c->l2_bytes, c->touched);
    const double seconds[LIMITS] = {
        [LIMIT_ISSUE] = c->issue * engine,
        [LIMIT_MATRIX] = c->matrix * r->matrix_row * engine,
        [LIMIT_L1] = c->l1_bytes * share / r->l1 / r->clock,
        [LIMIT_LOCAL] = (c->local_bytes / r->l1 + c->conflicts) * share / r->clock,
        [LIMIT_L2] = c->l2_bytes * share / r->l2 / r->clock,
        [LIMIT_MEMORY] = bytes / r->memory / r->memory_share,
    };
    int longest = 0;
    for (int i = 0; i < LIMITS; i++)
        if (seconds[i] > seconds[longest]) longest = i;
    const double all = LAUNCH + seconds[longest];
    to->seconds += all;
    to->limited[seconds[longest] < LAUNCH ? LIMIT_LAUNCH : longest] += all;
    to->memory_bytes += bytes;
}

void predict_print(FILE *to, const struct prediction *p) {
    static const char *const names[LIMITS] = {"launches",     "instructions", "matrix engines", "L1 cache",
                                              "local memory", "L2 cache",     "memory"};
    int longest = 0;
    for (int i = 0; i < LIMITS; i++)
        if (p->limited[i] > p->limited[longest]) longest = i;
    if (p->unknown)
        fprintf(to, "  predicted: no rates of this product are known\n");
    else
        fprintf(to, "  predicted %.1f us, limited by %s; memory %.0f bytes\n", p->seconds * 1e6,
                names[longest], p->memory_bytes);
}

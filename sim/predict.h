/* The time that a walk would take on hardware, predicted from what it executes. */
#ifndef SIM_PREDICT_H
#define SIM_PREDICT_H

#include <stdio.h>

#include "sim.h"

/* What all work-groups of a walk execute. */
struct walk_costs {
    double groups;
    int threads;        /* of a group */
    double issue;       /* clocks of an engine's issue port */
    double matrix;      /* rows of matrix instructions: 8 of an instruction that repeats 8 times */
    double l1_bytes;    /* between the L1 cache and registers */
    double l2_bytes;    /* between the L2 cache and the L1 cache */
    double touched;     /* bytes of the allocations' parts that the walk reads, and of those that it writes */
    double local_bytes; /* of local memory */
    double conflicts;   /* clocks that messages to local memory wait for banks */
};

enum limit { LIMIT_LAUNCH, LIMIT_ISSUE, LIMIT_MATRIX, LIMIT_L1, LIMIT_LOCAL, LIMIT_L2, LIMIT_MEMORY, LIMITS };

/* The sums over walks of a kernel. */
struct prediction {
    double seconds;
    double limited[LIMITS]; /* seconds of the walks that this limits */
    double memory_bytes;
    bool unknown; /* no rates of the product are known */
};

/* Adds a walk to a prediction. */
void predict(const struct sim_product *product, const struct walk_costs *costs, struct prediction *to);
void predict_print(FILE *to, const struct prediction *p);

#endif

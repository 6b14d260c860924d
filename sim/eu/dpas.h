/* Matrix multiplication: dpas. */
#ifndef SIM_EU_DPAS_H
#define SIM_EU_DPAS_H

#include "eu/eu.h"

const char *dpas_bind(struct instruction *in);

#endif

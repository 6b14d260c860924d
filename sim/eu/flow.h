/* Branches, joins, and waiting at barriers. */
#ifndef SIM_EU_FLOW_H
#define SIM_EU_FLOW_H

#include "eu/eu.h"

/* Sets in->execute; the reason why it can't, or NULL. */
const char *flow_bind(struct instruction *in);

#endif

/* Messages to other units: their descriptors, decoded before execution where these are immediate. */
#ifndef SIM_EU_MESSAGE_H
#define SIM_EU_MESSAGE_H

#include "eu/eu.h"

/* Sets in->execute; the reason why it can't, or NULL. */
const char *message_bind(struct instruction *in, const struct sim_product *product);

#endif

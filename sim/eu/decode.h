/* IGA's text of one instruction -> struct instruction. */
#ifndef SIM_EU_DECODE_H
#define SIM_EU_DECODE_H

#include "eu/eu.h"

/* Fills everything that the text says; in->text must be set. If the text is not understood, in->problem says
 * which part. `register_bytes`: of the product's registers. */
void decode(struct instruction *in, const struct sim_product *product);

extern const char *const opcode_text[OP_COUNT];
extern const uint8_t opcode_class[OP_COUNT];

#endif

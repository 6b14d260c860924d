/* Intel's disassembler, which the driver's packages bring along: machine code to text. */
#ifndef SIM_EU_IGA_H
#define SIM_EU_IGA_H

#include "sim.h"

/* Text of the instruction at `code` (16 readable bytes), with numeric branch targets and hexadecimal floats,
 * in `text`. False, and a reason in `text`, if it is no instruction. Any thread may call. */
bool iga_text(enum sim_iga version, const uint8_t code[16], char *text, size_t size);

#endif

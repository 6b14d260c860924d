/* Lanes of operands between the register file and arrays of a domain. */
#ifndef SIM_EU_OPERAND_H
#define SIM_EU_OPERAND_H

#include "eu/eu.h"

/* The function that loads a source, or NULL; sets o->direct if the register file can be used as it is. */
load_function *operand_loader(struct operand *o, enum domain domain, bool logical);
/* An immediate's lanes; those of a packed vector depend on the destination's stride. */
bool operand_constant(const struct operand *o, const struct operand *destination, enum domain domain,
                      bool logical, union lanes *to);
/* The conversion from a domain to a destination's type; NULL: none is needed or none exists (see `exists`).
 */
convert_function *operand_converter(int type, enum domain domain, bool *exists);
/* Clamps to the range of an integer type, or to 0 … 1 for floats. `wraps`: integers are uq in int64_t. */
void operand_saturate(union lanes *r, int type, enum domain domain, int lanes, bool wraps);

/* Byte offsets of an operand's lanes; those of an indirect operand are computed into `to`. */
const uint16_t *operand_lanes(const struct thread *t, const struct operand *o, uint16_t to[MAX_LANES]);
/* Writes packed elements of the destination's type under the mask. */
void operand_store(struct thread *t, const struct instruction *in, uint32_t mask, const void *packed);

static inline const void *operand_load(const struct thread *t, const struct operand *o, union lanes *to) {
    return o->direct ? t->registers + o->lane[0] : o->load(t, o, to);
}

#endif

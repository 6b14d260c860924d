/* Which bytes of registers hold values that come from memory that was never written. */
#ifndef SIM_CHECK_TAINT_H
#define SIM_CHECK_TAINT_H

#include "eu/eu.h"

/* Of a byte: as it was in global memory, where a copy of it is found by its value; or anything else. */
enum { TAINT_COPY = 1, TAINT_VALUE = 0xff };

struct taint {
    bool any;                      /* false: no byte is tainted */
    uint8_t bytes[REG_FILE_BYTES]; /* of flags: their bits */
};

enum taint_use { TAINT_UNUSED, TAINT_ADDRESS, TAINT_DATA, TAINT_BRANCH };

/* Is one of these bytes of registers tainted? */
bool is_tainted(const struct taint *taint, int at, int size);

/* Is a value among these bytes of registers that a store to global memory must not write? Copies of what
 * nobody has written are allowed. */
bool taint_is_stored(const struct taint *taint, const struct thread *t, int at, int size);

/* Follows an instruction before it is executed. What it is used for that other work-items or the host can
 * see: `lanes` are those concerned. */
enum taint_use taint_follow(struct taint *taint, const struct thread *t, const struct instruction *in,
                            uint32_t mask, uint32_t *lanes);

#endif

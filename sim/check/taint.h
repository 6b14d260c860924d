/* Which bytes of registers hold values that come from local memory that was never written. */
#ifndef SIM_CHECK_TAINT_H
#define SIM_CHECK_TAINT_H

#include "eu/eu.h"

struct taint {
    bool any;                      /* false: no byte is tainted */
    uint8_t bytes[REG_FILE_BYTES]; /* of flags: their bits */
};

enum taint_use { TAINT_UNUSED, TAINT_ADDRESS, TAINT_DATA, TAINT_BRANCH };

/* Follows an instruction before it is executed. What it is used for that other work-items or the host can
 * see: `lanes` are those concerned. */
enum taint_use taint_follow(struct taint *taint, const struct thread *t, const struct instruction *in,
                            uint32_t mask, uint32_t *lanes);

#endif

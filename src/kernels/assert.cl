/* Reports an assertion, with a text of the host's, where the flag is 0. */
#include "assert.h"

__kernel void assert_flag(struct assert_params p) {
    if (*XPU_CPTR(uchar, p.flag) == 0) fault_report(p.watch, FAULT_TEXT, 0, 0);
}

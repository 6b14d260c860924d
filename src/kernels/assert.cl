/* assert_flag: reports a failed assertion if the flag byte is 0. One work-item. `which` is FAULT_TEXT: the
 * message is the host's text, whose address is in watch.op. */
#include "assert.h"

__kernel void assert_flag(struct assert_params p) {
    if (*XPU_CPTR(uchar, p.flag) == 0) fault_report(p.watch, FAULT_TEXT, 0, 0);
}

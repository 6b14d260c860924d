/* Parameters of search.cl. */
#ifndef XPU_KERNELS_SEARCH_H
#define XPU_KERNELS_SEARCH_H
#include "fault.h"

typedef struct search_params {
    xpu_addr sequence, sorter, values, out; /* sorter: i64 or 0 */
    xpu_i64 count;                          /* values */
    xpu_i64 a_row;                          /* of them search the same sequence */
    xpu_i64 length;                         /* of a sequence */
    xpu_i32 one;                            /* there is one sequence for all */
    xpu_i32 right;
    struct fault_watch falls, differs; /* repeat */
} search_params;
#endif

/* Arithmetic on arrays of lanes, and its application to operands under masks and flags. */
#ifndef SIM_EU_ALU_H
#define SIM_EU_ALU_H

#include "eu/eu.h"

/* Arguments of a compute_function. The arrays have the domain's type. */
struct alu {
    void *result;
    const void *a, *b, *c;
    int lanes;
    uint32_t mask, predicate;
    const struct instruction *in;
    struct thread *thread;
};

/* NULL if the opcode is not defined in the domain. */
compute_function *integer_function(const struct instruction *in);  /* domains I32, I64 */
compute_function *floating_function(const struct instruction *in); /* domains F32, F64 */
/* a[i] `condition` b[i], as bits; NULL for conditions without meaning in the domain */
compare_function *compare_function_of(enum condition condition, enum domain domain, bool is_unsigned);

/* Lanes in which sel with a condition takes its first source. */
compare_function *choice_function_of(enum condition condition, enum domain domain, bool is_unsigned);

extern const union lanes zero_lanes;

/* Values of in->execute */
execute_function alu_execute, alu_execute_flags, alu_execute_special, alu_compare, alu_select,
    alu_select_condition, alu_move;

/* Sets the host's rounding and flushing of subnormals as cr0 says. */
void alu_apply_control(struct thread *thread);

#endif

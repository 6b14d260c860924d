/* A lane that is not active waits at an instruction, its index in t->resume, and becomes active when the
 * thread executes that. If no lane is active, the thread jumps to the next place where one may wait (JIP). */
#include "eu/flow.h"

#include "eu/thread.h"

enum { JIP, UIP };

static void jump(struct thread *t, const struct instruction *in, int which) {
    t->next = t->program->code + in->jump[which];
}

static void suspend(struct thread *t, uint32_t lanes, uint32_t at) {
    for (uint32_t m = lanes; m; m &= m - 1) t->resume[__builtin_ctz(m)] = at;
    t->active &= ~lanes;
}

/* Lanes that wait here. */
VECTORIZED static uint32_t waiting_at(const struct thread *t, uint32_t index) {
    uint32_t lanes = 0;
    for (int i = 0; i < MAX_LANES; i++) lanes |= (0u - (uint32_t)(t->resume[i] == index)) & lane_bit[i];
    return lanes;
}

static void wake_at(struct thread *t, uint32_t index) {
    const uint32_t lanes = waiting_at(t, index);
    t->active |= lanes;
    for (uint32_t m = lanes; m; m &= m - 1) t->resume[__builtin_ctz(m)] = NO_RESUME;
}

static void wake(struct thread *t, const struct instruction *in) {
    wake_at(t, (uint32_t)(in - t->program->code));
}

/* Lanes, at their place in the thread, that execute and whose predicate holds. */
static uint32_t taken_lanes(const struct thread *t, const struct instruction *in, uint32_t mask) {
    return (in->predicated ? mask & predicate_bits(t, in) : mask) << in->channel;
}

static void nothing(struct thread *t, const struct instruction *in, uint32_t mask) {
    (void)t, (void)in, (void)mask;
}

static void jmpi(struct thread *t, const struct instruction *in, uint32_t mask) {
    (void)mask;
    if (!in->predicated || (predicate_bits(t, in) & 1)) jump(t, in, JIP);
}

static void go_to(struct thread *t, const struct instruction *in, uint32_t mask) {
    const uint32_t taken = taken_lanes(t, in, mask), rest = (mask << in->channel) & ~taken;
    if (!in->branch_back) {
        suspend(t, taken, in->jump[UIP]);
        if (!t->active) jump(t, in, JIP);
    } else if (taken) { /* goto.b: lanes that take it go on at once, the others wait at the join behind it */
        suspend(t, rest, (uint32_t)(in - t->program->code) + 1);
        jump(t, in, UIP);
    } else if (!rest) {
        jump(t, in, JIP);
    }
}

static void join(struct thread *t, const struct instruction *in, uint32_t mask) {
    (void)mask;
    wake(t, in);
    if (!t->active) jump(t, in, JIP);
}

/* if: lanes whose predicate fails go to the else-branch (JIP is the instruction behind else, or endif). */
static void if_(struct thread *t, const struct instruction *in, uint32_t mask) {
    const uint32_t taken = taken_lanes(t, in, mask);
    suspend(t, (mask << in->channel) & ~taken, in->jump[JIP]);
    if (t->active) return;
    jump(t, in, JIP);
    wake_at(t, in->jump[JIP]);
}

/* else: lanes of the then-branch wait at endif; those that wait behind it are active from there on. */
static void else_(struct thread *t, const struct instruction *in, uint32_t mask) {
    suspend(t, mask << in->channel, in->jump[JIP]);
    wake_at(t, (uint32_t)(in - t->program->code) + 1);
    if (!t->active) jump(t, in, JIP);
}

/* while: lanes whose predicate holds go back; the others leave the loop. */
static void while_(struct thread *t, const struct instruction *in, uint32_t mask) {
    wake(t, in); /* lanes that continued */
    const uint32_t active = t->active >> in->channel & in->lane_mask,
                   taken = taken_lanes(t, in, mask | active);
    if (taken) {
        suspend(t, t->active & ~taken, (uint32_t)(in - t->program->code) + 1);
        jump(t, in, JIP);
        return;
    }
    wake_at(t, (uint32_t)(in - t->program->code) + 1);
}

/* break, cont: lanes whose predicate holds wait behind the loop, or at its while (UIP). */
static void leave(struct thread *t, const struct instruction *in, uint32_t mask) {
    const uint32_t taken = taken_lanes(t, in, mask), behind = in->opcode == OP_BREAK ? 1 : 0;
    suspend(t, taken, in->jump[UIP] + behind);
    if (!t->active) jump(t, in, JIP);
}

/* call keeps the index of the next instruction in its destination, ret continues there. All lanes that called
 * return together. */
static void call(struct thread *t, const struct instruction *in, uint32_t mask) {
    const uint32_t taken = taken_lanes(t, in, mask), next = (uint32_t)(in - t->program->code) + 1;
    if (!taken) return;
    if (in->predicated && taken != t->active && !in->no_mask)
        thread_fault(t, in, "only some lanes call: not known");
    memcpy(t->registers + in->destination.lane[0], &next, sizeof next);
    jump(t, in, JIP);
}
static void ret(struct thread *t, const struct instruction *in, uint32_t mask) {
    const uint32_t taken = taken_lanes(t, in, mask);
    uint32_t next;
    if (!taken) return;
    memcpy(&next, t->registers + in->source[0].lane[0], sizeof next);
    if ((in->predicated && taken != t->active && !in->no_mask) || next >= t->program->count)
        thread_fault(t, in, "only some lanes return, or not to a call: not known");
    else
        t->next = t->program->code + next;
}

/* sync.bar: waits until the barrier that the thread has signaled is complete. */
static void wait_barrier(struct thread *t, const struct instruction *in, uint32_t mask) {
    (void)in, (void)mask;
    if (t->barrier < 0) return;
    if (t->group->barriers[t->barrier].phase == t->barrier_phase)
        t->state = THREAD_WAITS;
    else
        thread_pass_barrier(t);
}

const char *flow_bind(struct instruction *in) {
    switch (in->opcode) {
    case OP_NOP: in->execute = nothing; break;
    case OP_SYNC: in->execute = in->barrier ? wait_barrier : nothing; break;
    case OP_JMPI: in->execute = jmpi; break;
    case OP_GOTO: in->execute = go_to; break;
    case OP_JOIN:
    case OP_ENDIF: in->execute = join; break;
    case OP_IF: in->execute = if_; break;
    case OP_ELSE: in->execute = else_; break;
    case OP_WHILE: in->execute = while_; break;
    case OP_BREAK:
    case OP_CONT: in->execute = leave; break;
    case OP_CALL: in->execute = call; break;
    case OP_RET: in->execute = ret; break;
    default: return "not executable";
    }
    return NULL;
}

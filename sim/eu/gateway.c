/* Messages to the gateway: barriers and the end of a thread. */
#include "eu/unit.h"

#include "check/check.h"

enum { GATEWAY_END = 0, GATEWAY_BARRIER = 4 };

static bool end(struct thread *t, const struct instruction *in, const struct message *m, uint32_t mask) {
    (void)in, (void)m, (void)mask;
    t->state = THREAD_ENDED;
    return true;
}

/* Payload dword 2: 4:0 barrier, 15:14 role (0: produces and consumes), 23:16 producers, 31:24 consumers.
 * Barrier 0 is the work-group's. */
static bool signal_barrier(struct thread *t, const struct instruction *in, const struct message *m,
                           uint32_t mask) {
    uint32_t d;
    (void)m, (void)mask;
    memcpy(&d, t->registers + in->source[0].lane[0] + 8, sizeof d);
    const int id = (int)(d & 31), role = (int)(d >> 14 & 3), producers = (int)(d >> 16 & 255);
    struct barrier *b = &t->group->barriers[id];
    if (role)
        return thread_fault(t, in, "barrier %d: threads that only produce or consume are not known", id);
    if (t->barrier >= 0)
        return thread_fault(t, in, "barrier %d: the thread signals again before it has waited for barrier %d",
                            id, t->barrier);
    t->barrier_phase = b->phase;
    if (!id && t->group->worker->check) check_barrier(t, in);
    b->expected = id ? producers : t->group->count;
    t->barrier = id;
    if (++b->arrived >= b->expected) {
        b->arrived = 0;
        b->phase++;
    }
    return true;
}

void gateway_decode(struct message *m, const struct instruction *in) {
    const uint32_t function = m->descriptor & 7;
    if (in->end_of_thread && function == GATEWAY_END)
        m->execute = end;
    else if (function == GATEWAY_BARRIER)
        m->execute = signal_barrier;
}

#include "eu/thread.h"

#include <stdarg.h>
#include <stdio.h>

#include "check/check.h"
#include "eu/alu.h"
#include "profile.h"

bool thread_fault(struct thread *t, const struct instruction *in, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const struct sim_walk *w = t->group->walk;
    sim_fault("%s\n  kernel %s at %#llx + %#x, group %u %u %u, thread %d: %s", text, program_name(t->program),
              (unsigned long long)w->kernel, in ? in->offset : 0, t->group->id[0], t->group->id[1],
              t->group->id[2], t->id, in ? in->text : "");
    t->state = THREAD_FAULTED;
    return false;
}

/* ---- start ---- */

/* Orders in which lanes run through the dimensions of the local ids. */
static const uint8_t walk_orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0},
                                         {2, 0, 1}, {2, 1, 0}, {0, 1, 2}, {0, 1, 2}};

static uint8_t *write_local_ids(struct thread *t, uint8_t *to) {
    const struct sim_walk *w = t->group->walk;
    const uint8_t *order = walk_orders[w->walk_order & 7];
    const int unit = w->product->register_bytes, bytes = (w->simd * 2 + unit - 1) / unit * unit;
    for (int d = 0; d < 3; d++) {
        if (!(w->emit_local_ids >> d & 1)) continue;
        for (int i = 0; i < w->simd; i++) {
            uint32_t rest = (uint32_t)(t->id * w->simd + i), id[3];
            for (int k = 0; k < 2; k++) {
                id[order[k]] = rest % w->local_size[order[k]];
                rest /= w->local_size[order[k]];
            }
            id[order[2]] = rest;
            const uint16_t v = (uint16_t)id[d];
            memcpy(to + 2 * i, &v, 2);
        }
        to += bytes;
    }
    return to;
}

/* The thread's own part, its local ids, is last in memory but first in the registers. */
static bool load_payload(struct thread *t, uint8_t *to) {
    const struct sim_walk *w = t->group->walk;
    const uint64_t own = w->indirect + w->cross_thread_bytes + (uint64_t)t->id * w->per_thread_bytes;
    if (w->cross_thread_bytes + w->per_thread_bytes > REG_ACCUMULATOR / 4) return false;
    return sim_vm_read(w->vm, own, to, w->per_thread_bytes) &&
           sim_vm_read(w->vm, w->indirect, to + w->per_thread_bytes, w->cross_thread_bytes);
}

/* Where the thread runs: kernels compute a number from it by which they find their private memory (IGC,
 * CShader::GetHWTID). sr0 holds the thread's number in its unit, the unit's and the core's, in bits that are
 * not adjacent; msg0 the core's from Xe2 on. */
static void write_place(struct thread *t) {
    const struct sim_product *p = t->group->walk->product;
    const uint32_t slot = (uint32_t)t->slot, threads = (uint32_t)p->threads_per_unit;
    const bool xe3 = p->iga >= SIM_IGA_XE3; /* units of 10 threads: the number takes 4 bits, not 3 */
    const uint32_t place = xe3 ? slot / threads << 4 | slot % threads : slot, core = place >> (xe3 ? 7 : 6);
    uint32_t bits = xe3                        ? 0x3cf7f
                    : p->iga >= SIM_IGA_XE2    ? 0xfb77
                    : p->iga >= SIM_IGA_XE_HPC ? 0x7f37
                                               : 0x3fb7;
    uint32_t state = 0;
    for (uint32_t rest = place; bits; bits &= bits - 1, rest >>= 1) state |= rest & 1 ? bits & -bits : 0;
    memcpy(t->registers + REG_STATE, &state, 4);
    memcpy(t->registers + REG_MESSAGE, &core, 4);
}

void thread_start(struct thread *t, uint32_t lanes) {
    const struct sim_walk *w = t->group->walk;
    const uint32_t *group = t->group->id;
    memset(t->registers, 0, sizeof t->registers);
    memset(t->resume, 0xff, sizeof t->resume);
    t->next = t->program->code;
    t->state = THREAD_RUNS;
    t->active = t->started = lanes;
    t->barrier = -1;
    t->interval = 0;
    uint32_t r0[8] = {0};
    r0[0] = (uint32_t)(w->indirect - w->bases.general);
    r0[1] = group[0];
    r0[2] = ((uint32_t)t->id & 255) | (uint32_t)t->group->count << 24;
    r0[3] = w->sampler_state;
    r0[4] = w->binding_table;
    r0[5] = (uint32_t)w->scratch_surface | ((uint32_t)t->slot & 511);
    if (w->payload_from_memory) /* Xe-LP: scratch memory is no surface, and the hardware adds the thread's */
        r0[5] += (uint32_t)t->slot * w->scratch_bytes;
    r0[6] = group[1];
    r0[7] = group[2];
    memcpy(t->registers, r0, sizeof r0);
    const uint32_t control = (uint32_t)w->rounding << 4 | (w->keep_denormals ? 0x4c0u : 0);
    memcpy(t->registers + REG_CONTROL, &control, 4);
    write_place(t);
    const uint32_t masks[2] = {lanes, lanes}; /* dispatch and vector mask: only pixel shaders' differ */
    memcpy(t->registers + REG_STATE + 8, masks, sizeof masks);
    uint8_t *payload = t->registers + w->product->register_bytes;
    if (w->generate_local_ids) payload = write_local_ids(t, payload);
    if (w->payload_from_memory && !load_payload(t, payload))
        thread_fault(t, NULL, "payload at %#llx is not mapped", (unsigned long long)w->indirect);
    if (w->has_inline_data) memcpy(payload, w->inline_data, (size_t)w->inline_bytes);
}

/* ---- run ---- */

void thread_pass_barrier(struct thread *t) {
    if (!t->barrier && t->group->worker->check) check_barrier_passed(t);
    t->barrier = -1;
    t->interval = t->group->barriers[0].phase;
}

static void trace(const struct thread *t, const struct instruction *in, uint32_t mask) {
    sim_log_line("group %u %u %u thread %d +%#x [%08x] %s", t->group->id[0], t->group->id[1], t->group->id[2],
                 t->id, in->offset, mask, in->text);
}

static void trace_result(const struct thread *t, const struct instruction *in) {
    const struct operand *o = &in->destination;
    char text[32 * 20 + 1];
    int n = 0;
    if (o->kind != OPERAND_REGISTER) return;
    for (int i = 0; i < 32 && (i < in->lanes || !o->type); i++) {
        uint64_t v = 0;
        memcpy(&v, t->registers + (o->type ? o->lane[i] : o->lane[0] + 4 * i),
               o->type ? (size_t)type_bytes(o->type) : 4);
        n += snprintf(text + n, sizeof text - (size_t)n, " %llx", (unsigned long long)v);
    }
    sim_log_line("group %u %u %u thread %d =%s", t->group->id[0], t->group->id[1], t->group->id[2], t->id,
                 text);
}

void thread_run(struct thread *t, uint64_t budget) {
    struct worker *w = t->group->worker;
    const bool traced = sim_options()->log >= SIM_LOG_INSTRUCTIONS;
    const uint64_t start = budget;
    alu_apply_control(t);
    while (budget && t->state == THREAD_RUNS) {
        const struct instruction *in = t->next;
        budget--;
        uint32_t mask = in->no_mask ? in->lane_mask : t->active >> in->channel & in->lane_mask;
        if (in->masked_by_predicate) mask &= predicate_bits(t, in);
        t->next = in + 1;
        if (w->counts) profile_count(w->counts, (uint32_t)(in - t->program->code), mask);
        if (traced) trace(t, in, mask);
        if (!mask && !in->runs_without_lanes && !in->problem) continue;
        if (in->problem) {
            thread_fault(t, in, "%s", in->problem);
            break;
        }
        if (w->check) check_instruction(t, in, mask);
        in->execute(t, in, mask);
        if (traced) trace_result(t, in);
    }
    w->instructions += start - budget;
}

/* Memory interface commands: those that all engines have. */
#include <sched.h>
#include <time.h>

#include "command/command.h"

/* Is a batch that waits for a semaphore hung? It is after a time limit in which no walk ran, which could have
 * signaled it. A ring of direct submission waits for the program whenever it has nothing to do: there, only
 * the time counts in which the program itself waits for the device. */
static atomic_int running_walks, waiting_programs;

void command_working(bool begins) { atomic_fetch_add(&running_walks, begins ? 1 : -1); }

void command_awaited(bool begins) { atomic_fetch_add(&waiting_programs, begins ? 1 : -1); }

static bool is_stuck(void) {
    return !atomic_load(&running_walks) && (!sim_options()->rings || atomic_load(&waiting_programs));
}

/* ---- batches ---- */

static enum outcome end_of_batch(struct command_engine *engine, const uint32_t *d, unsigned length) {
    (void)d, (void)length;
    if (!engine->depth) return ENDS;
    engine->next = engine->returns[--engine->depth];
    return RUNS;
}

static const char start_name[] = "MI_BATCH_BUFFER_START";

static enum outcome start_of_batch(struct command_engine *engine, const uint32_t *d, unsigned length) {
    bool returns = d[0] >> 22 & 1, predicated = d[0] >> 15 & 1;
    if (predicated) return command_fault(start_name, d, length, "predication is not implemented");
    if (returns && engine->depth == NESTING_MAX)
        return command_fault(start_name, d, length, "nested too deep");
    if (returns) engine->returns[engine->depth++] = engine->next;
    engine->next = qword(d + 1) & ~3ull;
    return RUNS;
}

static enum outcome set_predicate(struct command_engine *engine, const uint32_t *d, unsigned length) {
    (void)engine;
    return d[0] & 15 ? command_fault("MI_SET_PREDICATE", d, length, "predication is not implemented") : RUNS;
}

/* ---- semaphores ---- */

enum { ABOVE, AT_LEAST, BELOW, AT_MOST, EQUAL, NOT_EQUAL };

static bool compare(uint32_t operation, uint32_t memory, uint32_t data) {
    switch (operation) {
    case ABOVE: return memory > data;
    case AT_LEAST: return memory >= data;
    case BELOW: return memory < data;
    case AT_MOST: return memory <= data;
    case EQUAL: return memory == data;
    default: return memory != data;
    }
}

static void pause_waiting(unsigned round) {
    if (round < 16) {
        sched_yield();
        return;
    }
    const struct timespec short_time = {0, round < 200 ? 20000 : 500000};
    nanosleep(&short_time, NULL);
}

static enum outcome semaphore_wait(struct command_engine *engine, const uint32_t *d, unsigned length) {
    uint32_t operation = bits(d[0], 14, 12);
    bool polls_register = d[0] >> 16 & 1;
    if (operation > NOT_EQUAL || d[0] >> 17 & 3)
        return command_fault("MI_SEMAPHORE_WAIT", d, length, "unknown form");
    uint64_t address = qword(d + 2) & ~3ull, before = sim_time_ns(), stuck = 0;
    for (unsigned round = 0; !atomic_load(&engine->stopped); round++) {
        uint32_t value = 0;
        if (polls_register)
            value = register_read(engine, (uint32_t)address);
        else if (!command_load(engine, address, &value, 4, "MI_SEMAPHORE_WAIT"))
            return FAULTS;
        if (compare(operation, value, d[1])) return RUNS;
        uint64_t now = sim_time_ns();
        stuck = is_stuck() ? stuck + now - before : atomic_load(&running_walks) ? 0 : stuck;
        before = now;
        if (sim_fault_count() && stuck > sim_options()->wait_limit_ns / 10) {
            sim_log_line("a batch is given up that waits for a semaphore: see the fault before");
            return FAULTS;
        }
        if (stuck > sim_options()->wait_limit_ns)
            return command_fault("MI_SEMAPHORE_WAIT", d, length, "hung: nothing else runs");
        pause_waiting(round);
    }
    return ENDS;
}

/* ---- memory and registers ---- */

static enum outcome store_immediate(struct command_engine *engine, const uint32_t *d, unsigned length) {
    bool wide = d[0] >> 21 & 1;
    (void)length;
    return command_store(engine, qword(d + 1) & ~3ull, d + 3, wide ? 8 : 4, "MI_STORE_DATA_IMM") ? RUNS
                                                                                                 : FAULTS;
}

static enum outcome load_registers(struct command_engine *engine, const uint32_t *d, unsigned length) {
    for (unsigned i = 1; i + 1 < length; i += 2)
        if (!register_write(engine, d[i] & 0x7fffffu, d[i + 1])) return FAULTS;
    return RUNS;
}

static enum outcome store_register(struct command_engine *engine, const uint32_t *d, unsigned length) {
    (void)length;
    uint32_t value = register_read(engine, d[1] & 0x7fffffu);
    return command_store(engine, qword(d + 2) & ~3ull, &value, 4, "MI_STORE_REGISTER_MEM") ? RUNS : FAULTS;
}

static enum outcome load_register_from_memory(struct command_engine *engine, const uint32_t *d,
                                              unsigned length) {
    (void)length;
    uint32_t value;
    if (!command_load(engine, qword(d + 2) & ~3ull, &value, 4, "MI_LOAD_REGISTER_MEM")) return FAULTS;
    return register_write(engine, d[1] & 0x7fffffu, value) ? RUNS : FAULTS;
}

static enum outcome copy_register(struct command_engine *engine, const uint32_t *d, unsigned length) {
    (void)length;
    uint32_t value = register_read(engine, d[1] & 0x7fffffu);
    return register_write(engine, d[2] & 0x7fffffu, value) ? RUNS : FAULTS;
}

static enum outcome flush(struct command_engine *engine, const uint32_t *d, unsigned length) {
    uint64_t value = length > 4 ? qword(d + 3) : length > 3 ? d[3] : 0;
    return post_sync(engine, bits(d[0], 15, 14), qword(d + 1) & ~7ull, value) ? RUNS : FAULTS;
}

/* ---- arithmetic ---- */

enum { SOURCE_A = 0x20, SOURCE_B = 0x21, RESULT = 0x31, ZERO_FLAG = 0x32, CARRY_FLAG = 0x33 };

struct alu {
    uint64_t a, b, result;
    bool zero, carry;
};

static bool alu_load(const struct command_engine *engine, const struct alu *alu, uint32_t from,
                     uint64_t *value) {
    if (from < 16)
        *value = engine->general[from];
    else if (from == RESULT)
        *value = alu->result;
    else if (from == ZERO_FLAG || from == CARRY_FLAG)
        *value = (from == ZERO_FLAG ? alu->zero : alu->carry) ? ~0ull : 0;
    else
        return false;
    return true;
}

/* One operation: its code in bits 31:20, two operands of 10 bits. */
static bool alu_step(struct command_engine *engine, struct alu *alu, uint32_t dword) {
    uint32_t to = bits(dword, 19, 10), from = dword & 1023;
    uint64_t value, *source = to == SOURCE_A ? &alu->a : to == SOURCE_B ? &alu->b : NULL;
    switch (dword >> 20) {
    case 0x000: return true; /* no operation */
    case 0x080:              /* load, 0x480: inverted */
    case 0x480:
        if (!source || !alu_load(engine, alu, from, &value)) return false;
        *source = dword >> 30 & 1 ? ~value : value;
        return true;
    case 0x081: /* load 0, 0x481: all ones */
    case 0x481:
        if (!source) return false;
        *source = dword >> 30 & 1 ? ~0ull : 0;
        return true;
    case 0x180: /* store, 0x580: inverted */
    case 0x580:
        if (to > 15 || !alu_load(engine, alu, from, &value)) return false;
        engine->general[to] = dword >> 30 & 1 ? ~value : value;
        return true;
    case 0x100:
        alu->result = alu->a + alu->b;
        alu->carry = alu->result < alu->a;
        break;
    case 0x101:
        alu->result = alu->a - alu->b;
        alu->carry = alu->a < alu->b;
        break;
    case 0x102: alu->result = alu->a & alu->b; break;
    case 0x103: alu->result = alu->a | alu->b; break;
    case 0x104: alu->result = alu->a ^ alu->b; break;
    case 0x105: alu->result = alu->a << (alu->b & 63); break;
    case 0x106: alu->result = alu->a >> (alu->b & 63); break;
    case 0x107: alu->result = (uint64_t)((int64_t)alu->a >> (alu->b & 63)); break;
    default: return false;
    }
    alu->zero = !alu->result;
    return true;
}

static enum outcome math(struct command_engine *engine, const uint32_t *d, unsigned length) {
    struct alu alu = {0};
    for (unsigned i = 1; i < length; i++)
        if (!alu_step(engine, &alu, d[i])) return command_fault("MI_MATH", d, length, "unknown operation");
    return RUNS;
}

/* Atomically changes 4 or 8 bytes of memory; the value before is not returned. */
static enum outcome atomic(struct command_engine *engine, const uint32_t *d, unsigned length) {
    uint64_t address = qword(d + 1) & ~3ull;
    uint32_t operation = bits(d[0], 15, 8), size = bits(d[0], 20, 19);
    bool wide = operation & 0x20, is_inline = d[0] >> 18 & 1;
    uint64_t data = 0, compared = 0;
    if (size > 1 || d[0] >> 16 & 1) return command_fault("MI_ATOMIC", d, length, "unknown form");
    if (is_inline && length > 6) {
        data = d[3] | (uint64_t)d[5] << 32;
        compared = d[4] | (uint64_t)d[6] << 32;
    }
    uint8_t *host = sim_vm_host(engine->vm, address);
    if (!host || address % (wide ? 8 : 4))
        return command_fault("MI_ATOMIC", d, length, "nothing is bound there");
    _Atomic uint64_t *const at64 = (void *)host;
    _Atomic uint32_t *const at32 = (void *)host;
    switch (operation & 0x1f) {
    case 0x04: wide ? atomic_store(at64, data) : atomic_store(at32, (uint32_t)data); return RUNS;
    case 0x05: wide ? atomic_fetch_add(at64, 1) : atomic_fetch_add(at32, 1); return RUNS;
    case 0x06: wide ? atomic_fetch_sub(at64, 1) : atomic_fetch_sub(at32, 1); return RUNS;
    case 0x07: wide ? atomic_fetch_add(at64, data) : atomic_fetch_add(at32, (uint32_t)data); return RUNS;
    case 0x08: wide ? atomic_fetch_sub(at64, data) : atomic_fetch_sub(at32, (uint32_t)data); return RUNS;
    case 0x0e: /* compare and write */
        if (wide) {
            atomic_compare_exchange_strong(at64, &compared, data);
        } else {
            uint32_t compared32 = (uint32_t)compared;
            atomic_compare_exchange_strong(at32, &compared32, (uint32_t)data);
        }
        return RUNS;
    default: return command_fault("MI_ATOMIC", d, length, "unknown operation");
    }
}

#define MI(opcode, length_mask, name, run) {0xff800000, (uint32_t)(opcode) << 23, length_mask, name, run}

const struct command mi_commands[] = {
    MI(0x00, 0, "MI_NOOP", NULL),
    MI(0x01, 0, "MI_SET_PREDICATE", set_predicate),
    MI(0x02, 0, "MI_USER_INTERRUPT", NULL),
    MI(0x05, 0, "MI_ARB_CHECK", NULL),
    MI(0x08, 0, "MI_ARB_ON_OFF", NULL),
    MI(0x09, 0, "MI_MEM_FENCE", NULL),
    MI(0x0a, 0, "MI_BATCH_BUFFER_END", end_of_batch),
    MI(0x1a, 0xff, "MI_MATH", math),
    MI(0x1c, 0xff, "MI_SEMAPHORE_WAIT", semaphore_wait),
    MI(0x20, 0x3ff, "MI_STORE_DATA_IMM", store_immediate),
    MI(0x22, 0xff, "MI_LOAD_REGISTER_IMM", load_registers),
    MI(0x24, 0xff, "MI_STORE_REGISTER_MEM", store_register),
    MI(0x26, 0x3f, "MI_FLUSH_DW", flush),
    MI(0x29, 0xff, "MI_LOAD_REGISTER_MEM", load_register_from_memory),
    MI(0x2a, 0xff, "MI_LOAD_REGISTER_REG", copy_register),
    MI(0x2f, 0xff, "MI_ATOMIC", atomic),
    MI(0x31, 0xff, "MI_BATCH_BUFFER_START", start_of_batch),
    {0},
};

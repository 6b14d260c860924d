/* The loop that fetches and runs commands, and what all of them share: memory, registers, post-sync writes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command/command.h"

static const struct command *const tables[] = {mi_commands, state_commands, walker_commands, media_commands,
                                               copy_commands};

static const struct command *find(uint32_t dword) {
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct command *c = tables[t]; c->name; c++)
            if ((dword & c->mask) == c->match) return c;
    return NULL;
}

struct command_engine *command_engine_make(struct sim_vm *vm, const struct sim_product *product,
                                           bool copies) {
    struct command_engine *engine = calloc(1, sizeof *engine);
    if (!engine) return NULL;
    engine->vm = vm;
    engine->product = product;
    engine->copies = copies;
    return engine;
}

void command_engine_free(struct command_engine *engine) { free(engine); }

void command_stop(struct command_engine *engine) { atomic_store(&engine->stopped, true); }

/* ---- faults and memory ---- */

static void print_dwords(char *to, size_t room, const uint32_t *d, unsigned length) {
    size_t used = 0;
    *to = 0;
    for (unsigned i = 0; i < length && used + 10 < room; i++)
        used += (size_t)snprintf(to + used, room - used, " %08x", d[i]);
}

enum outcome command_fault(const char *command, const uint32_t *d, unsigned length, const char *what) {
    char dwords[512];
    print_dwords(dwords, sizeof dwords, d, length);
    sim_fault("command streamer: %s: %s:%s", command, what, dwords);
    return FAULTS;
}

bool command_load(struct command_engine *engine, uint64_t address, void *to, size_t size, const char *what) {
    if (sim_vm_read(engine->vm, address, to, size)) return true;
    sim_fault("command streamer: %s reads %zu bytes at %#lx: nothing is bound there", what, size, address);
    return false;
}

bool command_store(struct command_engine *engine, uint64_t address, const void *from, size_t size,
                   const char *what) {
    uint8_t *host = address % size ? NULL : sim_vm_host(engine->vm, address);
    /* Values that others wait for are written at once. */
    if (host && size == 4)
        atomic_store((_Atomic uint32_t *)(void *)host, *(const uint32_t *)from);
    else if (host && size == 8)
        atomic_store((_Atomic uint64_t *)(void *)host, qword(from));
    else if (!sim_vm_write(engine->vm, address, from, size))
        host = NULL;
    else
        return true;
    if (host) return true;
    sim_fault("command streamer: %s writes %zu bytes at %#lx: nothing is bound there", what, size, address);
    return false;
}

/* ---- registers ---- */

#define GENERAL_FIRST 0x600u
#define GENERAL_END 0x680u

/* The offset within an engine's block of registers; all engines have the same ones. Offsets that are relative
 * to the engine come as such. */
static uint32_t within_engine(uint32_t offset) {
    switch (offset & ~0xfffu) {
    case 0x2000:  /* render */
    case 0x22000: /* copy */
    case 0x1a000:
    case 0x1c000:
    case 0x1e000:
    case 0x26000: /* compute */ return offset & 0xfff;
    default: return offset;
    }
}

uint32_t register_read(struct command_engine *engine, uint32_t offset) {
    offset = within_engine(offset);
    uint64_t now = sim_timestamp();
    if (offset >= GENERAL_FIRST && offset < GENERAL_END) {
        unsigned dword = (offset - GENERAL_FIRST) / 4;
        return (uint32_t)(engine->general[dword / 2] >> dword % 2 * 32);
    }
    switch (offset) {
    case 0x358:                       /* timestamp */
    case 0x3a8: return (uint32_t)now; /* time of the context */
    case 0x35c:
    case 0x3ac: return (uint32_t)(now >> 32);
    }
    for (unsigned i = 0; i < engine->register_count; i++)
        if (engine->registers[i].offset == offset) return engine->registers[i].value;
    return 0;
}

bool register_write(struct command_engine *engine, uint32_t offset, uint32_t value) {
    offset = within_engine(offset);
    SIM_LOG(SIM_LOG_COMMANDS, "register %#x = %#x", offset, value);
    if (offset >= GENERAL_FIRST && offset < GENERAL_END) {
        unsigned dword = (offset - GENERAL_FIRST) / 4, shift = dword % 2 * 32;
        uint64_t *general = engine->general + dword / 2;
        *general = (*general & ~(0xffffffffull << shift)) | (uint64_t)value << shift;
        return true;
    }
    unsigned i = 0;
    while (i < engine->register_count && engine->registers[i].offset != offset) i++;
    if (i == REGISTERS) {
        sim_fault("command streamer: more than %d registers are used, the last one is %#x", REGISTERS,
                  offset);
        return false;
    }
    if (i == engine->register_count) engine->register_count++;
    engine->registers[i].offset = offset;
    engine->registers[i].value = value;
    return true;
}

bool post_sync(struct command_engine *engine, uint32_t operation, uint64_t address, uint64_t value) {
    switch (operation) {
    case POST_NOTHING: return true;
    case POST_WRITE_IMMEDIATE: return command_store(engine, address, &value, 8, "post-sync operation");
    case POST_WRITE_TIMESTAMP:
        value = sim_timestamp();
        return command_store(engine, address, &value, 8, "post-sync operation");
    default: sim_fault("command streamer: post-sync operation %u is not known", operation); return false;
    }
}

/* ---- the loop ---- */

static unsigned length_of(const struct command *command, uint32_t dword) {
    return command->length_mask ? (dword & command->length_mask) + 2 : 1;
}

static enum outcome step(struct command_engine *engine) {
    uint64_t at = engine->next;
    uint32_t d[LENGTH_MAX];
    if (!command_load(engine, at, d, 4, "a batch")) return FAULTS;
    const struct command *command = find(d[0]);
    if (!command) {
        sim_vm_read(engine->vm, at, d, 16 * 4);
        return command_fault("unknown command", d, 16, "not implemented");
    }
    unsigned length = length_of(command, d[0]);
    if (length > LENGTH_MAX) return command_fault(command->name, d, 1, "too long");
    if (!command_load(engine, at + 4, d + 1, 4 * (length - 1), "a batch")) return FAULTS;
    if (sim_options()->log >= SIM_LOG_COMMANDS) {
        char dwords[512];
        print_dwords(dwords, sizeof dwords, d, length);
        sim_log_line("%#lx: %s:%s", at, command->name, dwords);
    }
    engine->next = at + 4 * length;
    return command->run ? command->run(engine, d, length) : RUNS;
}

int command_run(struct command_engine *engine, uint64_t batch) {
    engine->next = batch;
    engine->depth = 0;
    enum outcome outcome = RUNS;
    while (outcome == RUNS && !atomic_load(&engine->stopped)) outcome = step(engine);
    return outcome == FAULTS ? -1 : 0;
}

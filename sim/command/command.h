/* The command streamer of the compute, render and copy engines: runs a batch's commands on the thread that
 * calls it. Formats: Intel's Programmer's Reference Manuals, volume 2a (command reference), and the hw_cmds
 * headers of Intel's compute runtime. What is not known ends the batch with a fault that quotes its dwords.
 */
#ifndef SIM_COMMAND_COMMAND_H
#define SIM_COMMAND_COMMAND_H

#include <stdatomic.h>

#include "sim.h"

/* ---- for exec queues ---- */

struct command_engine; /* an engine with the state that a queue's batches leave to each other */

struct command_engine *command_engine_make(struct sim_vm *vm, const struct sim_product *product, bool copies);
void command_engine_free(struct command_engine *engine);
/* Runs a batch to its end: 0, or -1 after a fault. */
int command_run(struct command_engine *engine, uint64_t batch);
/* Makes the batch that runs, and all later ones, end at the next command. Any thread may call. */
void command_stop(struct command_engine *engine);

/* ---- within command/ ---- */

#define LENGTH_MAX 256u /* dwords of a command */
#define NESTING_MAX 8
#define REGISTERS 64

struct command_engine {
    struct sim_vm *vm;
    const struct sim_product *product;
    bool copies; /* a copy engine, which has no walkers */
    atomic_bool stopped;

    struct sim_bases bases;
    uint64_t scratch_surface;
    uint32_t scratch_bytes; /* Xe-LP: of a thread */
    uint64_t descriptors;   /* Xe-LP: address of the interface descriptors */
    bool large_registers;

    uint64_t general[16]; /* the streamer's general registers, in pairs of dwords */
    struct {
        uint32_t offset, value;
    } registers[REGISTERS]; /* others, as they were loaded */
    unsigned register_count;

    /* Of the batch that runs: */
    uint64_t next; /* address of the next command */
    uint64_t returns[NESTING_MAX];
    int depth;
};

enum outcome { RUNS, ENDS, FAULTS };

/* A kind of command: those whose first dword is `match` under `mask`. */
struct command {
    uint32_t mask, match;
    uint32_t length_mask; /* of the first dword's bits that give the length less 2; 0: one dword */
    const char *name;
    /* Runs it; `d` has its `length` dwords. NULL: it changes nothing that is simulated (caches, power,
     * clocks). */
    enum outcome (*run)(struct command_engine *engine, const uint32_t *d, unsigned length);
};

/* A command of type 3: `code` has type, subtype, opcode and subopcode. */
#define GRAPHICS_COMMAND(code, length_mask, name, run)                                                       \
    {0xffff0000, (uint32_t)(code) << 16, length_mask, name, run}

/* Runs a walk: 0, or -1 after a fault. */
int command_walk(const struct sim_walk *walk);
/* A walk begins or ends. Batches that wait for a semaphore are not hung while there is one. */
void command_working(bool begins);
/* The program begins or ends to wait for the device. */
void command_awaited(bool begins);

/* Tables, terminated by an entry without a name. */
extern const struct command mi_commands[], state_commands[], walker_commands[], media_commands[],
    copy_commands[];

static inline uint64_t qword(const uint32_t *d) { return d[0] | (uint64_t)d[1] << 32; }
static inline uint32_t bits(uint32_t dword, int high, int low) {
    return (uint32_t)((uint64_t)dword >> low & ((1ull << (high - low + 1)) - 1));
}

/* A fault that quotes the command. */
enum outcome command_fault(const char *command, const uint32_t *d, unsigned length, const char *what);
/* Copies to and from memory; a fault that says what was accessed for what if it is not bound. */
bool command_load(struct command_engine *engine, uint64_t address, void *to, size_t size, const char *what);
bool command_store(struct command_engine *engine, uint64_t address, const void *from, size_t size,
                   const char *what);

uint32_t register_read(struct command_engine *engine, uint32_t offset);
bool register_write(struct command_engine *engine, uint32_t offset, uint32_t value);

/* The operation that MI_FLUSH_DW, PIPE_CONTROL and others do at their end. */
enum { POST_NOTHING, POST_WRITE_IMMEDIATE, POST_WRITE_COUNTER, POST_WRITE_TIMESTAMP };
bool post_sync(struct command_engine *engine, uint32_t operation, uint64_t address, uint64_t value);

#endif

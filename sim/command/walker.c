/* COMPUTE_WALKER: a grid of work-groups. */
#include <string.h>

#include "command/command.h"

/* Where its parts lie: Xe2 has a dword more. */
#define LENGTH_XE_HPG 39
#define LENGTH_XE2 40

enum { POST_WALKER_TIMESTAMPS = 3 };

static const char walker_name[] = "COMPUTE_WALKER";

/* Local memory's size in KiB by its code in the interface descriptor. */
static const uint16_t local_kib[] = {0, 1, 2, 4, 8, 16, 32, 64, 24, 48, 96, 128, 192, 256, 384};
static const uint8_t barrier_counts[] = {0, 1, 2, 4, 8, 16, 24, 32};
/* Registers of a thread by their code, from Xe3 on. */
static const uint16_t register_counts[16] = {32, 64, 96, 128, 160, 192, 0, 256, [15] = 512};

static void read_grid(struct command_engine *engine, const uint32_t *d, struct sim_walk *walk) {
    walk->indirect_size = bits(d[2], 16, 0);
    walk->indirect = engine->bases.general + (d[3] & ~63u);
    walk->simd = 8 << bits(d[4], 31, 30);
    walk->message_simd = 8 << bits(d[4], 18, 17);
    walk->walk_order = (int)bits(d[4], 24, 22);
    walk->has_inline_data = d[4] >> 25 & 1;
    walk->emit_local_ids = bits(d[4], 28, 26);
    walk->generate_local_ids = d[4] >> 29 & 1;
    walk->execution_mask = d[5];
    for (int i = 0; i < 3; i++) {
        walk->local_size[i] = bits(d[6], 10 * i + 9, 10 * i) + 1;
        walk->groups[i] = d[0] >> 10 & 1 ? register_read(engine, 0x2500 + 4 * (uint32_t)i) : d[7 + i];
        walk->first_group[i] = d[10 + i];
    }
}

/* The interface descriptor: the kernel and what it needs. */
static bool read_descriptor(struct command_engine *engine, const uint32_t *d, struct sim_walk *walk) {
    uint32_t local = bits(d[5], 20, 16);
    if (local >= sizeof local_kib / sizeof *local_kib) return false;
    walk->kernel = engine->bases.instruction + (d[0] & ~63u);
    walk->keep_denormals = d[2] >> 19 & 1;
    walk->sampler_state = d[3] & ~31u;
    walk->binding_table = d[4] & 0x1fffe0;
    walk->threads = (int)bits(d[5], 9, 0);
    walk->local_bytes = local_kib[local] * 1024u;
    walk->rounding = (int)bits(d[5], 23, 22);
    walk->barriers = barrier_counts[bits(d[5], 30, 28)];
    walk->registers = engine->product->iga >= SIM_IGA_XE3 ? register_counts[bits(d[2], 29, 26)]
                      : engine->large_registers           ? 256
                                                          : 128;
    return walk->threads > 0;
}

int command_walk(const struct sim_walk *w) {
    SIM_LOG(SIM_LOG_SUBMISSIONS,
            "walker: kernel %#lx, simd %d, groups %u %u %u, local size %u %u %u, %d threads, "
            "%u bytes of local memory, %d barriers, %d registers",
            w->kernel, w->simd, w->groups[0], w->groups[1], w->groups[2], w->local_size[0], w->local_size[1],
            w->local_size[2], w->threads, w->local_bytes, w->barriers, w->registers);
    command_working(true);
    int status = sim_eu_run(w);
    command_working(false);
    return status;
}

/* Writes when the walk began and ended: four timestamps, of 64 bits on Xe2. */
static bool write_times(struct command_engine *engine, uint64_t address, uint64_t begin, bool wide) {
    uint64_t end = sim_timestamp();
    if (end <= begin) end = begin + 1; /* no kernel takes no time */
    /* Of the context and of the device: when it began, when it ended. */
    const uint64_t times[4] = {begin, begin, end, end};
    const uint32_t narrow[4] = {(uint32_t)begin, (uint32_t)begin, (uint32_t)end, (uint32_t)end};
    return command_store(engine, address, wide ? (const void *)times : narrow, wide ? 32 : 16, walker_name);
}

static enum outcome walk(struct command_engine *engine, const uint32_t *d, unsigned length) {
    struct sim_walk w = {.vm = engine->vm,
                         .product = engine->product,
                         .bases = engine->bases,
                         .scratch_surface = engine->scratch_surface};
    if (engine->copies) return command_fault(walker_name, d, length, "not on a copy engine");
    if (length != LENGTH_XE_HPG && length != LENGTH_XE2)
        return command_fault(walker_name, d, length, "unknown length");
    if (d[0] >> 8 & 3)
        return command_fault(walker_name, d, length, "predication and partitions are not implemented");
    const uint32_t *descriptor = d + (length == LENGTH_XE2 ? 19 : 18), *post = descriptor + 8;
    read_grid(engine, d, &w);
    if (!read_descriptor(engine, descriptor, &w))
        return command_fault(walker_name, d, length, "unknown descriptor");
    w.inline_bytes = 32;
    memcpy(w.inline_data, post + 5, 32);

    uint64_t begin = sim_timestamp();
    if (command_walk(&w)) return FAULTS;

    uint32_t operation = bits(post[0], 1, 0);
    if (operation == POST_WALKER_TIMESTAMPS)
        return write_times(engine, qword(post + 1), begin, length == LENGTH_XE2) ? RUNS : FAULTS;
    return post_sync(engine, operation, qword(post + 1), qword(post + 3)) ? RUNS : FAULTS;
}

const struct command walker_commands[] = {
    /* Bits 17:16 are a variant, bits 23:18 the subopcode 2. */
    {0xfffc0000, 0x72080000, 0xff, "COMPUTE_WALKER", walk},
    {0},
};

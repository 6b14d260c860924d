/* Xe-LP's walker: GPGPU_WALKER with the state of MEDIA_VFE_STATE and interface descriptors in memory. Threads
 * get their payload, local ids included, from memory: first what all share, then a part for each. */
#include "command/command.h"

#define DESCRIPTOR_DWORDS 8
#define PAYLOAD_UNIT 32 /* bytes */

/* Scratch memory: an offset from the general base, and its size as a power of two. */
static enum outcome front_end(struct command_engine *engine, const uint32_t *d, unsigned length) {
    (void)length;
    engine->scratch_surface = d[1] & ~1023u;
    engine->scratch_bytes = engine->scratch_surface ? 1024u << bits(d[1], 3, 0) : 0;
    return RUNS;
}

static enum outcome load_descriptors(struct command_engine *engine, const uint32_t *d, unsigned length) {
    (void)length;
    engine->descriptors = engine->bases.dynamic + d[3];
    return RUNS;
}

static const char walker_name[] = "GPGPU_WALKER";

static void read_grid(struct command_engine *engine, const uint32_t *d, struct sim_walk *walk) {
    static const int dimensions[3] = {7, 10, 12}, starts[3] = {5, 8, 11};
    for (int i = 0; i < 3; i++) {
        walk->groups[i] = d[0] >> 10 & 1 ? register_read(engine, 0x2500 + 4 * (uint32_t)i) : d[dimensions[i]];
        walk->first_group[i] = d[starts[i]];
    }
    walk->simd = walk->message_simd = 8 << bits(d[4], 31, 30);
    walk->threads = (int)((bits(d[4], 5, 0) + 1) * (bits(d[4], 13, 8) + 1) * (bits(d[4], 21, 16) + 1));
    walk->execution_mask = d[13];
    walk->local_size[0] = (uint32_t)(walk->threads * walk->simd);
    walk->local_size[1] = walk->local_size[2] = 1; /* the hardware does not know more */
    walk->indirect_size = bits(d[2], 16, 0);
    walk->indirect = engine->bases.indirect + (d[3] & ~63u);
}

static void read_descriptor(struct command_engine *engine, const uint32_t *d, struct sim_walk *walk) {
    uint32_t local = bits(d[6], 20, 16);
    walk->kernel = engine->bases.instruction + ((d[0] & ~63u) | (uint64_t)bits(d[1], 15, 0) << 32);
    walk->keep_denormals = d[2] >> 19 & 1;
    walk->sampler_state = d[3] & ~31u;
    walk->binding_table = d[4] & 0xffe0;
    walk->local_bytes = local ? 512u << local : 0; /* 1 to 64 KiB */
    walk->barriers = d[6] >> 21 & 1;
    walk->rounding = (int)bits(d[6], 23, 22);
    walk->payload_from_memory = true;
    walk->per_thread_bytes = bits(d[5], 31, 16) * PAYLOAD_UNIT;
    walk->cross_thread_bytes = bits(d[7], 7, 0) * PAYLOAD_UNIT;
    walk->registers = 128;
}

static enum outcome walk(struct command_engine *engine, const uint32_t *d, unsigned length) {
    if (engine->copies || d[0] >> 8 & 1)
        return command_fault(walker_name, d, length, "not on a copy engine, or predicated");
    struct sim_walk w = {.vm = engine->vm,
                         .product = engine->product,
                         .bases = engine->bases,
                         .scratch_surface = engine->scratch_surface,
                         .scratch_bytes = engine->scratch_bytes};
    uint32_t descriptor[DESCRIPTOR_DWORDS];
    uint64_t at = engine->descriptors + sizeof descriptor * bits(d[1], 5, 0);
    if (!command_load(engine, at, descriptor, sizeof descriptor, "an interface descriptor")) return FAULTS;
    if (bits(descriptor[6], 20, 16) > 7)
        return command_fault(walker_name, descriptor, DESCRIPTOR_DWORDS, "local memory's size");
    read_grid(engine, d, &w);
    read_descriptor(engine, descriptor, &w);
    return command_walk(&w) ? FAULTS : RUNS;
}

const struct command media_commands[] = {
    GRAPHICS_COMMAND(0x7000, 0xffff, "MEDIA_VFE_STATE", front_end),
    GRAPHICS_COMMAND(0x7002, 0xffff, "MEDIA_INTERFACE_DESCRIPTOR_LOAD", load_descriptors),
    GRAPHICS_COMMAND(0x7004, 0xffff, "MEDIA_STATE_FLUSH", NULL),
    GRAPHICS_COMMAND(0x7105, 0xff, "GPGPU_WALKER", walk),
    {0},
};

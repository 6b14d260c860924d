/* Commands that set the state that later walkers use. */
#include "command/command.h"

static enum outcome base_addresses(struct command_engine *engine, const uint32_t *d, unsigned length) {
    struct sim_bases *bases = &engine->bases;
    const struct {
        unsigned at;
        uint64_t *base;
    } fields[] = {{1, &bases->general},          {4, &bases->surface},      {6, &bases->dynamic},
                  {8, &bases->indirect},         {10, &bases->instruction}, {16, &bases->bindless_surface},
                  {19, &bases->bindless_sampler}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        bool modifies = fields[i].at + 1 < length && d[fields[i].at] & 1;
        if (modifies) *fields[i].base = qword(d + fields[i].at) & ~0xfffull;
    }
    SIM_LOG(SIM_LOG_BINDS, "bases: general %#lx, surface %#lx, dynamic %#lx, instruction %#lx, bindless %#lx",
            bases->general, bases->surface, bases->dynamic, bases->instruction, bases->bindless_surface);
    return RUNS;
}

/* Bits 31:16 say which of bits 15:0 change. */
static enum outcome compute_mode(struct command_engine *engine, const uint32_t *d, unsigned length) {
    (void)length;
    if (d[1] >> 31) engine->large_registers = d[1] >> 15 & 1;
    return RUNS;
}

static enum outcome front_end(struct command_engine *engine, const uint32_t *d, unsigned length) {
    (void)length;
    engine->scratch_surface = d[1] & ~1023u;
    return RUNS;
}

static enum outcome pipe_control(struct command_engine *engine, const uint32_t *d, unsigned length) {
    uint64_t value = length > 5 ? qword(d + 4) : 0;
    return post_sync(engine, bits(d[1], 15, 14), qword(d + 2) & ~3ull, value) ? RUNS : FAULTS;
}

const struct command state_commands[] = {
    GRAPHICS_COMMAND(0x6003, 0xff, "STATE_PREFETCH", NULL),
    GRAPHICS_COMMAND(0x6101, 0xff, "STATE_BASE_ADDRESS", base_addresses),
    GRAPHICS_COMMAND(0x6102, 0xff, "STATE_SIP", NULL),
    GRAPHICS_COMMAND(0x6104, 0xff, "GPGPU_CSR_BASE_ADDRESS", NULL),
    GRAPHICS_COMMAND(0x6105, 0xff, "STATE_COMPUTE_MODE", compute_mode),
    GRAPHICS_COMMAND(0x6106, 0xff, "3DSTATE_BTD", NULL),
    GRAPHICS_COMMAND(0x6109, 0xff, "STATE_SYSTEM_MEM_FENCE_ADDRESS", NULL),
    GRAPHICS_COMMAND(0x610b, 0xff, "STATE_CONTEXT_DATA_BASE_ADDRESS", NULL),
    GRAPHICS_COMMAND(0x6904, 0, "PIPELINE_SELECT", NULL),
    {0xfffc0000, 0x72000000, 0xff, "CFE_STATE", front_end},
    GRAPHICS_COMMAND(0x7919, 0xff, "3DSTATE_BINDING_TABLE_POOL_ALLOC", NULL),
    GRAPHICS_COMMAND(0x7a00, 0xff, "PIPE_CONTROL", pipe_control),
    {0xfc000000, 0xac000000, 0xff, "RESOURCE_BARRIER", NULL},
    {0},
};

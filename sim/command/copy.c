/* Commands of the copy engine, for linear surfaces. */
#include <string.h>

#include "command/command.h"

struct rectangle { /* bytes and rows */
    uint64_t width, height;
};

static enum outcome copy_rows(struct command_engine *engine, uint64_t to, uint64_t to_pitch, uint64_t from,
                              uint64_t from_pitch, struct rectangle size) {
    for (uint64_t y = 0; y < size.height; y++)
        for (uint64_t x = 0, part; x < size.width; x += part) {
            uint64_t source = from + y * from_pitch + x, target = to + y * to_pitch + x;
            uint64_t page = SIM_PAGE - (source % SIM_PAGE > target % SIM_PAGE ? source : target) % SIM_PAGE;
            part = size.width - x < page ? size.width - x : page;
            const uint8_t *read = sim_vm_host(engine->vm, source);
            uint8_t *write = sim_vm_host(engine->vm, target);
            if (!read || !write) {
                sim_fault("copy engine: nothing is bound at %#lx", read ? target : source);
                return FAULTS;
            }
            memmove(write, read, part);
        }
    return RUNS;
}

static enum outcome fill_rows(struct command_engine *engine, uint64_t to, uint64_t pitch,
                              struct rectangle size, const void *pattern, size_t pattern_size) {
    for (uint64_t y = 0; y < size.height; y++)
        for (uint64_t x = 0; x < size.width; x += pattern_size)
            if (!sim_vm_write(engine->vm, to + y * pitch + x, pattern, pattern_size)) {
                sim_fault("copy engine: nothing is bound at %#lx", to + y * pitch + x);
                return FAULTS;
            }
    return RUNS;
}

/* The number of bytes and rows of MEM_COPY and MEM_SET: a line, or a matrix with pitches. */
static struct rectangle extent(const uint32_t *d) {
    bool matrix = bits(d[0], 18, 17) == 1;
    return (struct rectangle){bits(d[1], 23, 0) + 1, matrix ? bits(d[2], 17, 0) + 1 : 1};
}

static enum outcome mem_copy(struct command_engine *engine, const uint32_t *d, unsigned length) {
    struct rectangle size = extent(d);
    if (bits(d[0], 18, 17) > 1) return command_fault("MEM_COPY", d, length, "unknown form");
    if (d[0] >> 19 & 1) size.width *= 256; /* counts pages of 256 bytes */
    return copy_rows(engine, qword(d + 7), bits(d[4], 17, 0) + 1, qword(d + 5), bits(d[3], 17, 0) + 1, size);
}

static enum outcome mem_set(struct command_engine *engine, const uint32_t *d, unsigned length) {
    if (bits(d[0], 18, 17) > 1 || bits(d[0], 20, 19))
        return command_fault("MEM_SET", d, length, "unknown form");
    uint8_t value = (uint8_t)(d[6] >> 24);
    return fill_rows(engine, qword(d + 4), bits(d[3], 17, 0) + 1, extent(d), &value, 1);
}

static const uint8_t pixel_bytes[8] = {1, 2, 4, 8, 12, 16, 0, 0}; /* by color depth */

/* The bytes of a rectangle of pixels: its first address, and its size. */
static uint64_t pixels(const uint32_t *corners, uint64_t base, uint64_t pitch, uint32_t bytes) {
    return base + (corners[0] >> 16) * pitch + (uint64_t)(corners[0] & 0xffff) * bytes;
}

static struct rectangle pixels_extent(const uint32_t *corners, uint32_t bytes) {
    uint64_t left = corners[0] & 0xffff, top = corners[0] >> 16, right = corners[1] & 0xffff,
             bottom = corners[1] >> 16;
    return (struct rectangle){(right - left) * bytes, bottom - top};
}

static enum outcome block_copy(struct command_engine *engine, const uint32_t *d, unsigned length) {
    uint32_t bytes = pixel_bytes[bits(d[0], 21, 19)];
    if (!bytes || d[1] >> 30 || d[8] >> 30)
        return command_fault("XY_BLOCK_COPY_BLT", d, length, "only linear surfaces are known");
    uint64_t to_pitch = bits(d[1], 17, 0) + 1, from_pitch = bits(d[8], 17, 0) + 1;
    return copy_rows(engine, pixels(d + 2, qword(d + 4), to_pitch, bytes), to_pitch,
                     pixels(d + 7, qword(d + 9), from_pitch, bytes), from_pitch, pixels_extent(d + 2, bytes));
}

static enum outcome color_fill(struct command_engine *engine, const uint32_t *d, unsigned length) {
    uint32_t bytes = pixel_bytes[bits(d[0], 21, 19)];
    if (!bytes || d[1] >> 30)
        return command_fault("XY_FAST_COLOR_BLT", d, length, "only linear surfaces are known");
    uint64_t pitch = bits(d[1], 17, 0) + 1;
    return fill_rows(engine, pixels(d + 2, qword(d + 4), pitch, bytes), pitch, pixels_extent(d + 2, bytes),
                     d + 7, bytes);
}

#define COPY(opcode, name, run) {0xffc00000, 0x40000000 | (uint32_t)(opcode) << 22, 0xff, name, run}

const struct command copy_commands[] = {
    COPY(0x41, "XY_BLOCK_COPY_BLT", block_copy),
    COPY(0x44, "XY_FAST_COLOR_BLT", color_fill),
    COPY(0x5a, "MEM_COPY", mem_copy),
    COPY(0x5b, "MEM_SET", mem_set),
    {0},
};

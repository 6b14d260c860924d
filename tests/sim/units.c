/* Runs machine code on the simulated execution units alone, for tests/sim/test_units.py: no driver, no
 * command streamer. Reads jobs from stdin and answers each on stdout:
 *
 *     job:     struct job, its code, then for each range struct range and its bytes
 *     answer:  int32 status (0, or -1 after a fault), uint32 length and text of the faults, then the bytes of
 * the ranges that the job wants back, in order
 *
 * usage: units LIBIGA */
#include "sim.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RANGES_MAX 16
#define CODE_ADDRESS 0x100000000ull

struct job {
    char product[16];
    uint32_t code_bytes, ranges;
    uint32_t simd, execution_mask, threads;
    uint32_t local_size[3], first_group[3], groups[3];
    uint32_t local_bytes, barriers, keep_denormals, rounding, registers;
    uint32_t emit_local_ids, walk_order, inline_bytes; /* local ids: bit d for dimension d */
    uint32_t inline_data[16];
};

struct range {
    uint64_t address;
    uint32_t bytes, wanted;
};

/* The address space: a handful of ranges, each of whole pages. */
struct sim_vm {
    struct range ranges[RANGES_MAX];
    uint8_t *bytes[RANGES_MAX];
    unsigned count;
    uint64_t generation;
};

static struct {
    pthread_mutex_t lock; /* of the fields below */
    char text[4096];
    unsigned count;
} faults = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct sim_options options = {
    .devices = 1, .instruction_limit = 200000000, .wait_limit_ns = 5000000000, .host_threads = 1};

const struct sim_options *sim_options(void) { return &options; }

void sim_log_line(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

void sim_fault(const char *format, ...) {
    va_list arguments;
    pthread_mutex_lock(&faults.lock);
    size_t used = strlen(faults.text);
    if (used + 2 < sizeof faults.text) {
        va_start(arguments, format);
        vsnprintf(faults.text + used, sizeof faults.text - used - 1, format, arguments);
        va_end(arguments);
        strcat(faults.text, "\n");
    }
    faults.count++;
    pthread_mutex_unlock(&faults.lock);
}

unsigned sim_fault_count(void) { return faults.count; }

int sim_exit_status(int status) { return status; }

uint64_t sim_time_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t sim_timestamp(void) { return sim_time_ns() * SIM_TIMESTAMP_HZ / 1000000000u; }

static uint64_t whole_pages(uint32_t bytes) { return ((uint64_t)bytes + SIM_PAGE - 1) / SIM_PAGE * SIM_PAGE; }

uint8_t *sim_vm_host(struct sim_vm *vm, uint64_t address) {
    for (unsigned i = 0; i < vm->count; i++) {
        uint64_t offset = address - vm->ranges[i].address;
        if (offset < whole_pages(vm->ranges[i].bytes)) return vm->bytes[i] + offset;
    }
    return NULL;
}

static bool copy(struct sim_vm *vm, uint64_t address, uint8_t *bytes, size_t size, bool write) {
    while (size > 0) {
        uint8_t *host = sim_vm_host(vm, address);
        if (!host) return false;
        size_t step = SIM_PAGE - address % SIM_PAGE;
        if (step > size) step = size;
        memcpy(write ? host : bytes, write ? bytes : host, step);
        address += step, bytes += step, size -= step;
    }
    return true;
}

bool sim_vm_read(struct sim_vm *vm, uint64_t address, void *to, size_t size) {
    return copy(vm, address, to, size, false);
}

bool sim_vm_write(struct sim_vm *vm, uint64_t address, const void *from, size_t size) {
    return copy(vm, address, (uint8_t *)(uintptr_t)from, size, true);
}

bool sim_vm_allocation(struct sim_vm *vm, uint64_t address, uint64_t *start, uint64_t *size) {
    for (unsigned i = 0; i < vm->count; i++) {
        if (address - vm->ranges[i].address >= vm->ranges[i].bytes) continue;
        *start = vm->ranges[i].address;
        *size = vm->ranges[i].bytes;
        return true;
    }
    return false;
}

const struct sim_kernel *sim_kernel_find(const uint8_t *code, size_t size) {
    static const struct sim_kernel test = {.name = "test"};
    return &test;
}

uint64_t sim_vm_generation(const struct sim_vm *vm) { return vm->generation; }

static void need(bool condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "units: %s\n", what);
    exit(2);
}

static void add_range(struct sim_vm *vm, struct range range) {
    need(vm->count < RANGES_MAX, "too many ranges");
    uint8_t *bytes = aligned_alloc(SIM_PAGE, whole_pages(range.bytes));
    need(bytes, "out of memory");
    memset(bytes, 0, whole_pages(range.bytes));
    need(fread(bytes, 1, range.bytes, stdin) == range.bytes, "short job");
    vm->ranges[vm->count] = range;
    vm->bytes[vm->count++] = bytes;
}

static int run(struct sim_vm *vm, const struct job *job) {
    const struct sim_product *product = sim_product_find(job->product);
    need(product, "unknown product");
    options.product = product;
    struct sim_walk walk = {.vm = vm,
                            .product = product,
                            .bases = {.instruction = CODE_ADDRESS},
                            .kernel = CODE_ADDRESS,
                            .simd = (int)job->simd,
                            .message_simd = (int)job->simd,
                            .execution_mask = job->execution_mask,
                            .threads = (int)job->threads,
                            .barriers = (int)job->barriers,
                            .local_bytes = job->local_bytes,
                            .generate_local_ids = job->emit_local_ids != 0,
                            .emit_local_ids = job->emit_local_ids,
                            .walk_order = (int)job->walk_order,
                            .has_inline_data = job->inline_bytes != 0,
                            .inline_bytes = (int)job->inline_bytes,
                            .keep_denormals = job->keep_denormals != 0,
                            .rounding = (int)job->rounding,
                            .registers = (int)job->registers};
    memcpy(walk.local_size, job->local_size, sizeof walk.local_size);
    memcpy(walk.first_group, job->first_group, sizeof walk.first_group);
    memcpy(walk.groups, job->groups, sizeof walk.groups);
    memcpy(walk.inline_data, job->inline_data, sizeof walk.inline_data);
    return sim_eu_run(&walk);
}

static void answer(const struct sim_vm *vm, int status) {
    int32_t status32 = faults.count > 0 ? -1 : status;
    uint32_t length = (uint32_t)strlen(faults.text);
    fwrite(&status32, sizeof status32, 1, stdout);
    fwrite(&length, sizeof length, 1, stdout);
    fwrite(faults.text, 1, length, stdout);
    for (unsigned i = 0; i < vm->count; i++)
        if (vm->ranges[i].wanted) fwrite(vm->bytes[i], 1, vm->ranges[i].bytes, stdout);
    fflush(stdout);
}

int main(int count, char **arguments) {
    need(count == 2, "usage: units LIBIGA");
    /* The units open IGA by its soname: that finds what is loaded already. */
    need(dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL), "can't open IGA");
    static struct sim_vm vm;
    struct job job;
    while (fread(&job, sizeof job, 1, stdin) == 1) {
        vm.count = 0;
        vm.generation++;
        faults.text[0] = 0;
        faults.count = 0;
        add_range(&vm, (struct range){CODE_ADDRESS, job.code_bytes, 0});
        for (uint32_t i = 0; i < job.ranges; i++) {
            struct range range;
            need(fread(&range, sizeof range, 1, stdin) == 1, "short job");
            add_range(&vm, range);
        }
        answer(&vm, run(&vm, &job));
        for (unsigned i = 0; i < vm.count; i++) free(vm.bytes[i]);
    }
    return 0;
}

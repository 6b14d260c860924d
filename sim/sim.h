/* A simulated Intel GPU: the types and functions that its parts share.
 *
 *     preload.c, launch.c    what the dynamic linker interposes: opening the device, ioctl, exec
 *     opencl.c               what only OpenCL's functions say: sizes of buffers, names of kernels
 *     products.c             the table of products
 *     xe/                    the kernel driver: buffer objects, address spaces, exec queues, syncs
 *     command/               the command streamer: turns a batch's COMPUTE_WALKER into a struct sim_walk
 *     eu/                    the execution units: run a struct sim_walk
 *     check/                 reports of the execution units
 *     profile.c, predict.c   counters, and the time that hardware would take
 *
 * xe/ calls command/, command/ calls eu/, never the other way round. */
#ifndef SIM_SIM_H
#define SIM_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_PAGE 4096u  /* the unit of address translation */
#define SIM_POISON 0xa5 /* bytes of what the program allocates, if uninitialized memory is to be found */

/* ---- options ---- */

enum sim_check { SIM_CHECK_RACES = 1, SIM_CHECK_MEMORY = 2, SIM_CHECK_UNINITIALIZED = 4 };

/* How much goes to stderr. Faults are always printed. */
enum sim_log_level {
    SIM_LOG_FAULTS,
    SIM_LOG_SUBMISSIONS, /* exec queues, batches, walkers */
    SIM_LOG_BINDS,       /* also buffer objects, binds, bases */
    SIM_LOG_COMMANDS,    /* also every command's dwords */
    SIM_LOG_INSTRUCTIONS /* also every instruction with its results */
};

/* Read once from the environment, as `openxpu simulate` sets it; see options.c for the variables. */
struct sim_options {
    const struct sim_product *product; /* of every device; NULL: this process is not simulated */
    int devices;                       /* render nodes, from renderD128 on */
    enum sim_log_level log;
    unsigned checks; /* enum sim_check */
    bool profile;
    uint64_t sample; /* work-groups of a walk that run, to profile large walks; 0: all */
    uint64_t seed;   /* 0: threads of a work-group run in order; else the seed of their interleaving */
    uint64_t instruction_limit; /* of one walk, in instructions of all threads */
    uint64_t wait_limit_ns;     /* a batch that waits longer for a semaphore is hung */
    int host_threads;           /* that run work-groups; at least 1 */
    bool rings;                 /* queues are fed through rings in memory (direct submission) */
    const char *loader;         /* the dynamic linker that children start through, or NULL: their own */
    const char *libraries;      /* its --library-path */
};
const struct sim_options *sim_options(void);

/* ---- messages and faults ---- */

void sim_log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define SIM_LOG(level, ...)                                                                                  \
    do {                                                                                                     \
        if (sim_options()->log >= (level)) sim_log_line(__VA_ARGS__);                                        \
    } while (0)

/* Reports what real hardware would do silently, or what the simulator does not know. Faults are counted;
 * after any, the program's exit status is 3. The first few are printed at once and the number at exit. Any
 * thread may call. The caller ends its batch: the exec queue is then banned. */
void sim_fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* How many faults there were so far. */
unsigned sim_fault_count(void);
/* The exit status of a program that would end with `status`; prints the number of faults if there were any.
 */
int sim_exit_status(int status);

/* The path to use for `path`: the program's own where it is /proc/self/exe and that is the loader. */
const char *sim_program_path(const char *path);

uint64_t sim_time_ns(void); /* monotonic */
#define SIM_TIMESTAMP_HZ 19200000u
uint64_t sim_timestamp(void); /* of the command streamer's clock */

/* ---- products ---- */

/* The instruction set's versions as IGA numbers them (iga_gen_t of iga.h): major << 24 | minor. */
enum sim_iga {
    SIM_IGA_XE = 0x01000000,
    SIM_IGA_XE_HP = 0x01000001,
    SIM_IGA_XE_HPG = 0x01000002,
    SIM_IGA_XE_HPC = 0x01000004,
    SIM_IGA_XE2 = 0x02000000,
    SIM_IGA_XE3 = 0x03000000
};

struct sim_product {
    const char *name;      /* as --device and the driver call it: "bmg" */
    const char *marketing; /* "Arc B580" */
    uint16_t device_id, revision;
    uint16_t ip[3];                                                /* of the GT: major, minor, revision */
    int slices, cores_per_slice, units_per_core, threads_per_unit; /* a core: Xe core, or dual subslice */
    uint32_t local_kb;                                             /* local memory (SLM) of a core */
    uint64_t video_memory; /* bytes; 0: the product shares the host's memory */
    bool large_pages;      /* objects in video memory are made of pages of 64 KiB */
    int address_bits;      /* of GPU addresses: 48 or 57 */
    int register_bytes;    /* 64 or 32 */
    enum sim_iga iga;
};
/* NULL if the table has no such name. */
const struct sim_product *sim_product_find(const char *name);
/* The table, terminated by an entry without a name. */
extern const struct sim_product sim_products[];

/* ---- memory ---- */

struct sim_vm; /* an address space */

/* The host's address of `address`, valid to the end of its page, or NULL where nothing is bound. Lock-free;
 * any thread may call. The driver must not unbind what a running batch uses, as on hardware. */
uint8_t *sim_vm_host(struct sim_vm *vm, uint64_t address);
/* Copies across pages. False if part of the range is not bound; what precedes it may have been copied. */
bool sim_vm_read(struct sim_vm *vm, uint64_t address, void *to, size_t size);
bool sim_vm_write(struct sim_vm *vm, uint64_t address, const void *from, size_t size);
/* The allocation that contains `address`: one bind, less what later binds replaced. `size` is exact where
 * OpenCL told it (opencl.c), else whole pages; then `address` may lie behind it. Takes a lock: for reports
 * and checks, not for every access. */
bool sim_vm_allocation(struct sim_vm *vm, uint64_t address, uint64_t *start, uint64_t *size);
/* Changes whenever the address space is changed: what was cached of it before is out of date. */
uint64_t sim_vm_generation(const struct sim_vm *vm);

/* ---- what OpenCL says ---- */

/* Bytes that the program asks for in an allocation that this thread is about to make; 0: in none. */
extern _Thread_local uint64_t sim_requested_bytes;

struct sim_kernel {
    const char *name;
    uint32_t local_bytes; /* 0: not known */
};
/* The kernel with this machine code; NULL if the layer of opencl.c was not loaded. */
const struct sim_kernel *sim_kernel_find(const uint8_t *code, size_t size);

/* ---- walks ---- */

/* The addresses that STATE_BASE_ADDRESS and its like set. */
struct sim_bases {
    uint64_t general, surface, dynamic, indirect, instruction, bindless_surface, bindless_sampler;
};

/* One COMPUTE_WALKER: a kernel over a grid of work-groups, with all state that it uses. */
struct sim_walk {
    struct sim_vm *vm;
    const struct sim_product *product;
    struct sim_bases bases;

    uint64_t kernel;        /* address of the first instruction */
    uint64_t indirect;      /* address of the indirect data, which r0.0 gives relative to bases.general */
    uint32_t indirect_size; /* bytes */

    int simd;                /* lanes of a hardware thread: 8, 16, 32 */
    int message_simd;        /* lanes of a message */
    uint32_t execution_mask; /* of the last thread of a work-group */
    uint32_t local_size[3];
    uint32_t first_group[3]; /* the walk covers first_group <= id < groups */
    uint32_t groups[3];
    int threads;          /* of a work-group */
    int barriers;         /* named barriers that it uses; 0: none */
    uint32_t local_bytes; /* local memory (SLM) of a work-group */

    bool generate_local_ids; /* the hardware writes local ids: u16 a lane, registers a dimension */
    unsigned emit_local_ids; /* bit d: dimension d is written */
    int walk_order;          /* of lanes over the dimensions, 0 to 5 */
    bool has_inline_data;    /* 32 bytes after the local ids; on Xe2 and later up to 64 */
    uint32_t inline_data[16];
    int inline_bytes;
    /* Before COMPUTE_WALKER (Xe-LP), each thread's payload comes from memory instead: `cross_thread_bytes`
     * that all share at `indirect`, then `per_thread_bytes` for each. */
    bool payload_from_memory;
    uint32_t cross_thread_bytes, per_thread_bytes;

    uint64_t
        scratch_surface; /* offset of the surface state from bases.surface, as r0.5 holds it (<< 10 kept) */
    uint32_t scratch_bytes; /* of a thread, if the command says so; else 0 */
    uint32_t binding_table; /* offset from bases.surface */
    uint32_t sampler_state; /* offset from bases.dynamic */
    bool keep_denormals;    /* of single floats; cr0 */
    int rounding;           /* 0: to nearest even, 1: up, 2: down, 3: to zero */
    int registers;          /* of a thread: 128, 256, from Xe3 on 32 to 512 */
};

/* Runs every work-group of the walk, perhaps on several host threads, and returns when all have ended: 0, or
 * -1 after a fault. Called on the exec queue's thread; several queues may run at a time. */
int sim_eu_run(const struct sim_walk *walk);

#endif

/* The execution units: data structures that all of eu/ shares.
 *
 *     iga.c, decode.c, program.c   machine code -> IGA's text -> struct instruction -> struct program
 *     bind.c                       chooses the functions that execute an instruction
 *     operand.c                    lanes between the register file and arrays
 *     integer.c, floating.c        arithmetic on arrays of lanes; alu.c applies it under masks and flags
 *     dpas.c, flow.c, message.c    the other classes of instructions
 *     lsc.c, block2d.c, atomic.c, hdc.c, gateway.c    messages, by the unit that serves them
 *     memory.c                     translation and access of global and local memory
 *     thread.c, dispatch.c         a hardware thread; work-groups and the host's threads that run them
 *     slots.c                      the places where a product's hardware threads run
 */
#ifndef SIM_EU_EU_H
#define SIM_EU_EU_H

#include "eu/type.h"
#include "sim.h"

enum { MAX_LANES = 32 };

/* Loops over lanes run in blocks of 16, whose length the compiler knows. Lanes beyond the instruction's are
 * computed and thrown away; arrays and register file are padded for it. In these loops every array element is
 * loaded unconditionally: GCC 12 gives the second half of a block of conditional loads the first half's mask.
 */
#define EACH_LANE(i, n)                                                                                      \
    for (int i##_block = 0; i##_block < (n); i##_block += 16)                                                \
        for (int i = i##_block; i < i##_block + 16; i++)

/* Functions that loop over lanes exist once for each level of x86-64's vector instructions. */
#ifndef VECTORIZED
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define VECTORIZED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else /* which knows no such levels */
#define VECTORIZED
#endif
#endif

extern const uint32_t lane_bit[MAX_LANES]; /* 1u << i, as a table: loops over it are vectorized */

/* ---- register file: byte offsets ---- */

enum {
    REGISTER_BYTES_MAX = 64,
    REG_GENERAL = 0,                                         /* r0 to r255 */
    REG_ACCUMULATOR = 256 * REGISTER_BYTES_MAX,              /* acc0 to acc15 */
    REG_ADDRESS = REG_ACCUMULATOR + 16 * REGISTER_BYTES_MAX, /* a0 */
    REG_FLAG = REG_ADDRESS + 64,                             /* f0 to f3 */
    REG_CONTROL = REG_FLAG + 64,                             /* cr0 */
    REG_STATE = REG_CONTROL + 64,                            /* sr0, sr1 */
    REG_CHANNEL = REG_STATE + 64,                            /* ce0 */
    REG_TIME = REG_CHANNEL + 64,                             /* tm0 */
    REG_MESSAGE = REG_TIME + 64,                             /* msg0 */
    REG_SCALAR = REG_MESSAGE + 64,                           /* s0, Xe3 */
    REG_NULL = REG_SCALAR + 512,
    REG_FILE_BYTES = REG_NULL + 256 + 16 * 8 * 2 /* loops over blocks of lanes read beyond */
};

/* memcpy, fast for the sizes of full vectors. */
static inline void copy_lanes(void *to, const void *from, size_t size) {
    switch (size) {
    case 4: memcpy(to, from, 4); break;
    case 32: memcpy(to, from, 32); break;
    case 64: memcpy(to, from, 64); break;
    case 128: memcpy(to, from, 128); break;
    default: memcpy(to, from, size); break;
    }
}

/* ---- instructions ---- */

enum opcode_class {
    CLASS_MISC,
    CLASS_SYNC,
    CLASS_ALU,
    CLASS_MATH,
    CLASS_MATRIX,
    CLASS_SEND,
    CLASS_FLOW,
    CLASS_COUNT
};
enum opcode {
#define OPCODE(constant, text, class) OP_##constant,
#include "eu/opcodes.def"
#undef OPCODE
    OP_COUNT
};
enum condition {
    COND_NONE,
    COND_EQ,
    COND_NE,
    COND_GT,
    COND_GE,
    COND_LT,
    COND_LE,
    COND_OV,
    COND_UN,
    COND_EO,
    COND_COUNT
};
enum predicate_group { GROUP_LANE, GROUP_ANY, GROUP_ALL };
enum math_function {
    MATH_INV,
    MATH_LOG,
    MATH_EXP,
    MATH_SQT,
    MATH_RSQT,
    MATH_SIN,
    MATH_COS,
    MATH_IDIV,
    MATH_IQOT,
    MATH_IREM,
    MATH_POW,
    MATH_INVM,
    MATH_RSQTM,
    MATH_FDIV,
    MATH_TANH,
    MATH_SIGM,
    MATH_COUNT
};
/* Where an instruction computes: sources are converted to it, the result from it. */
enum domain { DOMAIN_I32, DOMAIN_I64, DOMAIN_F32, DOMAIN_F64, DOMAIN_COUNT };

union lanes {
    uint32_t u32[MAX_LANES];
    int32_t s32[MAX_LANES];
    uint64_t u64[MAX_LANES];
    int64_t s64[MAX_LANES];
    float f32[MAX_LANES];
    double f64[MAX_LANES];
    uint16_t u16[MAX_LANES];
    uint8_t u8[MAX_LANES];
} __attribute__((aligned(64)));

enum operand_kind { OPERAND_NONE, OPERAND_REGISTER, OPERAND_NULL, OPERAND_IMMEDIATE, OPERAND_INDIRECT };
enum shape { SHAPE_CONTIGUOUS, SHAPE_SCALAR, SHAPE_LANES };

struct thread;
struct operand;
typedef const void *load_function(const struct thread *thread, const struct operand *operand,
                                  union lanes *to);
/* Converts lanes of a domain to the type of a destination. */
typedef void convert_function(void *to, const union lanes *from, const struct thread *thread, int lanes);

struct operand {
    uint8_t kind, type, shape;
    bool direct;           /* the register file holds the lanes as the domain wants them */
    bool negate, absolute; /* negate: complement, if the opcode is logical */
    uint8_t lanes;
    uint8_t address;           /* indirect: index of the (first) word of a0; of messages: byte of s0 */
    uint8_t lanes_per_address; /* indirect: 0: one address for all */
    uint8_t registers;         /* of a message */
    int16_t displacement;      /* indirect */
    load_function *load;
    union lanes *constant; /* an immediate's lanes in the domain; owned by the program */
    uint64_t immediate;
    uint16_t lane[MAX_LANES]; /* byte offsets in the register file; indirect: relative to the address */
};

/* What a message asks for: decoded from its descriptors, before execution if these are immediate. */
enum unit { UNIT_UGM, UNIT_SLM, UNIT_TGM, UNIT_GATEWAY, UNIT_DC0, UNIT_DC1, UNIT_OTHER };
enum address_model { MODEL_FLAT, MODEL_BINDLESS, MODEL_SURFACE, MODEL_BINDING_TABLE };
struct instruction;
struct message {
    /* false after a fault */
    bool (*execute)(struct thread *thread, const struct instruction *in, const struct message *m,
                    uint32_t mask);
    uint32_t descriptor, extended;
    uint8_t operation;
    uint8_t address_bytes, element_bytes, register_bytes; /* of an element in memory, in a register */
    uint8_t shift;                                        /* d16u32h: the upper half of the register */
    uint8_t elements;                                     /* of a lane */
    uint8_t components;                          /* quads: mask of those four that are elements; else 0 */
    uint8_t model;                               /* enum address_model */
    bool local, transposed, store, atomic, swap; /* swap: an atomic compare and swap */
    int32_t offset;
};

typedef void execute_function(struct thread *thread, const struct instruction *in, uint32_t mask);
struct alu;
typedef void compute_function(const struct alu *alu);
typedef uint32_t compare_function(const void *a, const void *b, int lanes);

struct instruction {
    execute_function *execute;
    uint32_t lane_mask; /* of the execution size */
    uint8_t opcode, channel, lanes, sources;
    bool no_mask, predicated, predicate_inverted;
    bool masked_by_predicate; /* else the function looks at the flags itself: sel, branches */
    bool runs_without_lanes;
    uint8_t predicate_group, group_lanes;
    uint8_t flag; /* in units of 16 bits */
    uint8_t condition, domain;
    bool saturate, sets_flags;
    struct operand destination, source[3];
    compute_function *compute;
    compare_function *compare; /* of cmp, sel with a condition, csel; else of the result with zero */
    convert_function *convert;
    uint8_t function;      /* math, bfn */
    uint8_t depth, repeat; /* dpas */
    bool atomic, branch_back, barrier, end_of_thread;
    uint8_t unit;
    int8_t descriptor_register, extended_register; /* of a0, or -1 */
    struct message message;
    uint32_t jump[2]; /* JIP and UIP: indices of instructions */
    int64_t jump_bytes[2];
    uint32_t offset; /* in bytes from the program's start */
    uint32_t bytes;
    const char *text;
    const char *problem; /* why it can't be executed, or NULL */
};

struct program {
    struct program *next; /* of the same bucket */
    struct sim_vm *vm;
    const struct sim_kernel *kernel; /* NULL: not known */
    uint64_t address;
    int register_bytes;
    uint32_t count, bytes;
    struct instruction *code;
    uint8_t *machine_code; /* to notice when memory holds another kernel */
    void *allocations;
    int users;
    bool stale;
};

/* ---- execution ---- */

enum thread_state { THREAD_RUNS, THREAD_WAITS, THREAD_ENDED, THREAD_FAULTED };
enum { NO_RESUME = 0xffffffffu, BARRIERS = 32, TLB_ENTRIES = 64 };

struct thread {
    uint8_t registers[REG_FILE_BYTES] __attribute__((aligned(64)));
    const struct instruction *next;
    const struct program *program;
    struct group *group;
    uint32_t active;            /* lanes */
    uint32_t started;           /* lanes that hold work-items */
    uint32_t resume[MAX_LANES]; /* index of the join where an inactive lane waits */
    enum thread_state state;
    int id;          /* in its group */
    int slot;        /* where it runs: scratch memory is found by this */
    int rounding;    /* enum rounding, from cr0 */
    bool flush_half; /* subnormals of hf, from cr0 */
    int barrier;     /* that it has signaled and not yet passed, or -1 */
    uint32_t barrier_phase;
    uint32_t interval; /* number of barriers of the whole group that it has passed */
};

struct barrier {
    int arrived, expected;
    uint32_t phase;
};

struct worker;
struct group {
    const struct sim_walk *walk;
    struct worker *worker;
    uint32_t id[3];
    uint8_t *local;
    uint32_t local_bytes;
    struct thread *threads;
    int count;
    struct barrier barriers[BARRIERS];
    struct check_group *check;
};

/* One thread of the host, which runs some of a walk's groups. */
struct worker {
    struct sim_vm *vm;
    const struct sim_walk *walk;
    struct {
        uint64_t page;
        uint8_t *host;
    } tlb[TLB_ENTRIES];
    struct {
        uint64_t key, base, size;
        bool scratch;
    } surface;
    struct check_walk *check;      /* NULL: no checks */
    struct profile_counts *counts; /* NULL: no profile */
    uint64_t instructions;
    uint64_t random;
    int first_slot, slot_groups; /* so many groups in a row run in different slots, from the first on */
};

static inline const char *program_name(const struct program *p) { return p->kernel ? p->kernel->name : "?"; }

static inline int register_bytes(const struct thread *t) { return t->program->register_bytes; }

/* A fault of a thread: the text, then instruction, kernel, group and thread. Returns false. */
bool thread_fault(struct thread *thread, const struct instruction *in, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif

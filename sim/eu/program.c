#include "eu/program.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "eu/bind.h"
#include "eu/decode.h"
#include "eu/iga.h"

enum { BUCKETS = 1024, TEXT_BYTES = 512, MAX_INSTRUCTIONS = 1 << 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct program *buckets[BUCKETS];

struct allocation {
    struct allocation *next;
    uint8_t bytes[] __attribute__((aligned(64)));
};

static void *allocate(void *program, size_t size) {
    struct program *p = program;
    struct allocation *a = aligned_alloc(64, (sizeof *a + size + 63) & ~(size_t)63);
    if (!a) abort();
    a->next = p->allocations;
    p->allocations = a;
    return a->bytes;
}

static void destroy(struct program *p) {
    for (struct allocation *a = p->allocations, *next; a; a = next) {
        next = a->next;
        free(a);
    }
    free(p->code);
    free(p->machine_code);
    free(p);
}

/* The text with runs of spaces shortened to one, and without the comment. */
static const char *keep_text(struct program *p, const char *text) {
    char *to = allocate(p, strlen(text) + 1), *end = to;
    for (const char *s = text; *s && !(s[0] == '/' && s[1] == '/'); s++)
        if (*s != ' ' || (end > to && end[-1] != ' ')) *end++ = *s;
    while (end > to && end[-1] == ' ') end--;
    *end = 0;
    return to;
}

/* Decodes the instruction at `offset`; false if memory ends there. */
static bool decode_at(struct program *p, const struct sim_walk *w, struct instruction *in, uint32_t offset) {
    uint8_t raw[16] = {0};
    char text[TEXT_BYTES];
    *in = (struct instruction){.offset = offset};
    if (!sim_vm_read(w->vm, p->address + offset, raw, 8)) return false;
    in->bytes = raw[3] & 0x20 ? 8 : 16; /* CmptCtrl */
    if (in->bytes == 16 && !sim_vm_read(w->vm, p->address + offset + 8, raw + 8, 8)) return false;
    const bool known = iga_text(w->product->iga, raw, text, sizeof text);
    in->text = keep_text(p, text);
    if (known)
        decode(in, w->product);
    else
        in->problem = "the disassembler does not know it";
    return true;
}

static uint32_t index_of_offset(const struct program *p, int64_t offset) {
    uint32_t low = 0, high = p->count;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (p->code[middle].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low < p->count && p->code[low].offset == offset ? low : NO_RESUME;
}

static void resolve_jumps(struct program *p) {
    for (uint32_t i = 0; i < p->count; i++) {
        struct instruction *in = &p->code[i];
        if (in->problem || opcode_class[in->opcode] != CLASS_FLOW) continue;
        for (int k = 0; k < 2; k++) {
            if (!in->jump_bytes[k]) continue;
            in->jump[k] = index_of_offset(p, (int64_t)in->offset + in->jump_bytes[k]);
            if (in->jump[k] == NO_RESUME) in->problem = "branches outside of the kernel";
        }
    }
}

/* A kernel ends with the end of its thread, behind which no branch leads. */
static bool decode_all(struct program *p, const struct sim_walk *w) {
    uint32_t capacity = 0, offset = 0;
    int64_t last_target = 0;
    for (;;) {
        if (p->count == capacity) {
            capacity = capacity ? 2 * capacity : 256;
            p->code = realloc(p->code, capacity * sizeof *p->code);
            if (!p->code) abort();
        }
        struct instruction *in = &p->code[p->count];
        if (!decode_at(p, w, in, offset)) {
            sim_fault("instruction at %#llx is not mapped", (unsigned long long)(p->address + offset));
            return false;
        }
        p->count++;
        for (int k = 0; k < 2; k++)
            if (offset + in->jump_bytes[k] > last_target) last_target = offset + in->jump_bytes[k];
        const bool last = (in->end_of_thread || in->problem || in->opcode == OP_RET) && last_target <= offset;
        offset += in->bytes;
        if (last) break;
        if (p->count == MAX_INSTRUCTIONS) {
            sim_fault("kernel at %#llx does not end within %d instructions", (unsigned long long)p->address,
                      MAX_INSTRUCTIONS);
            return false;
        }
    }
    p->bytes = offset;
    p->machine_code = malloc(offset);
    if (!p->machine_code) abort();
    if (!sim_vm_read(w->vm, p->address, p->machine_code, offset)) return false;
    p->kernel = sim_kernel_find(p->machine_code, offset);
    resolve_jumps(p);
    for (uint32_t i = 0; i < p->count; i++)
        if (!p->code[i].problem) bind(&p->code[i], w->product, allocate, p);
    return true;
}

static bool is_current(const struct program *p) {
    for (uint32_t at = 0; at < p->bytes;) {
        const uint64_t address = p->address + at;
        const uint8_t *host = sim_vm_host(p->vm, address);
        uint32_t n = SIM_PAGE - (uint32_t)(address & (SIM_PAGE - 1));
        if (n > p->bytes - at) n = p->bytes - at;
        if (!host || memcmp(host, p->machine_code + at, n)) return false;
        at += n;
    }
    return true;
}

static void unlink_stale(struct program **link) {
    struct program *p = *link;
    *link = p->next;
    p->stale = true;
    if (!p->users) destroy(p);
}

struct program *program_acquire(const struct sim_walk *w) {
    pthread_mutex_lock(&lock);
    struct program **bucket = &buckets[(w->kernel >> 6) % BUCKETS], *found = NULL;
    for (struct program **link = bucket; *link;) {
        struct program *p = *link;
        if (p->vm != w->vm || p->address != w->kernel || p->register_bytes != w->product->register_bytes) {
            link = &p->next;
        } else if (is_current(p)) {
            found = p;
            break;
        } else {
            unlink_stale(link);
        }
    }
    if (!found) {
        found = calloc(1, sizeof *found);
        if (!found) abort();
        *found =
            (struct program){.vm = w->vm, .address = w->kernel, .register_bytes = w->product->register_bytes};
        if (decode_all(found, w)) {
            found->next = *bucket;
            *bucket = found;
        } else {
            destroy(found);
            found = NULL;
        }
    }
    if (found) found->users++;
    pthread_mutex_unlock(&lock);
    return found;
}

void program_release(struct program *p) {
    pthread_mutex_lock(&lock);
    if (!--p->users && p->stale) destroy(p);
    pthread_mutex_unlock(&lock);
}

/* A guard-page allocator, to be preloaded. Larger blocks end at an inaccessible page, so an access beyond the
 * block raises SIGSEGV at once. Freeing a block raises SIGILL if the padding between its end and the page has
 * changed. It finds the out-of-bounds accesses that Intel's CPU compiler makes occasionally.
 *
 *     cc -O2 -shared -fPIC tests/intel_cpu/guard.c -o guard.so && LD_PRELOAD=$PWD/guard.so OPENXPU_CACHE=0
 * PROGRAM
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

enum { PAGE = 4096, LEAST = 1024, MOST = 64 << 20, BLOCKS = 1 << 20, UNTOUCHED = 0xa5 };

/* Open addressing. A deleted entry holds GONE, which does not end a search. */
enum { NEVER, GONE };
typedef struct block {
    uintptr_t begin;
    size_t size, pages; /* bytes; `pages` excludes the inaccessible page */
    char *mapping;
} block;
static block blocks[BLOCKS];
static int count;
static atomic_flag busy = ATOMIC_FLAG_INIT;

static void lock(void) {
    while (atomic_flag_test_and_set(&busy)) continue;
}
static void unlock(void) { atomic_flag_clear(&busy); }

static size_t place_of(uintptr_t begin) { return (begin >> 4) * 0x9e3779b97f4a7c15u >> 44; }

/* The caller holds the lock. NULL: not a block of this allocator. */
static block *find(const void *begin) {
    for (size_t i = place_of((uintptr_t)begin); blocks[i].begin != NEVER; i = (i + 1) % BLOCKS)
        if (blocks[i].begin == (uintptr_t)begin) return &blocks[i];
    return NULL;
}

static void *guarded(size_t alignment, size_t size) {
    if (size < LEAST || size > MOST) return NULL;
    if (alignment < 16) alignment = 16;
    const size_t pages = (size + alignment + PAGE - 1) / PAGE * PAGE;
    char *mapping = mmap(NULL, pages + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) return NULL;
    lock();
    if (count > BLOCKS / 2 || mprotect(mapping + pages, PAGE, PROT_NONE)) { /* the kernel limits mappings */
        unlock();
        munmap(mapping, pages + PAGE);
        return NULL;
    }
    const uintptr_t end = (uintptr_t)mapping + pages, begin = (end - size) & ~(alignment - 1);
    memset((void *)(begin + size), UNTOUCHED, end - begin - size);
    size_t i = place_of(begin);
    while (blocks[i].begin > GONE) i = (i + 1) % BLOCKS;
    blocks[i] = (block){begin, size, pages, mapping};
    count++;
    unlock();
    return (void *)begin;
}

void *malloc(size_t size) {
    void *p = guarded(0, size);
    return p ? p : __libc_malloc(size);
}
void *memalign(size_t alignment, size_t size) {
    void *p = guarded(alignment, size);
    return p ? p : __libc_memalign(alignment, size);
}
void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void **p, size_t alignment, size_t size) {
    *p = memalign(alignment, size);
    return *p ? 0 : ENOMEM;
}
void *calloc(size_t n, size_t size) {
    size_t all;
    if (__builtin_mul_overflow(n, size, &all)) return NULL;
    void *p = guarded(0, all); /* new pages are zeros */
    return p ? p : __libc_calloc(n, size);
}

void free(void *p) {
    if (!p) return;
    lock();
    block *found = find(p);
    if (!found) {
        unlock();
        __libc_free(p);
        return;
    }
    const block b = *found;
    found->begin = GONE;
    count--;
    unlock();
    const unsigned char *end = (unsigned char *)b.mapping + b.pages;
    for (const unsigned char *byte = (unsigned char *)b.begin + b.size; byte < end; byte++)
        if (*byte != UNTOUCHED) __builtin_trap();
    munmap(b.mapping, b.pages + PAGE);
}

size_t malloc_usable_size(void *p) {
    lock();
    const block *found = find(p);
    const size_t size = found ? found->size : 0;
    unlock();
    /* of others what libc's realloc would keep: the word before them, less its flags and itself */
    return found || !p ? size : (((size_t *)p)[-1] & ~(size_t)7) - sizeof(size_t);
}

void *realloc(void *p, size_t size) {
    if (!p) return malloc(size);
    lock();
    const bool is_ours = find(p);
    unlock();
    if (!is_ours && size < LEAST) return __libc_realloc(p, size);
    void *to = malloc(size);
    if (!to) return NULL;
    const size_t before = malloc_usable_size(p);
    memcpy(to, p, before < size ? before : size);
    free(p);
    return to;
}

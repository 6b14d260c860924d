/* os.h on POSIX systems. */
#if !defined(_WIN32)
#define _GNU_SOURCE /* dladdr, dl_iterate_phdr */
#include "core/os.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#if defined(__linux__)
#include <link.h>
#endif
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

long os_process_id(void) { return (long)getpid(); }

void os_environment_default(const char *name, const char *value) { setenv(name, value, 0); }

void os_at_fork_in_child(void (*function)(void)) { pthread_atfork(NULL, NULL, function); }

void *os_aligned_alloc(size_t align, size_t size) {
    if (size > SIZE_MAX - align) return NULL;
    size = (size + align - 1) / align * align;
    void *memory = aligned_alloc(align, size);
#if defined(MADV_HUGEPAGE)
    if (memory && align == OS_HUGE_PAGE && size > align) madvise(memory, size, MADV_HUGEPAGE);
#endif
    return memory;
}

void os_aligned_free(void *memory) { free(memory); }

void os_heap_trim(void) {
#if defined(__GLIBC__)
    malloc_trim(0);
#endif
}

bool os_file_append(const char *path, const void *data, size_t size) {
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0) return false;
    bool good = write(file, data, size) == (ssize_t)size; /* one call, so that writers do not interleave */
    return !close(file) && good;
}

bool os_file_size(FILE *file, uint64_t *size) {
    struct stat status;
    if (fstat(fileno(file), &status) || !S_ISREG(status.st_mode)) return false;
    *size = (uint64_t)status.st_size;
    return true;
}

bool os_file_map(const char *path, os_map *map) {
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    void *data = MAP_FAILED;
    if (!fstat(file, &status) && S_ISREG(status.st_mode) && status.st_size > 0)
        data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (data == MAP_FAILED) return false;
    *map = (os_map){data, (size_t)status.st_size};
    return true;
}

void os_file_unmap(os_map *map) {
    if (map->data) munmap((void *)(uintptr_t)map->data, map->size);
    *map = (os_map){NULL, 0};
}

bool os_file_modified(const char *path, int64_t *seconds) {
    struct stat status;
    if (stat(path, &status)) return false;
    *seconds = (int64_t)status.st_mtime;
    return true;
}

FILE *os_file_open(const char *path, const char *mode) { return fopen(path, mode); }

bool os_file_rename(const char *from, const char *to) { return !rename(from, to); }

bool os_file_delete(const char *path) { return !unlink(path); }

bool os_folder_make(const char *path) { return !mkdir(path, 0700); }

void os_folder_list(const char *path, void (*visit)(const char *name, void *user), void *user) {
    DIR *folder = opendir(path);
    if (!folder) return;
    for (const struct dirent *entry; (entry = readdir(folder));) visit(entry->d_name, user);
    closedir(folder);
}

bool os_cache_folder(char path[OS_PATH_SIZE]) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && *cache) return snprintf(path, OS_PATH_SIZE, "%s", cache) < OS_PATH_SIZE;
    return home && *home && snprintf(path, OS_PATH_SIZE, "%s/.cache", home) < OS_PATH_SIZE;
}

void *os_library_open(const char *path) { return dlopen(path, RTLD_NOW | RTLD_LOCAL); }

void *os_library_symbol(void *library, const char *name) { return dlsym(library, name); }

bool os_library_of(const void *address, char path[OS_PATH_SIZE]) {
    Dl_info info;
    return dladdr(address, &info) && info.dli_fname &&
           snprintf(path, OS_PATH_SIZE, "%s", info.dli_fname) < OS_PATH_SIZE;
}

#if defined(__linux__)
typedef struct mapping {
    uintptr_t start, end;
    bool may_go; /* belongs to the libraries, is private and not writable */
    unsigned long changed;
} mapping;

typedef struct mappings {
    mapping *each;
    size_t count, room;
} mappings;

static void keep(mappings *all, const mapping *m) {
    if (!m->may_go || m->changed) return;
    if (all->count == all->room) {
        const size_t room = 2 * all->room + 64;
        mapping *each = realloc(all->each, room * sizeof *each);
        if (!each) return;
        *all = (mappings){each, all->count, room};
    }
    all->each[all->count++] = *m;
}

/* Does the loader write relocations into its code? */
static bool is_relocated_in_place(const struct dl_phdr_info *info) {
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
        const ElfW(Dyn) *entry = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
        for (; entry->d_tag != DT_NULL; entry++)
            if (entry->d_tag == DT_TEXTREL || (entry->d_tag == DT_FLAGS && entry->d_un.d_val & DF_TEXTREL))
                return true;
    }
    return false;
}

/* Trims the segments of a loaded library that are never written. */
static int drop(struct dl_phdr_info *info, size_t size, void *user) {
    const mappings *all = user;
    if (is_relocated_in_place(info)) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || part->p_flags & PF_W) continue;
        const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
        const uintptr_t start = (info->dlpi_addr + part->p_vaddr) / page * page;
        const uintptr_t end = (info->dlpi_addr + part->p_vaddr + part->p_filesz + page - 1) / page * page;
        for (size_t k = 0; k < all->count; k++) {
            const mapping *m = &all->each[k];
            const uintptr_t from = start > m->start ? start : m->start, to = end < m->end ? end : m->end;
            if (from < to) madvise((void *)from, to - from, MADV_DONTNEED);
        }
    }
    return 0;
}

/* Length of the folder part of a path, without the slash; 0 if there is none. */
static size_t folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

static bool is_library(const char *path, const char *given, bool alone) {
    const size_t length = folder_of(given);
    if (alone) return !strncmp(path, given, strlen(given)) && path[strlen(given)] == '\n';
    return length > 1 && folder_of(path) == length && !strncmp(path, given, length) &&
           strstr(path + length, ".so");
}

/* Reads /proc/self/smaps, where a mapping is "from-to rwxp offset device inode  path" followed by "Name:
 * number kB" lines. Pages that were modified (relocated tables, before they become read-only) count as
 * anonymous or swapped; dropping them would lose data. Another thread may load or unload a library at the
 * same time, and a library being loaded is at first mapped read-only as a whole. Therefore only segments that
 * the loader lists and never writes are dropped; while it lists them, nothing is unmapped. */
void os_library_trim(const char *path) {
    FILE *file = fopen("/proc/self/smaps", "re");
    char line[OS_PATH_SIZE + 128], libc[OS_PATH_SIZE];
    char *real = realpath(path, NULL), *everybodys = NULL;
    if (os_library_of(stdin, libc)) everybodys = realpath(libc, NULL); /* stdin is in the C library */
    const bool alone = real && everybodys && folder_of(real) == folder_of(everybodys) &&
                       !strncmp(real, everybodys, folder_of(real));
    mappings all = {0};
    mapping m = {0};
    while (file && real && fgets(line, sizeof line, file)) {
        unsigned long long start, end;
        unsigned long number;
        char mode[5];
        int at = 0;
        if (sscanf(line, "%llx-%llx %4s %*s %*s %*s %n", &start, &end, mode, &at) == 3) {
            keep(&all, &m);
            m = (mapping){.start = (uintptr_t)start, .end = (uintptr_t)end};
            m.may_go = at && mode[0] == 'r' && mode[1] == '-' && mode[3] == 'p' &&
                       is_library(line + at, real, alone);
        } else if (sscanf(line, "Anonymous: %lu", &number) == 1 || sscanf(line, "Swap: %lu", &number) == 1) {
            m.changed += number;
        }
    }
    keep(&all, &m);
    if (file) fclose(file);
    dl_iterate_phdr(drop, &all);
    free(all.each);
    free(real);
    free(everybodys);
}
#else
void os_library_trim(const char *path) {}
bool os_memory_read(const char *root, os_memory *memory) {
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages <= 0 || page <= 0) return false;
    const uint64_t total = (uint64_t)pages * (uint64_t)page;
    *memory = (os_memory){total, total, 0, OS_UNLIMITED, OS_UNLIMITED};
    return true;
}
bool os_gpu_memory_used(const char *root, const char *address, uint64_t *used) { return false; }
#endif

#else
typedef int os_posix_is_empty;
#endif

/* What the library asks of the operating system; nothing else in src/ names one. os_posix.c and os_windows.c
 * do what isn't inline here, os.c what both do alike. Functions that can fail tell it by false or NULL and
 * leave no error text: what it means is the caller's to say. Paths are as getenv gives them. */
#ifndef CORE_OS_H
#define CORE_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#if !defined(_WIN32)
#include <pthread.h>
#include <time.h>
#endif

/* --- locks --- */
/* None may be taken twice by a thread. An os_once runs its function once, and whoever comes meanwhile waits
 * for the end. A value of an os_key belongs to a thread, at whose end `destroy` gets it unless it is NULL. */
#if defined(_WIN32)
typedef struct os_mutex {
    void *word;
} os_mutex;
typedef struct os_rwlock {
    void *word;
} os_rwlock;
typedef struct os_once {
    void *word;
} os_once;
typedef unsigned long os_key;
/* clang-format off */
#define OS_MUTEX_INIT {NULL}
#define OS_RWLOCK_INIT {NULL}
#define OS_ONCE_INIT {NULL}
/* clang-format on */
void os_mutex_init(os_mutex *mutex);
void os_mutex_destroy(os_mutex *mutex);
void os_mutex_lock(os_mutex *mutex);
void os_mutex_unlock(os_mutex *mutex);
void os_rwlock_init(os_rwlock *lock);
void os_rwlock_read_lock(os_rwlock *lock);
void os_rwlock_read_unlock(os_rwlock *lock);
void os_rwlock_write_lock(os_rwlock *lock);
void os_rwlock_write_unlock(os_rwlock *lock);
void os_once_call(os_once *once, void (*function)(void));
bool os_key_create(os_key *key, void (*destroy)(void *value));
bool os_key_set(os_key key, void *value);
#else
typedef pthread_mutex_t os_mutex;
typedef pthread_rwlock_t os_rwlock;
typedef pthread_once_t os_once;
typedef pthread_key_t os_key;
#define OS_MUTEX_INIT PTHREAD_MUTEX_INITIALIZER
#define OS_RWLOCK_INIT PTHREAD_RWLOCK_INITIALIZER
#define OS_ONCE_INIT PTHREAD_ONCE_INIT
static inline void os_mutex_init(os_mutex *mutex) { pthread_mutex_init(mutex, NULL); }
static inline void os_mutex_destroy(os_mutex *mutex) { pthread_mutex_destroy(mutex); }
static inline void os_mutex_lock(os_mutex *mutex) { pthread_mutex_lock(mutex); }
static inline void os_mutex_unlock(os_mutex *mutex) { pthread_mutex_unlock(mutex); }
static inline void os_rwlock_init(os_rwlock *lock) { pthread_rwlock_init(lock, NULL); }
static inline void os_rwlock_read_lock(os_rwlock *lock) { pthread_rwlock_rdlock(lock); }
static inline void os_rwlock_read_unlock(os_rwlock *lock) { pthread_rwlock_unlock(lock); }
static inline void os_rwlock_write_lock(os_rwlock *lock) { pthread_rwlock_wrlock(lock); }
static inline void os_rwlock_write_unlock(os_rwlock *lock) { pthread_rwlock_unlock(lock); }
static inline void os_once_call(os_once *once, void (*function)(void)) { pthread_once(once, function); }
static inline bool os_key_create(os_key *key, void (*destroy)(void *value)) {
    return !pthread_key_create(key, destroy);
}
static inline bool os_key_set(os_key key, void *value) { return !pthread_setspecific(key, value); }
#endif

/* --- time, in nanoseconds --- */
#if defined(_WIN32)
uint64_t os_clock(void);     /* since some moment; never goes back */
uint64_t os_wall_time(void); /* since 1970 */
#else
static inline uint64_t os_read_clock(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
static inline uint64_t os_clock(void) { return os_read_clock(CLOCK_MONOTONIC); }
static inline uint64_t os_wall_time(void) { return os_read_clock(CLOCK_REALTIME); }
#endif
static inline double os_seconds(void) { return 1e-9 * (double)os_clock(); }

/* --- processes --- */
long os_process_id(void);
/* Sets a variable of the environment, for this process and those it starts, unless it is set. */
void os_environment_default(const char *name, const char *value);
/* From now on each forked child calls the function first. Nothing where processes don't fork. */
void os_at_fork_in_child(void (*function)(void));

/* --- memory --- */
#define OS_HUGE_PAGE ((size_t)2 << 20)
/* A multiple of `align`, a power of two, that holds `size` bytes; of OS_HUGE_PAGE in huge pages where the
 * system has them and it takes several: a single one would be in memory as a whole for a few small blocks.
 * Only os_aligned_free frees it. */
void *os_aligned_alloc(size_t align, size_t size);
void os_aligned_free(void *memory);

/* How much memory there is, in bytes. Groups are control groups (both versions, with those above them) or a
 * Windows job; OS_UNLIMITED where none sets a limit. */
#define OS_UNLIMITED UINT64_MAX
typedef struct os_memory {
    uint64_t total;      /* the machine's */
    uint64_t available;  /* what new work can have of it without swapping */
    uint64_t swap;       /* free space to swap to */
    uint64_t limit;      /* the least limit of the groups that this process is in */
    uint64_t limit_left; /* the least that one of them leaves; caches of files that can go count as left */
} os_memory;
/* `root` stands before /proc and /sys: "", or a folder in which a test has laid them out. */
bool os_memory_read(const char *root, os_memory *memory);
/* Bytes of its own memory that a GPU's users have taken, this process among them, as far as its driver shows
 * them to this user. `address` is the PCI address, "0000:03:00.0". */
bool os_gpu_memory_used(const char *root, const char *address, uint64_t *used);

/* --- files and folders --- */
#if defined(_WIN32)
#define OS_SEPARATORS "\\/" /* of a path's names */
#define OS_LIST_SEPARATOR ";"
#else
#define OS_SEPARATORS "/"
#define OS_LIST_SEPARATOR ":"
#endif
enum { OS_PATH_SIZE = 4096 };

typedef struct os_bytes {
    const void *data;
    size_t size;
} os_bytes;

/* The whole of a file; the caller core_frees *data. */
bool os_file_read(const char *path, unsigned char **data, size_t *size);
/* Writes a file anew from `count` pieces, under a temporary name that ends in OS_TEMPORARY, and renames it:
 * who reads sees all of it or none, whoever writes at the same time or dies. */
#define OS_TEMPORARY ".tmp"
bool os_file_write(const char *path, const os_bytes *pieces, int count);
/* Puts bytes to a file's end, and makes it where there is none; those of several processes don't mix. */
bool os_file_append(const char *path, const void *data, size_t size);
bool os_file_exists(const char *path);
bool os_file_size(FILE *file, uint64_t *size);
/* A file in memory, to be read; what others write to the file meanwhile may show. An empty file is none. */
typedef struct os_map {
    const unsigned char *data;
    size_t size;
} os_map;
bool os_file_map(const char *path, os_map *map);
void os_file_unmap(os_map *map);
bool os_file_modified(const char *path, int64_t *seconds); /* since 1970 */
bool os_file_rename(const char *from, const char *to);     /* over what is there */
bool os_folder_make(const char *path);                     /* for this user alone */
void os_folders_make(const char *path);                    /* with those above it */
void os_folder_list(const char *path, void (*visit)(const char *name, void *user), void *user);
/* Where this user's programs keep what they can make again. */
bool os_cache_folder(char path[OS_PATH_SIZE]);

/* --- libraries --- */
void *os_library_open(const char *path);
void *os_library_symbol(void *library, const char *name);
/* The path of the library in which an address lies. */
bool os_library_of(const void *address, char path[OS_PATH_SIZE]);
/* What a library, and those that lie beside it in its folder, have read from their files and not changed
 * leaves memory; where it is used again it is read again. Of a folder in which the C library lies,
 * everybody's, it is the library alone. Nothing where the system has no such thing. */
void os_library_trim(const char *path);
/* Memory that malloc keeps and nobody uses goes back to the system, where the C library can do that. */
void os_heap_trim(void);

#endif

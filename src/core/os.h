/* The operating system layer; no other file in src/ depends on a system. os_posix.c, os_linux.c and
 * os_windows.c implement it, os.c the portable parts. Functions report failure by false or NULL and write no
 * error text, because only the caller knows what the failure means. Paths are UTF-8 on Windows, and bytes
 * elsewhere. Any thread may call. */
#ifndef CORE_OS_H
#define CORE_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#if !defined(_WIN32)
#include <pthread.h>
#include <time.h>
#endif

/* --- locks --- */
/* No lock is recursive. os_once_call runs the function once; concurrent callers wait until it has finished.
 * An os_key holds one value per thread; when a thread exits, `destroy` receives its value unless it is NULL.
 */
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
/* getenv for values that hold paths: on Windows getenv loses characters that the system's code page lacks. */
#if defined(_WIN32)
const char *os_environment(const char *name);
#else
static inline const char *os_environment(const char *name) { return getenv(name); }
#endif
/* Sets an environment variable unless it is already set; child processes inherit it. */
void os_environment_default(const char *name, const char *value);
/* Registers a function that every forked child calls first. Does nothing on systems without fork. */
void os_at_fork_in_child(void (*function)(void));

/* --- memory --- */
#define OS_HUGE_PAGE ((size_t)2 << 20)
/* Memory aligned to `align`, a power of two. With OS_HUGE_PAGE it uses huge pages if the system has them and
 * more than one is needed; a single huge page would waste memory on a few small blocks. Free it with
 * os_aligned_free. */
void *os_aligned_alloc(size_t align, size_t size);
void os_aligned_free(void *memory);

/* Memory of the machine and of the process's groups, in bytes. Groups are control groups (version 1 or 2,
 * including all ancestors) or a Windows job; OS_UNLIMITED if no group sets a limit. */
#define OS_UNLIMITED UINT64_MAX
typedef struct os_memory {
    uint64_t total;      /* of the machine */
    uint64_t available;  /* can be allocated without swapping */
    uint64_t swap;       /* free swap space */
    uint64_t limit;      /* the smallest limit of the groups */
    uint64_t limit_left; /* the smallest remainder below a limit; reclaimable file cache counts as free */
} os_memory;
/* `root` is prepended to /proc and /sys: "", or a folder with a test's copies of them. */
bool os_memory_read(const char *root, os_memory *memory);
/* Bytes of a GPU's local memory that all processes use, as far as the driver shows them to this user.
 * `address` is the PCI address, "0000:03:00.0". */
bool os_gpu_memory_used(const char *root, const char *address, uint64_t *used);

/* --- files and folders --- */
#if defined(_WIN32)
#define OS_SEPARATORS "\\/" /* path separators */
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

/* fopen. Other processes may replace or delete the file while it is open, on Windows, too. */
FILE *os_file_open(const char *path, const char *mode);
/* Reads a whole file; the caller frees *data with core_free. */
bool os_file_read(const char *path, unsigned char **data, size_t *size);
/* Writes `count` buffers to a temporary file whose name ends in OS_TEMPORARY, then renames it. Readers
 * therefore see a complete file or none, even with concurrent writers or if a writer dies. */
#define OS_TEMPORARY ".tmp"
bool os_file_write(const char *path, const os_bytes *pieces, int count);
/* Appends bytes to a file, creating it if needed. Writes of several processes do not interleave. */
bool os_file_append(const char *path, const void *data, size_t size);
bool os_file_exists(const char *path);
bool os_file_size(FILE *file, uint64_t *size);
/* A read-only file mapping. Later writes to the file may become visible. Mapping an empty file fails. */
typedef struct os_map {
    const unsigned char *data;
    size_t size;
} os_map;
bool os_file_map(const char *path, os_map *map);
void os_file_unmap(os_map *map);
bool os_file_modified(const char *path, int64_t *seconds); /* since 1970 */
bool os_file_rename(const char *from, const char *to);     /* replaces an existing file */
bool os_file_delete(const char *path);
bool os_folder_make(const char *path);  /* accessible to this user only */
void os_folders_make(const char *path); /* including its parents */
void os_folder_list(const char *path, void (*visit)(const char *name, void *user), void *user);
/* The user's cache folder. */
bool os_cache_folder(char path[OS_PATH_SIZE]);

/* --- libraries --- */
void *os_library_open(const char *path);
void *os_library_symbol(void *library, const char *name);
/* The path of the library that contains an address. */
bool os_library_of(const void *address, char path[OS_PATH_SIZE]);
/* Drops the unmodified file-backed pages of a library, and of the other loaded libraries in its folder, from
 * memory; they are read again when used. If the folder also holds the C library, only this library is
 * trimmed. Does nothing on systems that cannot do this. */
void os_library_trim(const char *path);
/* Returns malloc's unused memory to the system, if the C library supports it. */
void os_heap_trim(void);

#endif

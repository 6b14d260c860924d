/* os.h on Windows. Mutexes are slim reader/writer locks too: one word, and nothing to destroy. */
#if defined(_WIN32)
#include "core/os.h"

#include <io.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
/* after it */
#include <psapi.h>

_Static_assert(sizeof(os_mutex) == sizeof(SRWLOCK) && sizeof(os_rwlock) == sizeof(SRWLOCK) &&
                   sizeof(os_once) == sizeof(INIT_ONCE) && sizeof(os_key) == sizeof(DWORD),
               "os.h declares them without windows.h");

void os_mutex_init(os_mutex *mutex) { InitializeSRWLock((SRWLOCK *)mutex); }
void os_mutex_destroy(os_mutex *mutex) { (void)mutex; }
void os_mutex_lock(os_mutex *mutex) { AcquireSRWLockExclusive((SRWLOCK *)mutex); }
void os_mutex_unlock(os_mutex *mutex) { ReleaseSRWLockExclusive((SRWLOCK *)mutex); }
void os_rwlock_init(os_rwlock *lock) { InitializeSRWLock((SRWLOCK *)lock); }
void os_rwlock_read_lock(os_rwlock *lock) { AcquireSRWLockShared((SRWLOCK *)lock); }
void os_rwlock_read_unlock(os_rwlock *lock) { ReleaseSRWLockShared((SRWLOCK *)lock); }
void os_rwlock_write_lock(os_rwlock *lock) { AcquireSRWLockExclusive((SRWLOCK *)lock); }
void os_rwlock_write_unlock(os_rwlock *lock) { ReleaseSRWLockExclusive((SRWLOCK *)lock); }

typedef struct once_call {
    void (*function)(void);
} once_call;

static BOOL CALLBACK run_once(INIT_ONCE *once, void *call, void **context) {
    (void)once, (void)context;
    ((once_call *)call)->function();
    return TRUE;
}

void os_once_call(os_once *once, void (*function)(void)) {
    once_call call = {function};
    InitOnceExecuteOnce((INIT_ONCE *)once, run_once, &call, NULL);
}

/* Fiber-local storage, because unlike TlsAlloc it has destructors. Without fibers it is thread-local. */
bool os_key_create(os_key *key, void (*destroy)(void *value)) {
    *key = FlsAlloc((PFLS_CALLBACK_FUNCTION)destroy);
    return *key != FLS_OUT_OF_INDEXES;
}

bool os_key_set(os_key key, void *value) { return FlsSetValue(key, value); }

uint64_t os_clock(void) {
    LARGE_INTEGER ticks, frequency; /* the latter is fixed at boot; reading it is a load */
    QueryPerformanceCounter(&ticks);
    QueryPerformanceFrequency(&frequency);
    uint64_t t = (uint64_t)ticks.QuadPart, f = (uint64_t)frequency.QuadPart;
    return t / f * 1000000000u + t % f * 1000000000u / f;
}

/* Converts 100 ns units since 1601 to units since 1970. */
static uint64_t since_1970(FILETIME time) {
    uint64_t units = (uint64_t)time.dwHighDateTime << 32 | time.dwLowDateTime;
    return units - 116444736000000000u;
}

uint64_t os_wall_time(void) {
    FILETIME now;
    GetSystemTimePreciseAsFileTime(&now);
    return since_1970(now) * 100;
}

long os_process_id(void) { return (long)GetCurrentProcessId(); }

void os_environment_default(const char *name, const char *value) {
    if (!getenv(name)) _putenv_s(name, value);
}

void os_at_fork_in_child(void (*function)(void)) { (void)function; }

void *os_aligned_alloc(size_t align, size_t size) { return _aligned_malloc(size, align); }

void os_aligned_free(void *memory) { _aligned_free(memory); }

bool os_file_append(const char *path, const void *data, size_t size) {
    HANDLE file = CreateFileA(path, FILE_APPEND_DATA, FILE_SHARE_READ | FILE_SHARE_WRITE, NULL, OPEN_ALWAYS,
                              FILE_ATTRIBUTE_NORMAL, NULL);
    if (file == INVALID_HANDLE_VALUE) return false;
    DWORD written = 0;
    bool good = size <= UINT32_MAX && WriteFile(file, data, (DWORD)size, &written, NULL) && written == size;
    return CloseHandle(file) && good;
}

bool os_file_size(FILE *file, uint64_t *size) {
    int64_t length = _filelengthi64(_fileno(file));
    if (length < 0) return false;
    *size = (uint64_t)length;
    return true;
}

bool os_file_map(const char *path, os_map *map) {
    LARGE_INTEGER size;
    HANDLE file =
        CreateFileA(path, GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, NULL);
    if (file == INVALID_HANDLE_VALUE) return false;
    HANDLE mapping = NULL;
    if (GetFileSizeEx(file, &size) && size.QuadPart > 0)
        mapping = CreateFileMappingA(file, NULL, PAGE_READONLY, 0, 0, NULL);
    CloseHandle(file);
    if (!mapping) return false;
    void *data = MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, 0); /* keeps the mapping */
    CloseHandle(mapping);
    if (!data) return false;
    *map = (os_map){data, (size_t)size.QuadPart};
    return true;
}

void os_file_unmap(os_map *map) {
    if (map->data) UnmapViewOfFile(map->data);
    *map = (os_map){NULL, 0};
}

bool os_file_modified(const char *path, int64_t *seconds) {
    WIN32_FILE_ATTRIBUTE_DATA data;
    if (!GetFileAttributesExA(path, GetFileExInfoStandard, &data)) return false;
    *seconds = (int64_t)(since_1970(data.ftLastWriteTime) / 10000000u);
    return true;
}

bool os_file_rename(const char *from, const char *to) {
    return MoveFileExA(from, to, MOVEFILE_REPLACE_EXISTING);
}

bool os_folder_make(const char *path) { return CreateDirectoryA(path, NULL); }

void os_folder_list(const char *path, void (*visit)(const char *name, void *user), void *user) {
    char pattern[OS_PATH_SIZE];
    WIN32_FIND_DATAA entry;
    if (snprintf(pattern, sizeof pattern, "%s\\*", path) >= (int)sizeof pattern) return;
    HANDLE search = FindFirstFileA(pattern, &entry);
    if (search == INVALID_HANDLE_VALUE) return;
    do visit(entry.cFileName, user);
    while (FindNextFileA(search, &entry));
    FindClose(search);
}

bool os_cache_folder(char path[OS_PATH_SIZE]) {
    const char *local = getenv("LOCALAPPDATA");
    return local && *local && snprintf(path, OS_PATH_SIZE, "%s", local) < OS_PATH_SIZE;
}

/* Given by its full path, a library finds its dependencies in its own folder; the path needs backslashes. */
void *os_library_open(const char *path) {
    char name[OS_PATH_SIZE];
    if (snprintf(name, sizeof name, "%s", path) >= (int)sizeof name) return NULL;
    for (char *c = name; (c = strchr(c, '/'));) *c = '\\';
    return LoadLibraryExA(name, NULL, strchr(name, '\\') ? LOAD_WITH_ALTERED_SEARCH_PATH : 0);
}

void *os_library_symbol(void *library, const char *name) {
    FARPROC found = GetProcAddress(library, name);
    void *symbol;
    memcpy(&symbol, &found, sizeof symbol);
    return symbol;
}

void os_library_trim(const char *path) {}

bool os_memory_read(const char *root, os_memory *memory) {
    MEMORYSTATUSEX status = {.dwLength = sizeof status};
    if (!GlobalMemoryStatusEx(&status)) return false;
    *memory = (os_memory){status.ullTotalPhys, status.ullAvailPhys, 0, OS_UNLIMITED, OS_UNLIMITED};
    /* Commit capacity beyond the free memory is in the page file. */
    if (status.ullAvailPageFile > status.ullAvailPhys)
        memory->swap = status.ullAvailPageFile - status.ullAvailPhys;
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION job;
    if (!QueryInformationJobObject(NULL, JobObjectExtendedLimitInformation, &job, sizeof job, NULL))
        return true;
    const DWORD flags = job.BasicLimitInformation.LimitFlags;
    if (flags & JOB_OBJECT_LIMIT_JOB_MEMORY) memory->limit = job.JobMemoryLimit;
    if (flags & JOB_OBJECT_LIMIT_PROCESS_MEMORY && job.ProcessMemoryLimit < memory->limit)
        memory->limit = job.ProcessMemoryLimit;
    /* A job does not report its current use, so count this process's use only. */
    PROCESS_MEMORY_COUNTERS own = {.cb = sizeof own};
    if (memory->limit == OS_UNLIMITED || !K32GetProcessMemoryInfo(GetCurrentProcess(), &own, sizeof own))
        return true;
    memory->limit_left = own.PagefileUsage < memory->limit ? memory->limit - own.PagefileUsage : 0;
    return true;
}

bool os_gpu_memory_used(const char *root, const char *address, uint64_t *used) { return false; }

void os_heap_trim(void) {}

bool os_library_of(const void *address, char path[OS_PATH_SIZE]) {
    HMODULE module;
    if (!GetModuleHandleExA(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS |
                                GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
                            address, &module))
        return false;
    DWORD length = GetModuleFileNameA(module, path, OS_PATH_SIZE);
    return length && length < OS_PATH_SIZE;
}

#else
typedef int os_windows_is_empty;
#endif

/* os.h on Windows. Mutexes are slim reader/writer locks too: one word, and nothing to destroy. */
#if defined(_WIN32)
#include "core/os.h"

#include <fcntl.h>
#include <io.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
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

/* --- text: UTF-8 in libxpu, UTF-16 in Windows --- */

/* Converts a path, and makes one that is longer than MAX_PATH absolute with the prefix that lifts that limit.
 */
static bool path_to_wide(const char *path, wchar_t wide[OS_PATH_SIZE]) {
    static const wchar_t prefix[] = L"\\\\?\\";
    enum { PREFIX = 4, SHORT = MAX_PATH - 12 }; /* folders must leave room for a short name */
    wchar_t given[OS_PATH_SIZE];
    const int length = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, given, OS_PATH_SIZE);
    if (length <= 0) return false;
    if (length < SHORT || !wcsncmp(given, prefix, PREFIX) || !wcsncmp(given, L"\\\\", 2)) {
        wmemcpy(wide, given, (size_t)length);
        return true;
    }
    wmemcpy(wide, prefix, PREFIX);
    const DWORD full = GetFullPathNameW(given, OS_PATH_SIZE - PREFIX, wide + PREFIX, NULL);
    return full > 0 && full < OS_PATH_SIZE - PREFIX;
}

static bool to_utf8(const wchar_t *wide, char *text, size_t size) {
    return WideCharToMultiByte(CP_UTF8, WC_ERR_INVALID_CHARS, wide, -1, text, (int)size, NULL, NULL) > 0;
}

/* Each value that was asked for, kept because callers keep the pointer. */
typedef struct kept_text {
    struct kept_text *next;
    char text[];
} kept_text;

const char *os_environment(const char *name) {
    static SRWLOCK lock = SRWLOCK_INIT;
    static kept_text *kept;
    wchar_t key[64];
    if (MultiByteToWideChar(CP_UTF8, 0, name, -1, key, 64) <= 0) return NULL;
    AcquireSRWLockExclusive(&lock);
    const wchar_t *value = _wgetenv(key);
    const int size = value ? WideCharToMultiByte(CP_UTF8, 0, value, -1, NULL, 0, NULL, NULL) : 0;
    kept_text *found = NULL, *copy = size > 0 ? malloc(sizeof *copy + (size_t)size) : NULL;
    if (copy && to_utf8(value, copy->text, (size_t)size)) {
        for (found = kept; found && strcmp(found->text, copy->text);) found = found->next;
        if (!found) {
            copy->next = kept;
            found = kept = copy;
            copy = NULL;
        }
    }
    free(copy);
    ReleaseSRWLockExclusive(&lock);
    return found ? found->text : NULL;
}

void os_environment_default(const char *name, const char *value) {
    if (!os_environment(name)) _putenv_s(name, value);
}

void os_at_fork_in_child(void (*function)(void)) { (void)function; }

void *os_aligned_alloc(size_t align, size_t size) {
    return size <= PTRDIFF_MAX - align ? _aligned_malloc(size, align) : NULL;
}

void os_aligned_free(void *memory) { _aligned_free(memory); }

/* CreateFileW; others may read, write, replace and delete the file at the same time, as on Linux. */
static HANDLE open_shared(const char *path, DWORD access, DWORD disposition) {
    wchar_t wide[OS_PATH_SIZE];
    if (!path_to_wide(path, wide)) return INVALID_HANDLE_VALUE;
    return CreateFileW(wide, access, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                       disposition, FILE_ATTRIBUTE_NORMAL, NULL);
}

FILE *os_file_open(const char *path, const char *mode) {
    const bool reads = mode[0] == 'r', updates = strchr(mode, '+') != NULL;
    const HANDLE file =
        open_shared(path, (reads || updates ? GENERIC_READ : 0) | (!reads || updates ? GENERIC_WRITE : 0),
                    reads ? OPEN_EXISTING : CREATE_ALWAYS);
    if (file == INVALID_HANDLE_VALUE) return NULL;
    const int number = _open_osfhandle((intptr_t)file, reads && !updates ? _O_RDONLY : 0);
    if (number < 0) {
        CloseHandle(file);
        return NULL;
    }
    FILE *stream = _fdopen(number, mode);
    if (!stream) _close(number);
    return stream;
}

bool os_file_append(const char *path, const void *data, size_t size) {
    HANDLE file = open_shared(path, FILE_APPEND_DATA, OPEN_ALWAYS);
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
    HANDLE file = open_shared(path, GENERIC_READ, OPEN_EXISTING);
    if (file == INVALID_HANDLE_VALUE) return false;
    HANDLE mapping = NULL;
    if (GetFileSizeEx(file, &size) && size.QuadPart > 0)
        mapping = CreateFileMappingW(file, NULL, PAGE_READONLY, 0, 0, NULL);
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
    wchar_t wide[OS_PATH_SIZE];
    if (!path_to_wide(path, wide) || !GetFileAttributesExW(wide, GetFileExInfoStandard, &data)) return false;
    *seconds = (int64_t)(since_1970(data.ftLastWriteTime) / 10000000u);
    return true;
}

/* Windows does not replace a file that others have open, but renames it. Such a file goes when the last of
 * them closes it; one that is mapped stays under its temporary name. */
static bool replace_open_file(const wchar_t *from, const wchar_t *to) {
    static atomic_uint counter;
    wchar_t aside[OS_PATH_SIZE];
    if (_snwprintf(aside, OS_PATH_SIZE,
                   L"%ls.%ld.%u.old"
                   L"" OS_TEMPORARY,
                   to, os_process_id(), atomic_fetch_add(&counter, 1)) < 0 ||
        !MoveFileExW(to, aside, 0))
        return false;
    const bool good = MoveFileExW(from, to, 0);
    if (good)
        DeleteFileW(aside);
    else
        MoveFileExW(aside, to, 0);
    return good;
}

bool os_file_rename(const char *from, const char *to) {
    wchar_t source[OS_PATH_SIZE], target[OS_PATH_SIZE];
    if (!path_to_wide(from, source) || !path_to_wide(to, target)) return false;
    return MoveFileExW(source, target, MOVEFILE_REPLACE_EXISTING) || replace_open_file(source, target);
}

bool os_file_delete(const char *path) {
    wchar_t wide[OS_PATH_SIZE];
    return path_to_wide(path, wide) && DeleteFileW(wide);
}

bool os_folder_make(const char *path) {
    wchar_t wide[OS_PATH_SIZE];
    return path_to_wide(path, wide) && CreateDirectoryW(wide, NULL);
}

void os_folder_list(const char *path, void (*visit)(const char *name, void *user), void *user) {
    char pattern[OS_PATH_SIZE], name[4 * MAX_PATH];
    wchar_t wide[OS_PATH_SIZE];
    WIN32_FIND_DATAW entry;
    if (snprintf(pattern, sizeof pattern, "%s\\*", path) >= (int)sizeof pattern) return;
    if (!path_to_wide(pattern, wide)) return;
    HANDLE search = FindFirstFileW(wide, &entry);
    if (search == INVALID_HANDLE_VALUE) return;
    do
        if (to_utf8(entry.cFileName, name, sizeof name)) visit(name, user);
    while (FindNextFileW(search, &entry));
    FindClose(search);
}

bool os_cache_folder(char path[OS_PATH_SIZE]) {
    const char *local = os_environment("LOCALAPPDATA");
    return local && *local && snprintf(path, OS_PATH_SIZE, "%s", local) < OS_PATH_SIZE;
}

/* Given by its full path, a library finds its dependencies in its own folder; the path needs backslashes. */
void *os_library_open(const char *path) {
    wchar_t name[OS_PATH_SIZE];
    if (!path_to_wide(path, name)) return NULL;
    for (wchar_t *c = name; (c = wcschr(c, L'/'));) *c = L'\\';
    return LoadLibraryExW(name, NULL, wcschr(name, L'\\') ? LOAD_WITH_ALTERED_SEARCH_PATH : 0);
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
    wchar_t wide[OS_PATH_SIZE];
    if (!GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS |
                                GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
                            address, &module))
        return false;
    DWORD length = GetModuleFileNameW(module, wide, OS_PATH_SIZE);
    return length && length < OS_PATH_SIZE && to_utf8(wide, path, OS_PATH_SIZE);
}

#else
typedef int os_windows_is_empty;
#endif

/* The on-disk cache of built programs. Files are written atomically (os_file_write) and carry a hash of their
 * contents, so a damaged file is never used. Any thread and any number of processes may use the cache at
 * once. No error is raised: without a usable cache, programs are rebuilt. */
#include <stdio.h>
#include <time.h>

#include "core/hash.h"
#include "core/os.h"
#include "runtime/runtime.h"

#define MAGIC 0x31435550584e504full /* "OPNXPUC1" */

typedef struct header {
    uint64_t magic, size;
    hash128 hash; /* of key and binary */
} header;

static char folder[OS_PATH_SIZE];
static os_once once = OS_ONCE_INIT;

static void find_folder(void) {
    const char *off = getenv("OPENXPU_CACHE"), *own = os_environment("OPENXPU_CACHE_DIR");
    char cache[OS_PATH_SIZE];
    int length = 0;
    if (off && !strcmp(off, "0")) return;
    if (own && *own)
        length = snprintf(folder, sizeof folder, "%s", own);
    else if (os_cache_folder(cache))
        length = snprintf(folder, sizeof folder, "%s/openxpu", cache);
    if (length >= (int)sizeof folder - 80) folder[0] = 0; /* no room for a file's name */
    if (folder[0]) os_folders_make(folder);
}

const char *xpu_cache_dir(void) {
    os_once_call(&once, find_folder);
    return folder;
}

static hash128 hash_of(const char *key, const unsigned char *data, size_t size) {
    return hash128_end(hash128_add(hash128_add(HASH128_START, key, strlen(key)), data, size));
}

static bool path_of(const char *key, char *path) {
    return *xpu_cache_dir() && snprintf(path, OS_PATH_SIZE, "%s/%s.bin", folder, key) < OS_PATH_SIZE;
}

xpu_status cache_load(const char *key, unsigned char **data, size_t *size) {
    char path[OS_PATH_SIZE];
    if (!path_of(key, path)) return XPU_ERROR_IO;
    unsigned char *bytes;
    size_t length;
    if (!os_file_read(path, &bytes, &length)) return XPU_ERROR_IO;
    header h = {0};
    if (length >= sizeof h) memcpy(&h, bytes, sizeof h);
    bool good = h.magic == MAGIC && length - sizeof h == h.size;
    if (good) {
        memmove(bytes, bytes + sizeof h, h.size);
        hash128 hash = hash_of(key, bytes, h.size);
        good = hash.a == h.hash.a && hash.b == h.hash.b;
    }
    if (!good) {
        core_free(bytes);
        return XPU_ERROR_IO;
    }
    *data = bytes;
    *size = h.size;
    return XPU_SUCCESS;
}

/* Deletes temporary files that a killed writer left behind. A day is longer than any write takes. */
static void remove_leftover(const char *name, void *user) {
    enum { A_DAY = 24 * 60 * 60, END = sizeof OS_TEMPORARY - 1 };
    char path[OS_PATH_SIZE];
    size_t length = strlen(name);
    int64_t modified;
    if (length < END || strcmp(name + length - END, OS_TEMPORARY)) return;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return;
    if (os_file_modified(path, &modified) && modified < (int64_t)time(NULL) - A_DAY) os_file_delete(path);
}

void cache_store(const char *key, const unsigned char *data, size_t size) {
    static atomic_bool looked;
    char path[OS_PATH_SIZE];
    if (!path_of(key, path)) return;
    if (!atomic_exchange(&looked, true)) os_folder_list(folder, remove_leftover, NULL);
    header h = {MAGIC, size, hash_of(key, data, size)};
    os_file_write(path, (os_bytes[]){{&h, sizeof h}, {data, size}}, 2);
}

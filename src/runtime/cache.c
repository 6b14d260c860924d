/* Built programs on disk. A file is written under a temporary name and renamed, so that a reader sees all
 * of it or nothing, whoever writes at the same time or dies; its contents are hashed, so that a damaged
 * file is never used. Nothing here fails loudly: without a cache everything is built again. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/hash.h"
#include "runtime/runtime.h"

#define PATH_SIZE 4096
#define MAGIC 0x31435550584e504full /* "OPNXPUC1" */

typedef struct header {
    uint64_t magic, size;
    hash128 hash; /* of the binary, begun with its key */
} header;

static char folder[PATH_SIZE];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_folders(char *path) {
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
    mkdir(path, 0700);
}

static void find_folder(void) {
    const char *off = getenv("OPENXPU_CACHE"), *own = getenv("OPENXPU_CACHE_DIR");
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = 0;
    if (off && !strcmp(off, "0")) return;
    if (own && *own)
        length = snprintf(folder, sizeof folder, "%s", own);
    else if (xdg && *xdg)
        length = snprintf(folder, sizeof folder, "%s/openxpu", xdg);
    else if (home && *home)
        length = snprintf(folder, sizeof folder, "%s/.cache/openxpu", home);
    if (length >= (int)sizeof folder - 80) folder[0] = 0; /* no room for a file's name */
    if (folder[0]) make_folders(folder);
}

const char *xpu_cache_dir(void) {
    pthread_once(&once, find_folder);
    return folder;
}

static hash128 hash_of(const char *key, const unsigned char *data, size_t size) {
    return hash128_end(hash128_add(hash128_add(HASH128_START, key, strlen(key)), data, size));
}

static bool path_of(const char *key, char *path) {
    return *xpu_cache_dir() && snprintf(path, PATH_SIZE, "%s/%s.bin", folder, key) < PATH_SIZE;
}

xpu_status cache_load(const char *key, unsigned char **data, size_t *size) {
    char path[PATH_SIZE];
    if (!path_of(key, path)) return XPU_ERROR_IO;
    FILE *file = fopen(path, "rb");
    if (!file) return XPU_ERROR_IO;
    header h;
    struct stat status;
    unsigned char *bytes = NULL;
    bool good = fread(&h, sizeof h, 1, file) == 1 && h.magic == MAGIC && !fstat(fileno(file), &status) &&
                (uint64_t)status.st_size == sizeof h + h.size;
    if (good) good = (bytes = core_malloc(h.size ? h.size : 1)) != NULL;
    if (good) good = fread(bytes, 1, h.size, file) == h.size;
    if (good) {
        hash128 hash = hash_of(key, bytes, h.size);
        good = hash.a == h.hash.a && hash.b == h.hash.b;
    }
    fclose(file);
    if (!good) {
        core_free(bytes);
        return XPU_ERROR_IO;
    }
    *data = bytes;
    *size = h.size;
    return XPU_SUCCESS;
}

/* Takes away what writers left that were killed: temporary files so old that nobody writes them any more. */
static void remove_leftovers(void) {
    enum { A_DAY = 24 * 60 * 60 };
    char path[PATH_SIZE];
    DIR *d = opendir(folder);
    const struct dirent *e;
    while (d && (e = readdir(d))) {
        size_t length = strlen(e->d_name);
        struct stat status;
        if (length < 4 || strcmp(e->d_name + length - 4, ".tmp")) continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, e->d_name) >= (int)sizeof path) continue;
        if (!stat(path, &status) && status.st_mtime < time(NULL) - A_DAY) unlink(path);
    }
    if (d) closedir(d);
}

void cache_store(const char *key, const unsigned char *data, size_t size) {
    static atomic_uint counter;
    char path[PATH_SIZE], temporary[PATH_SIZE];
    if (!path_of(key, path)) return;
    unsigned number = atomic_fetch_add(&counter, 1);
    if (number == 0) remove_leftovers();
    if (snprintf(temporary, sizeof temporary, "%s/%s.%ld.%u.tmp", folder, key, (long)getpid(), number) >=
        (int)sizeof temporary)
        return;
    FILE *file = fopen(temporary, "wb");
    if (!file) return;
    header h = {MAGIC, size, hash_of(key, data, size)};
    bool good = fwrite(&h, sizeof h, 1, file) == 1 && fwrite(data, 1, size, file) == size;
    good = !fclose(file) && good;
    if (!good || rename(temporary, path)) unlink(temporary);
}

/* os.h on Linux: memory of the machine, of control groups, and of GPUs, from /proc and /sys. Everything is
 * read anew in each call, so any thread may call; failure means that the system does not show the value. */
#if defined(__linux__)
#include "core/os.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool join(char path[OS_PATH_SIZE], const char *root, const char *folder, const char *name) {
    return snprintf(path, OS_PATH_SIZE, "%s%s/%s", root, folder, name) < OS_PATH_SIZE;
}

/* Reads the number behind `key` at the beginning of a line, or at the beginning of the file if `key` is
 * empty. "max" means no limit. */
static bool read_number(const char *path, const char *key, uint64_t *value) {
    char line[256];
    FILE *file = fopen(path, "re");
    const size_t length = strlen(key);
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file)) {
        const char *digits = line + length + strspn(line + length, ": \t");
        if (strncmp(line, key, length) || (length && digits == line + length)) continue;
        found = sscanf(digits, "%" SCNu64, value) == 1;
        if (!found && !strncmp(digits, "max", 3)) {
            *value = OS_UNLIMITED;
            found = true;
        }
    }
    if (file) fclose(file);
    return found;
}

/* --- control groups --- */

/* File names of one control group version. */
typedef struct group_files {
    const char *limits[2], *usage, *cache;
} group_files;
static const group_files versions[2] = {
    {{"memory.limit_in_bytes", NULL}, "memory.usage_in_bytes", "total_inactive_file"},
    {{"memory.max", "memory.high"}, "memory.current", "inactive_file"},
};

static void read_group(const char *folder, const group_files *files, os_memory *memory) {
    char path[OS_PATH_SIZE];
    uint64_t limit = OS_UNLIMITED, usage = 0, cache = 0, number;
    for (int i = 0; i < 2 && files->limits[i]; i++)
        if (join(path, "", folder, files->limits[i]) && read_number(path, "", &number) && number < limit)
            limit = number;
    if (limit >= memory->total) return; /* version 1 writes a very large number for "no limit" */
    if (join(path, "", folder, files->usage)) read_number(path, "", &usage);
    if (join(path, "", folder, "memory.stat")) read_number(path, files->cache, &cache);
    usage = cache < usage ? usage - cache : 0;
    const uint64_t left = usage < limit ? limit - usage : 0;
    if (limit < memory->limit) memory->limit = limit;
    if (left < memory->limit_left) memory->limit_left = left;
}

/* Is `option` in the comma-separated list? */
static bool listed(const char *list, const char *option) {
    const size_t length = strlen(option);
    for (const char *at = list; (at = strstr(at, option)); at += length)
        if ((at == list || at[-1] == ',') && (!at[length] || at[length] == ',')) return true;
    return false;
}

/* The process's path in a hierarchy, from /proc/self/cgroup: "number:controllers:path". */
static bool group_path(const char *root, int version, char path[OS_PATH_SIZE]) {
    char name[OS_PATH_SIZE], line[OS_PATH_SIZE];
    FILE *file = join(name, root, "/proc/self", "cgroup") ? fopen(name, "re") : NULL;
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file)) {
        char *controllers = strchr(line, ':'), *at = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!at) continue;
        *controllers++ = *at++ = 0;
        at[strcspn(at, "\n")] = 0;
        found = version == 2 ? !strcmp(line, "0") && !*controllers : listed(controllers, "memory");
        if (found) snprintf(path, OS_PATH_SIZE, "%s", at);
    }
    if (file) fclose(file);
    return found;
}

/* Applies the limits of all groups from the process's own up to the mounted one. */
static void read_groups(const char *root, int version, os_memory *memory) {
    char name[OS_PATH_SIZE], path[OS_PATH_SIZE], line[OS_PATH_SIZE], folder[OS_PATH_SIZE];
    if (!group_path(root, version, path) || !join(name, root, "/proc/self", "mountinfo")) return;
    FILE *file = fopen(name, "re");
    while (file && fgets(line, sizeof line, file)) {
        /* number parent device ROOT POINT options … - TYPE source OPTIONS */
        char mounted[OS_PATH_SIZE], point[OS_PATH_SIZE], type[32], options[512];
        const char *rest = strstr(line, " - ");
        if (sscanf(line, "%*s %*s %*s %4095s %4095s", mounted, point) != 2 || !rest ||
            sscanf(rest, " - %31s %*s %511s", type, options) != 2)
            continue;
        if (strcmp(type, version == 2 ? "cgroup2" : "cgroup")) continue;
        if (version == 1 && !listed(options, "memory")) continue;
        /* In a container the mount may start at the container's group, while the path is the machine's. */
        const size_t length = strcmp(mounted, "/") ? strlen(mounted) : 0;
        const bool below = !strncmp(path, mounted, length) && !strstr(path, "/..");
        const char *within = below && strcmp(path + length, "/") ? path + length : "";
        const int start = snprintf(folder, sizeof folder, "%s%s", root, point);
        if (start >= (int)sizeof folder || (size_t)start + strlen(within) >= sizeof folder) continue;
        strcpy(folder + start, within);
        for (char *slash = folder + strlen(folder);; *slash = 0) {
            read_group(folder, &versions[version - 1], memory);
            slash = strrchr(folder, '/');
            if (!slash || slash < folder + start) break;
        }
        break;
    }
    if (file) fclose(file);
}

bool os_memory_read(const char *root, os_memory *memory) {
    char path[OS_PATH_SIZE];
    uint64_t free, cached;
    *memory = (os_memory){.limit = OS_UNLIMITED, .limit_left = OS_UNLIMITED};
    if (!join(path, root, "/proc", "meminfo") || !read_number(path, "MemTotal:", &memory->total))
        return false;
    if (!read_number(path, "MemAvailable:", &memory->available)) { /* before Linux 3.14 */
        if (!read_number(path, "MemFree:", &free) || !read_number(path, "Cached:", &cached)) return false;
        memory->available = free + cached;
    }
    read_number(path, "SwapFree:", &memory->swap);
    memory->total <<= 10; /* values are in KiB */
    memory->available <<= 10;
    memory->swap <<= 10;
    for (int version = 1; version <= 2; version++) read_groups(root, version, memory);
    return true;
}

/* --- GPUs --- */

/* Memory of one open DRM file, from its fdinfo (Linux: drm-usage-stats). */
typedef struct drm_client {
    uint64_t id, resident, memory, total; /* three measures; the best available is used */
    bool is_resident, is_memory;
} drm_client;

typedef struct drm_search {
    const char *address;
    char folder[OS_PATH_SIZE]; /* of the process */
    uint64_t *seen;            /* clients counted already, because several files may share one */
    size_t count, room;
    uint64_t used;
    bool any;
} drm_search;

static uint64_t bytes_of(const char *text) {
    char unit[8] = "";
    uint64_t number = 0;
    sscanf(text, "%" SCNu64 " %7s", &number, unit);
    return number << (!strcmp(unit, "KiB") ? 10 : !strcmp(unit, "MiB") ? 20 : !strcmp(unit, "GiB") ? 30 : 0);
}

/* Is it a region of the GPU's local memory: "vram" or "vram0" (amdgpu, xe), "local0" (i915)? */
static bool is_own(const char *region) { return !strncmp(region, "vram", 4) || !strncmp(region, "local", 5); }

static bool read_client(const char *path, const char *address, drm_client *client) {
    char line[256], found[32] = "";
    FILE *file = fopen(path, "re");
    *client = (drm_client){0};
    while (file && fgets(line, sizeof line, file)) {
        const char *value = strchr(line, ':');
        if (!value || strncmp(line, "drm-", 4)) continue;
        value += 1 + strspn(value + 1, " \t");
        if (!strncmp(line, "drm-pdev:", 9)) sscanf(value, "%31s", found);
        if (!strncmp(line, "drm-client-id:", 14)) client->id = strtoull(value, NULL, 10);
        if (!strncmp(line, "drm-resident-", 13) && is_own(line + 13)) {
            client->resident += bytes_of(value);
            client->is_resident = true;
        }
        if (!strncmp(line, "drm-memory-", 11) && is_own(line + 11)) {
            client->memory += bytes_of(value);
            client->is_memory = true;
        }
        if (!strncmp(line, "drm-total-", 10) && is_own(line + 10)) client->total += bytes_of(value);
    }
    if (file) fclose(file);
    return !strcmp(found, address);
}

static void visit_file(const char *name, void *user) {
    drm_search *search = user;
    char path[OS_PATH_SIZE], target[64];
    drm_client client;
    if (*name == '.' || snprintf(path, sizeof path, "%s/fd/%s", search->folder, name) >= (int)sizeof path)
        return;
    const ssize_t length = readlink(path, target, sizeof target - 1);
    if (length <= 0) return;
    target[length] = 0;
    if (strncmp(target, "/dev/dri/", 9)) return;
    if (snprintf(path, sizeof path, "%s/fdinfo/%s", search->folder, name) >= (int)sizeof path) return;
    if (!read_client(path, search->address, &client)) return;
    for (size_t i = 0; i < search->count; i++)
        if (search->seen[i] == client.id) return;
    if (search->count == search->room) {
        const size_t room = 2 * search->room + 16;
        uint64_t *seen = realloc(search->seen, room * sizeof *seen);
        if (!seen) return;
        search->seen = seen;
        search->room = room;
    }
    search->seen[search->count++] = client.id;
    search->any = true;
    search->used += client.is_resident ? client.resident : client.is_memory ? client.memory : client.total;
}

typedef struct process_visit {
    const char *root;
    drm_search *search;
} process_visit;

static void visit_process(const char *name, void *user) {
    const process_visit *visit = user;
    char folder[OS_PATH_SIZE];
    if (*name < '0' || *name > '9') return;
    if (!join(visit->search->folder, visit->root, "/proc", name)) return;
    if (snprintf(folder, sizeof folder, "%s/fd", visit->search->folder) < (int)sizeof folder)
        os_folder_list(folder, visit_file, visit->search);
}

typedef struct card_visit {
    const char *folder;
    uint64_t used;
    bool found;
} card_visit;

/* Some i915 versions provide card0/lmem_total_bytes and card0/lmem_avail_bytes. */
static void visit_card(const char *name, void *user) {
    card_visit *visit = user;
    char path[OS_PATH_SIZE];
    uint64_t total, left;
    if (strncmp(name, "card", 4) ||
        snprintf(path, sizeof path, "%s/%s/lmem_total_bytes", visit->folder, name) >= (int)sizeof path ||
        !read_number(path, "", &total) ||
        snprintf(path, sizeof path, "%s/%s/lmem_avail_bytes", visit->folder, name) >= (int)sizeof path ||
        !read_number(path, "", &left) || left > total)
        return;
    visit->used = total - left;
    visit->found = true;
}

bool os_gpu_memory_used(const char *root, const char *address, uint64_t *used) {
    char folder[OS_PATH_SIZE], path[OS_PATH_SIZE];
    if (!*address || !join(folder, root, "/sys/bus/pci/devices", address)) return false;
    /* amdgpu provides a single number. */
    if (join(path, "", folder, "mem_info_vram_used") && read_number(path, "", used)) return true;
    card_visit card = {.folder = path};
    if (join(path, "", folder, "drm")) os_folder_list(path, visit_card, &card);
    drm_search search = {.address = address};
    process_visit visit = {root, &search};
    if (!card.found && join(path, root, "", "proc")) os_folder_list(path, visit_process, &visit);
    free(search.seen);
    *used = card.found ? card.used : search.used;
    return card.found || search.any;
}

#else
typedef int os_linux_is_empty;
#endif

/* Checks of WSL (wsl.h). WSL's GPU is /dev/dxg. Intel's compute runtime, the OpenCL driver inside the
 * distribution, opens libdxcore.so by its full path and then libwsl_compute_helper.so, which WSL shows in the
 * folder of Windows' graphics driver. */
#include "cl/wsl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/os.h"

#define RELEASES "github.com/intel/compute-runtime/releases"
#define DEBIAN_WITH_PACKAGE 12 /* the last Debian with intel-opencl-icd */

static bool join(char path[OS_PATH_SIZE], const char *root, const char *name) {
    return snprintf(path, OS_PATH_SIZE, "%s%s", root, name) < OS_PATH_SIZE;
}

/* Does not open the file: opening /dev/dxg would start a connection to Windows. */
static bool exists(const char *root, const char *name) {
    char path[OS_PATH_SIZE];
    int64_t time;
    return join(path, root, name) && os_file_modified(path, &time);
}

/* Reads the start of a file and makes it lower case; "" if there is no file. os_file_read needs a size, which
 * files in /proc do not have. */
static void read_start(const char *path, char *text, size_t size) {
    FILE *file = fopen(path, "rb");
    const size_t length = file ? fread(text, 1, size - 1, file) : 0;
    if (file) fclose(file);
    text[length] = 0;
    for (char *c = text; *c; c++)
        if (*c >= 'A' && *c <= 'Z') *c += 'a' - 'A';
}

typedef struct search {
    const char *folder;
    bool found;
} search;

/* An .icd file contains the path of a driver. Intel's driver for GPUs is libigdrcl.so. */
static bool is_intel_icd(const char *path) {
    char text[OS_PATH_SIZE];
    const size_t length = strlen(path);
    if (length < 4 || strcmp(path + length - 4, ".icd") != 0) return false;
    read_start(path, text, sizeof text);
    return strstr(text, "igdrcl") != NULL;
}

static void visit_icd(const char *name, void *user) {
    search *s = user;
    char path[OS_PATH_SIZE];
    if (!s->found && snprintf(path, sizeof path, "%s/%s", s->folder, name) < (int)sizeof path)
        s->found = is_intel_icd(path);
}

static void visit_driver(const char *name, void *user) {
    search *s = user;
    char path[OS_PATH_SIZE];
    int64_t time;
    if (!s->found &&
        snprintf(path, sizeof path, "%s/%s/libwsl_compute_helper.so", s->folder, name) < (int)sizeof path)
        s->found = os_file_modified(path, &time);
}

static bool find(const char *root, const char *folder, void (*visit)(const char *name, void *user)) {
    char path[OS_PATH_SIZE];
    search s = {path, false};
    if (join(path, root, folder)) os_folder_list(path, visit, &s);
    return s.found;
}

static bool has_intel_icd(const char *root, const char *vendors) {
    char path[OS_PATH_SIZE];
    if (!vendors || !*vendors) vendors = "/etc/OpenCL/vendors";
    return (join(path, root, vendors) && is_intel_icd(path)) || find(root, vendors, visit_icd);
}

/* A distribution that was imported from a container has its marker file, but also WSL's sockets. */
static bool is_container(const char *root) {
    return (exists(root, "/.dockerenv") || exists(root, "/run/.containerenv")) && !exists(root, "/run/WSL");
}

wsl_fault wsl_check(const char *root, const char *vendors, bool has_loader) {
    char path[OS_PATH_SIZE], release[256];
    if (!join(path, root, "/proc/sys/kernel/osrelease")) return WSL_ABSENT;
    read_start(path, release, sizeof release);
    const char *maker = strstr(release, "microsoft");
    if (!maker) return WSL_ABSENT;
    /* WSL 1: "4.4.0-19041-Microsoft"; WSL 2: "6.6.87.2-microsoft-standard-WSL2", first without "-WSL2" */
    if (!strchr(maker, '-') && !strstr(release, "wsl2")) return WSL_VERSION_1;

    const bool device = exists(root, "/dev/dxg"), dxcore = exists(root, "/usr/lib/wsl/lib/libdxcore.so");
    if (!device || !dxcore) {
        if (is_container(root)) return WSL_CONTAINER;
        return device ? WSL_NO_DXCORE : WSL_NO_DEVICE;
    }
    if (!find(root, "/usr/lib/wsl/drivers", visit_driver)) return WSL_NO_HELPER;
    if (!has_intel_icd(root, vendors)) return WSL_NO_ICD;
    return has_loader ? WSL_NOT_LISTED : WSL_NO_LOADER;
}

void wsl_advice(wsl_fault fault, const char *root, char *text, size_t size) {
    static const char *const sentences[] = {
        [WSL_ABSENT] = "",
        [WSL_VERSION_1] = "WSL 1 has no GPU; convert the distribution in Windows: `wsl --set-version NAME "
                          "2`, with NAME from `wsl --list`.",
        [WSL_CONTAINER] = "WSL's GPU is not passed to this container; start it with --device /dev/dxg -v "
                          "/usr/lib/wsl:/usr/lib/wsl.",
        [WSL_NO_DEVICE] = "/dev/dxg is missing, so WSL's GPU support is off or Windows is too old for it; "
                          "install Intel's current graphics driver on Windows 11, run `wsl --update` and "
                          "`wsl --shutdown` there, and remove gpuSupport=false from .wslconfig.",
        [WSL_NO_DXCORE] = "/usr/lib/wsl/lib/libdxcore.so is missing, which WSL provides and Intel's driver "
                          "needs; run `wsl --update` and `wsl --shutdown` in Windows.",
        [WSL_NO_HELPER] = "libwsl_compute_helper.so is missing below /usr/lib/wsl/drivers, so the graphics "
                          "driver on Windows is too old or not Intel's (NVIDIA's has no OpenCL in WSL); "
                          "install Intel's current graphics driver on Windows, then run `wsl --shutdown`.",
        [WSL_NO_ICD] = "Intel's OpenCL driver for GPUs is missing in this distribution; ",
        [WSL_NO_LOADER] = "The OpenCL loader, libOpenCL.so.1, is missing; install it: the package "
                          "ocl-icd-libopencl1 on Ubuntu and Debian.",
        [WSL_NOT_LISTED] = "WSL has all parts of the driver, but the driver lists no GPU, so it is probably "
                           "too old for this one; install the current release from " RELEASES
                           " and Intel's current graphics driver on Windows 11.",
    };
    const int length = snprintf(text, size, "%s", sentences[fault]);
    if (fault == WSL_NO_ICD && length >= 0 && (size_t)length < size)
        wsl_runtime_advice(root, text + length, size - (size_t)length);
}

/* Copies the value of a line KEY=value or KEY="value" of os-release; "" if there is none. */
static void read_value(const char *release, const char *key, char *value, size_t size) {
    const size_t length = strlen(key);
    *value = 0;
    for (const char *line = release; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) != 0 || line[length] != '=') continue;
        const char *start = line + length + 1;
        start += strspn(start, "\"'");
        snprintf(value, size, "%.*s", (int)strcspn(start, "\"'\n"), start);
        return;
    }
}

void wsl_runtime_advice(const char *root, char *text, size_t size) {
    char path[OS_PATH_SIZE], release[2048] = "", id[64], like[64], version[16];
    if (join(path, root, "/etc/os-release")) read_start(path, release, sizeof release);
    read_value(release, "id", id, sizeof id);
    read_value(release, "id_like", like, sizeof like);
    read_value(release, "version_id", version, sizeof version);
    const int number = atoi(version); /* 0 for Debian's testing and unstable, which have no package */
    const char *from = "your distribution's package, or the release from " RELEASES;
    const bool debian = !strcmp(id, "debian");
    if (!strcmp(id, "ubuntu") || strstr(like, "ubuntu") ||
        (debian && number > 0 && number <= DEBIAN_WITH_PACKAGE))
        from = "the package intel-opencl-icd";
    else if (debian)
        from = "the release from " RELEASES " (Debian has had no package since 13)";
    else if (!strcmp(id, "fedora") || !strcmp(id, "arch"))
        from = "the package intel-compute-runtime";
    snprintf(text, size, "install Intel's compute runtime: %s.", from);
}

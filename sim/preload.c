/* What is interposed in a simulated process: opening a device file, its ioctls, and the list of devices. The
 * rest of the C library is called by the kernel's own numbers, so that no other interposer is confused. */
#include <errno.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sim.h"
#include "xe/xe.h"

#define EXPORT __attribute__((visibility("default")))
#define FIRST_RENDER_NODE 128

static int give(long status) {
    if (status >= 0) return (int)status;
    errno = (int)-status;
    return -1;
}

/* The number of the simulated device at `path`; -1 for other files; -2 for other devices of /dev/dri. */
static int device_of(const char *path) {
    static const char folder[] = "/dev/dri/", node[] = "renderD";
    if (!path || strncmp(path, folder, sizeof folder - 1) || !sim_options()->product) return -1;
    path += sizeof folder - 1;
    if (strncmp(path, node, sizeof node - 1)) return -2;
    char *end;
    long index = strtol(path + sizeof node - 1, &end, 10) - FIRST_RENDER_NODE;
    return !*end && index >= 0 && index < sim_options()->devices ? (int)index : -2;
}

static int open_at(int folder, const char *path, int flags, mode_t mode) {
    int device = device_of(path);
    if (device == -2) return give(-ENOENT);
    if (device >= 0) return give(xe_open(device));
    return (int)syscall(SYS_openat, folder, sim_program_path(path), flags, mode);
}

static mode_t mode_of(int flags, va_list arguments) {
    bool has_mode = flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE;
    return has_mode ? va_arg(arguments, mode_t) : 0;
}

/* open, or openat: `folder` is what the path is relative to, the rest are the parameters before the flags. */
#define OPEN(name, folder, ...)                                                                              \
    EXPORT int name(__VA_ARGS__, int flags, ...) {                                                           \
        va_list arguments;                                                                                   \
        va_start(arguments, flags);                                                                          \
        mode_t mode = mode_of(flags, arguments);                                                             \
        va_end(arguments);                                                                                   \
        return open_at(folder, path, flags, mode);                                                           \
    }
OPEN(open, AT_FDCWD, const char *path)
OPEN(open64, AT_FDCWD, const char *path)
OPEN(openat, folder, int folder, const char *path)
OPEN(openat64, folder, int folder, const char *path)

EXPORT int ioctl(int descriptor, unsigned long request, ...) {
    va_list arguments;
    va_start(arguments, request);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    struct xe_file *file = _IOC_TYPE(request) == 'd' ? xe_file_of(descriptor) : NULL;
    if (file) return give(xe_ioctl(file, request, argument));
    return (int)syscall(SYS_ioctl, descriptor, request, argument);
}

/* Drivers list this folder for the machine's real devices, and try the render nodes by number without it. */
EXPORT DIR *opendir(const char *path) {
    static DIR *(*next)(const char *);
    if (device_of(path) == -2) {
        errno = ENOENT;
        return NULL;
    }
    if (!next) next = (DIR * (*)(const char *)) dlsym(RTLD_NEXT, "opendir");
    return next(path);
}

/* ---- the end ---- */

/* Runs last: after the program's own exit handlers, in which drivers may still submit work. */
static void at_exit(int status, void *argument) {
    (void)argument;
    int told = sim_exit_status(status);
    if (told == status) return;
    fflush(NULL);
    syscall(SYS_exit_group, told);
}

/* Skips exit handlers: of Python's os._exit, and of the children that multiprocessing forks. */
EXPORT _Noreturn void _exit(int status) {
    status = sim_exit_status(status);
    for (;;) syscall(SYS_exit_group, status);
}
EXPORT _Noreturn void _Exit(int status) { _exit(status); }

__attribute__((constructor)) static void start(void) {
    if (sim_options()->product) on_exit(at_exit, NULL);
}

/* Starting programs. The exec family is interposed so that what a simulated process starts is simulated, too.
 *
 * Intel's driver may need a newer C library than the host has. Programs then start through the dynamic linker
 * of a newer one: exec of `path args` becomes
 *
 *     LOADER --argv0 ARGV0 --library-path LIBRARIES PROGRAM ARGS
 *
 * for what is a dynamic x86-64 program, or a script whose interpreter is one. Others are started as they are;
 * LD_PRELOAD brings this library into those that are dynamic. An environment that a program makes for its
 * child is completed.
 *
 * A child of vfork shares the memory of its parent, and one of fork may have been made by one of many
 * threads: so nothing is allocated here, and what exec needs lies on the stack. */
#include <elf.h>
#include <errno.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sim.h"

#define EXPORT __attribute__((visibility("default")))
#define CARRIED_MAX 32
#define LOADER_ARGUMENTS 5 /* before the program's name */
#define SCRIPTS_MAX 4      /* scripts that are each other's interpreters */
#define TEXT_MAX 8192

static struct {
    const char *variables[CARRIED_MAX]; /* "NAME=value", of the environment at the start */
    int count;
    const char *library;    /* this one */
    char program[PATH_MAX]; /* that runs in this process through the loader, or "" */
} self;

const char *sim_program_path(const char *path) {
    if (!self.program[0] || !path || strncmp(path, "/proc/", 6)) return path;
    char own[32];
    snprintf(own, sizeof own, "/proc/%d/exe", (int)getpid());
    return strcmp(path, "/proc/self/exe") && strcmp(path, own) ? path : self.program;
}

/* ---- the environment ---- */

static size_t name_length(const char *variable) { return strcspn(variable, "="); }

/* Does the list of names, separated by commas, have this variable's? */
static bool is_listed(const char *list, const char *variable) {
    size_t length = name_length(variable);
    for (const char *at = list; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == length && !strncmp(at, variable, length)) return true;
    return false;
}

static const char *find_variable(char *const *environment, const char *variable) {
    size_t length = name_length(variable) + 1;
    for (; *environment; environment++)
        if (!strncmp(*environment, variable, length)) return *environment;
    return NULL;
}

/* Copies an environment and adds what it lacks. `preload` has room for LD_PRELOAD's new value. */
static void complete(char **to, char *const *from, char *preload, size_t room) {
    int count = 0;
    for (; from[count]; count++) {
        to[count] = from[count];
        bool replaced = !strncmp(from[count], "LD_PRELOAD=", 11) && !strstr(from[count], self.library);
        if (replaced &&
            snprintf(preload, room, "LD_PRELOAD=%s:%s", self.library, from[count] + 11) < (int)room)
            to[count] = preload;
    }
    to[count] = NULL;
    for (int i = 0; i < self.count; i++)
        if (!find_variable(from, self.variables[i])) {
            to[count++] = (char *)(uintptr_t)self.variables[i];
            to[count] = NULL;
        }
}

/* ---- programs and scripts ---- */

/* Is the open file a dynamic program that the loader can start? */
static bool is_dynamic(int file) {
    Elf64_Ehdr header;
    if (pread(file, &header, sizeof header, 0) != sizeof header || memcmp(header.e_ident, ELFMAG, SELFMAG))
        return false;
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64) return false;
    for (int i = 0; i < header.e_phnum; i++) {
        Elf64_Phdr part;
        off_t at = (off_t)(header.e_phoff + (uint64_t)i * header.e_phentsize);
        if (pread(file, &part, sizeof part, at) != sizeof part) return false;
        if (part.p_type != PT_INTERP) continue;
        char name[PATH_MAX] = "";
        size_t size = part.p_filesz < sizeof name - 1 ? part.p_filesz : sizeof name - 1;
        return pread(file, name, size, (off_t)part.p_offset) > 0 && strstr(name, "/ld-linux-x86-64.so");
    }
    return false;
}

/* Splits a script's first line, in place: false if it has no interpreter. */
static bool read_interpreter(int file, char *line, size_t room, char **interpreter, char **option) {
    ssize_t size = pread(file, line, room - 1, 0);
    if (size < 3 || line[0] != '#' || line[1] != '!') return false;
    line[size] = 0;
    line[strcspn(line, "\n")] = 0;
    char *at = line + 2 + strspn(line + 2, " \t");
    char *end = at + strcspn(at, " \t");
    *interpreter = at;
    *option = end + strspn(end, " \t");
    *end = 0;
    for (size_t n = strlen(*option); n && strchr(" \t", (*option)[n - 1]);) (*option)[--n] = 0;
    if (!**option) *option = NULL;
    return *at != 0;
}

/* ---- what is started instead ---- */

/* Starts a program: execve, or posix_spawn with `context`. Gives 0, or an errno. */
typedef int start_function(const char *path, char *const *argv, char *const *envp, void *context);

static int start_native(const char *path, char *const *argv, char *const *envp, void *context) {
    (void)context;
    syscall(SYS_execve, path, argv, envp);
    return errno;
}

struct launch {
    start_function *start;
    void *context;
    char *const *envp; /* completed */
};

static size_t count_of(char *const *list) {
    size_t count = 0;
    while (list && list[count]) count++;
    return count;
}

static int start_through_loader(const struct launch *launch, const char *program, char *const *argv) {
    const struct sim_options *options = sim_options();
    const char *own = find_variable(launch->envp, "LD_LIBRARY_PATH=");
    char libraries[TEXT_MAX];
    int length = snprintf(libraries, sizeof libraries, "%s%s%s", options->libraries ? options->libraries : "",
                          own ? ":" : "", own ? own + 16 : "");
    if (length >= (int)sizeof libraries) return E2BIG;
    size_t count = count_of(argv);
    char *changed[count + LOADER_ARGUMENTS + 2];
    const char *const head[LOADER_ARGUMENTS + 1] = {options->loader,  "--argv0", count ? argv[0] : "",
                                                    "--library-path", libraries, program};
    memcpy(changed, head, sizeof head);
    for (size_t i = 1; i <= count; i++) changed[LOADER_ARGUMENTS + i] = argv[i];
    changed[LOADER_ARGUMENTS + (count ? count : 1)] = NULL;
    return launch->start(options->loader, changed, launch->envp, launch->context);
}

static int start_file(const struct launch *launch, const char *path, char *const *argv, int depth);

/* The kernel's rule: INTERPRETER [OPTION] PATH ARGS, the option undivided. */
static int start_script(const struct launch *launch, const char *path, char *const *argv, int depth,
                        char *line[2]) {
    size_t count = count_of(argv), used = 0;
    char *changed[count + 4];
    changed[used++] = line[0];
    if (line[1]) changed[used++] = line[1];
    changed[used++] = (char *)(uintptr_t)path;
    for (size_t i = 1; i < count; i++) changed[used++] = argv[i];
    changed[used] = NULL;
    return start_file(launch, line[0], changed, depth + 1);
}

static int start_file(const struct launch *launch, const char *path, char *const *argv, int depth) {
    int file = sim_options()->loader && depth < SCRIPTS_MAX && !access(path, X_OK)
                   ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC)
                   : -1;
    struct stat status;
    if (file < 0 || fstat(file, &status) || status.st_mode & (S_ISUID | S_ISGID) ||
        !S_ISREG(status.st_mode)) {
        if (file >= 0) close(file);
        return launch->start(path, argv, launch->envp, launch->context);
    }
    char line[PATH_MAX], link[32], program[PATH_MAX], *parts[2];
    bool dynamic = is_dynamic(file);
    bool script = !dynamic && read_interpreter(file, line, sizeof line, parts, parts + 1);
    /* The program's real path, which is what its libraries' $ORIGIN refers to. */
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = syscall(SYS_readlink, link, program, sizeof program - 1);
    close(file);
    if (script) return start_script(launch, path, argv, depth, parts);
    if (!dynamic || length <= 0) return launch->start(path, argv, launch->envp, launch->context);
    program[length] = 0;
    if (!strcmp(program, sim_options()->loader))
        return launch->start(path, argv, launch->envp, launch->context);
    return start_through_loader(launch, program, argv);
}

static int start(const char *path, char *const *argv, char *const *envp, start_function *how, void *context) {
    static char *const nothing[1];
    if (!envp) envp = nothing;
    if (!sim_options()->product) return how(path, argv, envp, context);
    char *completed[count_of(envp) + CARRIED_MAX + 1], preload[TEXT_MAX];
    complete(completed, envp, preload, sizeof preload);
    const struct launch launch = {how, context, completed};
    return start_file(&launch, sim_program_path(path), argv, 0);
}

/* Looks a name up in PATH, as execvp does; a script without a first line is one for sh. */
static int start_by_name(const char *name, char *const *argv, char *const *envp, start_function *how,
                         void *context) {
    const char *folders = strchr(name, '/') ? "" : getenv("PATH");
    if (!folders) folders = "/bin:/usr/bin";
    int error = ENOENT, found = 0;
    for (const char *at = folders;; at++) {
        size_t length = strcspn(at, ":");
        char path[PATH_MAX];
        int size = snprintf(path, sizeof path, "%.*s%s%s", (int)length, at, length ? "/" : "", name);
        error = size < (int)sizeof path ? start(path, argv, envp, how, context) : ENAMETOOLONG;
        if (error == ENOEXEC) {
            size_t count = count_of(argv);
            char *shell[count + 3];
            shell[0] = (char *)(uintptr_t)"/bin/sh";
            shell[1] = path;
            for (size_t i = 1; i <= count; i++) shell[i + 1] = argv[i];
            return start(shell[0], shell, envp, how, context);
        }
        if (!error || (error != ENOENT && error != EACCES && error != ENOTDIR)) return error;
        if (error == EACCES) found = EACCES;
        at += length;
        if (!*at) return found ? found : error;
    }
}

/* ---- interposed functions ---- */

static int fails(int error) {
    errno = error;
    return -1;
}

EXPORT int execve(const char *path, char *const argv[], char *const envp[]) {
    return fails(start(path, argv, envp, start_native, NULL));
}
EXPORT int execv(const char *path, char *const argv[]) { return execve(path, argv, environ); }
EXPORT int execvpe(const char *name, char *const argv[], char *const envp[]) {
    return fails(start_by_name(name, argv, envp, start_native, NULL));
}
EXPORT int execvp(const char *name, char *const argv[]) { return execvpe(name, argv, environ); }

EXPORT int fexecve(int file, char *const argv[], char *const envp[]) {
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return execve(path, argv, envp);
}

/* execl and its like: the arguments as a list, ended by NULL; execle's environment follows. */
#define EXEC_LIST(name, run, has_environment)                                                                \
    EXPORT int name(const char *path, const char *first, ...) {                                              \
        va_list arguments;                                                                                   \
        size_t count = 1;                                                                                    \
        va_start(arguments, first);                                                                          \
        while (va_arg(arguments, char *)) count++;                                                           \
        va_end(arguments);                                                                                   \
        char *argv[count + 1];                                                                               \
        va_start(arguments, first);                                                                          \
        argv[0] = (char *)(uintptr_t)first;                                                                  \
        for (size_t i = 1; i <= count; i++) argv[i] = va_arg(arguments, char *);                             \
        char **envp = has_environment ? va_arg(arguments, char **) : environ;                                \
        va_end(arguments);                                                                                   \
        return run(path, argv, envp);                                                                        \
    }
EXEC_LIST(execl, execve, false)
EXEC_LIST(execlp, execvpe, false)
EXEC_LIST(execle, execve, true)

typedef int spawn_function(pid_t *, const char *, const posix_spawn_file_actions_t *,
                           const posix_spawnattr_t *, char *const[], char *const[]);
struct spawn {
    pid_t *process;
    const posix_spawn_file_actions_t *actions;
    const posix_spawnattr_t *attributes;
};

static int start_spawned(const char *path, char *const *argv, char *const *envp, void *context) {
    static spawn_function *next;
    const struct spawn *spawn = context;
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "posix_spawn");
    return next(spawn->process, path, spawn->actions, spawn->attributes, argv, envp);
}

EXPORT int posix_spawn(pid_t *process, const char *path, const posix_spawn_file_actions_t *actions,
                       const posix_spawnattr_t *attributes, char *const argv[], char *const envp[]) {
    struct spawn spawn = {process, actions, attributes};
    return start(path, argv, envp, start_spawned, &spawn);
}

EXPORT int posix_spawnp(pid_t *process, const char *name, const posix_spawn_file_actions_t *actions,
                        const posix_spawnattr_t *attributes, char *const argv[], char *const envp[]) {
    struct spawn spawn = {process, actions, attributes};
    return start_by_name(name, argv, envp, start_spawned, &spawn);
}

/* ---- who this process is ---- */

/* /proc/self/exe is the loader. The program is its argument after the options, as start_through_loader orders
 * them. */
static void find_program(void) {
    char line[TEXT_MAX * 2], *at = line;
    int file = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    ssize_t size = read(file, line, sizeof line - 1);
    close(file);
    if (size <= 0 || strcmp(line, sim_options()->loader)) return;
    line[size] = 0;
    for (int i = 0; i < LOADER_ARGUMENTS && at < line + size; i++) at += strlen(at) + 1;
    if (at < line + size) snprintf(self.program, sizeof self.program, "%s", at);
}

EXPORT ssize_t readlinkat(int folder, const char *path, char *to, size_t size) {
    if (sim_program_path(path) == path) return syscall(SYS_readlinkat, folder, path, to, size);
    size_t length = strlen(self.program);
    if (length > size) length = size;
    memcpy(to, self.program, length);
    return (ssize_t)length;
}
EXPORT ssize_t readlink(const char *path, char *to, size_t size) {
    return readlinkat(AT_FDCWD, path, to, size);
}

EXPORT char *realpath(const char *path, char *to) {
    static char *(*next)(const char *, char *);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "realpath");
    return next(sim_program_path(path), to);
}

__attribute__((constructor)) static void remember(void) {
    if (!sim_options()->product) return;
    for (char **variable = environ; *variable && self.count < CARRIED_MAX; variable++)
        if ((!strncmp(*variable, "OPENXPU_SIM_", 12) ||
             is_listed(getenv("OPENXPU_SIM_CARRIED"), *variable)) &&
            (self.variables[self.count] = strdup(*variable)))
            self.count++;
    Dl_info library;
    self.library = dladdr(&self, &library) && library.dli_fname ? strdup(library.dli_fname) : "";
    if (sim_options()->loader) find_program();
}

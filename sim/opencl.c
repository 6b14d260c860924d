/* An OpenCL layer, which the ICD loader puts before the driver (OPENCL_LAYERS): it notes what the driver does
 * not tell the kernel driver, the exact sizes of buffers, and names and local memory of kernels. The numbers
 * of functions are places in the loader's table (cl_icd.h), those of parameters are of cl.h. */
#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define EXPORT __attribute__((visibility("default")))

enum {
    CREATE_BUFFER = 14,
    GET_PROGRAM_INFO = 32,
    CREATE_KERNEL = 34,
    CREATE_KERNELS = 35,
    SET_KERNEL_ARGUMENT = 38,
    GET_KERNEL_INFO = 39,
    GET_KERNEL_GROUP_INFO = 40,
    GET_FUNCTION = 65,
    GET_FUNCTION_OF_PLATFORM = 107,
    CREATE_BUFFER_WITH_PROPERTIES = 146,
    FUNCTIONS_MAX = 256
};
enum {
    PROGRAM_DEVICES = 0x1162,
    PROGRAM_BINARY_SIZES = 0x1165,
    PROGRAM_BINARIES = 0x1166,
    KERNEL_NAME = 0x1190,
    KERNEL_PROGRAM = 0x1194,
    KERNEL_LOCAL_BYTES = 0x11b2,
    LAYER_VERSION = 0x4240,
    LAYER_NAME = 0x4241
};

typedef int get_info(void *object, uint32_t what, size_t size, void *to, size_t *written);

static void *const *next;              /* the loader's or the next layer's functions */
static void *functions[FUNCTIONS_MAX]; /* those with this layer's in their places */

_Thread_local uint64_t sim_requested_bytes;

/* ---- kernels ---- */

struct kernel {
    struct kernel *next;
    struct sim_kernel known;
    size_t size;
    uint8_t code[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kernel *kernels; /* the newest first; never freed */

static void keep(const char *name, const uint8_t *code, size_t size, uint32_t local_bytes) {
    pthread_mutex_lock(&lock);
    const struct kernel *k = kernels;
    while (k && (k->size != size || strcmp(k->known.name, name) || memcmp(k->code, code, size))) k = k->next;
    struct kernel *made = k ? NULL : malloc(sizeof *made + size);
    if (made) {
        *made = (struct kernel){kernels, {strdup(name), local_bytes}, size};
        memcpy(made->code, code, size);
        kernels = made;
    }
    pthread_mutex_unlock(&lock);
}

/* Units of 16 bytes in which code differs: the driver's relocations; `most` at most. */
static size_t differences(const uint8_t *a, const uint8_t *b, size_t size, size_t most) {
    size_t n = 0;
    for (size_t at = 0; at < size && n < most; at += 16)
        n += memcmp(a + at, b + at, size - at < 16 ? size - at : 16) != 0;
    return n;
}

const struct sim_kernel *sim_kernel_find(const uint8_t *code, size_t size) {
    enum { ENTRY_MAX = 1024, ENTRY_STEP = 64 }; /* a walk may skip what loads local ids */
    const struct kernel *found = NULL;
    size_t least = size / 128 + 1;
    pthread_mutex_lock(&lock);
    for (const struct kernel *k = kernels; k && least; k = k->next)
        for (size_t at = 0; at <= ENTRY_MAX && at + size <= k->size && least; at += ENTRY_STEP) {
            const size_t n = differences(k->code + at, code, size, least);
            if (n >= least) continue;
            least = n;
            found = k;
        }
    pthread_mutex_unlock(&lock);
    return found ? &found->known : NULL;
}

/* The machine code of a kernel in the driver's program binary: section .text.NAME. */
static const uint8_t *find_code(const uint8_t *binary, size_t bytes, const char *name, size_t *size) {
    static const char prefix[] = ".text.";
    const Elf64_Ehdr *h = (const void *)binary;
    if (bytes < sizeof *h || memcmp(h->e_ident, ELFMAG, SELFMAG) || h->e_ident[EI_CLASS] != ELFCLASS64 ||
        h->e_shoff + (uint64_t)h->e_shnum * sizeof(Elf64_Shdr) > bytes || h->e_shstrndx >= h->e_shnum)
        return NULL;
    const Elf64_Shdr *sections = (const void *)(binary + h->e_shoff), *names = &sections[h->e_shstrndx];
    for (int i = 0; i < h->e_shnum; i++) {
        const Elf64_Shdr *s = &sections[i];
        const uint64_t at = names->sh_offset + s->sh_name;
        if (at + sizeof prefix + strlen(name) > bytes || s->sh_offset + s->sh_size > bytes) continue;
        const char *text = (const char *)binary + at;
        if (strncmp(text, prefix, sizeof prefix - 1) || strcmp(text + sizeof prefix - 1, name)) continue;
        *size = s->sh_size;
        return binary + s->sh_offset;
    }
    return NULL;
}

static void learn_kernel(void *program, void *kernel, const char *name) {
    enum { DEVICES_MAX = 16 };
    get_info *const program_info = (get_info *)next[GET_PROGRAM_INFO];
    int (*const group_info)(void *, void *, uint32_t, size_t, void *, size_t *) = next[GET_KERNEL_GROUP_INFO];
    uint32_t devices = 0;
    size_t sizes[DEVICES_MAX] = {0};
    uint8_t *binaries[DEVICES_MAX] = {NULL};
    uint64_t local_bytes = 0;
    if (program_info(program, PROGRAM_DEVICES, sizeof devices, &devices, NULL) || devices > DEVICES_MAX)
        return;
    if (program_info(program, PROGRAM_BINARY_SIZES, sizeof sizes, sizes, NULL)) return;
    for (uint32_t d = 0; d < devices; d++) binaries[d] = sizes[d] ? malloc(sizes[d]) : NULL;
    if (group_info(kernel, NULL, KERNEL_LOCAL_BYTES, sizeof local_bytes, &local_bytes, NULL)) local_bytes = 0;
    if (!program_info(program, PROGRAM_BINARIES, sizeof binaries, binaries, NULL))
        for (uint32_t d = 0; d < devices; d++) {
            size_t size;
            const uint8_t *code = binaries[d] ? find_code(binaries[d], sizes[d], name, &size) : NULL;
            if (code) keep(name, code, size, (uint32_t)local_bytes);
        }
    for (uint32_t d = 0; d < devices; d++) free(binaries[d]);
}

static void *create_kernel(void *program, const char *name, int *status) {
    void *(*const create)(void *, const char *, int *) = next[CREATE_KERNEL];
    void *kernel = create(program, name, status);
    if (kernel) learn_kernel(program, kernel, name);
    return kernel;
}

static int create_kernels(void *program, uint32_t count, void **made, uint32_t *written) {
    int (*const create)(void *, uint32_t, void **, uint32_t *) = next[CREATE_KERNELS];
    get_info *const kernel_info = (get_info *)next[GET_KERNEL_INFO];
    uint32_t n = 0;
    char name[1024];
    const int status = create(program, count, made, &n);
    if (written) *written = n;
    for (uint32_t i = 0; !status && made && i < n; i++)
        if (!kernel_info(made[i], KERNEL_NAME, sizeof name, name, NULL)) learn_kernel(program, made[i], name);
    return status;
}

/* With arguments in local memory a launch's local memory is not what the kernel declares. */
static int set_kernel_argument(void *kernel, uint32_t index, size_t size, const void *value) {
    int (*const set)(void *, uint32_t, size_t, const void *) = next[SET_KERNEL_ARGUMENT];
    get_info *const kernel_info = (get_info *)next[GET_KERNEL_INFO];
    char name[1024];
    if (!value && !kernel_info(kernel, KERNEL_NAME, sizeof name, name, NULL)) {
        pthread_mutex_lock(&lock);
        for (struct kernel *k = kernels; k; k = k->next)
            if (!strcmp(k->known.name, name)) k->known.local_bytes = 0;
        pthread_mutex_unlock(&lock);
    }
    return set(kernel, index, size, value);
}

/* ---- buffers ---- */

static void *create_buffer(void *context, uint64_t flags, size_t size, void *host, int *status) {
    void *(*const create)(void *, uint64_t, size_t, void *, int *) = next[CREATE_BUFFER];
    sim_requested_bytes = size;
    void *made = create(context, flags, size, host, status);
    sim_requested_bytes = 0;
    return made;
}

static void *create_buffer_with_properties(void *context, const uint64_t *properties, uint64_t flags,
                                           size_t size, void *host, int *status) {
    void *(*const create)(void *, const uint64_t *, uint64_t, size_t, void *, int *) =
        next[CREATE_BUFFER_WITH_PROPERTIES];
    sim_requested_bytes = size;
    void *made = create(context, properties, flags, size, host, status);
    sim_requested_bytes = 0;
    return made;
}

typedef void *allocate_host(void *context, const uint64_t *properties, size_t size, uint32_t alignment,
                            int *status);
typedef void *allocate_device(void *context, void *device, const uint64_t *properties, size_t size,
                              uint32_t alignment, int *status);
static allocate_host *next_host;
static allocate_device *next_device, *next_shared;

static void *host_memory(void *context, const uint64_t *properties, size_t size, uint32_t alignment,
                         int *status) {
    sim_requested_bytes = size;
    void *made = next_host(context, properties, size, alignment, status);
    sim_requested_bytes = 0;
    return made;
}

static void *memory_of(allocate_device *allocate, void *context, void *device, const uint64_t *properties,
                       size_t size, uint32_t alignment, int *status) {
    sim_requested_bytes = size;
    void *made = allocate(context, device, properties, size, alignment, status);
    sim_requested_bytes = 0;
    return made;
}

static void *device_memory(void *context, void *device, const uint64_t *properties, size_t size,
                           uint32_t alignment, int *status) {
    return memory_of(next_device, context, device, properties, size, alignment, status);
}

static void *shared_memory(void *context, void *device, const uint64_t *properties, size_t size,
                           uint32_t alignment, int *status) {
    return memory_of(next_shared, context, device, properties, size, alignment, status);
}

/* The layer's function of this name, or the driver's. Other drivers' functions are not replaced: each has its
 * own pointers. */
static void *replace(const char *name, void *found) {
    Dl_info from;
    if (!found || !name || !dladdr(found, &from) || !strstr(from.dli_fname, "igdrcl")) return found;
    if (!strcmp(name, "clHostMemAllocINTEL")) return next_host = found, (void *)host_memory;
    if (!strcmp(name, "clDeviceMemAllocINTEL")) return next_device = found, (void *)device_memory;
    if (!strcmp(name, "clSharedMemAllocINTEL")) return next_shared = found, (void *)shared_memory;
    return found;
}

static void *get_function(const char *name) {
    void *(*const get)(const char *) = next[GET_FUNCTION];
    return replace(name, get(name));
}

static void *get_function_of_platform(void *platform, const char *name) {
    void *(*const get)(void *, const char *) = next[GET_FUNCTION_OF_PLATFORM];
    return replace(name, get(platform, name));
}

/* ---- the layer ---- */

EXPORT int clGetLayerInfo(uint32_t what, size_t size, void *to, size_t *written) {
    static const uint32_t version = 100;
    static const char name[] = "openxpu simulate";
    const void *from = what == LAYER_VERSION ? (const void *)&version : name;
    const size_t bytes = what == LAYER_VERSION ? sizeof version : sizeof name;
    if ((what != LAYER_VERSION && what != LAYER_NAME) || (to && size < bytes))
        return -30; /* CL_INVALID_VALUE */
    if (to) memcpy(to, from, bytes);
    if (written) *written = bytes;
    return 0;
}

EXPORT int clInitLayer(uint32_t count, void *const *target, uint32_t *written, void *const **layer) {
    if (!target || !written || !layer || count <= CREATE_BUFFER_WITH_PROPERTIES) return -30;
    next = target;
    *written = count < FUNCTIONS_MAX ? count : FUNCTIONS_MAX;
    memcpy(functions, target, *written * sizeof *functions);
    functions[CREATE_BUFFER] = create_buffer;
    functions[CREATE_BUFFER_WITH_PROPERTIES] = create_buffer_with_properties;
    functions[CREATE_KERNEL] = create_kernel;
    functions[CREATE_KERNELS] = create_kernels;
    functions[SET_KERNEL_ARGUMENT] = set_kernel_argument;
    functions[GET_FUNCTION] = get_function;
    functions[GET_FUNCTION_OF_PLATFORM] = get_function_of_platform;
    *layer = functions;
    return 0;
}

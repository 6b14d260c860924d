/* Programs and kernels. A program is built from source, linked from several sources, or loaded from a binary
 * or the disk cache; kernels are looked up in it. Both are kept per device until the process ends, so equal
 * requests return the same kernel. Any thread may call; one lock covers lookups and builds, so builds are
 * serialized. XPU_ERROR_BUILD_FAILED carries the compiler's log in the error text. */
#include "runtime/kernel.h"

#include <stdio.h>

#include "core/hash.h"
#include "core/os.h"
#include "core/text.h"

static os_mutex programs_lock = OS_MUTEX_INIT; /* guards the lists and the statistics */
static cached_program *programs;
static xpu_kernel *kernels;
static xpu_program_stats stats;

/* Hashes the length before the text, so that different lists of texts never hash alike. */
static hash128 hash_text(hash128 h, const char *text) {
    uint64_t length = strlen(text);
    return hash128_add(hash128_add(h, &length, sizeof length), text, length);
}

/* Part of the key, because machines with different CPUs may share a home directory and its cache. */
uint64_t processor_features(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    return (uint64_t)!!__builtin_cpu_supports("avx2") | (uint64_t)!!__builtin_cpu_supports("avx512f") << 1 |
           (uint64_t)!!__builtin_cpu_supports("avx512bw") << 2 |
           (uint64_t)!!__builtin_cpu_supports("avx512vnni") << 3;
#else
    return 0;
#endif
}

/* Completes a key: adds the device and driver that the binary is for. */
static void end_key(const cl_device *device, hash128 h, char key[KEY_SIZE]) {
    const xpu_device_properties *p = &device->properties;
    uint64_t features = device->host ? processor_features() : 0;
    h = hash_text(h, p->name);
    h = hash_text(h, p->platform_name);
    h = hash_text(h, p->driver_version);
    h = hash_text(h, p->version);
    hash128_text(hash128_add(h, &features, sizeof features), key);
}

void device_key(int device, char key[KEY_SIZE]) { end_key(&cl_devices[device], HASH128_START, key); }

/* Loads a binary; NULL if the driver rejects it. No error text, because the caller can build instead. */
static cl_program load_binary(const cl_device *device, const unsigned char *data, size_t size) {
    cl_int error, binary_status;
    cl_program program = device->api->clCreateProgramWithBinary(device->context, 1, &device->id, &size, &data,
                                                                &binary_status, &error);
    if (error != CL_SUCCESS) return NULL;
    if (device->api->clBuildProgram(program, 1, &device->id, NULL, NULL, NULL) == CL_SUCCESS) return program;
    device->api->clReleaseProgram(program);
    return NULL;
}

/* The program's binary, or NULL; the caller frees it. */
static unsigned char *get_binary(const cl_device *device, cl_program program, size_t *size) {
    *size = 0;
    if (device->api->clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof *size, size, NULL) || !*size)
        return NULL;
    unsigned char *data = core_malloc(*size);
    if (!data || !device->api->clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof data, &data, NULL))
        return data;
    core_free(data);
    return NULL;
}

/* Stores a built program in the cache. A CPU driver keeps all of its compiler's data while a built program
 * lives: 2.7 MB per kernel, against 0.6 MB for a program loaded from a binary. On CPU devices the program is
 * therefore replaced by one loaded from its own binary. */
static void keep_binary(const cl_device *device, cl_program *program, const char *key) {
    size_t size;
    unsigned char *data = get_binary(device, *program, &size);
    if (!data) return;
    cache_store(key, data, size);
    cl_program loaded = device->host ? load_binary(device, data, size) : NULL;
    if (loaded) {
        device->api->clReleaseProgram(*program);
        *program = loaded;
    }
    core_free(data);
}

/* With OPENXPU_DUMP_KERNELS=folder, writes the source to folder/KEY.cl. Its first line is a comment with
 * label and build options, as an offline compiler needs them. A missing folder is created. */
static xpu_status dump_source(const char *source, const char *options, const char *label, const char *key) {
    const char *folder = os_environment("OPENXPU_DUMP_KERNELS");
    char path[OS_PATH_SIZE];
    FILE *file = NULL;
    if (!folder || !*folder) return XPU_SUCCESS;
    os_folders_make(folder);
    if (snprintf(path, sizeof path, "%s/%s.cl", folder, key) < (int)sizeof path)
        file = os_file_open(path, "w");
    bool written = file && fprintf(file, "// %s | %s\n%s", label, options, source) >= 0;
    if (file) written = !fclose(file) && written;
    return written
               ? XPU_SUCCESS
               : xpu_fail(XPU_ERROR_IO, "kernel %s: OPENXPU_DUMP_KERNELS=%s can't be written", label, folder);
}

/* Appends the build log to the error text. */
static void add_log(const cl_device *device, cl_program program) {
    size_t size = 0;
    if (device->api->clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &size) ||
        size < 2)
        return;
    char *log = core_malloc(size);
    if (!log) return;
    if (!device->api->clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, size, log, NULL))
        xpu_fail_add("\n%s", log);
    core_free(log);
}

static xpu_status build(const cl_device *device, const char *source, const char *options, const char *label,
                        cl_program *result) {
    cl_int error;
    size_t length = strlen(source);
    cl_program program = device->api->clCreateProgramWithSource(device->context, 1, &source, &length, &error);
    XPU_TRY(cl_check(error, "->clCreateProgramWithSource", device));
    error = device->api->clBuildProgram(program, 1, &device->id, options, NULL, NULL);
    if (error != CL_SUCCESS && cl_failed(error, "->clBuildProgram", device) == XPU_ERROR_DEVICE_LOST) {
        device->api->clReleaseProgram(program);
        return XPU_ERROR_DEVICE_LOST;
    }
    if (error != CL_SUCCESS || core_fault()) {
        xpu_fail(XPU_ERROR_BUILD_FAILED, "kernel %s failed to build on %s with options \"%s\": %s", label,
                 device->properties.name, options, cl_error_name(error));
        add_log(device, program);
        device->api->clReleaseProgram(program);
        return XPU_ERROR_BUILD_FAILED;
    }
    *result = program;
    return XPU_SUCCESS;
}

/* Compiles the sources and links them into one program; NULL on failure. */
static cl_program link_sources(const cl_device *device, const char *const *sources, const char *options,
                               int count) {
    cl_program *parts = core_calloc((size_t)count, sizeof *parts), result = NULL;
    cl_int error = parts ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
    for (int i = 0; i < count && error == CL_SUCCESS; i++) {
        const char *source = sources[i];
        const size_t length = strlen(source);
        parts[i] = device->api->clCreateProgramWithSource(device->context, 1, &source, &length, &error);
        if (error == CL_SUCCESS)
            error =
                device->api->clCompileProgram(parts[i], 1, &device->id, options, 0, NULL, NULL, NULL, NULL);
    }
    if (error == CL_SUCCESS)
        result = device->api->clLinkProgram(device->context, 1, &device->id, NULL, (cl_uint)count, parts,
                                            NULL, NULL, &error);
    for (int i = 0; parts && i < count; i++)
        if (parts[i]) device->api->clReleaseProgram(parts[i]);
    core_free(parts);
    if (error == CL_SUCCESS && !core_fault()) return result;
    if (result) device->api->clReleaseProgram(result);
    return NULL;
}

/* The input of a program: a source, several sources, or a binary. */
typedef struct code {
    const char *source, *options;
    const unsigned char *binary; /* NULL: the source */
    size_t size;
    const char *const *sources; /* several sources to link; NULL: one */
    int count;
} code;

/* Creates a program from the given binary, the cache, or the source, in this order. */
static xpu_status make_program(const cl_device *device, const code *from, const char *label, const char *key,
                               cl_program *result) {
    const double start = os_seconds();
    unsigned char *data;
    size_t size;
    *result = NULL;
    if (from->binary) {
        *result = load_binary(device, from->binary, from->size);
        if (!*result)
            return xpu_fail(XPU_ERROR_BUILD_FAILED, "kernel %s: %s could not load its binary of %zu bytes",
                            label, device->properties.name, from->size);
    } else if (cache_load(key, &data, &size) == XPU_SUCCESS) {
        *result = load_binary(device, data, size);
        core_free(data);
    }
    if (*result) {
        stats.loaded++;
        stats.load_seconds += os_seconds() - start;
        return XPU_SUCCESS;
    }
    if (!from->sources)
        XPU_TRY(build(device, from->source, from->options, label, result));
    else if (!(*result = link_sources(device, from->sources, from->options, from->count)))
        return xpu_fail(XPU_ERROR_BUILD_FAILED, "%s could not link %d kernels", device->properties.name,
                        from->count);
    stats.built++;
    stats.build_seconds += os_seconds() - start;
    keep_binary(device, result, key);
    return XPU_SUCCESS;
}

/* Hashes the input. The count comes first for linked sources, so they never hash like a single source. */
static hash128 hash_code(const code *from) {
    if (from->binary) return hash128_add(HASH128_START, from->binary, from->size);
    if (!from->sources) return hash_text(hash_text(HASH128_START, from->source), from->options);
    hash128 h = hash128_add(HASH128_START, &from->count, sizeof from->count);
    for (int i = 0; i < from->count; i++) h = hash_text(h, from->sources[i]);
    return hash_text(h, from->options);
}

/* Finds or creates the program for this input; called with programs_lock held. */
static xpu_status get_program(int index, const code *from, const char *label, const cached_program **result) {
    const cl_device *device = &cl_devices[index];
    char key[KEY_SIZE];
    end_key(device, hash_code(from), key);
    for (cached_program *p = programs; p; p = p->next) {
        if (p->device != index || strcmp(p->key, key)) continue;
        *result = p;
        return XPU_SUCCESS;
    }
    if (from->source) XPU_TRY(dump_source(from->source, from->options, label, key));
    for (int i = 0; i < from->count; i++) {
        const code one = {.source = from->sources[i], .options = from->options};
        char part[KEY_SIZE];
        end_key(device, hash_code(&one), part);
        XPU_TRY(dump_source(one.source, one.options, label, part));
    }
    cached_program *p = core_calloc(1, sizeof *p);
    if (!p) return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for a program");
    xpu_status status = make_program(device, from, label, key, &p->program);
    if (status != XPU_SUCCESS) {
        core_free(p);
        return status;
    }
    p->device = index;
    memcpy(p->key, key, sizeof key);
    p->next = programs;
    programs = p;
    *result = p;
    return XPU_SUCCESS;
}

xpu_status kernel_instance(xpu_kernel *kernel, cl_kernel *instance) {
    const cl_device *device = &cl_devices[kernel->device];
    cl_int error;
    cl_kernel made = device->api->clCreateKernel(kernel->program->program, kernel->name, &error);
    XPU_TRY(cl_check(error, "->clCreateKernel", device));
    if (device->properties.memory == XPU_MEMORY_USM) { /* pointers are passed inside the params struct */
        static const cl_uint access[] = {CL_KERNEL_EXEC_INFO_INDIRECT_DEVICE_ACCESS_INTEL,
                                         CL_KERNEL_EXEC_INFO_INDIRECT_HOST_ACCESS_INTEL};
        cl_bool yes = CL_TRUE;
        for (int i = 0; i < 2; i++) {
            xpu_status status = cl_check(device->api->clSetKernelExecInfo(made, access[i], sizeof yes, &yes),
                                         "->clSetKernelExecInfo", device);
            if (status == XPU_SUCCESS) continue;
            device->api->clReleaseKernel(made);
            return status;
        }
    }
    *instance = made;
    return XPU_SUCCESS;
}

/* Finds or creates kernel `name` of `owner`; called with programs_lock held. */
static xpu_status get_kernel(const cached_program *owner, const char *name, const char *label,
                             xpu_kernel **result) {
    for (xpu_kernel *k = kernels; k; k = k->next) {
        if (k->program != owner || strcmp(k->name, name)) continue;
        *result = k;
        return XPU_SUCCESS;
    }
    xpu_kernel *k = core_calloc(1, sizeof *k);
    if (k) {
        k->name = core_strdup(name);
        k->label = core_strdup(label);
        k->device = owner->device;
        k->program = owner;
    }
    xpu_status status = k && k->name && k->label
                            ? kernel_instance(k, &k->spare)
                            : xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for a kernel");
    if (status != XPU_SUCCESS) {
        if (k) {
            core_free(k->name);
            core_free(k->label);
        }
        core_free(k);
        return status;
    }
    os_mutex_init(&k->spare_lock);
    k->next = kernels;
    kernels = k;
    *result = k;
    return XPU_SUCCESS;
}

static xpu_status create(int index, const code *from, const char *name, const char *label,
                         xpu_kernel **kernel) {
    const cached_program *owner = NULL;
    if (!label) label = name;
    os_mutex_lock(&programs_lock);
    xpu_status status = get_program(index, from, label, &owner);
    if (status == XPU_SUCCESS) status = get_kernel(owner, name, label, kernel);
    os_mutex_unlock(&programs_lock);
    return status;
}

xpu_status kernel_from_binary(int index, const void *binary, size_t size, const char *name,
                              xpu_kernel **kernel) {
    return create(index, &(code){.binary = binary, .size = size}, name, NULL, kernel);
}

xpu_status kernel_binary(const xpu_kernel *kernel, unsigned char **data, size_t *size) {
    const cl_device *device = &cl_devices[kernel->device];
    *data = get_binary(device, kernel->program->program, size);
    if (*data) return XPU_SUCCESS;
    return xpu_fail(XPU_ERROR_NOT_SUPPORTED, "%s returned no binary of kernel %s", device->properties.name,
                    kernel->label);
}

bool kernels_together(int index, const char *const *sources, const char *options, const char *const *names,
                      int count, xpu_kernel **made) {
    const cached_program *owner = NULL;
    text_buffer all = {0};
    text_addf(&all, "%s %s", cl_devices[index].options, options);
    if (all.failed) return text_free(&all), false;
    const code from = {.sources = sources, .count = count, .options = all.data};
    os_mutex_lock(&programs_lock);
    xpu_status status = get_program(index, &from, names[0], &owner);
    for (int i = 0; i < count && status == XPU_SUCCESS; i++)
        status = get_kernel(owner, names[i], names[i], &made[i]);
    os_mutex_unlock(&programs_lock);
    text_free(&all);
    return status == XPU_SUCCESS;
}

xpu_status xpu_kernel_create(int index, const char *source, const char *options, const char *name,
                             const char *label, xpu_kernel **kernel) {
    XPU_REJECT_IF(!source || !name || !kernel, "source, name and kernel must not be NULL");
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(index, &properties));
    text_buffer all = {0};
    text_addf(&all, "%s %s", cl_devices[index].options, options ? options : "");
    if (all.failed) {
        text_free(&all);
        return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for build options");
    }
    xpu_status status = create(index, &(code){.source = source, .options = all.data}, name, label, kernel);
    text_free(&all);
    return status;
}

const char *xpu_kernel_label(const xpu_kernel *kernel) { return kernel->label; }

xpu_status xpu_kernel_get_info(xpu_kernel *kernel, xpu_kernel_info *info) {
    const cl_device *device = &cl_devices[kernel->device];
    struct {
        cl_uint name;
        size_t *to;
    } const wanted[] = {{CL_KERNEL_WORK_GROUP_SIZE, &info->max_work_group_size},
                        {CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, &info->preferred_multiple},
                        {CL_KERNEL_LOCAL_MEM_SIZE, &info->local_mem_size},
                        {CL_KERNEL_PRIVATE_MEM_SIZE, &info->private_mem_size}};
    *info = (xpu_kernel_info){0};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        uint64_t value = 0;
        CL_TRY(device, device->api->clGetKernelWorkGroupInfo(kernel->spare, device->id, wanted[i].name,
                                                             sizeof value, &value, NULL));
        *wanted[i].to = (size_t)value;
    }
    uint64_t spill = 0; /* only Intel's drivers report it */
    if (!device->api->clGetKernelWorkGroupInfo(kernel->spare, device->id, CL_KERNEL_SPILL_MEM_SIZE_INTEL,
                                               sizeof spill, &spill, NULL))
        info->spill_size = (size_t)spill;
    return XPU_SUCCESS;
}

xpu_status xpu_program_get_stats(xpu_program_stats *result) {
    if (xpu_in_bad_fork()) return cl_init(); /* the child's copy of the lock may be locked forever */
    os_mutex_lock(&programs_lock);
    *result = stats;
    os_mutex_unlock(&programs_lock);
    return XPU_SUCCESS;
}

/* Finds OpenCL drivers and lists their devices: GPUs first, then host CPUs.
 *
 * Drivers are searched in two places:
 *  - Intel's CPU runtime as installed by pip: libintelocl.so in $OPENXPU_DRIVER_PATH (colon-separated
 * folders), in the `lib` folder of the Python environment that contains this library, or in that of
 * $VIRTUAL_ENV or $CONDA_PREFIX. It is opened directly by its full path, after its dependencies, so neither a
 * loader nor LD_LIBRARY_PATH is needed.
 *  - All drivers known to the system's loader, libOpenCL.so.1.
 * On Windows the file names are those below, and folders are separated by semicolons. visible.h selects the
 * devices that the process sees.
 *
 * Loading happens once, on first use, by whichever thread comes first; an error of that load is returned by
 * every later call. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cl/cl.h"
#include "cl/visible.h"
#include "cl/wsl.h"
#include "core/memory.h"
#include "core/os.h"
#include "core/tuning.h"

#define MAX_DRIVERS 8
#define MAX_PLATFORMS 16

cl_device cl_devices[CL_MAX_DEVICES];
static int found_count, device_count; /* devices of all drivers, and those visible to the process */
static cl_api drivers[MAX_DRIVERS];
static int driver_count;
static os_once once = OS_ONCE_INIT, hint_once = OS_ONCE_INIT, gpu_hint_once = OS_ONCE_INIT;
static xpu_status init_status;
static char init_text[512];
static char first_failure[256]; /* of a driver */
static char hint[1536], gpu_hint[512];
static bool initialized, bad_fork, has_loader, has_gpu;

/* The driver folder relative to a Python environment, and relative to the folders above this library. */
#if defined(_WIN32)
#define LOADER "OpenCL.dll"
#define INTEL_CPU "intelocl64.dll"
#define IN_ENVIRONMENT "/Library/bin"
#define FROM_UP IN_ENVIRONMENT /* <environment>/Lib/site-packages/openxpu/libxpu.dll */
static const char *const needs[] = {"libmmd.dll", "svml_dispmd.dll", "tbb12.dll"};
#else
#define LOADER "libOpenCL.so.1"
#define INTEL_CPU "libintelocl.so"
#define IN_ENVIRONMENT "/lib"
#define FROM_UP "" /* <environment>/lib/python3.x/site-packages/openxpu/libxpu.so */
static const char *const needs[] = {"libintlc.so.5", "libimf.so", "libirng.so", "libsvml.so", "libtbb.so.12"};
#endif

/* Opens Intel's CPU runtime in `folder`, after its dependencies. */
static void *open_intel_cpu(const char *folder) {
    char path[OS_PATH_SIZE];
    if (snprintf(path, sizeof path, "%s/" INTEL_CPU, folder) >= (int)sizeof path) return NULL;
    if (!os_file_exists(path)) return NULL;
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        char need[OS_PATH_SIZE];
        if (snprintf(need, sizeof need, "%s/%s", folder, needs[i]) < (int)sizeof need) os_library_open(need);
    }
    return os_library_open(path);
}

static void *open_intel_cpu_in(const char *place, const char *below) {
    char folder[OS_PATH_SIZE];
    return snprintf(folder, sizeof folder, "%s%s", place, below) < (int)sizeof folder ? open_intel_cpu(folder)
                                                                                      : NULL;
}

static void *find_intel_cpu(void) {
    char folder[OS_PATH_SIZE];
    void *library = NULL;
    const char *paths = os_environment("OPENXPU_DRIVER_PATH");
    while (paths && *paths && !library) {
        size_t length = strcspn(paths, OS_LIST_SEPARATOR);
        if (length && snprintf(folder, sizeof folder, "%.*s", (int)length, paths) < (int)sizeof folder)
            library = open_intel_cpu(folder);
        paths += length + (paths[length] != 0);
    }
    if (!library && os_library_of((const void *)find_intel_cpu, folder)) {
        for (int up = 0; up < 4; up++) {
            char *slash = NULL;
            for (char *c = folder; (c = strpbrk(c, OS_SEPARATORS)); c++) slash = c;
            if (!slash) break;
            *slash = 0;
            if (up > 0 && !library) library = open_intel_cpu_in(folder, FROM_UP);
        }
    }
    static const char *const variables[] = {"VIRTUAL_ENV", "CONDA_PREFIX"};
    for (int i = 0; i < 2 && !library; i++) {
        const char *prefix = os_environment(variables[i]);
        if (prefix) library = open_intel_cpu_in(prefix, IN_ENVIRONMENT);
    }
    return library;
}

/* Fills a driver's function table; false if a mandatory function is missing. */
static bool fill_api(cl_api *api, void *library) {
    *(void **)&api->clGetPlatformIDs = os_library_symbol(library, "clGetPlatformIDs");
    if (!api->clGetPlatformIDs) return false;
#define X(result, name, parameters)                                                                          \
    *(void **)&api->name = os_library_symbol(library, #name);                                                \
    if (!api->name) return false;
    CL_FUNCTIONS(X)
#undef X
    return true;
}

/* Remembers the first failure of a driver, which the error for no device names. */
static void remember_failure(const cl_api *driver, cl_platform_id platform, cl_int error) {
    char name[128] = "an OpenCL driver";
    if (first_failure[0]) return;
    if (platform) driver->clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof name, name, NULL);
    snprintf(first_failure, sizeof first_failure, " Left out: %s (%s).", name,
             error ? cl_error_name(error) : xpu_last_error());
}

/* Reads every device of a driver into `found`. */
static int list_devices(const cl_api *driver, cl_device *found, int room) {
    cl_platform_id platforms[MAX_PLATFORMS];
    cl_uint platform_count = 0;
    int count = 0;
    cl_int error = driver->clGetPlatformIDs(MAX_PLATFORMS, platforms, &platform_count);
    if (error != CL_SUCCESS) {
        if (error != CL_PLATFORM_NOT_FOUND_KHR) remember_failure(driver, NULL, error);
        return 0;
    }
    if (platform_count > MAX_PLATFORMS) platform_count = MAX_PLATFORMS;
    for (cl_uint p = 0; p < platform_count; p++) {
        cl_device_id ids[CL_MAX_DEVICES];
        cl_uint id_count = 0;
        error = driver->clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, CL_MAX_DEVICES, ids, &id_count);
        if (error != CL_SUCCESS) {
            if (error != CL_DEVICE_NOT_FOUND) remember_failure(driver, platforms[p], error);
            continue;
        }
        if (id_count > CL_MAX_DEVICES) id_count = CL_MAX_DEVICES;
        for (cl_uint i = 0; i < id_count && count < room; i++) {
            cl_device *device = &found[count];
            *device = (cl_device){.api = driver, .platform = platforms[p], .id = ids[i]};
            if (cl_read_capabilities(device) == XPU_SUCCESS)
                count++;
            else
                remember_failure(driver, platforms[p], CL_SUCCESS);
        }
    }
    return count;
}

static void after_fork(void) { bad_fork = initialized; }

static bool is_set(const char *variable) { return getenv(variable) && *getenv(variable); }

/* Names the variable that excludes all devices; NULL if there is none. */
static const char *exclusion(void) {
    if (is_set("OPENXPU_DEVICE"))
        return "No OpenCL device matches OPENXPU_DEVICE. `openxpu info` lists the available devices.";
    if (found_count && is_set("ONEAPI_DEVICE_SELECTOR"))
        return "No OpenCL device matches ONEAPI_DEVICE_SELECTOR. Unset it and run `openxpu info` to list the "
               "available devices.";
    if (is_set("ZE_AFFINITY_MASK")) /* Intel's driver does not list devices that the mask excludes */
        return "No OpenCL device matches ZE_AFFINITY_MASK. Unset it and run `openxpu info` to list the "
               "available devices.";
    return NULL;
}

static void write_gpu_hint(void) {
    const wsl_fault fault = wsl_check("", getenv("OCL_ICD_VENDORS"), has_loader);
    /* A complete installation whose GPU was left out or masked has no fault of WSL's. */
    if (fault == WSL_NOT_LISTED && (first_failure[0] || is_set("ZE_AFFINITY_MASK"))) return;
    wsl_advice(fault, "", gpu_hint, sizeof gpu_hint);
}

static void write_hint(void) {
    const char *excluded = exclusion(), *gpu = xpu_no_gpu_hint();
    char runtime[256];
    if (!*gpu && !excluded) {
        wsl_runtime_advice("", runtime, sizeof runtime);
        gpu = runtime;
    }
    snprintf(hint, sizeof hint, "%s%s%s%s",
             excluded ? excluded
                      : "No OpenCL device was found. For the CPU: pip install intel-opencl-rt "
                        "intel-cmplr-lib-rt.",
             *gpu ? " For an Intel GPU: " : "", gpu, first_failure);
}

static void load(void) {
    static cl_device found[CL_MAX_DEVICES];
    init_status = tuning_init();
    if (init_status != XPU_SUCCESS) {
        snprintf(init_text, sizeof init_text, "%s", xpu_last_error());
        return;
    }
    /* Local memory of a CPU device is ordinary memory, 256 KiB by default; the driver reads this setting when
     * it is loaded. Triton kernels written for a GPU's registers and local memory need more. */
    os_environment_default("CL_CONFIG_CPU_FORCE_LOCAL_MEM_SIZE", "2MB");
    /* Intel's CPU compiler miscompiles loops that it unswitches on a lane-dependent condition
     * (tests/intel_cpu/faults/choices.cl, paths.cl), so disable loop unswitching. An option that the driver
     * does not know would end the process; LLVM has had this one for many years. */
    os_environment_default("CL_CONFIG_LLVM_OPTIONS", "-unswitch-threshold=0");
    /* PoCL 3.1 ends the process by an assertion when another one writes the same program to its cache.
     * libxpu has a cache of its own. */
    os_environment_default("POCL_KERNEL_CACHE", "0");
    void *libraries[2] = {find_intel_cpu(), os_library_open(LOADER)};
    has_loader = libraries[1] != NULL;
    for (int i = 0; i < 2; i++) {
        if (!libraries[i] || driver_count == MAX_DRIVERS) continue;
        cl_api *api = &drivers[driver_count];
        if (!fill_api(api, libraries[i])) continue;
        driver_count++;
        found_count += list_devices(api, found + found_count, CL_MAX_DEVICES - found_count);
    }
    for (int i = 0; i < found_count; i++)
        if (found[i].properties.type == XPU_DEVICE_GPU) has_gpu = true;
    const visible_rules rules = {getenv("ZE_AFFINITY_MASK"), getenv("ONEAPI_DEVICE_SELECTOR"),
                                 getenv("OPENXPU_DEVICE")};
    init_status = visible_devices(&rules, found, found_count, cl_devices, CL_MAX_DEVICES, &device_count);
    if (init_status == XPU_SUCCESS) init_status = cl_divide_host_memory();
    for (int i = 0; i < device_count && init_status == XPU_SUCCESS; i++) {
        cl_device *device = &cl_devices[i];
        cl_int error = CL_SUCCESS;
        device->context = device->api->clCreateContext(NULL, 1, &device->id, NULL, NULL, &error);
        init_status = cl_check(error, "->clCreateContext", device);
    }
    if (init_status != XPU_SUCCESS) snprintf(init_text, sizeof init_text, "%s", xpu_last_error());
    initialized = true;
    os_at_fork_in_child(after_fork);
}

xpu_status cl_init(void) {
    if (bad_fork)
        return xpu_fail(XPU_ERROR_BAD_FORK, "Cannot re-initialize XPU in forked subprocess. To use XPU with "
                                            "multiprocessing, you must use the 'spawn' start method");
    os_once_call(&once, load);
    return init_status == XPU_SUCCESS ? XPU_SUCCESS : xpu_fail(init_status, "%s", init_text);
}

int cl_count(void) { return device_count; }

xpu_status cl_get(int index, cl_device **device) {
    XPU_TRY(cl_init());
    if (!device_count) return xpu_fail(XPU_ERROR_NO_DEVICE, "%s", xpu_no_device_hint());
    if (index < 0 || index >= device_count)
        return xpu_fail(XPU_ERROR_INVALID_ARGUMENT, "device index %d: must be 0 to %d%s", index,
                        device_count - 1,
                        cl_devices[0].host ? " (OPENXPU_DEVICE=cpu,cpu makes two devices of the CPU)" : "");
    *device = &cl_devices[index];
    return XPU_SUCCESS;
}

const xpu_device_properties *cl_device_properties(int device) { return &cl_devices[device].properties; }

const char *xpu_no_gpu_hint(void) {
    if (cl_init() != XPU_SUCCESS || has_gpu) return "";
    os_once_call(&gpu_hint_once, write_gpu_hint);
    return gpu_hint;
}

const char *xpu_no_device_hint(void) {
    os_once_call(&hint_once, write_hint);
    return hint;
}

bool xpu_in_bad_fork(void) { return bad_fork; }
bool xpu_initialized(void) { return initialized && !bad_fork; }

/* An OpenCL driver with fake devices, loaded in place of Intel's CPU runtime (test_discovery.py): it lists
 * devices, returns their properties and creates contexts. FAKE_DEVICES lists them, separated by commas, each
 * optionally with "@" and a PCI address: "rusticl", "neo" and "nvidia" are GPUs, "cpu" is a CPU. A device
 * followed by "!" doesn't tell its extensions. The test provides stubs for all other functions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cl/api.h"

#define EXPORT __attribute__((visibility("default")))
enum { DEVICES = 8, KINDS = 4 };

static const struct kind {
    const char *name, *platform, *vendor;
    cl_uint vendor_id;
    cl_ulong type, memory;
    cl_uint ip_version, unified;
} kinds[KINDS] = {
    {"rusticl", "rusticl", "Intel", 0x8086, CL_DEVICE_TYPE_GPU, (cl_ulong)12 << 30, 0x05004004, 0},
    {"neo", "Intel(R) OpenCL Graphics", "Intel(R) Corporation", 0x8086, CL_DEVICE_TYPE_GPU, (cl_ulong)1 << 30,
     0x05010004, 1},
    {"nvidia", "NVIDIA CUDA", "NVIDIA Corporation", 0x10de, CL_DEVICE_TYPE_GPU, (cl_ulong)8 << 30, 0, 0},
    {"cpu", "a processor", "nobody", 0, CL_DEVICE_TYPE_CPU, (cl_ulong)1 << 50, 0, 1},
};

struct _cl_device_id {
    const struct kind *kind;
    char name[32];
    cl_uint place[4]; /* on the PCI bus */
    int has_place, is_broken;
};
struct _cl_platform_id {
    const struct kind *kind;
};
struct _cl_context {
    int unused;
};

static struct _cl_device_id devices[DEVICES];
static struct _cl_platform_id platforms[KINDS];
static struct _cl_context context;
static int count;

static void read_devices(void) {
    const char *at = getenv("FAKE_DEVICES");
    for (count = 0; at && *at && count < DEVICES; count++) {
        struct _cl_device_id *d = &devices[count];
        const size_t length = strcspn(at, ","), name = strcspn(at, "@,!");
        for (int k = 0; k < KINDS; k++)
            if (strlen(kinds[k].name) == name && !strncmp(at, kinds[k].name, name)) d->kind = &kinds[k];
        if (!d->kind) abort();
        snprintf(d->name, sizeof d->name, "%s %d", d->kind->name, count);
        d->has_place =
            sscanf(at + name, "@%x:%x:%x.%x", &d->place[0], &d->place[1], &d->place[2], &d->place[3]) == 4;
        d->is_broken = at[name] == '!';
        at += length + (at[length] == ',');
    }
    for (int k = 0; k < KINDS; k++) platforms[k].kind = &kinds[k];
}

EXPORT cl_int clGetPlatformIDs(cl_uint room, cl_platform_id *to, cl_uint *number) {
    read_devices();
    for (int k = 0; k < KINDS; k++)
        if ((cl_uint)k < room) to[k] = &platforms[k];
    *number = KINDS;
    return CL_SUCCESS;
}

static cl_int give(const void *value, size_t size, size_t room, void *to, size_t *given) {
    if (given) *given = size;
    if (to && room < size) return CL_INVALID_VALUE;
    if (to) memcpy(to, value, size);
    return CL_SUCCESS;
}

static cl_int give_text(const char *text, size_t room, void *to, size_t *given) {
    return give(text, strlen(text) + 1, room, to, given);
}

EXPORT cl_int clGetPlatformInfo(cl_platform_id platform, cl_uint name, size_t room, void *to, size_t *given) {
    return give_text(platform->kind->platform, room, to, given);
}

EXPORT cl_int clGetDeviceIDs(cl_platform_id platform, cl_bitfield type, cl_uint room, cl_device_id *to,
                             cl_uint *number) {
    cl_uint found = 0;
    for (int i = 0; i < count; i++)
        if (devices[i].kind == platform->kind && found < room) to[found++] = &devices[i];
    *number = found;
    return found ? CL_SUCCESS : CL_DEVICE_NOT_FOUND;
}

EXPORT cl_int clGetDeviceInfo(cl_device_id device, cl_uint name, size_t room, void *to, size_t *given) {
    const struct kind *kind = device->kind;
    const cl_ulong svm = CL_DEVICE_SVM_COARSE_GRAIN_BUFFER;
    const cl_uint align = 1024, one = 1;
    const size_t group = 256;
    char extensions[128];
    snprintf(extensions, sizeof extensions, "%s%s", device->has_place ? "cl_khr_pci_bus_info " : "",
             kind->ip_version ? "cl_intel_device_attribute_query" : "");
    switch (name) {
    case CL_DEVICE_TYPE: return give(&kind->type, sizeof kind->type, room, to, given);
    case CL_DEVICE_VENDOR_ID: return give(&kind->vendor_id, sizeof kind->vendor_id, room, to, given);
    case CL_DEVICE_NAME: return give_text(device->name, room, to, given);
    case CL_DEVICE_VENDOR: return give_text(kind->vendor, room, to, given);
    case CL_DRIVER_VERSION: return give_text("1.0", room, to, given);
    case CL_DEVICE_VERSION: return give_text("OpenCL 3.0", room, to, given);
    case CL_DEVICE_EXTENSIONS:
        if (device->is_broken) return CL_OUT_OF_RESOURCES;
        return give_text(extensions, room, to, given);
    case CL_DEVICE_GLOBAL_MEM_SIZE:
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE: return give(&kind->memory, sizeof kind->memory, room, to, given);
    case CL_DEVICE_MAX_COMPUTE_UNITS: return give(&one, sizeof one, room, to, given);
    case CL_DEVICE_HOST_UNIFIED_MEMORY: return give(&kind->unified, sizeof kind->unified, room, to, given);
    case CL_DEVICE_MEM_BASE_ADDR_ALIGN: return give(&align, sizeof align, room, to, given);
    case CL_DEVICE_MAX_WORK_GROUP_SIZE: return give(&group, sizeof group, room, to, given);
    case CL_DEVICE_SVM_CAPABILITIES: return give(&svm, sizeof svm, room, to, given);
    case CL_DEVICE_IP_VERSION_INTEL: return give(&kind->ip_version, sizeof kind->ip_version, room, to, given);
    case CL_DEVICE_PCI_BUS_INFO_KHR:
        return device->has_place ? give(device->place, sizeof device->place, room, to, given)
                                 : CL_INVALID_VALUE;
    default: return CL_INVALID_VALUE;
    }
}

EXPORT cl_context clCreateContext(const intptr_t *properties, cl_uint number, const cl_device_id *of,
                                  void (*notify)(const char *, const void *, size_t, void *), void *user,
                                  cl_int *error) {
    *error = CL_SUCCESS;
    return &context;
}

EXPORT void *clGetExtensionFunctionAddressForPlatform(cl_platform_id platform, const char *name) {
    return NULL;
}

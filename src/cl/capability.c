/* Reads a device's capabilities into its xpu_device_properties. Called once per device while the drivers are
 * loaded, by one thread. A device with neither USM nor SVM is rejected: XPU_ERROR_NOT_SUPPORTED. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cl/cl.h"
#include "core/hash.h"
#include "core/memory.h"
#include "core/text.h"

#define EXTENSIONS_SIZE 16384

typedef struct query {
    const cl_api *api;
    cl_device_id id;
    const char *extensions; /* with a leading and a trailing space */
} query;

static uint64_t number(const query *q, cl_uint name) {
    uint64_t value = 0; /* the driver writes 4 or 8 bytes, on a little-endian host */
    if (q->api->clGetDeviceInfo(q->id, name, sizeof value, &value, NULL) != CL_SUCCESS) return 0;
    return value;
}

static void words(const query *q, cl_uint name, char *to) {
    if (q->api->clGetDeviceInfo(q->id, name, XPU_PROPERTY_TEXT_SIZE, to, NULL) != CL_SUCCESS) *to = 0;
    to[XPU_PROPERTY_TEXT_SIZE - 1] = 0;
    size_t lead = strspn(to, " "), length = strlen(to + lead);
    memmove(to, to + lead, length + 1);
    while (length && to[length - 1] == ' ') to[--length] = 0;
}

static bool extension(const query *q, const char *name) {
    char padded[128];
    snprintf(padded, sizeof padded, " %s ", name);
    return strstr(q->extensions, padded) != NULL;
}

/* Does the device have an instruction for the dot product of four int8 pairs? Yes, if the driver does not
 * say. */
static bool multiplies_by_fours(const query *q) {
    cl_bool fast[6]; /* cl_device_integer_dot_product_acceleration_properties_khr; the signed one is first */
    if (!extension(q, "cl_khr_integer_dot_product")) return false;
    return q->api->clGetDeviceInfo(q->id,
                                   CL_DEVICE_INTEGER_DOT_PRODUCT_ACCELERATION_PROPERTIES_4x8BIT_PACKED_KHR,
                                   sizeof fast, fast, NULL) != CL_SUCCESS ||
           fast[0];
}

static void uuid_text(const query *q, xpu_device_properties *p) {
    unsigned char bytes[16];
    if (!extension(q, "cl_khr_device_uuid") ||
        q->api->clGetDeviceInfo(q->id, CL_DEVICE_UUID_KHR, sizeof bytes, bytes, NULL) != CL_SUCCESS) {
        hash128 h = hash128_add(HASH128_START, p->name, strlen(p->name));
        h = hash128_end(hash128_add(h, p->driver_version, strlen(p->driver_version)));
        memcpy(bytes, &h, sizeof bytes);
    }
    for (int i = 0; i < 16; i++) snprintf(p->uuid + 2 * i, 3, "%02x", bytes[i]);
}

/* The PCI address, by which the operating system identifies the device. */
static void pci_address(const query *q, xpu_device_properties *p) {
    cl_uint place[4] = {0}; /* domain, bus, device, function */
    bool known =
        extension(q, "cl_khr_pci_bus_info") &&
        q->api->clGetDeviceInfo(q->id, CL_DEVICE_PCI_BUS_INFO_KHR, sizeof place, place, NULL) == CL_SUCCESS;
    if (!known && extension(q, "cl_nv_device_attribute_query")) {
        cl_uint slot = 0;
        known =
            q->api->clGetDeviceInfo(q->id, CL_DEVICE_PCI_BUS_ID_NV, sizeof *place, &place[1], NULL) ==
                CL_SUCCESS &&
            q->api->clGetDeviceInfo(q->id, CL_DEVICE_PCI_SLOT_ID_NV, sizeof slot, &slot, NULL) == CL_SUCCESS;
        place[0] = (cl_uint)number(q, CL_DEVICE_PCI_DOMAIN_ID_NV);
        place[2] = slot >> 3;
        place[3] = slot & 7;
    }
    if (known)
        snprintf(p->pci_address, sizeof p->pci_address, "%04x:%02x:%02x.%x", place[0], place[1], place[2],
                 place[3]);
}

static void sub_group_sizes(const query *q, xpu_device_properties *p) {
    size_t sizes[XPU_PROPERTY_LIST_SIZE - 1] = {0}, bytes = 0;
    if (!p->has_subgroup_size) return;
    if (q->api->clGetDeviceInfo(q->id, CL_DEVICE_SUB_GROUP_SIZES_INTEL, 0, NULL, &bytes)) return;
    if (bytes > sizeof sizes) bytes = sizeof sizes;
    size_t all[64];
    size_t whole = 0;
    q->api->clGetDeviceInfo(q->id, CL_DEVICE_SUB_GROUP_SIZES_INTEL, 0, NULL, &whole);
    if (whole > sizeof all ||
        q->api->clGetDeviceInfo(q->id, CL_DEVICE_SUB_GROUP_SIZES_INTEL, whole, all, NULL))
        return;
    for (size_t i = 0; i < bytes / sizeof *all; i++) p->sub_group_sizes[i] = all[i];
}

/* The XMX extension requires the device's smallest subgroup size. */
static uint64_t matrix_lanes(const xpu_device_properties *p) {
    uint64_t least = p->sub_group_sizes[0];
    for (int i = 0; i < XPU_PROPERTY_LIST_SIZE && p->sub_group_sizes[i]; i++)
        if (p->sub_group_sizes[i] < least) least = p->sub_group_sizes[i];
    return least == 8 || least == 16 ? least : 0;
}

/* PoCL 3.1's optimizer miscompiles kernels with barriers: FFT and attention return zeros and garbage. */
static bool has_wrong_optimizer(const xpu_device_properties *p) {
    return strstr(p->platform_name, "Portable Computing Language") && atof(p->driver_version) <= 3.1;
}

/* The build options of all programs of the device, including OPENXPU_BUILD_OPTIONS. NULL if out of memory. */
static char *build_options(const query *q, const xpu_device_properties *p) {
    const char *more = getenv("OPENXPU_BUILD_OPTIONS"), *passes = getenv("CL_CONFIG_LLVM_OPTIONS");
    text_buffer options = {0};
    text_add(&options, "-cl-std=CL3.0");
    if (number(q, CL_DEVICE_SINGLE_FP_CONFIG) & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT)
        text_add(&options, " -cl-fp32-correctly-rounded-divide-sqrt");
    if (p->type == XPU_DEVICE_GPU && p->vendor_id == XPU_VENDOR_INTEL)
        text_add(&options, " -cl-intel-greater-than-4GB-buffer-required");
    if (p->built_for_cpu && passes && *passes) { /* they change binaries, so they must change cache keys */
        hash128 h = hash128_end(hash128_add(HASH128_START, passes, strlen(passes)));
        text_addf(&options, " -DXPU_LLVM_OPTIONS=0x%08x", (unsigned)h.a);
    }
    if (!strstr(p->platform_name, "Intel")) /* NVIDIA's and PoCL's print "1 warning generated." to stderr */
        text_add(&options, " -w");
    if (has_wrong_optimizer(p)) text_add(&options, " -cl-opt-disable");
    if (more && *more) text_addf(&options, " %s", more);
    if (options.failed) text_free(&options);
    return options.data;
}

/* Hides the extensions in OPENXPU_HIDE_EXTENSIONS, so that tests can simulate drivers without them. */
static void hide_extensions(char *extensions) {
    const char *hidden = getenv("OPENXPU_HIDE_EXTENSIONS");
    for (size_t length; hidden && *hidden; hidden += length + (hidden[length] != 0)) {
        length = strcspn(hidden, ", ");
        char *at = extensions;
        while (length && (at = strstr(at, " ")) != NULL) {
            at++;
            if (!strncmp(at, hidden, length) && at[length] == ' ') memset(at, '-', length);
        }
    }
}

xpu_status cl_read_capabilities(cl_device *device) {
    xpu_device_properties *p = &device->properties;
    query q = {device->api, device->id, NULL};
    size_t size = 0;
    CL_TRY(device, device->api->clGetDeviceInfo(device->id, CL_DEVICE_EXTENSIONS, 0, NULL, &size));
    char *extensions = core_calloc(1, size + 3);
    if (!extensions)
        return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY,
                        "out of host memory while reading a device's extensions");
    extensions[0] = ' ';
    device->api->clGetDeviceInfo(device->id, CL_DEVICE_EXTENSIONS, size, extensions + 1, NULL);
    strcat(extensions, " ");
    hide_extensions(extensions);
    q.extensions = extensions;

    uint64_t type = number(&q, CL_DEVICE_TYPE);
    p->type = type & CL_DEVICE_TYPE_GPU   ? XPU_DEVICE_GPU
              : type & CL_DEVICE_TYPE_CPU ? XPU_DEVICE_CPU
                                          : XPU_DEVICE_ACCELERATOR;
    /* "buffer": plain buffers for all devices. A CPU then works like a GPU: it has queues and memory of its
     * own and the kernels that GPUs have. For tests. */
    const char *kind = getenv("OPENXPU_MEMORY");
    const bool buffers = kind && !strcmp(kind, "buffer");
    if (buffers && p->type == XPU_DEVICE_CPU) p->type = XPU_DEVICE_ACCELERATOR;
    device->host = p->type == XPU_DEVICE_CPU;
    p->built_for_cpu = type & CL_DEVICE_TYPE_CPU;
    words(&q, CL_DEVICE_NAME, p->name);
    words(&q, CL_DEVICE_VENDOR, p->vendor);
    words(&q, CL_DRIVER_VERSION, p->driver_version);
    words(&q, CL_DEVICE_VERSION, p->version);
    device->api->clGetPlatformInfo(device->platform, CL_PLATFORM_NAME, sizeof p->platform_name,
                                   p->platform_name, NULL);
    p->vendor_id = number(&q, CL_DEVICE_VENDOR_ID);
    uuid_text(&q, p);
    p->total_memory = number(&q, CL_DEVICE_GLOBAL_MEM_SIZE);
    p->max_allocation = number(&q, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    p->local_mem_size = number(&q, CL_DEVICE_LOCAL_MEM_SIZE);
    p->last_level_cache_size = number(&q, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE);
    p->max_compute_units = number(&q, CL_DEVICE_MAX_COMPUTE_UNITS);
    p->max_clock_rate = number(&q, CL_DEVICE_MAX_CLOCK_FREQUENCY);
    p->max_work_group_size = number(&q, CL_DEVICE_MAX_WORK_GROUP_SIZE);
    p->max_num_sub_groups = number(&q, CL_DEVICE_MAX_NUM_SUB_GROUPS);
    p->max_parameter_size = number(&q, CL_DEVICE_MAX_PARAMETER_SIZE);
    p->address_align = number(&q, CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8;
    if (p->address_align < 64) p->address_align = 64;

    if (extension(&q, "cl_intel_device_attribute_query")) {
        p->architecture = number(&q, CL_DEVICE_IP_VERSION_INTEL);
        p->device_id = number(&q, CL_DEVICE_ID_INTEL);
        p->gpu_subslice_count =
            number(&q, CL_DEVICE_NUM_SLICES_INTEL) * number(&q, CL_DEVICE_NUM_SUB_SLICES_PER_SLICE_INTEL);
        p->gpu_eu_count = p->gpu_subslice_count * number(&q, CL_DEVICE_NUM_EUS_PER_SUB_SLICE_INTEL);
    }
    if (!p->gpu_eu_count) p->gpu_eu_count = p->max_compute_units;
    if (!p->gpu_subslice_count) p->gpu_subslice_count = p->max_compute_units;

    bool nvidia = strstr(p->vendor, "NVIDIA") != NULL;
    p->has_fp16 = extension(&q, "cl_khr_fp16");
    p->has_fp64 = number(&q, CL_DEVICE_DOUBLE_FP_CONFIG) != 0 && extension(&q, "cl_khr_fp64");
    p->has_atomic64 = extension(&q, "cl_khr_int64_base_atomics");
    p->has_float_atomics = extension(&q, "cl_ext_float_atomics");
    p->has_bfloat16_conversions = extension(&q, "cl_intel_bfloat16_conversions");
    p->has_subgroups = extension(&q, "cl_khr_subgroups") || extension(&q, "cl_intel_subgroups");
    p->has_subgroup_size = extension(&q, "cl_intel_required_subgroup_size");
    p->has_subgroup_shuffle = extension(&q, "cl_khr_subgroup_shuffle") || extension(&q, "cl_intel_subgroups");
    p->has_subgroup_matrix_multiply_accumulate =
        extension(&q, "cl_intel_subgroup_matrix_multiply_accumulate");
    p->has_subgroup_matrix_multiply_accumulate_tensor_float32 =
        extension(&q, "cl_intel_subgroup_matrix_multiply_accumulate_tf32");
    p->has_subgroup_2d_block_io = extension(&q, "cl_intel_subgroup_2d_block_io");
    const char *tier =
        getenv("OPENXPU_VARIANT"); /* "ref": portable kernels only; tests compare both variants */
    if (tier && !strcmp(tier, "ref")) {
        p->has_fp16 = p->has_subgroups = p->has_subgroup_size = p->has_subgroup_shuffle = false;
        p->has_subgroup_matrix_multiply_accumulate = p->has_subgroup_2d_block_io = false;
        p->has_subgroup_matrix_multiply_accumulate_tensor_float32 = false;
    }
    p->has_integer_dot_product = multiplies_by_fours(&q);
    p->has_command_buffer = extension(&q, "cl_khr_command_buffer");
    p->has_inline_ptx = nvidia;
    if (nvidia)
        p->architecture = 10 * number(&q, CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV) +
                          number(&q, CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV);
    p->is_integrated = p->type == XPU_DEVICE_GPU && number(&q, CL_DEVICE_HOST_UNIFIED_MEMORY);
    pci_address(&q, p);
    p->has_local_exec = device->host && extension(&q, "cl_intel_exec_by_local_thread");
    p->host_unified_memory = device->host;
    sub_group_sizes(&q, p);
    if (p->has_subgroup_matrix_multiply_accumulate && p->has_subgroup_shuffle && !device->host)
        p->matrix_lanes = matrix_lanes(p);

    cl_api *api = (cl_api *)device->api; /* the driver's table is still being filled */
    if (extension(&q, "cl_intel_unified_shared_memory")) {
#define X(result, name, parameters)                                                                          \
    if (!api->name)                                                                                          \
        *(void **)&api->name = api->clGetExtensionFunctionAddressForPlatform(device->platform, #name);
        CL_USM_FUNCTIONS(X)
#undef X
    }
    bool supported = true;
    if (device->host)
        p->memory = XPU_MEMORY_HOST;
    else if (nvidia || buffers) /* NVIDIA mirrors SVM in host memory and is slow to allocate it */
        p->memory = XPU_MEMORY_BUFFER;
    else if (extension(&q, "cl_intel_unified_shared_memory"))
        p->memory = XPU_MEMORY_USM;
    else if (number(&q, CL_DEVICE_SVM_CAPABILITIES) & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER)
        p->memory = XPU_MEMORY_SVM;
    else
        supported = false;
    device->profiling = !device->host;
    core_free(extensions);
    if (!supported)
        return xpu_fail(XPU_ERROR_NOT_SUPPORTED, "%s is not supported: its driver offers neither USM nor SVM",
                        p->name);
    device->options = build_options(&q, p);
    if (!device->options)
        return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for a device's build options");
    return XPU_SUCCESS;
}

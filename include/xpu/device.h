/* xpu/device.h: which devices there are, what they can do, and the calling thread's current one.
 *
 * A device is named by its index, 0 … count-1: GPUs first, host processors last, in the order in which
 * their drivers list them. The first call that needs a device loads the drivers; before that, and in
 * programs that never use one, no OpenCL call is made. All functions may be called from any thread. */
#ifndef XPU_DEVICE_H
#define XPU_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum xpu_device_type { XPU_DEVICE_GPU, XPU_DEVICE_CPU, XPU_DEVICE_ACCELERATOR } xpu_device_type;

/* Values of xpu_device_properties.vendor_id, as the PCI-SIG gives them out. */
enum { XPU_VENDOR_INTEL = 0x8086, XPU_VENDOR_NVIDIA = 0x10de };

/* How the device's memory is allocated and addressed. */
typedef enum xpu_memory_kind {
    XPU_MEMORY_USM,   /* cl_intel_unified_shared_memory */
    XPU_MEMORY_SVM,   /* coarse-grained shared virtual memory */
    XPU_MEMORY_HOST,  /* plain host memory: the device addresses the process's own memory */
    XPU_MEMORY_BUFFER /* plain buffers, whose addresses a kernel tells (NVIDIA) */
} xpu_memory_kind;

/* Everything known about a device, read once. Each line of the table is
 * X(C type, name, kind of value), the kind being one of: text, boolean, integer, list. Lists end with 0.
 * A new property is a line here and a line in src/cl/capability.c that fills it. */
#define XPU_DEVICE_PROPERTIES(X)                                                                             \
    X(char, name, text)          /* the device's marketing name */                                           \
    X(char, platform_name, text) /* the driver's platform */                                                 \
    X(char, vendor, text)                                                                                    \
    X(char, driver_version, text)                                                                            \
    X(char, version, text)          /* the OpenCL version text */                                            \
    X(char, uuid, text)             /* 32 hexadecimal digits; made up where there is none */                 \
    X(uint64_t, device_id, integer) /* PCI device id; 0 if unknown */                                        \
    X(uint64_t, vendor_id, integer)                                                                          \
    X(uint64_t, architecture, integer)   /* Intel: the IP version; NVIDIA: 90 for 9.0; else 0 */             \
    X(uint64_t, total_memory, integer)   /* bytes that this process may use; of a host's, a share */         \
    X(uint64_t, max_allocation, integer) /* bytes in one allocation */                                       \
    X(uint64_t, local_mem_size, integer) /* bytes of local memory a work-group can have */                   \
    X(uint64_t, last_level_cache_size, integer)                                                              \
    X(uint64_t, max_compute_units, integer)                                                                  \
    X(uint64_t, matrix_lanes,                                                                                \
      integer) /* Intel: of a subgroup that its matrix units serve, 8 or 16; else 0 */                       \
    X(uint64_t, gpu_eu_count, integer)                                                                       \
    X(uint64_t, gpu_subslice_count, integer)                                                                 \
    X(uint64_t, max_work_group_size, integer)                                                                \
    X(uint64_t, max_num_sub_groups, integer)                                                                 \
    X(uint64_t, max_parameter_size, integer) /* bytes of kernel arguments */                                 \
    X(uint64_t, address_align, integer)      /* bytes: alignment of every allocation */                      \
    X(uint64_t, sub_group_sizes, list)                                                                       \
    X(bool, has_fp16, boolean) /* cl_khr_fp16: arithmetic; loads and stores always work */                   \
    X(bool, has_fp64, boolean)                                                                               \
    X(bool, has_atomic64, boolean)                                                                           \
    X(bool, has_float_atomics, boolean) /* cl_ext_float_atomics: fp32 add */                                 \
    X(bool, has_bfloat16_conversions, boolean)                                                               \
    X(bool, has_subgroups, boolean)                                                                          \
    X(bool, has_subgroup_size, boolean) /* the size can be demanded of a kernel */                           \
    X(bool, has_subgroup_shuffle, boolean)                                                                   \
    X(bool, has_subgroup_matrix_multiply_accumulate, boolean)                                                \
    X(bool, has_subgroup_matrix_multiply_accumulate_tensor_float32, boolean)                                 \
    X(bool, has_subgroup_2d_block_io, boolean)                                                               \
    X(bool, has_integer_dot_product, boolean) /* of four bytes by four, as an instruction */                 \
    X(bool, has_command_buffer, boolean)                                                                     \
    X(bool, has_inline_ptx, boolean)      /* NVIDIA: asm("...") in kernels */                                \
    X(bool, has_local_exec, boolean)      /* kernels can run on the calling thread */                        \
    X(bool, built_for_cpu, boolean)       /* kernels are compiled for a processor, whatever the type says */ \
    X(bool, host_unified_memory, boolean) /* device pointers can be read and written by the host */          \
    X(char, pci_address, text)            /* "0000:03:00.0"; empty where there is none */                    \
    X(bool, is_integrated, boolean)       /* a GPU whose memory is the host's */                             \
    X(uint64_t, max_clock_rate, integer)  /* MHz */

#define XPU_PROPERTY_TEXT_SIZE 256
#define XPU_PROPERTY_LIST_SIZE 8

typedef struct xpu_device_properties {
    xpu_device_type type;
    xpu_memory_kind memory;
#define XPU_PROPERTY_text(type, name) type name[XPU_PROPERTY_TEXT_SIZE];
#define XPU_PROPERTY_boolean(type, name) type name;
#define XPU_PROPERTY_integer(type, name) type name;
#define XPU_PROPERTY_list(type, name) type name[XPU_PROPERTY_LIST_SIZE];
#define X(type, name, kind) XPU_PROPERTY_##kind(type, name)
    XPU_DEVICE_PROPERTIES(X)
#undef X
#undef XPU_PROPERTY_text
#undef XPU_PROPERTY_boolean
#undef XPU_PROPERTY_integer
#undef XPU_PROPERTY_list
} xpu_device_properties;

/* Number of devices. No driver or no device is count 0 and success; XPU_ERROR_BAD_FORK in a child
 * forked after first use. xpu_no_device_hint() then says what to install. */
XPU_API xpu_status xpu_device_count(int *count);
XPU_API const char *xpu_no_device_hint(void);

/* The properties of `device`; the struct belongs to the library and lives as long as the process. */
XPU_API xpu_status xpu_device_get_properties(int device, const xpu_device_properties **properties);

/* The calling thread's current device; 0 at first. Setting an index that doesn't exist is
 * XPU_ERROR_INVALID_ARGUMENT. */
XPU_API xpu_status xpu_device_current(int *device);
XPU_API xpu_status xpu_device_set_current(int device);

/* Waits until everything submitted to every stream of `device` has finished. */
XPU_API xpu_status xpu_device_synchronize(int device);

/* What the device's driver and libxpu have of their libraries in memory as their files have it leaves the
 * process (of all in their folders, unless the C library lies there, too), and what malloc keeps of memory
 * that is free. What is used again is read again, at some microseconds a piece of 64 KB. Intel's CPU runtime
 * touches some 85 MB of a compiler and its tables as it starts. On Linux; elsewhere little or nothing
 * happens. */
XPU_API xpu_status xpu_device_trim(int device);

/* True in a process forked after the parent used a device: nothing here works then. */
XPU_API bool xpu_in_bad_fork(void);

/* True once a driver has been loaded by this process. */
XPU_API bool xpu_initialized(void);

/* A team of host threads. A host device with `has_local_exec` runs its ND-ranges on it, each thread a
 * share of the work-groups, so that kernels and the caller's own parallel code never compete for the
 * processors. `run` calls task(i, context) for i in 0 … tasks-1, in any order, in parallel, and returns
 * when all are done. Without a team the driver's own thread pool is used. The struct is copied; NULL
 * takes the team away. Set it before other threads launch. */
typedef struct xpu_host_team {
    int (*threads)(void);
    void (*run)(int tasks, void (*task)(int index, void *context), void *context);
} xpu_host_team;
XPU_API xpu_status xpu_set_host_team(const xpu_host_team *team);
/* The one that is set, or NULL. */
XPU_API const xpu_host_team *xpu_get_host_team(void);

#ifdef __cplusplus
}
#endif
#endif

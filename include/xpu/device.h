/* xpu/device.h: device enumeration, properties, and the calling thread's current device.
 *
 * A device is named by its index, 0 to count-1: GPUs first, CPUs last, each in driver order.
 * CPU device: one of type XPU_DEVICE_CPU. It uses host memory, and its work is done when the submitting call
 *     returns, unless OPENXPU_MEMORY=buffer makes it behave as a GPU.
 * Drivers are loaded by the first call that needs a device; before that no OpenCL call is made.
 * Threads: all functions may be called from any thread. */
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

/* PCI vendor ids: values of xpu_device_properties.vendor_id. */
enum { XPU_VENDOR_INTEL = 0x8086, XPU_VENDOR_NVIDIA = 0x10de };

/* How the device's memory is allocated and addressed. */
typedef enum xpu_memory_kind {
    XPU_MEMORY_USM,   /* cl_intel_unified_shared_memory */
    XPU_MEMORY_SVM,   /* coarse-grained shared virtual memory */
    XPU_MEMORY_HOST,  /* ordinary host memory: the device addresses the process's memory */
    XPU_MEMORY_BUFFER /* cl_mem buffers; a kernel reports their addresses (NVIDIA) */
} xpu_memory_kind;

/* Device properties, read once. Each entry is X(C type, name, kind), where kind is text, boolean, integer or
 * list. Lists end with 0. To add a property, add an entry here and fill it in src/cl/capability.c. */
#define XPU_DEVICE_PROPERTIES(X)                                                                             \
    X(char, name, text)          /* marketing name */                                                        \
    X(char, platform_name, text) /* name of the OpenCL platform */                                           \
    X(char, vendor, text)                                                                                    \
    X(char, driver_version, text)                                                                            \
    X(char, version, text)          /* OpenCL version string */                                              \
    X(char, uuid, text)             /* 32 hexadecimal digits; synthetic if the driver has none */            \
    X(uint64_t, device_id, integer) /* PCI device id; 0 if unknown */                                        \
    X(uint64_t, vendor_id, integer)                                                                          \
    X(uint64_t, architecture, integer) /* Intel: the IP version; NVIDIA: 90 for 9.0; else 0 */               \
    X(uint64_t, total_memory,                                                                                \
      integer) /* bytes available to this process; on a CPU, a share of host memory */                       \
    X(uint64_t, max_allocation, integer) /* largest single allocation in bytes */                            \
    X(uint64_t, local_mem_size, integer) /* local memory per work-group in bytes */                          \
    X(uint64_t, last_level_cache_size, integer)                                                              \
    X(uint64_t, max_compute_units, integer)                                                                  \
    X(uint64_t, matrix_lanes, integer) /* Intel: subgroup size of XMX instructions, 8 or 16; else 0 */       \
    X(uint64_t, gpu_eu_count, integer)                                                                       \
    X(uint64_t, gpu_subslice_count, integer)                                                                 \
    X(uint64_t, max_work_group_size, integer)                                                                \
    X(uint64_t, max_num_sub_groups, integer)                                                                 \
    X(uint64_t, max_parameter_size, integer) /* size of kernel arguments in bytes */                         \
    X(uint64_t, address_align, integer)      /* alignment of every allocation in bytes */                    \
    X(uint64_t, sub_group_sizes, list)                                                                       \
    X(bool, has_fp16, boolean) /* cl_khr_fp16: arithmetic; loads and stores always work */                   \
    X(bool, has_fp64, boolean)                                                                               \
    X(bool, has_atomic64, boolean)                                                                           \
    X(bool, has_float_atomics, boolean) /* cl_ext_float_atomics: fp32 add */                                 \
    X(bool, has_bfloat16_conversions, boolean)                                                               \
    X(bool, has_subgroups, boolean)                                                                          \
    X(bool, has_subgroup_size, boolean) /* a kernel can require a subgroup size */                           \
    X(bool, has_subgroup_shuffle, boolean)                                                                   \
    X(bool, has_subgroup_matrix_multiply_accumulate, boolean)                                                \
    X(bool, has_subgroup_matrix_multiply_accumulate_tensor_float32, boolean)                                 \
    X(bool, has_subgroup_2d_block_io, boolean)                                                               \
    X(bool, has_integer_dot_product, boolean) /* 4-way int8 dot product instruction */                       \
    X(bool, has_command_buffer, boolean)                                                                     \
    X(bool, has_inline_ptx, boolean)      /* NVIDIA: asm("...") in kernels */                                \
    X(bool, has_local_exec, boolean)      /* kernels can run on the calling thread */                        \
    X(bool, built_for_cpu, boolean)       /* kernels are compiled for a CPU, whatever the device type */     \
    X(bool, host_unified_memory, boolean) /* the host can read and write device pointers */                  \
    X(char, pci_address, text)            /* "0000:03:00.0"; empty if there is none */                       \
    X(bool, is_integrated, boolean)       /* a GPU that shares the host's memory */                          \
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

/* Number of devices. Without a driver or a device, the count is 0 and the call succeeds;
 * xpu_no_device_hint() then says what to install.
 *
 * Errors: XPU_ERROR_BAD_FORK in a child process that was forked after the parent first used a device. */
XPU_API xpu_status xpu_device_count(int *count);
XPU_API const char *xpu_no_device_hint(void);

/* Says why no GPU is listed under Windows Subsystem for Linux, and what to do. Empty on other systems, if a
 * driver lists a GPU, and if xpu_device_count() fails. The library owns the text. Under Windows Subsystem for
 * Linux the first call may take seconds, since it searches the folder of all Windows drivers. */
XPU_API const char *xpu_no_gpu_hint(void);

/* The properties of `device`. The library owns the struct; it lives as long as the process. */
XPU_API xpu_status xpu_device_get_properties(int device, const xpu_device_properties **properties);

/* The calling thread's current device, initially 0.
 *
 * Errors: XPU_ERROR_INVALID_ARGUMENT for an index that doesn't exist. */
XPU_API xpu_status xpu_device_current(int *device);
XPU_API xpu_status xpu_device_set_current(int device);

/* Waits for all work submitted to all streams of `device`. */
XPU_API xpu_status xpu_device_synchronize(int device);

/* Reduces this process's resident memory after start-up.
 *
 * Drops unmodified pages of the shared libraries in the folders of the device's driver and of libxpu, and
 * returns free memory that malloc keeps. A folder that also holds the C library is left alone.
 * Cost: dropped pages are read again on use, some microseconds per 64 KB.
 * Gain: Intel's CPU runtime maps about 85 MB of compiler code and tables at start-up.
 * Platform: Linux; elsewhere little or nothing happens. */
XPU_API xpu_status xpu_device_trim(int device);

/* True in a child process forked after the parent used a device. No device works there. */
XPU_API bool xpu_in_bad_fork(void);

/* True once this process has loaded a driver. */
XPU_API bool xpu_initialized(void);

/* A thread pool for CPU devices. A device with `has_local_exec` runs ND-ranges on it, each thread a share
 * of the work-groups. Kernels and the caller's own parallel code then use the same threads.
 *
 * threads: number of threads.
 * run: calls task(i, context) for i in 0 to tasks-1, in any order and in parallel; returns when all are
 *     done.
 *
 * The struct is copied. NULL removes the pool: the driver's own threads are used. Set it before other
 * threads launch kernels. */
typedef struct xpu_host_thread_pool {
    int (*threads)(void);
    void (*run)(int tasks, void (*task)(int index, void *context), void *context);
} xpu_host_thread_pool;
XPU_API xpu_status xpu_set_host_thread_pool(const xpu_host_thread_pool *team);
/* The current thread pool, or NULL. */
XPU_API const xpu_host_thread_pool *xpu_get_host_thread_pool(void);

#ifdef __cplusplus
}
#endif
#endif

/* The part of OpenCL 3.0 that libxpu uses, declared from the specification (The OpenCL Specification 3.0 and
 * the extension specifications named below), so that building needs neither OpenCL headers nor a loader. Each
 * driver has its own table of function pointers, filled by loader.c; never pass an object to another driver's
 * functions. */
#ifndef CL_API_H
#define CL_API_H

#include <stddef.h>
#include <stdint.h>

typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef uint64_t cl_ulong;
typedef cl_ulong cl_bitfield;
typedef cl_uint cl_bool;
typedef struct _cl_platform_id *cl_platform_id;
typedef struct _cl_device_id *cl_device_id;
typedef struct _cl_context *cl_context;
typedef struct _cl_command_queue *cl_command_queue;
typedef struct _cl_program *cl_program;
typedef struct _cl_kernel *cl_kernel;
typedef struct _cl_event *cl_event;
typedef struct _cl_mem *cl_mem;

/* Errors: X(name, value). */
/* clang-format off */
#define CL_ERRORS(X)                                                                                     \
    X(CL_DEVICE_NOT_FOUND, -1) X(CL_DEVICE_NOT_AVAILABLE, -2) X(CL_COMPILER_NOT_AVAILABLE, -3)           \
    X(CL_MEM_OBJECT_ALLOCATION_FAILURE, -4) X(CL_OUT_OF_RESOURCES, -5) X(CL_OUT_OF_HOST_MEMORY, -6)      \
    X(CL_PROFILING_INFO_NOT_AVAILABLE, -7) X(CL_MEM_COPY_OVERLAP, -8) X(CL_BUILD_PROGRAM_FAILURE, -11)   \
    X(CL_MAP_FAILURE, -12) X(CL_MISALIGNED_SUB_BUFFER_OFFSET, -13)                                       \
    X(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, -14) X(CL_COMPILE_PROGRAM_FAILURE, -15)              \
    X(CL_LINKER_NOT_AVAILABLE, -16) X(CL_LINK_PROGRAM_FAILURE, -17) X(CL_DEVICE_PARTITION_FAILED, -18)   \
    X(CL_KERNEL_ARG_INFO_NOT_AVAILABLE, -19) X(CL_INVALID_VALUE, -30) X(CL_INVALID_DEVICE_TYPE, -31)     \
    X(CL_INVALID_PLATFORM, -32) X(CL_INVALID_DEVICE, -33) X(CL_INVALID_CONTEXT, -34)                     \
    X(CL_INVALID_QUEUE_PROPERTIES, -35) X(CL_INVALID_COMMAND_QUEUE, -36) X(CL_INVALID_HOST_PTR, -37)     \
    X(CL_INVALID_MEM_OBJECT, -38) X(CL_INVALID_BINARY, -42) X(CL_INVALID_BUILD_OPTIONS, -43)             \
    X(CL_INVALID_PROGRAM, -44) X(CL_INVALID_PROGRAM_EXECUTABLE, -45) X(CL_INVALID_KERNEL_NAME, -46)      \
    X(CL_INVALID_KERNEL_DEFINITION, -47) X(CL_INVALID_KERNEL, -48) X(CL_INVALID_ARG_INDEX, -49)          \
    X(CL_INVALID_ARG_VALUE, -50) X(CL_INVALID_ARG_SIZE, -51) X(CL_INVALID_KERNEL_ARGS, -52)              \
    X(CL_INVALID_WORK_DIMENSION, -53) X(CL_INVALID_WORK_GROUP_SIZE, -54)                                 \
    X(CL_INVALID_WORK_ITEM_SIZE, -55) X(CL_INVALID_GLOBAL_OFFSET, -56)                                   \
    X(CL_INVALID_EVENT_WAIT_LIST, -57) X(CL_INVALID_EVENT, -58) X(CL_INVALID_OPERATION, -59)             \
    X(CL_INVALID_BUFFER_SIZE, -61) X(CL_INVALID_GLOBAL_WORK_SIZE, -63) X(CL_INVALID_PROPERTY, -64)       \
    X(CL_INVALID_COMPILER_OPTIONS, -66) X(CL_INVALID_LINKER_OPTIONS, -67) X(CL_PLATFORM_NOT_FOUND_KHR, -1001)
/* clang-format on */
enum {
    CL_SUCCESS = 0,
#define X(name, value) name = value,
    CL_ERRORS(X)
#undef X
};

enum { CL_FALSE = 0, CL_TRUE = 1 };
enum { CL_COMPLETE = 0 };

#define CL_DEVICE_TYPE_CPU (1u << 1)
#define CL_DEVICE_TYPE_GPU (1u << 2)
#define CL_DEVICE_TYPE_ACCELERATOR (1u << 3)
#define CL_DEVICE_TYPE_ALL 0xFFFFFFFFu

enum {
    CL_PLATFORM_VERSION = 0x0901,
    CL_PLATFORM_NAME = 0x0902,
    CL_DEVICE_TYPE = 0x1000,
    CL_DEVICE_VENDOR_ID = 0x1001,
    CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002,
    CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
    CL_DEVICE_MAX_CLOCK_FREQUENCY = 0x100C,
    CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
    CL_DEVICE_MAX_PARAMETER_SIZE = 0x1017,
    CL_DEVICE_MEM_BASE_ADDR_ALIGN = 0x1019,
    CL_DEVICE_SINGLE_FP_CONFIG = 0x101B,
    CL_DEVICE_GLOBAL_MEM_CACHE_SIZE = 0x101E,
    CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F,
    CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
    CL_DEVICE_NAME = 0x102B,
    CL_DEVICE_VENDOR = 0x102C,
    CL_DRIVER_VERSION = 0x102D,
    CL_DEVICE_VERSION = 0x102F,
    CL_DEVICE_EXTENSIONS = 0x1030,
    CL_DEVICE_DOUBLE_FP_CONFIG = 0x1032,
    CL_DEVICE_HOST_UNIFIED_MEMORY = 0x1035,
    CL_DEVICE_SVM_CAPABILITIES = 0x1053,
    CL_DEVICE_MAX_NUM_SUB_GROUPS = 0x105C,
    CL_QUEUE_CONTEXT = 0x1090,
    CL_QUEUE_DEVICE = 0x1091,
    CL_QUEUE_PROPERTIES = 0x1093,
    CL_PROGRAM_BINARY_SIZES = 0x1165,
    CL_PROGRAM_BINARIES = 0x1166,
    CL_PROGRAM_BUILD_LOG = 0x1183,
    CL_KERNEL_WORK_GROUP_SIZE = 0x11B0,
    CL_KERNEL_LOCAL_MEM_SIZE = 0x11B2,
    CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE = 0x11B3,
    CL_KERNEL_PRIVATE_MEM_SIZE = 0x11B4,
    CL_EVENT_COMMAND_EXECUTION_STATUS = 0x11D3,
    CL_PROFILING_COMMAND_SUBMIT = 0x1281,
    CL_PROFILING_COMMAND_START = 0x1282,
    CL_PROFILING_COMMAND_END = 0x1283
};

#define CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT (1u << 7)
#define CL_DEVICE_SVM_COARSE_GRAIN_BUFFER (1u << 0)
#define CL_QUEUE_PROFILING_ENABLE (1u << 1)
#define CL_MEM_READ_WRITE (1u << 0)
#define CL_MEM_ALLOC_HOST_PTR (1u << 4)
#define CL_MEM_FLAGS 0x1101
#define CL_MAP_READ (1u << 0)
#define CL_MAP_WRITE (1u << 1)

/* Extensions, each by its specification. */
#define CL_QUEUE_PRIORITY_KHR 0x1096 /* cl_khr_priority_hints */
#define CL_QUEUE_PRIORITY_HIGH_KHR (1u << 0)
#define CL_QUEUE_PRIORITY_MED_KHR (1u << 1)
#define CL_QUEUE_PRIORITY_LOW_KHR (1u << 2)
#define CL_DEVICE_UUID_KHR 0x106A                                      /* cl_khr_device_uuid */
#define CL_QUEUE_THREAD_LOCAL_EXEC_ENABLE_INTEL ((cl_bitfield)1 << 31) /* cl_intel_exec_by_local_thread */
#define CL_DEVICE_SUB_GROUP_SIZES_INTEL 0x4108                         /* cl_intel_required_subgroup_size */
#define CL_KERNEL_SPILL_MEM_SIZE_INTEL 0x4109
#define CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV 0x4000 /* cl_nv_device_attribute_query */
#define CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV 0x4001
#define CL_DEVICE_PCI_BUS_ID_NV 0x4008
#define CL_DEVICE_PCI_SLOT_ID_NV 0x4009
#define CL_DEVICE_PCI_DOMAIN_ID_NV 0x400A
#define CL_DEVICE_PCI_BUS_INFO_KHR 0x410F /* cl_khr_pci_bus_info */
#define CL_DEVICE_INTEGER_DOT_PRODUCT_ACCELERATION_PROPERTIES_4x8BIT_PACKED_KHR 0x1075
#define CL_DEVICE_IP_VERSION_INTEL 0x4250 /* cl_intel_device_attribute_query */
#define CL_DEVICE_ID_INTEL 0x4251
#define CL_DEVICE_NUM_SLICES_INTEL 0x4252
#define CL_DEVICE_NUM_SUB_SLICES_PER_SLICE_INTEL 0x4253
#define CL_DEVICE_NUM_EUS_PER_SUB_SLICE_INTEL 0x4254
#define CL_DEVICE_SHARED_SYSTEM_MEM_CAPABILITIES_INTEL 0x4194 /* cl_intel_unified_shared_memory */
#define CL_KERNEL_EXEC_INFO_INDIRECT_HOST_ACCESS_INTEL 0x4200
#define CL_KERNEL_EXEC_INFO_INDIRECT_DEVICE_ACCESS_INTEL 0x4201
#define CL_KERNEL_EXEC_INFO_INDIRECT_SHARED_ACCESS_INTEL 0x4202
#define CL_MEM_ALLOW_UNRESTRICTED_SIZE_INTEL (1u << 23) /* cl_intel_mem_force_host… unrestricted */

typedef void (*cl_event_callback)(cl_event event, cl_int status, void *user);

/* clang-format off */
/* X(result, name, parameters): functions that every OpenCL 3.0 driver must have. */
#define CL_FUNCTIONS(X)                                                                                  \
    X(cl_int, clGetPlatformInfo, (cl_platform_id, cl_uint, size_t, void *, size_t *))                    \
    X(cl_int, clGetDeviceIDs, (cl_platform_id, cl_bitfield, cl_uint, cl_device_id *, cl_uint *))         \
    X(cl_int, clGetDeviceInfo, (cl_device_id, cl_uint, size_t, void *, size_t *))                        \
    X(cl_context, clCreateContext,                                                                       \
      (const intptr_t *, cl_uint, const cl_device_id *, void (*)(const char *, const void *, size_t, void *), \
       void *, cl_int *))                                                                                \
    X(cl_int, clReleaseContext, (cl_context))                                                            \
    X(cl_command_queue, clCreateCommandQueueWithProperties,                                              \
      (cl_context, cl_device_id, const cl_bitfield *, cl_int *))                                         \
    X(cl_int, clRetainCommandQueue, (cl_command_queue))                                                  \
    X(cl_int, clReleaseCommandQueue, (cl_command_queue))                                                 \
    X(cl_int, clGetCommandQueueInfo, (cl_command_queue, cl_uint, size_t, void *, size_t *))              \
    X(cl_int, clFlush, (cl_command_queue))                                                               \
    X(cl_int, clFinish, (cl_command_queue))                                                              \
    X(cl_program, clCreateProgramWithSource,                                                             \
      (cl_context, cl_uint, const char **, const size_t *, cl_int *))                                    \
    X(cl_program, clCreateProgramWithBinary,                                                             \
      (cl_context, cl_uint, const cl_device_id *, const size_t *, const unsigned char **, cl_int *, cl_int *)) \
    X(cl_int, clBuildProgram,                                                                            \
      (cl_program, cl_uint, const cl_device_id *, const char *, void (*)(cl_program, void *), void *))   \
    X(cl_int, clCompileProgram,                                                                          \
      (cl_program, cl_uint, const cl_device_id *, const char *, cl_uint, const cl_program *, const char **, \
       void (*)(cl_program, void *), void *))                                                            \
    X(cl_program, clLinkProgram,                                                                         \
      (cl_context, cl_uint, const cl_device_id *, const char *, cl_uint, const cl_program *,             \
       void (*)(cl_program, void *), void *, cl_int *))                                                  \
    X(cl_int, clGetProgramInfo, (cl_program, cl_uint, size_t, void *, size_t *))                         \
    X(cl_int, clGetProgramBuildInfo, (cl_program, cl_device_id, cl_uint, size_t, void *, size_t *))      \
    X(cl_int, clReleaseProgram, (cl_program))                                                            \
    X(cl_kernel, clCreateKernel, (cl_program, const char *, cl_int *))                                   \
    X(cl_int, clReleaseKernel, (cl_kernel))                                                              \
    X(cl_int, clSetKernelArg, (cl_kernel, cl_uint, size_t, const void *))                                \
    X(cl_int, clSetKernelExecInfo, (cl_kernel, cl_uint, size_t, const void *))                           \
    X(cl_int, clGetKernelWorkGroupInfo, (cl_kernel, cl_device_id, cl_uint, size_t, void *, size_t *))    \
    X(cl_int, clEnqueueNDRangeKernel,                                                                    \
      (cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *, const size_t *, cl_uint,    \
       const cl_event *, cl_event *))                                                                    \
    X(cl_int, clEnqueueMarkerWithWaitList, (cl_command_queue, cl_uint, const cl_event *, cl_event *))    \
    X(cl_int, clEnqueueBarrierWithWaitList, (cl_command_queue, cl_uint, const cl_event *, cl_event *))   \
    X(cl_int, clWaitForEvents, (cl_uint, const cl_event *))                                              \
    X(cl_int, clGetEventInfo, (cl_event, cl_uint, size_t, void *, size_t *))                             \
    X(cl_int, clGetEventProfilingInfo, (cl_event, cl_uint, size_t, void *, size_t *))                    \
    X(cl_int, clRetainEvent, (cl_event))                                                                 \
    X(cl_int, clReleaseEvent, (cl_event))                                                                \
    X(void *, clSVMAlloc, (cl_context, cl_bitfield, size_t, cl_uint))                                    \
    X(void, clSVMFree, (cl_context, void *))                                                             \
    X(cl_int, clSetKernelArgSVMPointer, (cl_kernel, cl_uint, const void *))                              \
    X(cl_int, clEnqueueSVMMemcpy,                                                                        \
      (cl_command_queue, cl_bool, void *, const void *, size_t, cl_uint, const cl_event *, cl_event *))  \
    X(cl_mem, clCreateBuffer, (cl_context, cl_bitfield, size_t, void *, cl_int *))                       \
    X(cl_int, clReleaseMemObject, (cl_mem))                                                              \
    X(cl_int, clEnqueueReadBuffer,                                                                       \
      (cl_command_queue, cl_mem, cl_bool, size_t, size_t, void *, cl_uint, const cl_event *, cl_event *)) \
    X(cl_int, clEnqueueWriteBuffer,                                                                      \
      (cl_command_queue, cl_mem, cl_bool, size_t, size_t, const void *, cl_uint, const cl_event *,       \
       cl_event *))                                                                                      \
    X(void *, clEnqueueMapBuffer,                                                                        \
      (cl_command_queue, cl_mem, cl_bool, cl_bitfield, size_t, size_t, cl_uint, const cl_event *,        \
       cl_event *, cl_int *))                                                                            \
    X(void *, clGetExtensionFunctionAddressForPlatform, (cl_platform_id, const char *))

/* Functions of cl_intel_unified_shared_memory; NULL if the driver lacks the extension. */
#define CL_USM_FUNCTIONS(X)                                                                              \
    X(void *, clDeviceMemAllocINTEL,                                                                     \
      (cl_context, cl_device_id, const cl_bitfield *, size_t, cl_uint, cl_int *))                        \
    X(void *, clHostMemAllocINTEL, (cl_context, const cl_bitfield *, size_t, cl_uint, cl_int *))         \
    X(cl_int, clMemBlockingFreeINTEL, (cl_context, void *))                                              \
    X(cl_int, clSetKernelArgMemPointerINTEL, (cl_kernel, cl_uint, const void *))                         \
    X(cl_int, clEnqueueMemcpyINTEL,                                                                      \
      (cl_command_queue, cl_bool, void *, const void *, size_t, cl_uint, const cl_event *, cl_event *))

/* clang-format on */
typedef struct cl_api {
    cl_int (*clGetPlatformIDs)(cl_uint, cl_platform_id *, cl_uint *);
#define X(result, name, parameters) result(*name) parameters;
    CL_FUNCTIONS(X)
    CL_USM_FUNCTIONS(X)
#undef X
} cl_api;

#endif

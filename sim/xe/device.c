/* Device files: opening one, knowing its descriptors, and handing ioctls to those who serve them. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "xe/xe.h"

#define FILES_MAX 64 /* that a process opens in its life */

static struct xe_file *files[FILES_MAX];
static atomic_int file_count;
static pthread_mutex_t files_lock = PTHREAD_MUTEX_INITIALIZER;

/* The memfd and its mapping. A descriptor of its own stays open, so that the memory outlives the program's.
 */
static int make_memory(struct xe_file *file) {
    file->descriptor = memfd_create("xe", MFD_CLOEXEC);
    if (file->descriptor < 0) return -errno;
    struct stat status;
    if (ftruncate(file->descriptor, (off_t)XE_MEMORY_SIZE) || fstat(file->descriptor, &status)) return -errno;
    file->device = status.st_dev;
    file->inode = status.st_ino;
    file->memory =
        mmap(NULL, XE_MEMORY_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file->descriptor, 0);
    if (file->memory == MAP_FAILED) return -errno;
    madvise(file->memory, XE_MEMORY_SIZE, MADV_DONTDUMP);
    file->holes = malloc(64 * sizeof *file->holes);
    if (!file->holes) return -ENOMEM;
    file->hole_room = 64;
    file->hole_count = 1;
    file->holes[0] = (struct hole){XE_FIRST_OFFSET, XE_MEMORY_SIZE - XE_FIRST_OFFSET};
    return 0;
}

int xe_open(int index) {
    struct xe_file *file = calloc(1, sizeof *file);
    if (!file) return -ENOMEM;
    file->product = sim_options()->product;
    file->index = index;
    file->process = getpid();
    pthread_mutex_init(&file->lock, NULL);
    int status = make_memory(file), descriptor = -1;
    if (!status && (descriptor = fcntl(file->descriptor, F_DUPFD_CLOEXEC, 3)) < 0) status = -errno;
    pthread_mutex_lock(&files_lock);
    int count = atomic_load(&file_count);
    if (!status && count == FILES_MAX) status = -EMFILE;
    if (!status) {
        files[count] = file;
        atomic_store(&file_count, count + 1);
    }
    pthread_mutex_unlock(&files_lock);
    if (status) {
        sim_fault("the device cannot be opened: %s", strerror(-status));
        return status; /* what was made of the file is lost */
    }
    SIM_LOG(SIM_LOG_SUBMISSIONS, "device %d is opened: %s", index, file->product->marketing);
    return descriptor;
}

struct xe_file *xe_file_of(int descriptor) {
    int count = atomic_load(&file_count);
    struct stat status;
    if (!count || fstat(descriptor, &status)) return NULL;
    for (int i = 0; i < count; i++)
        if (files[i]->inode == status.st_ino && files[i]->device == status.st_dev) return files[i];
    return NULL;
}

/* ---- ioctls of DRM's own ---- */

static void copy_text(char *to, size_t *size, const char *text) {
    size_t length = strlen(text);
    if (to) memcpy(to, text, *size < length ? *size : length);
    *size = length;
}

static int version(struct xe_file *file, struct drm_version *version) {
    (void)file;
    version->major = 1;
    version->minor = 1;
    version->patch = 0;
    copy_text(version->name, &version->name_size, "xe");
    copy_text(version->date, &version->date_size, "20201103");
    copy_text(version->description, &version->description_size, "Intel Xe2 Graphics");
    return 0;
}

/* A kernel that does not know an ioctl gives EINVAL for it. */
static int not_served(struct xe_file *file, void *argument) {
    (void)file, (void)argument;
    return -EINVAL;
}

/* ---- dispatch ---- */

typedef int serve_function(struct xe_file *file, void *argument);

struct service {
    const char *name;
    serve_function *serve;
    uint16_t size; /* of its struct */
    bool waits;    /* called without the file's lock */
};

#define SERVICE(function, type)                                                                              \
    {#function, (serve_function *)(void (*)(void))function, sizeof(struct type), false}
#define WAITING(function, type)                                                                              \
    {#function, (serve_function *)(void (*)(void))function, sizeof(struct type), true}
#define REFUSED(name) {name, not_served, 0, false}

static const struct service services[256] = {
    [DRM_VERSION] = SERVICE(version, drm_version),
    [DRM_GEM_CLOSE] = SERVICE(xe_gem_close, drm_gem_close),
    [XE_DEVICE_QUERY] = SERVICE(xe_query, xe_device_query),
    [XE_GEM_CREATE] = SERVICE(xe_gem_create, xe_gem_create),
    [XE_GEM_MMAP_OFFSET] = SERVICE(xe_gem_mmap_offset, xe_gem_mmap_offset),
    [XE_VM_CREATE] = SERVICE(xe_vm_create, xe_vm_create),
    [XE_VM_DESTROY] = SERVICE(xe_vm_destroy, xe_vm_destroy),
    [XE_VM_BIND] = WAITING(xe_vm_bind, xe_vm_bind),
    [XE_EXEC_QUEUE_CREATE] = SERVICE(xe_queue_create, xe_queue_create),
    [XE_EXEC_QUEUE_DESTROY] = WAITING(xe_queue_destroy, xe_queue_destroy),
    [XE_EXEC_QUEUE_GET_PROPERTY] = SERVICE(xe_queue_property, xe_queue_property),
    [XE_EXEC] = SERVICE(xe_exec, xe_exec),
    [XE_WAIT_USER_FENCE] = WAITING(xe_wait_user_fence, xe_wait_user_fence),
    [XE_OBSERVATION] = REFUSED("observation"),
    [XE_MADVISE] = REFUSED("madvise"),
    [XE_VM_QUERY_MEM_RANGE_ATTRS] = REFUSED("vm_query_mem_range_attrs"),
    [XE_EXEC_QUEUE_SET_PROPERTY] = REFUSED("exec_queue_set_property"),
    [XE_VM_GET_PROPERTY] = REFUSED("vm_get_property"),
    [DRM_PRIME_HANDLE_TO_FD] = REFUSED("prime_handle_to_fd"),
    [DRM_PRIME_FD_TO_HANDLE] = REFUSED("prime_fd_to_handle"),
    [DRM_SYNCOBJ_CREATE] = SERVICE(xe_syncobj_create, drm_syncobj_create),
    [DRM_SYNCOBJ_DESTROY] = SERVICE(xe_syncobj_destroy, drm_syncobj_create),
    [DRM_SYNCOBJ_WAIT] = WAITING(xe_syncobj_wait, drm_syncobj_wait),
    [DRM_SYNCOBJ_RESET] = SERVICE(xe_syncobj_reset, drm_syncobj_array),
    [DRM_SYNCOBJ_SIGNAL] = SERVICE(xe_syncobj_signal, drm_syncobj_array),
};

int xe_ioctl(struct xe_file *file, unsigned long request, void *argument) {
    if (_IOC_TYPE(request) != 'd') return -ENOTTY;
    const struct service *service = services + _IOC_NR(request);
    if (!service->serve) {
        sim_fault("ioctl %#lx of the device is not known", request);
        return -EINVAL;
    }
    /* As in the kernel, a program may pass a shorter struct of an older interface, or a longer one of a
     * newer. */
    uint8_t own[256] = {0};
    size_t size = _IOC_SIZE(request), known = service->size;
    if (file->process != getpid()) {
        SIM_LOG(SIM_LOG_SUBMISSIONS, "%s in a child after fork: the device belongs to its parent",
                service->name);
        return -EIO;
    }
    memcpy(own, argument, size < known ? size : known);
    if (!service->waits) pthread_mutex_lock(&file->lock);
    int status = service->serve(file, own);
    if (!service->waits) pthread_mutex_unlock(&file->lock);
    memcpy(argument, own, size < known ? size : known);
    if (status && status != -ETIME) SIM_LOG(SIM_LOG_SUBMISSIONS, "%s: %s", service->name, strerror(-status));
    return status;
}

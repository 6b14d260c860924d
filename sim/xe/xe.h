/* The kernel driver's objects. Each open of a device file has its own; handles are numbers within it.
 *
 * Functions named xe_… that take a struct of uapi.h serve the ioctl of its name: 0, or a negative errno as
 * the kernel gives it. device.c calls them with the file's lock held, except those that may wait: xe_vm_bind,
 * xe_queue_destroy, xe_wait_user_fence and xe_syncobj_…wait.
 *
 * Locks, in the order in which they are taken: a file's, which guards its tables; a vm's, which guards its
 * ranges; a queue's, which guards its jobs; sync.c's. None is held while a batch runs. */
#ifndef SIM_XE_XE_H
#define SIM_XE_XE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "sim.h"
#include "xe/uapi.h"

/* Handles: indices from 1 on. */
struct table {
    void **items;
    uint32_t count; /* items[count] and later are not allocated */
};
uint32_t table_add(struct table *table, void *item); /* 0 without memory */
void *table_get(const struct table *table, uint32_t handle);
void *table_remove(struct table *table, uint32_t handle); /* both: NULL for an unknown handle */

/* A part of the file's memory that no buffer object uses. */
struct hole {
    uint64_t offset, size;
};

/* An open device file. Its descriptor is a sparse memfd, and buffer objects are ranges of that: so mmap of
 * the descriptor at an object's offset needs no help. */
struct xe_file {
    const struct sim_product *product;
    int descriptor, index; /* of the device */
    dev_t device;          /* of the memfd, to know its descriptors by */
    ino_t inode;
    pid_t process;   /* that opened it: a child after fork has no queue threads */
    uint8_t *memory; /* all of the memfd, mapped */
    pthread_mutex_t lock;
    struct table objects, vms, queues, syncobjs;
    struct hole *holes; /* sorted by offset; the last one is the rest of the memory */
    uint32_t hole_count, hole_room;
    uint64_t video_used; /* bytes of objects that can be in video memory only */
};

/* Opens device `index`: a descriptor, or a negative errno. */
int xe_open(int index);
/* The file that a descriptor belongs to, NULL for other descriptors. */
struct xe_file *xe_file_of(int descriptor);
/* Serves an ioctl: 0, or a negative errno. */
int xe_ioctl(struct xe_file *file, unsigned long request, void *argument);

/* ---- query.c ---- */
int xe_query(struct xe_file *file, struct xe_device_query *query);

/* ---- bo.c ---- */
struct xe_bo {
    struct xe_file *file;
    uint64_t offset, size; /* in the file's memory */
    uint32_t references;   /* the handle's and the binds', under the file's lock */
    bool video;
    uint64_t requested; /* bytes that the program asked for; 0: not known */
};
#define XE_MEMORY_SIZE (1ull << 42)
#define XE_BARRIER_OFFSET 0 /* a page that holds nothing, for XE_MMAP_PCI_BARRIER */
#define XE_FIRST_OFFSET (1ull << 21)
int xe_gem_create(struct xe_file *file, struct xe_gem_create *create);
int xe_gem_mmap_offset(struct xe_file *file, struct xe_gem_mmap_offset *query);
int xe_gem_close(struct xe_file *file, struct drm_gem_close *close);
void xe_bo_put(struct xe_bo *object); /* under the file's lock */

/* ---- vm.c ---- */
int xe_vm_create(struct xe_file *file, struct xe_vm_create *create);
int xe_vm_destroy(struct xe_file *file, struct xe_vm_destroy *destroy);
int xe_vm_bind(struct xe_file *file, struct xe_vm_bind *bind);
struct sim_vm *xe_vm_get(struct sim_vm *vm); /* adds a reference */
void xe_vm_put(struct sim_vm *vm);           /* under the file's lock */

/* ---- sync.c ---- */

/* Something may have become true that somebody waits for. */
void xe_event(void);
/* Waits until `ready(argument)` or the deadline (of CLOCK_MONOTONIC, ns; negative: none) has passed. What
 * changes memory without xe_event is noticed within a millisecond. */
bool xe_wait(bool (*ready)(void *argument), void *argument, int64_t deadline);
int64_t xe_now(void); /* of CLOCK_MONOTONIC, ns */

/* A job's sync, resolved when it is submitted. */
struct job_sync {
    struct xe_syncobj *syncobj; /* with a reference; or NULL */
    uint64_t address, value;
    bool signal;
};
/* Reads `count` syncs. Those of binds write to the process' own memory. */
int xe_syncs_read(struct xe_file *file, uint64_t array, uint32_t count, struct job_sync **syncs);
void xe_syncs_free(struct job_sync *syncs, uint32_t count);
void xe_syncs_await(const struct job_sync *syncs, uint32_t count);
/* Signals; user fences are written only if `fences`, to the vm or, if it is NULL, to the process' memory. */
void xe_syncs_signal(struct sim_vm *vm, const struct job_sync *syncs, uint32_t count, bool fences);

int xe_wait_user_fence(struct xe_file *file, struct xe_wait_user_fence *wait);
int xe_syncobj_create(struct xe_file *file, struct drm_syncobj_create *create);
int xe_syncobj_destroy(struct xe_file *file, struct drm_syncobj_create *destroy);
int xe_syncobj_wait(struct xe_file *file, struct drm_syncobj_wait *wait);
int xe_syncobj_reset(struct xe_file *file, struct drm_syncobj_array *array);
int xe_syncobj_signal(struct xe_file *file, struct drm_syncobj_array *array);

/* ---- queue.c ---- */
int xe_queue_create(struct xe_file *file, struct xe_queue_create *create);
int xe_queue_destroy(struct xe_file *file, struct xe_queue_destroy *destroy);
int xe_queue_property(struct xe_file *file, struct xe_queue_property *property);
int xe_exec(struct xe_file *file, struct xe_exec *exec);
/* -ENOENT for an unknown queue, -EIO for one that is banned, else 0. */
int xe_queue_state(struct xe_file *file, uint32_t queue);

#endif

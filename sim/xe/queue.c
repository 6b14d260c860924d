/* Exec queues. Each has a thread that runs its jobs in order: DRM_IOCTL_XE_EXEC appends one and returns.
 * After a fault the queue is banned, as after a hang on hardware: jobs are dropped, user fences stay
 * unwritten, and further submissions fail with ECANCELED. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "command/command.h"
#include "xe/xe.h"

struct job {
    struct job *next;
    uint64_t batch; /* 0: only syncs */
    struct job_sync *syncs;
    uint32_t sync_count;
};

struct xe_queue {
    struct xe_file *file;
    struct sim_vm *vm; /* with a reference */
    struct command_engine *engine;
    uint32_t handle;
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t more;
    struct job *first, **last;
    bool ending;
    atomic_bool banned;
};

static void free_job(struct job *job) {
    xe_syncs_free(job->syncs, job->sync_count);
    free(job);
}

static void ban(struct xe_queue *queue, uint64_t batch) {
    SIM_LOG(SIM_LOG_SUBMISSIONS, "queue %u is banned after batch %#lx", queue->handle, batch);
    atomic_store(&queue->banned, true);
}

static void run_job(struct xe_queue *queue, struct job *job) {
    xe_syncs_await(job->syncs, job->sync_count);
    if (job->batch && !atomic_load(&queue->banned)) {
        SIM_LOG(SIM_LOG_SUBMISSIONS, "queue %u: batch %#lx", queue->handle, job->batch);
        if (command_run(queue->engine, job->batch)) ban(queue, job->batch);
    }
    xe_syncs_signal(queue->vm, job->syncs, job->sync_count, !atomic_load(&queue->banned));
    free_job(job);
}

static void *serve(void *argument) {
    struct xe_queue *queue = argument;
    pthread_mutex_lock(&queue->lock);
    for (;;) {
        while (!queue->first && !queue->ending) pthread_cond_wait(&queue->more, &queue->lock);
        struct job *job = queue->first;
        if (!job || queue->ending) break;
        if (!(queue->first = job->next)) queue->last = &queue->first;
        pthread_mutex_unlock(&queue->lock);
        run_job(queue, job);
        pthread_mutex_lock(&queue->lock);
    }
    pthread_mutex_unlock(&queue->lock);
    return NULL;
}

static void free_queue(struct xe_queue *queue) {
    command_engine_free(queue->engine);
    pthread_cond_destroy(&queue->more);
    pthread_mutex_destroy(&queue->lock);
    free(queue);
}

static int check_extensions(uint64_t first) {
    for (const struct xe_set_property *e = (const void *)(uintptr_t)first; e;
         e = (const void *)(uintptr_t)e->base.next)
        if (e->base.name || e->base.pad || e->pad || e->property > XE_QUEUE_TIMESLICE) return -EINVAL;
    return 0;
}

int xe_queue_create(struct xe_file *file, struct xe_queue_create *create) {
    if (create->flags & ~XE_QUEUE_LOW_LATENCY || create->reserved[0] || create->reserved[1]) return -EINVAL;
    if (create->width != 1 || !create->placements) return -EINVAL; /* no parallel submission */
    const struct xe_engine_id *id = (const void *)(uintptr_t)create->instances;
    if (id->gt || id->instance || id->pad) return -EINVAL;
    if (id->class != XE_CLASS_RENDER && id->class != XE_CLASS_COPY && id->class != XE_CLASS_COMPUTE)
        return -EINVAL;
    int status = check_extensions(create->extensions);
    if (status) return status;
    struct sim_vm *vm = table_get(&file->vms, create->vm);
    if (!vm) return -ENOENT;

    struct xe_queue *queue = calloc(1, sizeof *queue);
    if (!queue) return -ENOMEM;
    queue->file = file;
    queue->last = &queue->first;
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->more, NULL);
    queue->engine = command_engine_make(vm, file->product, id->class == XE_CLASS_COPY);
    queue->vm = vm;
    queue->handle = queue->engine ? table_add(&file->queues, queue) : 0;
    if (!queue->handle || pthread_create(&queue->thread, NULL, serve, queue)) {
        if (queue->handle) table_remove(&file->queues, queue->handle);
        free_queue(queue);
        return -ENOMEM;
    }
    xe_vm_get(vm);
    create->queue = queue->handle;
    SIM_LOG(SIM_LOG_SUBMISSIONS, "queue %u: vm %u, engine class %u", queue->handle, create->vm, id->class);
    return 0;
}

/* Jobs that have not started are dropped. One that runs is told to stop, which it does at its next command.
 */
int xe_queue_destroy(struct xe_file *file, struct xe_queue_destroy *destroy) {
    if (destroy->pad || destroy->reserved[0] || destroy->reserved[1]) return -EINVAL;
    pthread_mutex_lock(&file->lock);
    struct xe_queue *queue = table_remove(&file->queues, destroy->queue);
    pthread_mutex_unlock(&file->lock);
    if (!queue) return -ENOENT;
    pthread_mutex_lock(&queue->lock);
    queue->ending = true;
    command_stop(queue->engine);
    pthread_cond_broadcast(&queue->more);
    pthread_mutex_unlock(&queue->lock);
    pthread_join(queue->thread, NULL);
    while (queue->first) {
        struct job *job = queue->first;
        queue->first = job->next;
        xe_syncs_signal(queue->vm, job->syncs, job->sync_count, false);
        free_job(job);
    }
    pthread_mutex_lock(&file->lock);
    xe_vm_put(queue->vm);
    pthread_mutex_unlock(&file->lock);
    free_queue(queue);
    return 0;
}

int xe_queue_property(struct xe_file *file, struct xe_queue_property *property) {
    if (property->extensions || property->reserved[0] || property->reserved[1]) return -EINVAL;
    const struct xe_queue *queue = table_get(&file->queues, property->queue);
    if (!queue) return -ENOENT;
    if (property->property != XE_QUEUE_BANNED) return -EINVAL;
    property->value = atomic_load(&queue->banned);
    return 0;
}

int xe_queue_state(struct xe_file *file, uint32_t handle) {
    pthread_mutex_lock(&file->lock);
    const struct xe_queue *queue = table_get(&file->queues, handle);
    int state = !queue ? -ENOENT : atomic_load(&queue->banned) ? -EIO : 0;
    pthread_mutex_unlock(&file->lock);
    return state;
}

int xe_exec(struct xe_file *file, struct xe_exec *exec) {
    if (exec->extensions || exec->pad[0] || exec->pad[1] || exec->pad[2] || exec->reserved[0] ||
        exec->reserved[1])
        return -EINVAL;
    struct xe_queue *queue = table_get(&file->queues, exec->queue);
    if (!queue) return -ENOENT;
    if (exec->batches > 1) return -EINVAL; /* must match the queue's width */
    if (atomic_load(&queue->banned)) return -ECANCELED;
    struct job *job = calloc(1, sizeof *job);
    if (!job) return -ENOMEM;
    int status = xe_syncs_read(file, exec->syncs, exec->sync_count, &job->syncs);
    if (status) {
        free(job);
        return status;
    }
    job->sync_count = exec->sync_count;
    job->batch = exec->batches ? exec->address : 0;
    pthread_mutex_lock(&queue->lock);
    *queue->last = job;
    queue->last = &job->next;
    pthread_cond_signal(&queue->more);
    pthread_mutex_unlock(&queue->lock);
    return 0;
}

/* What jobs and programs wait for: sync objects, and user fences, which are 64-bit values in memory.
 * Timelines of sync objects are not served. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "command/command.h"
#include "xe/xe.h"

#define POLL_NS 1000000 /* how often memory is looked at that others may change without xe_event */

struct xe_syncobj {
    uint32_t references;
    uint64_t submitted, signaled; /* how many jobs that signal it there were, and the last of them that has */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all sync objects */
static pthread_cond_t event;
static pthread_once_t event_made = PTHREAD_ONCE_INIT;

static void make_event(void) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&event, &attributes);
    pthread_condattr_destroy(&attributes);
}

int64_t xe_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

void xe_event(void) {
    pthread_once(&event_made, make_event);
    pthread_mutex_lock(&lock);
    pthread_cond_broadcast(&event);
    pthread_mutex_unlock(&lock);
}

bool xe_wait(bool (*ready)(void *argument), void *argument, int64_t deadline) {
    pthread_once(&event_made, make_event);
    pthread_mutex_lock(&lock);
    bool is_ready;
    while (!(is_ready = ready(argument))) {
        int64_t now = xe_now(), until = now + POLL_NS;
        if (deadline >= 0 && now >= deadline) break;
        if (deadline >= 0 && until > deadline) until = deadline;
        struct timespec time = {until / 1000000000, until % 1000000000};
        pthread_cond_timedwait(&event, &lock, &time);
    }
    pthread_mutex_unlock(&lock);
    return is_ready;
}

/* ---- a job's syncs ---- */

static void put(struct xe_syncobj *object) {
    pthread_mutex_lock(&lock);
    bool last = --object->references == 0;
    pthread_mutex_unlock(&lock);
    if (last) free(object);
}

static int read_sync(struct xe_file *file, const struct xe_sync *from, struct job_sync *to) {
    if (from->extensions || from->flags & ~XE_SYNC_SIGNAL || from->reserved[0] || from->reserved[1])
        return -EINVAL;
    *to = (struct job_sync){.signal = from->flags & XE_SYNC_SIGNAL, .value = from->value};
    if (from->type == XE_SYNC_USER_FENCE) {
        to->address = from->address;
        return !to->signal ? -EOPNOTSUPP : from->address % 8 ? -EINVAL : 0;
    }
    if (from->type != XE_SYNC_SYNCOBJ) {
        sim_fault("a sync of type %u is not served", from->type);
        return -EINVAL;
    }
    struct xe_syncobj *object = table_get(&file->syncobjs, from->handle);
    if (!object) return -ENOENT;
    pthread_mutex_lock(&lock);
    to->value = to->signal ? ++object->submitted : object->submitted;
    object->references++;
    pthread_mutex_unlock(&lock);
    to->syncobj = object;
    return 0;
}

int xe_syncs_read(struct xe_file *file, uint64_t array, uint32_t count, struct job_sync **syncs) {
    *syncs = NULL;
    if (!count) return 0;
    if (count > 1024) return -EINVAL; /* DRM_XE_MAX_SYNCS */
    if (!(*syncs = calloc(count, sizeof **syncs))) return -ENOMEM;
    const struct xe_sync *from = (const void *)(uintptr_t)array;
    for (uint32_t i = 0; i < count; i++) {
        int status = read_sync(file, from + i, *syncs + i);
        if (!status) continue;
        xe_syncs_free(*syncs, i);
        *syncs = NULL;
        return status;
    }
    return 0;
}

void xe_syncs_free(struct job_sync *syncs, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (syncs[i].syncobj) put(syncs[i].syncobj);
    free(syncs);
}

static bool sync_signaled(void *argument) {
    const struct job_sync *sync = argument;
    return sync->syncobj->signaled >= sync->value;
}

void xe_syncs_await(const struct job_sync *syncs, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        struct job_sync sync = syncs[i];
        if (sync.syncobj && !sync.signal) xe_wait(sync_signaled, &sync, -1);
    }
}

static void write_fence(struct sim_vm *vm, const struct job_sync *sync) {
    uint8_t *at = vm ? sim_vm_host(vm, sync->address) : (uint8_t *)(uintptr_t)sync->address;
    if (at)
        atomic_store((_Atomic uint64_t *)(void *)at, sync->value);
    else
        sim_fault("user fence at %#lx: nothing is bound there", sync->address);
}

void xe_syncs_signal(struct sim_vm *vm, const struct job_sync *syncs, uint32_t count, bool fences) {
    for (uint32_t i = 0; i < count; i++) {
        const struct job_sync *sync = syncs + i;
        if (!sync->signal) continue;
        if (!sync->syncobj) {
            if (fences) write_fence(vm, sync);
            continue;
        }
        pthread_mutex_lock(&lock);
        if (sync->syncobj->signaled < sync->value) sync->syncobj->signaled = sync->value;
        pthread_mutex_unlock(&lock);
    }
    xe_event();
}

/* ---- waiting for user fences ---- */

static bool fence_reached(void *argument) {
    const struct xe_wait_user_fence *wait = argument;
    uint64_t value = atomic_load((_Atomic uint64_t *)(uintptr_t)wait->address) & wait->mask;
    uint64_t expected = wait->value & wait->mask;
    switch (wait->op) {
    case XE_WAIT_EQ: return value == expected;
    case XE_WAIT_NEQ: return value != expected;
    case XE_WAIT_GT: return value > expected;
    case XE_WAIT_GTE: return value >= expected;
    case XE_WAIT_LT: return value < expected;
    default: return value <= expected;
    }
}

struct fence_wait {
    struct xe_wait_user_fence *wait;
    struct xe_file *file;
    int queue_state;
};

static bool fence_reached_or_queue_lost(void *argument) {
    struct fence_wait *waiting = argument;
    if (fence_reached(waiting->wait)) return true;
    if (!waiting->wait->queue) return false;
    return (waiting->queue_state = xe_queue_state(waiting->file, waiting->wait->queue)) != 0;
}

int xe_wait_user_fence(struct xe_file *file, struct xe_wait_user_fence *wait) {
    if (wait->extensions || wait->pad || wait->pad2 || wait->reserved[0] || wait->reserved[1]) return -EINVAL;
    if (wait->flags & ~XE_WAIT_ABSOLUTE || wait->op > XE_WAIT_LTE || wait->address % 8) return -EINVAL;
    struct fence_wait waiting = {wait, file, 0};
    if (wait->queue && xe_queue_state(file, wait->queue) == -ENOENT) return -ENOENT;
    bool absolute = wait->flags & XE_WAIT_ABSOLUTE;
    int64_t now = xe_now(), deadline = wait->timeout;
    if (deadline >= 0 && !absolute) deadline = deadline > INT64_MAX - now ? -1 : now + deadline;
    command_awaited(true);
    bool done = xe_wait(fence_reached_or_queue_lost, &waiting, deadline);
    command_awaited(false);
    if (!absolute && wait->timeout > 0 && deadline >= 0) {
        int64_t left = deadline - xe_now();
        wait->timeout = left > 0 ? left : 0;
    }
    return waiting.queue_state ? waiting.queue_state : done ? 0 : -ETIME;
}

/* ---- sync objects ---- */

int xe_syncobj_create(struct xe_file *file, struct drm_syncobj_create *create) {
    if (create->flags & ~DRM_SYNCOBJ_CREATE_SIGNALED) return -EINVAL;
    struct xe_syncobj *object = calloc(1, sizeof *object);
    if (!object) return -ENOMEM;
    object->references = 1;
    object->submitted = object->signaled = create->flags & DRM_SYNCOBJ_CREATE_SIGNALED;
    create->handle = table_add(&file->syncobjs, object);
    return create->handle ? 0 : -ENOMEM;
}

int xe_syncobj_destroy(struct xe_file *file, struct drm_syncobj_create *destroy) {
    struct xe_syncobj *object = table_remove(&file->syncobjs, destroy->handle);
    if (!object) return -EINVAL;
    put(object);
    return 0;
}

struct syncobj_wait {
    struct job_sync *syncs;
    uint32_t count, first;
    bool all;
};

static bool syncobjs_signaled(void *argument) {
    struct syncobj_wait *waiting = argument;
    uint32_t signaled = 0;
    for (uint32_t i = waiting->count; i-- > 0;)
        if (sync_signaled(waiting->syncs + i)) {
            signaled++;
            waiting->first = i;
        }
    return waiting->all ? signaled == waiting->count : signaled > 0;
}

int xe_syncobj_wait(struct xe_file *file, struct drm_syncobj_wait *wait) {
    if (!wait->count || wait->flags & ~DRM_SYNCOBJ_WAIT_ALL)
        return -EINVAL; /* WAIT_FOR_SUBMIT is not served */
    const uint32_t *handles = (const void *)(uintptr_t)wait->handles;
    struct syncobj_wait waiting = {calloc(wait->count, sizeof(struct job_sync)), 0, 0,
                                   wait->flags & DRM_SYNCOBJ_WAIT_ALL};
    if (!waiting.syncs) return -ENOMEM;
    int status = 0;
    pthread_mutex_lock(&file->lock);
    while (waiting.count < wait->count && !status) {
        struct xe_sync from = {.type = XE_SYNC_SYNCOBJ};
        from.handle = handles[waiting.count];
        struct job_sync *sync = waiting.syncs + waiting.count;
        status = read_sync(file, &from, sync);
        if (!status) waiting.count++;
        if (!status && !sync->value) status = -EINVAL; /* nothing has been submitted that will signal it */
    }
    pthread_mutex_unlock(&file->lock);
    if (!status && !xe_wait(syncobjs_signaled, &waiting, wait->timeout)) status = -ETIME;
    wait->first_signaled = waiting.first;
    xe_syncs_free(waiting.syncs, waiting.count);
    return status;
}

static int set_syncobjs(struct xe_file *file, const struct drm_syncobj_array *array, bool signal) {
    const uint32_t *handles = (const void *)(uintptr_t)array->handles;
    for (uint32_t i = 0; i < array->count; i++)
        if (!table_get(&file->syncobjs, handles[i])) return -ENOENT;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < array->count; i++) {
        struct xe_syncobj *object = table_get(&file->syncobjs, handles[i]);
        if (!signal || !object->submitted) object->submitted = signal;
        object->signaled = object->submitted;
    }
    pthread_mutex_unlock(&lock);
    xe_event();
    return 0;
}

int xe_syncobj_reset(struct xe_file *file, struct drm_syncobj_array *array) {
    return set_syncobjs(file, array, false);
}

int xe_syncobj_signal(struct xe_file *file, struct drm_syncobj_array *array) {
    return set_syncobjs(file, array, true);
}

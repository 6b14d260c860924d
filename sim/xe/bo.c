/* Buffer objects: ranges of the file's sparse memory. A freed range becomes a hole in the memfd, so that its
 * memory is returned and reads as zeros when it is used again, as new objects of the kernel do. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "xe/xe.h"

#define GRAIN (1ull << 16)         /* of offsets: the page size of video memory */
#define ROUNDED_MAX (2ull << 20)   /* by which the driver enlarges what a program asks for */
#define POISONED_MAX (64ull << 20) /* larger objects would take the host's memory before they are used */

/* Takes `size` bytes from the first hole that has them. */
static bool take_range(struct xe_file *file, uint64_t size, uint64_t *offset) {
    for (uint32_t i = 0; i < file->hole_count; i++) {
        struct hole *hole = file->holes + i;
        if (hole->size < size) continue;
        *offset = hole->offset;
        hole->offset += size;
        hole->size -= size;
        if (!hole->size) memmove(hole, hole + 1, (--file->hole_count - i) * sizeof *hole);
        return true;
    }
    return false;
}

/* Returns a range, joined with the holes beside it. */
static void return_range(struct xe_file *file, uint64_t offset, uint64_t size) {
    uint32_t at = 0;
    while (at < file->hole_count && file->holes[at].offset < offset) at++;
    struct hole *before = at ? file->holes + at - 1 : NULL,
                *after = at < file->hole_count ? file->holes + at : NULL;
    bool joins_before = before && before->offset + before->size == offset;
    bool joins_after = after && offset + size == after->offset;
    if (joins_before) {
        before->size += size + (joins_after ? after->size : 0);
        if (joins_after) memmove(after, after + 1, (--file->hole_count - at) * sizeof *after);
        return;
    }
    if (joins_after) {
        after->offset = offset;
        after->size += size;
        return;
    }
    if (file->hole_count == file->hole_room) {
        uint32_t room = 2 * file->hole_room + 64;
        struct hole *holes = realloc(file->holes, room * sizeof *holes);
        if (!holes) return; /* the range is lost: there are 4 TiB */
        file->holes = holes;
        file->hole_room = room;
    }
    memmove(file->holes + at + 1, file->holes + at, (file->hole_count++ - at) * sizeof *file->holes);
    file->holes[at] = (struct hole){offset, size};
}

static uint64_t room_of(const struct xe_bo *object) { return (object->size + GRAIN - 1) & ~(GRAIN - 1); }

void xe_bo_put(struct xe_bo *object) {
    struct xe_file *file = object->file;
    if (--object->references) return;
    fallocate(file->descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)object->offset,
              (off_t)object->size);
    return_range(file, object->offset, room_of(object));
    if (object->video) file->video_used -= object->size;
    free(object);
}

static int check_create(const struct xe_file *file, const struct xe_gem_create *create) {
    bool video = file->product->video_memory != 0;
    uint32_t regions = video ? 3 : 1,
             flags = XE_GEM_DEFER_BACKING | XE_GEM_SCANOUT | XE_GEM_NEEDS_VISIBLE_VRAM;
    if (create->extensions || create->flags & ~flags || create->reserved[0] || create->reserved[1])
        return -EINVAL;
    if (!create->placement || create->placement & ~regions || create->handle) return -EINVAL;
    if (!create->size || create->size % SIM_PAGE) return -EINVAL;
    if (create->placement & 2 && file->product->large_pages && create->size % GRAIN) return -EINVAL;
    if (create->cpu_caching != 1 && create->cpu_caching != 2) return -EINVAL;
    if (create->placement & 2 && create->cpu_caching != 2) return -EINVAL; /* write-combined */
    return create->vm && !table_get(&file->vms, create->vm) ? -ENOENT : 0;
}

/* Is the object what the program allocates at the moment? The driver rounds sizes up. */
static void note_requested(struct xe_bo *object) {
    if (!sim_requested_bytes || object->size < sim_requested_bytes ||
        object->size - sim_requested_bytes > ROUNDED_MAX)
        return;
    object->requested = sim_requested_bytes;
    sim_requested_bytes = 0;
    if ((sim_options()->checks & SIM_CHECK_UNINITIALIZED) && object->size <= POISONED_MAX)
        memset(object->file->memory + object->offset, SIM_POISON, object->size);
}

int xe_gem_create(struct xe_file *file, struct xe_gem_create *create) {
    int status = check_create(file, create);
    SIM_LOG(SIM_LOG_BINDS, "create: %#lx bytes, placement %u, flags %#x, caching %u, extensions %#lx vm %u",
            create->size, create->placement, create->flags, create->cpu_caching, create->extensions,
            create->vm);
    if (status) return status;
    bool video = create->placement == 2;
    if (video && create->size > file->product->video_memory - file->video_used) return -ENOMEM;
    struct xe_bo *object = malloc(sizeof *object);
    if (!object) return -ENOMEM;
    *object = (struct xe_bo){.file = file, .size = create->size, .references = 1, .video = video};
    uint32_t handle = 0;
    if (take_range(file, room_of(object), &object->offset)) {
        handle = table_add(&file->objects, object);
        if (!handle) return_range(file, object->offset, room_of(object));
    }
    if (!handle) {
        free(object);
        return -ENOMEM;
    }
    if (video) file->video_used += object->size;
    note_requested(object);
    create->handle = handle;
    SIM_LOG(SIM_LOG_BINDS, "object %u: %#lx bytes, placement %u", handle, create->size, create->placement);
    return 0;
}

int xe_gem_mmap_offset(struct xe_file *file, struct xe_gem_mmap_offset *query) {
    if (query->extensions || query->flags & ~XE_MMAP_PCI_BARRIER || query->reserved[0] || query->reserved[1])
        return -EINVAL;
    if (query->flags & XE_MMAP_PCI_BARRIER) { /* only discrete products have it */
        if (query->handle || !file->product->video_memory) return -EINVAL;
        query->offset = XE_BARRIER_OFFSET;
        return 0;
    }
    const struct xe_bo *object = table_get(&file->objects, query->handle);
    if (!object) return -ENOENT;
    query->offset = object->offset;
    return 0;
}

int xe_gem_close(struct xe_file *file, struct drm_gem_close *close) {
    struct xe_bo *object = table_remove(&file->objects, close->handle);
    if (!object) return -EINVAL;
    xe_bo_put(object);
    return 0;
}

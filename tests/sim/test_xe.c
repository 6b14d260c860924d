/* The simulated kernel driver through its ioctls, and the command streamer through batches without kernels.
 * libxesim.so is preloaded. Faults are part of these tests, so the exit status is set at the end. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "xe/uapi.h"

#define BASE 0x100000u /* where the tests' memory is bound */
#define SIZE 0x20000u
#define SECOND 1000000000ll

struct device {
    int file;
    uint32_t vm, object;
    uint32_t *memory; /* the object, mapped and bound at BASE */
};

/* 0, or the errno. */
static int call(int file, unsigned number, void *argument, size_t size) {
    return ioctl(file, _IOC(_IOC_READ | _IOC_WRITE, 'd', number, size), argument) ? errno : 0;
}
#define CALL(file, number, argument) call(file, number, &(argument), sizeof(argument))

static uint32_t make_object(int file, uint64_t size, uint32_t placement) {
    struct xe_gem_create create = {
        .size = size, .placement = placement, .cpu_caching = placement == 1 ? 1 : 2};
    assert_int_equal(CALL(file, XE_GEM_CREATE, create), 0);
    return create.handle;
}

static void *map_object(int file, uint32_t handle, size_t size) {
    struct xe_gem_mmap_offset offset = {.handle = handle};
    assert_int_equal(CALL(file, XE_GEM_MMAP_OFFSET, offset), 0);
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)offset.offset);
    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

static int bind(const struct device *d, struct xe_bind_op op) {
    struct xe_vm_bind bind = {.vm = d->vm, .count = 1, .op = op};
    return CALL(d->file, XE_VM_BIND, bind);
}

static struct device open_device(void) {
    struct device d = {.file = open("/dev/dri/renderD128", O_RDWR | O_CLOEXEC)};
    assert_true(d.file >= 0);
    struct xe_vm_create create = {.flags = XE_VM_LONG_RUNNING};
    assert_int_equal(CALL(d.file, XE_VM_CREATE, create), 0);
    d.vm = create.vm;
    d.object = make_object(d.file, SIZE, 1);
    d.memory = map_object(d.file, d.object, SIZE);
    struct xe_bind_op op = {.object = d.object, .range = SIZE, .address = BASE, .op = XE_BIND_MAP};
    assert_int_equal(bind(&d, op), 0);
    return d;
}

static uint32_t make_queue(const struct device *d, uint16_t class) {
    struct xe_engine_id id = {.class = class};
    struct xe_queue_create create = {.width = 1, .placements = 1, .vm = d->vm, .instances = (uintptr_t)&id};
    assert_int_equal(CALL(d->file, XE_EXEC_QUEUE_CREATE, create), 0);
    return create.queue;
}

static int destroy_queue(const struct device *d, uint32_t queue) {
    struct xe_queue_destroy destroy = {.queue = queue};
    return CALL(d->file, XE_EXEC_QUEUE_DESTROY, destroy);
}

/* Submits the batch at `offset`; its end writes `value` to the first 8 bytes of the memory's last page. */
#define FENCE (SIZE - 4096)
static int submit(const struct device *d, uint32_t queue, uint32_t offset, uint64_t value) {
    struct xe_sync sync = {.type = XE_SYNC_USER_FENCE, .flags = XE_SYNC_SIGNAL, .value = value};
    sync.address = BASE + FENCE;
    struct xe_exec exec = {
        .queue = queue, .sync_count = 1, .syncs = (uintptr_t)&sync, .address = BASE + offset, .batches = 1};
    return CALL(d->file, XE_EXEC, exec);
}

static int await(const struct device *d, uint32_t queue, uint64_t value, int64_t timeout) {
    struct xe_wait_user_fence wait = {.address = (uintptr_t)d->memory + FENCE,
                                      .op = XE_WAIT_EQ,
                                      .value = value,
                                      .mask = ~0ull,
                                      .timeout = timeout,
                                      .queue = queue};
    return CALL(d->file, XE_WAIT_USER_FENCE, wait);
}

static uint64_t is_banned(const struct device *d, uint32_t queue) {
    struct xe_queue_property property = {.queue = queue, .property = XE_QUEUE_BANNED};
    assert_int_equal(CALL(d->file, XE_EXEC_QUEUE_GET_PROPERTY, property), 0);
    return property.value;
}

/* ---- commands ---- */

#define MI(opcode, length) ((opcode) << 23 | ((length) - 2))
#define NOOP 0u
#define END (0x0au << 23)
#define STORE(offset, value) MI(0x20u, 4), BASE + (offset), 0, (value)
#define LOAD_IMMEDIATE(reg, value) MI(0x22u, 3), (reg), (value)
#define STORE_REGISTER(reg, offset) MI(0x24u, 4), (reg), BASE + (offset), 0
#define WAIT_EQUAL(offset, value) MI(0x1cu, 5) | 4 << 12, (value), BASE + (offset), 0, 0

static void write_batch(const struct device *d, uint32_t offset, const uint32_t *commands, size_t size) {
    memcpy((uint8_t *)d->memory + offset, commands, size);
}
#define BATCH(d, offset, ...)                                                                                \
    do {                                                                                                     \
        const uint32_t commands[] = {__VA_ARGS__};                                                           \
        write_batch(d, offset, commands, sizeof commands);                                                   \
    } while (0)

/* ---- tests ---- */

static void devices(void **state) {
    int first = open("/dev/dri/renderD128", O_RDWR), second = open("/dev/dri/renderD129", O_RDWR);
    assert_true(first >= 0 && second >= 0);
    assert_int_equal(open("/dev/dri/renderD130", O_RDWR), -1);
    assert_int_equal(errno, ENOENT);
    char name[8] = "";
    struct drm_version version = {.name = name, .name_size = sizeof name};
    assert_int_equal(CALL(first, DRM_VERSION, version), 0);
    assert_string_equal(name, "xe");
    int copy = dup(second); /* a descriptor is known by its file */
    assert_int_equal(CALL(copy, DRM_VERSION, version), 0);
    int other = open("/dev/null", O_RDWR);
    assert_int_equal(CALL(other, DRM_VERSION, version), ENOTTY);
    close(first), close(second), close(copy), close(other);
}

static void queries(void **state) {
    int file = open("/dev/dri/renderD128", O_RDWR);
    struct xe_device_query query = {.query = XE_QUERY_CONFIG};
    assert_int_equal(CALL(file, XE_DEVICE_QUERY, query), 0);
    uint64_t config[6];
    assert_int_equal(query.size, sizeof config);
    query.data = (uintptr_t)config;
    assert_int_equal(CALL(file, XE_DEVICE_QUERY, query), 0);
    assert_int_equal(config[1] & 0xffff, 0xe20b);
    query.size--;
    assert_int_equal(CALL(file, XE_DEVICE_QUERY, query), EINVAL);
    query = (struct xe_device_query){.query = 1000};
    assert_int_equal(CALL(file, XE_DEVICE_QUERY, query), EINVAL);
    close(file);
}

static void objects(void **state) {
    int file = open("/dev/dri/renderD128", O_RDWR);
    struct xe_gem_create wrong[] = {
        {.size = 0, .placement = 1, .cpu_caching = 1},
        {.size = 4097, .placement = 1, .cpu_caching = 1},
        {.size = 4096, .placement = 0, .cpu_caching = 1},
        {.size = 4096, .placement = 4, .cpu_caching = 1},
        {.size = 4096, .placement = 1},
        {.size = 4096, .placement = 2, .cpu_caching = 1},
        {.size = 4096, .placement = 1, .cpu_caching = 1, .flags = 1u << 31},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(CALL(file, XE_GEM_CREATE, wrong[i]), EINVAL);
    struct xe_gem_create large = {.size = 1ull << 40, .placement = 2, .cpu_caching = 2};
    assert_int_equal(CALL(file, XE_GEM_CREATE, large), ENOMEM);

    uint32_t handle = make_object(file, 4096, 1);
    uint32_t *memory = map_object(file, handle, 4096);
    memory[5] = 7;
    munmap(memory, 4096);
    struct drm_gem_close closing = {.handle = handle};
    assert_int_equal(CALL(file, DRM_GEM_CLOSE, closing), 0);
    assert_int_equal(CALL(file, DRM_GEM_CLOSE, closing), EINVAL);
    memory = map_object(file, make_object(file, 4096, 1), 4096);
    assert_int_equal(memory[5], 0); /* the memory of another object does not show */
    struct xe_gem_mmap_offset offset = {.handle = 1000};
    assert_int_equal(CALL(file, XE_GEM_MMAP_OFFSET, offset), ENOENT);
    close(file);
}

static void binds(void **state) {
    struct device d = open_device();
    struct xe_bind_op op = {.object = 1000, .range = 4096, .address = BASE, .op = XE_BIND_MAP};
    assert_int_equal(bind(&d, op), ENOENT);
    op.object = d.object;
    op.range = SIZE + 4096;
    assert_int_equal(bind(&d, op), EINVAL);
    op.range = 100;
    assert_int_equal(bind(&d, op), EINVAL);
    op = (struct xe_bind_op){.range = 4096, .address = 1ull << 48, .op = XE_BIND_UNMAP};
    assert_int_equal(bind(&d, op), EINVAL);
    struct xe_vm_bind elsewhere = {.vm = 1000, .count = 1};
    assert_int_equal(CALL(d.file, XE_VM_BIND, elsewhere), ENOENT);

    /* A page of the process replaces the object's second page; the object's third page stays. */
    uint32_t *page = aligned_alloc(4096, 4096), queue = make_queue(&d, XE_CLASS_COMPUTE);
    op = (struct xe_bind_op){
        .offset = (uintptr_t)page, .range = 4096, .address = BASE + 4096, .op = XE_BIND_MAP_USERPTR};
    assert_int_equal(bind(&d, op), 0);
    BATCH(&d, 0, STORE(4096 + 8, 11), STORE(8192 + 8, 12), END);
    assert_int_equal(submit(&d, queue, 0, 1), 0);
    assert_int_equal(await(&d, queue, 1, SECOND), 0);
    assert_int_equal(page[2], 11);
    assert_int_equal(d.memory[1024 + 2], 0);
    assert_int_equal(d.memory[2048 + 2], 12);
    struct xe_vm_destroy destroy = {.vm = d.vm};
    assert_int_equal(CALL(d.file, XE_VM_DESTROY, destroy), EBUSY);
    assert_int_equal(destroy_queue(&d, queue), 0);
    assert_int_equal(CALL(d.file, XE_VM_DESTROY, destroy), 0);
    assert_int_equal(CALL(d.file, XE_VM_DESTROY, destroy), ENOENT);
    free(page);
    close(d.file);
}

static void commands(void **state) {
    struct device d = open_device();
    uint32_t queue = make_queue(&d, XE_CLASS_COMPUTE);
    /* r1 = r0 + 5, by the engine's registers; then a batch that is called, and returns. */
    BATCH(&d, 0, NOOP, LOAD_IMMEDIATE(0x2600, 37), LOAD_IMMEDIATE(0x2604, 0), LOAD_IMMEDIATE(0x2610, 5),
          LOAD_IMMEDIATE(0x2614, 0), MI(0x1au, 5), 0x080u << 20 | 0x20 << 10 | 0,
          0x080u << 20 | 0x21 << 10 | 2, 0x100u << 20, 0x180u << 20 | 1 << 10 | 0x31,
          STORE_REGISTER(0x2608, 256), MI(0x31u, 3) | 1 << 22, BASE + 4096, 0, STORE(260, 2), END);
    BATCH(&d, 4096, STORE(264, 3), END);
    assert_int_equal(submit(&d, queue, 0, 1), 0);
    assert_int_equal(await(&d, queue, 1, SECOND), 0);
    assert_int_equal(d.memory[64], 42);
    assert_int_equal(d.memory[65], 2);
    assert_int_equal(d.memory[66], 3);
    destroy_queue(&d, queue);
    close(d.file);
}

static void queues_wait_for_each_other(void **state) {
    struct device d = open_device();
    uint32_t first = make_queue(&d, XE_CLASS_COMPUTE), second = make_queue(&d, XE_CLASS_COPY);
    BATCH(&d, 0, WAIT_EQUAL(256, 1), STORE(260, 1), END);
    BATCH(&d, 4096, STORE(256, 1), END);
    assert_int_equal(submit(&d, first, 0, 1), 0);
    assert_int_equal(await(&d, first, 1, SECOND / 50), ETIME);
    struct xe_exec exec = {.queue = second, .address = BASE + 4096, .batches = 1};
    assert_int_equal(CALL(d.file, XE_EXEC, exec), 0);
    assert_int_equal(await(&d, first, 1, SECOND), 0);
    assert_int_equal(d.memory[65], 1);
    destroy_queue(&d, first);
    destroy_queue(&d, second);
    close(d.file);
}

static void sync_objects(void **state) {
    struct device d = open_device();
    uint32_t first = make_queue(&d, XE_CLASS_COMPUTE), second = make_queue(&d, XE_CLASS_COPY);
    struct drm_syncobj_create create = {0};
    assert_int_equal(CALL(d.file, DRM_SYNCOBJ_CREATE, create), 0);
    struct drm_syncobj_wait wait = {.handles = (uintptr_t)&create.handle, .count = 1};
    assert_int_equal(CALL(d.file, DRM_SYNCOBJ_WAIT, wait), EINVAL); /* nothing has been submitted */
    BATCH(&d, 0, WAIT_EQUAL(256, 1), STORE(260, 1), END);
    struct xe_sync sync = {.type = XE_SYNC_SYNCOBJ, .flags = XE_SYNC_SIGNAL};
    sync.handle = create.handle;
    struct xe_exec exec = {
        .queue = first, .sync_count = 1, .syncs = (uintptr_t)&sync, .address = BASE, .batches = 1};
    assert_int_equal(CALL(d.file, XE_EXEC, exec), 0);
    assert_int_equal(CALL(d.file, DRM_SYNCOBJ_WAIT, wait), ETIME);
    sync.flags = 0; /* the second queue's batch starts when the first one's has ended */
    BATCH(&d, 4096, STORE_REGISTER(0x2600, 260), STORE(264, 1), END);
    exec.queue = second;
    exec.address = BASE + 4096;
    assert_int_equal(CALL(d.file, XE_EXEC, exec), 0);
    usleep(10000);
    assert_int_equal(d.memory[66], 0);
    __atomic_store_n(&d.memory[64], 1, __ATOMIC_SEQ_CST);
    wait.timeout = INT64_MAX;
    assert_int_equal(CALL(d.file, DRM_SYNCOBJ_WAIT, wait), 0);
    destroy_queue(&d, first);
    destroy_queue(&d, second);
    close(d.file);
}

/* After a fault: the fence is not written, and the queue takes nothing more. Other queues go on. */
static void faults_ban(void **state) {
    struct device d = open_device();
    uint32_t other = make_queue(&d, XE_CLASS_COMPUTE);
    const uint32_t wrong[][8] = {
        {0x7fffffffu, END},              /* no such command */
        {MI(0x20u, 4), 0x40, 0, 1, END}, /* writes where nothing is bound */
        {MI(0x31u, 3), 0x40, 0},         /* goes on there */
        {MI(0x1cu, 5) | 4 << 12, 1, BASE + 256, 0,
         0}, /* waits for what does not come: a second, OPENXPU_SIM_WAIT */
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        uint32_t queue = make_queue(&d, XE_CLASS_COMPUTE);
        write_batch(&d, 0, wrong[i], sizeof wrong[i]);
        assert_int_equal(is_banned(&d, queue), 0);
        assert_int_equal(submit(&d, queue, 0, i + 1), 0);
        assert_int_equal(await(&d, queue, i + 1, 5 * SECOND), EIO);
        assert_int_equal(is_banned(&d, queue), 1);
        assert_int_equal(submit(&d, queue, 0, i + 1), ECANCELED);
        assert_int_equal(destroy_queue(&d, queue), 0);
    }
    BATCH(&d, 0, END);
    assert_int_equal(submit(&d, other, 0, 100), 0);
    assert_int_equal(await(&d, other, 100, SECOND), 0);
    assert_int_equal(destroy_queue(&d, other), 0);
    assert_int_equal(destroy_queue(&d, other), ENOENT);
    assert_int_equal(submit(&d, other, 0, 1), ENOENT);
    close(d.file);
}

/* A queue that waits in a semaphore can be destroyed. */
static void destroyed_while_it_runs(void **state) {
    struct device d = open_device();
    uint32_t queue = make_queue(&d, XE_CLASS_COMPUTE);
    BATCH(&d, 0, WAIT_EQUAL(256, 1), STORE(260, 1), END);
    assert_int_equal(submit(&d, queue, 0, 1), 0);
    usleep(10000);
    assert_int_equal(destroy_queue(&d, queue), 0);
    assert_int_equal(d.memory[65], 0);
    close(d.file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices),
        cmocka_unit_test(queries),
        cmocka_unit_test(objects),
        cmocka_unit_test(binds),
        cmocka_unit_test(commands),
        cmocka_unit_test(queues_wait_for_each_other),
        cmocka_unit_test(sync_objects),
        cmocka_unit_test(faults_ban),
        cmocka_unit_test(destroyed_while_it_runs),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    syscall(SYS_exit_group, failed); /* past the simulator's own status, which is 3 after faults */
}

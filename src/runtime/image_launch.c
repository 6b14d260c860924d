/* Kernel images (xpu/image.h) on a device: creating kernels, building binaries, launching. Kernels are owned
 * by the runtime; the caller owns images and must keep one alive during a launch. Any thread may call.
 * Errors: XPU_ERROR_NOT_SUPPORTED (the device is too small, or the binary is for another device),
 * XPU_ERROR_BUILD_FAILED, XPU_ERROR_INVALID_ARGUMENT. */
#include "runtime/kernel.h"

#include "xpu/image.h"
#include "xpu/trace.h"

static xpu_status check_room(const xpu_image *image, const xpu_device_properties *p) {
    if (image->local_size > p->max_work_group_size || image->local_memory > p->local_mem_size)
        return xpu_fail(XPU_ERROR_NOT_SUPPORTED,
                        "kernel %s needs work-groups of %u work-items and %u bytes of local memory; %s "
                        "supports %llu and %llu",
                        image->name, image->local_size, image->local_memory, p->name,
                        (unsigned long long)p->max_work_group_size, (unsigned long long)p->local_mem_size);
    return XPU_SUCCESS;
}

xpu_status xpu_image_kernel(const xpu_image *image, int device, xpu_kernel **kernel) {
    XPU_REJECT_IF(!image || !kernel, "NULL");
    const xpu_device_properties *p;
    XPU_TRY(xpu_device_get_properties(device, &p));
    XPU_TRY(check_room(image, p));
    if (image->kind == XPU_IMAGE_SOURCE)
        return xpu_kernel_create(device, image->code, image->build_options, image->name, NULL, kernel);
    char key[KEY_SIZE];
    device_key(device, key);
    if (*image->device && strcmp(key, image->device) != 0)
        return xpu_fail(XPU_ERROR_NOT_SUPPORTED, "kernel %s: built for another device or driver than %s, %s",
                        image->name, p->name, p->driver_version);
    return kernel_from_binary(device, image->code, image->code_size, image->name, kernel);
}

/* Links images into one program. On CPU devices only: there every program costs 0.4 MB, mostly tables that
 * the driver builds again for each. */
static bool together(const xpu_image *const *images, int count, int device, xpu_kernel **kernels) {
    if (count < 2 || !cl_devices[device].host) return false;
    for (int i = 0; i < count; i++) {
        if (images[i]->kind != XPU_IMAGE_SOURCE || strcmp(images[i]->build_options, images[0]->build_options))
            return false;
        for (int k = 0; k < i; k++)
            if (!strcmp(images[i]->name, images[k]->name)) return false;
    }
    const char **texts = core_calloc(2 * (size_t)count, sizeof *texts), **names = texts + count;
    for (int i = 0; texts && i < count; i++) texts[i] = images[i]->code, names[i] = images[i]->name;
    const bool done =
        texts && kernels_together(device, texts, images[0]->build_options, names, count, kernels);
    core_free(texts);
    return done;
}

xpu_status xpu_image_kernels(const xpu_image *const *images, int count, int device, xpu_kernel **kernels) {
    XPU_REJECT_IF(count > 0 && (!images || !kernels), "NULL");
    const xpu_device_properties *p;
    XPU_TRY(xpu_device_get_properties(device, &p));
    for (int i = 0; i < count; i++) XPU_TRY(check_room(images[i], p));
    if (together(images, count, device, kernels)) return XPU_SUCCESS;
    for (int i = 0; i < count; i++) XPU_TRY(xpu_image_kernel(images[i], device, &kernels[i]));
    return XPU_SUCCESS;
}

xpu_status xpu_image_build(const xpu_image *image, int device, xpu_image **built) {
    XPU_REJECT_IF(!image || !built, "NULL");
    XPU_REJECT_IF(image->kind != XPU_IMAGE_SOURCE, "kernel %s is already built", image->name);
    xpu_kernel *kernel;
    unsigned char *binary;
    size_t size;
    char key[KEY_SIZE];
    XPU_TRY(xpu_image_kernel(image, device, &kernel));
    XPU_TRY(kernel_binary(kernel, &binary, &size));
    device_key(device, key);
    xpu_image other = *image;
    other.kind = XPU_IMAGE_BINARY;
    other.code = (const char *)binary;
    other.code_size = size;
    other.device = key;
    /* Writing and reading back makes an image that owns all its data. */
    void *bytes = NULL;
    size_t all;
    xpu_status status = xpu_image_write(&other, NULL, 0, &all);
    if (status == XPU_SUCCESS && !(bytes = core_malloc(all)))
        status = xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for a kernel image");
    if (status == XPU_SUCCESS) status = xpu_image_write(&other, bytes, all, &all);
    if (status == XPU_SUCCESS) status = xpu_image_read(bytes, all, built);
    core_free(bytes);
    core_free(binary);
    return status;
}

/* Lists the memory behind a launch's pointers; sizes are 0, because the accessed range is unknown. */
typedef struct launched {
    const xpu_image *image;
    const char *params;
} launched;
static int image_accesses(const void *of, xpu_access *accesses) {
    const launched *l = of;
    int count = 0;
    for (int i = 0; i < l->image->param_count && count < XPU_ACCESSES_MAX; i++) {
        const xpu_param *p = &l->image->params[i];
        if (p->kind != XPU_PARAM_POINTER) continue;
        uint64_t address;
        memcpy(&address, l->params + p->offset, sizeof address);
        if (address) accesses[count++] = (xpu_access){(void *)(uintptr_t)address, 0, p->is_written};
    }
    return count;
}

/* The two addresses in the parameters at fault_offset. */
typedef struct report_place {
    uint64_t place, asserts;
} report_place;

xpu_status xpu_image_submit(xpu_stream *stream, const xpu_image *image, xpu_kernel *kernel,
                            const uint32_t grid[3], void *params) {
    XPU_REJECT_IF(grid[0] > INT32_MAX || grid[1] > INT32_MAX || grid[2] > INT32_MAX,
                  "kernel %s: a grid of %u x %u x %u programs is too large", image->name, grid[0], grid[1],
                  grid[2]);
    uint64_t work = image->work;
    for (int d = 0; d < 3; d++) {
        if (!grid[d]) return XPU_SUCCESS;
        if (__builtin_mul_overflow(work, grid[d], &work)) work = UINT64_MAX;
    }
    memcpy((char *)params + image->grid_offset, grid, 3 * sizeof *grid);
    const xpu_range range = {.dims = grid[2] > 1   ? 3
                                     : grid[1] > 1 ? 2
                                                   : 1,
                             .groups = {grid[0], grid[1], grid[2]},
                             .local = {image->local_size, 1, 1},
                             .work = work};
    const launched of = {image, params};
    if (!image->asserts)
        return xpu_launch_with_accesses(stream, kernel, &range, params, image->params_size, image_accesses,
                                        &of);
    xpu_fault *place;
    XPU_TRY(xpu_fault_watch(stream, &place));
    const report_place report = {(uint64_t)(uintptr_t)place, (uint64_t)(uintptr_t)image->asserts};
    memcpy((char *)params + image->fault_offset, &report, sizeof report);
    XPU_TRY(
        xpu_launch_with_accesses(stream, kernel, &range, params, image->params_size, image_accesses, &of));
    return xpu_fault_raise(stream, place);
}

xpu_status xpu_image_launch(xpu_stream *stream, const xpu_image *image, xpu_kernel *kernel,
                            const uint32_t grid[3], const void *const *arguments, int count) {
    _Alignas(8) char params[XPU_IMAGE_PARAMS_MAX];
    XPU_REJECT_IF(count != image->param_count, "kernel %s has %d parameters; got %d arguments", image->name,
                  image->param_count, count);
    XPU_REJECT_IF(image->params_size > sizeof params, "kernel %s: %u bytes of parameters are too many",
                  image->name, image->params_size);
    for (int i = 0; i < count; i++)
        memcpy(params + image->params[i].offset, arguments[i], image->params[i].size);
    return xpu_image_submit(stream, image, kernel, grid, params);
}

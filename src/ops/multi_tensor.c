/* Work-group sizes and chunks of multi-tensor launches (multi_tensor.h). */
#include "ops/multi_tensor.h"

#include <string.h>

#include "xpu/device.h"
#include "xpu/graph.h"

xpu_status multi_tensor_shape_of(int device, multi_tensor_shape *shape) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    /* CPU devices read the caller's table, or the graph's copy of it, in place. */
    bool host = properties->type == XPU_DEVICE_CPU;
    size_t local = host ? 16 : 256; /* CPU: one vector with sequential access */
    if (local > properties->max_work_group_size) local = properties->max_work_group_size;
    *shape = (multi_tensor_shape){.in_params = !host, .local = (int)local, .steps = host ? 0 : 4};
    return XPU_SUCCESS;
}

void multi_tensor_spec(kernel_spec *spec, const multi_tensor_shape *shape, int width) {
    spec_int(spec, "WIDTH", width, 16);
    spec_bool(spec, "INLINE", shape->in_params);
    spec_int(spec, "LOCAL", shape->local, 16);
    spec_int(spec, "STEPS", shape->steps, 16);
}

static xpu_status place_table(xpu_stream *stream, const multi_tensor_shape *shape, const uint64_t *rows,
                              size_t size, struct multi_tensor_params *params) {
    const void *table = rows;
    if (shape->in_params)
        memcpy(params->word, rows, size);
    else
        XPU_TRY(xpu_graph_keep(stream, rows, size, &table));
    params->table = XPU_ADDR(table);
    return XPU_SUCCESS;
}

/* Elements per work-group. CPU: several groups per thread, so that a late thread costs little, but long ones,
 * because prefetching restarts at each. */
#define THREAD_GROUPS 8
#define LEAST_CHUNK 4096
#define MOST_CHUNK 65536
static uint64_t chunk_of(const multi_tensor_shape *shape, const uint64_t *rows, int width, int64_t tensors) {
    if (shape->steps) return (uint64_t)shape->local * (uint64_t)shape->steps;
    const xpu_host_thread_pool *team = xpu_get_host_thread_pool();
    uint64_t elements = 0, groups = THREAD_GROUPS * (team ? (uint64_t)team->threads() : 1),
             chunk = LEAST_CHUNK;
    for (int64_t i = 0; i < tensors; i++) elements += rows[i * width + width - 2];
    while (chunk < MOST_CHUNK && 2 * chunk * groups <= elements) chunk *= 2;
    return chunk;
}

xpu_status multi_tensor_launch(xpu_stream *stream, xpu_kernel *kernel, const multi_tensor_shape *shape,
                               uint64_t *rows, int width, int64_t tensors, struct multi_tensor_params *params,
                               unsigned cost) {
    int64_t most = shape->in_params ? MULTI_TENSOR_WORDS / width : tensors;
    const uint64_t chunk = chunk_of(shape, rows, width, tensors);
    params->chunk = (int64_t)chunk;
    for (int64_t done = 0; done < tensors;) {
        uint64_t *table = rows + done * width, groups = 0, elements = 0;
        int64_t some = 0;
        for (; some < most && done + some < tensors; some++) {
            uint64_t *row = table + some * width, count = row[width - 2];
            row[width - 1] = groups;
            groups += (count + chunk - 1) / chunk;
            elements += count;
        }
        done += some;
        params->tensors = some;
        XPU_TRY(place_table(stream, shape, table, (size_t)(some * width) * sizeof *table, params));
        xpu_range range = {1, {groups}, {(size_t)shape->local}, elements * cost};
        XPU_TRY(xpu_launch(stream, kernel, &range, params, sizeof *params));
    }
    return XPU_SUCCESS;
}

xpu_status multi_tensor_launch_rows(xpu_stream *stream, xpu_kernel *kernel, const multi_tensor_shape *shape,
                                    const uint64_t *rows, int width, int64_t tensors,
                                    struct multi_tensor_params *params, unsigned cost) {
    int64_t most = shape->in_params ? MULTI_TENSOR_WORDS / width : tensors;
    for (int64_t done = 0; done < tensors; done += most) {
        int64_t some = tensors - done < most ? tensors - done : most;
        const uint64_t *table = rows + done * width;
        params->tensors = some;
        XPU_TRY(place_table(stream, shape, table, (size_t)(some * width) * sizeof *table, params));
        xpu_range range = {1, {(size_t)some}, {(size_t)shape->local}, (uint64_t)some * cost};
        XPU_TRY(xpu_launch(stream, kernel, &range, params, sizeof *params));
    }
    return XPU_SUCCESS;
}

/* Embedding bags: chooses work-group shapes and how bags are split, then launches. */
#include "xpu/ops/embedding.h"

#include <string.h>

#include "kernels/embedding.h"
#include "ops/kernel.h"
#include "ops/row_group.h"
#include "xpu/trace.h"

#define LANES 256        /* GPU: of a work-group */
#define MOST_FEATURES 64 /* of them along a row */
#define HOST_PACK 16     /* CPU: features of a work-item, */
#define HOST_FEATURES 16 /* or, of odd rows, a work-group has, one work-item each */
#define MOST_SPLITS 1024
#define GROUPS_A_UNIT 16
#define SHORTEST_CHUNK 32 /* of indices in order; */
#define MOST_CHUNKS 8192  /* longer ones where there would be more */

enum { FORWARD, FINISH, GRADIENT, GRADIENT_FINISH, WEIGHTS };

/* Shape of a work-group. */
typedef struct shape {
    int features, rows, pack;
    bool shared; /* its rows share a bag */
} shape;

static bool divides(int64_t pack, size_t size, const void *address) {
    return (uintptr_t)address % ((size_t)pack * size) == 0;
}

static shape shape_for(const xpu_device_properties *device, const xpu_bags *args, const void *first,
                       const void *second) {
    if (uses_cpu_policy(device)) {
        shape s = {1, 1, HOST_PACK, false};
        while (args->width % s.pack) s.pack /= 2;
        return s.pack == 1 ? (shape){HOST_FEATURES, 1, 1, false} : s;
    }
    const size_t size = xpu_dtype_size(args->dtype);
    shape s = {.features = 1, .pack = (int)(16 / size)};
    while (s.pack > 1 && (args->width % s.pack || args->row_stride % s.pack ||
                          !divides(s.pack, size, first) || !divides(s.pack, size, second)))
        s.pack /= 2;
    while (s.features < MOST_FEATURES && s.features * s.pack < args->width) s.features *= 2;
    s.rows = LANES / s.features;
    return s;
}

static xpu_status get_kernel(int device, int which, bool maximum, const xpu_bags *args, const shape *s,
                             xpu_kernel **kernel) {
    static const char *const names[] = {"bag_forward", "bag_finish", "rows_gradient", "rows_gradient_finish",
                                        "bag_weights"};
    static const char *const parts[] = {"bag", "bag", "rows", "rows", "weights"};
    const char *token = dtype_token(args->dtype);
    kernel_spec spec;
    spec_begin(&spec, FAMILY_EMBEDDING);
    spec_dtype(&spec, "T", args->dtype);
    spec_dtype(&spec, "I", args->index_dtype);
    spec_option(&spec, "ACC=", args->dtype == XPU_FLOAT64 ? "double" : "float");
    spec_int(&spec, "FEATURES", s->features, 16);
    spec_int(&spec, "ROWS", s->rows, 16);
    spec_int(&spec, "VECTOR_SIZE", s->pack, 8);
    spec_option(&spec, "BITS=", vector_type(s->pack, args->dtype));
    spec_enum(&spec, "BUILD_", parts, which, 8);
    spec_flag(&spec, "MAX", maximum);
    spec_flag(&spec, "SHARED", s->shared);
    spec_option_flag(&spec, "BY_ELEMENT", s->pack > 1 && s->features == 1 && s->rows == 1);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(device, &spec, "embedding.cl", names[which], kernel, "%s %s", names[which],
                            token);
}

static xpu_status check(const xpu_device_properties *device, const xpu_bags *args) {
    XPU_TRY(check_floating(device, "embedding", args->dtype));
    if (args->index_dtype != XPU_INT64 && args->index_dtype != XPU_INT32)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "embedding: indices must be int64 or int32");
    if (args->rows < 0 || args->width < 0 || args->width > UINT32_MAX / 2 || args->count < 0 ||
        args->bags < 0)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "embedding: a size is negative or too large");
    return XPU_SUCCESS;
}

static int64_t ceil_div(int64_t n, int64_t d) { return (n + d - 1) / d; }

static xpu_range range_for(const shape *s, int64_t groups, int64_t width, int64_t elements) {
    return (xpu_range){.dims = 2,
                       .groups = {(size_t)groups, (size_t)ceil_div(width, (int64_t)s->features * s->pack)},
                       .local = {(size_t)s->features, (size_t)s->rows},
                       .work = (uint64_t)elements};
}

xpu_status xpu_bag_forward(xpu_stream *stream, xpu_bag_mode mode, const xpu_bags *args, const void *weight,
                           const void *indices, const void *offsets, const void *sample_weights, void *out,
                           void *bag, void *sizes, void *max_indices, xpu_fault *fault) {
    const int index = xpu_stream_device(stream);
    const xpu_device_properties *device;
    XPU_TRY(xpu_device_get_properties(index, &device));
    XPU_TRY(check(device, args));
    if (fault) fault->state = 0;
    if (args->bags == 0) return XPU_SUCCESS;

    const bool maximum = mode == XPU_BAG_MAX;
    shape s = shape_for(device, args, weight, out);
    const int64_t average = args->count / args->bags, tiles = ceil_div(args->width, s.features * s.pack);
    s.shared = args->width > 0 && s.rows > 1 && average >= 4 * s.rows;
    int64_t splits = 1;
    if (s.shared) {
        splits = ceil_div(GROUPS_A_UNIT * (int64_t)device->max_compute_units, args->bags * tiles);
        const int64_t least = TUNED(false, SPLIT_ROWS) * s.rows;
        if (splits > average / least) splits = average / least;
        if (splits > MOST_SPLITS) splits = MOST_SPLITS;
        if (splits < 1) splits = 1;
    }
    bag_params p = {
        .weight = XPU_ADDR(weight),
        .indices = XPU_ADDR(indices),
        .offsets = XPU_ADDR(offsets),
        .sample_weights = XPU_ADDR(sample_weights),
        .out = XPU_ADDR(out),
        .bag = XPU_ADDR(bag),
        .sizes = XPU_ADDR(sizes),
        .max_indices = XPU_ADDR(max_indices),
        .rows = args->rows,
        .count = args->count,
        .bags = args->bags,
        .padding_index = args->padding_index,
        .row_stride = args->row_stride,
        .sample_weight_stride = args->sample_weight_stride,
        .width = (uint32_t)args->width,
        .splits = (uint32_t)splits,
        .last_is_end = args->last_is_end,
        .mean = mode == XPU_BAG_MEAN,
    };
    xpu_kernel *forward, *finish = NULL;
    XPU_TRY(get_kernel(index, FORWARD, maximum, args, &s, &forward));
    void *memory = NULL;
    if (splits > 1) {
        XPU_TRY(get_kernel(index, FINISH, maximum, args, &s, &finish));
        const size_t tasks = (size_t)(args->bags * splits), elements = tasks * (size_t)args->width;
        const size_t sums = elements * xpu_dtype_size(compute_dtype(args->dtype));
        const size_t places = maximum ? elements * sizeof(int64_t) : 0;
        XPU_TRY(xpu_workspace_take(stream, tasks * sizeof(int64_t) + places + sums, &memory));
        p.part_counts = XPU_ADDR(memory);
        p.part_positions = p.part_counts + tasks * sizeof(int64_t);
        p.parts = p.part_positions + places;
    }
    xpu_fault *place = NULL;
    xpu_status status = fault ? xpu_fault_watch(stream, &place) : XPU_SUCCESS;
    if (status == XPU_SUCCESS) {
        p.watch = (struct fault_watch){XPU_ADDR(place), XPU_ADDR("embedding_bag")};
        const int64_t width = args->width ? args->width : 1; /* bags and their sizes are told anyway */
        xpu_range range = range_for(&s, s.shared ? args->bags * splits : ceil_div(args->bags, s.rows), width,
                                    args->count * width * 2);
        status = xpu_launch(stream, forward, &range, &p, sizeof p);
    }
    if (status == XPU_SUCCESS && splits > 1) {
        xpu_range range = range_for(&s, args->bags, args->width, args->bags * splits * args->width);
        status = xpu_launch(stream, finish, &range, &p, sizeof p);
    }
    if (status == XPU_SUCCESS && fault) xpu_fault_take(stream, place, fault);
    return workspace_release(memory, status);
}

xpu_status xpu_bag_weights_backward(xpu_stream *stream, const xpu_bags *args, const void *grad,
                                    const void *weight, const void *indices, const void *bag, void *out,
                                    xpu_fault *fault) {
    const int index = xpu_stream_device(stream);
    const xpu_device_properties *device;
    XPU_TRY(xpu_device_get_properties(index, &device));
    XPU_TRY(check(device, args));
    if (fault) fault->state = 0;
    if (args->count == 0) return XPU_SUCCESS;
    const shape s = shape_for(device, args, weight, grad);
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(index, WEIGHTS, false, args, &s, &kernel));
    xpu_fault *place = NULL;
    if (fault) XPU_TRY(xpu_fault_watch(stream, &place));
    const bag_weights_params p = {
        .grad = XPU_ADDR(grad),
        .weight = XPU_ADDR(weight),
        .indices = XPU_ADDR(indices),
        .bag = XPU_ADDR(bag),
        .out = XPU_ADDR(out),
        .watch = {XPU_ADDR(place), XPU_ADDR("embedding_bag_per_sample_weights_backward")},
        .rows = args->rows,
        .count = args->count,
        .bags = args->bags,
        .padding_index = args->padding_index,
        .row_stride = args->row_stride,
        .width = (uint32_t)args->width,
    };
    xpu_range range = range_for(&s, ceil_div(args->count, s.rows), 1, args->count * (args->width + 1) * 2);
    XPU_TRY(xpu_launch(stream, kernel, &range, &p, sizeof p));
    if (fault) xpu_fault_take(stream, place, fault);
    return XPU_SUCCESS;
}

xpu_status xpu_embedding_backward(xpu_stream *stream, const xpu_bags *args, const void *grad,
                                  const void *keys, const int64_t *places, const void *bag, const void *sizes,
                                  const void *sample_weights, bool by_frequency, void *out) {
    const int index = xpu_stream_device(stream);
    const xpu_device_properties *device;
    XPU_TRY(xpu_device_get_properties(index, &device));
    XPU_TRY(check(device, args));
    if (args->count == 0 || args->width == 0) return XPU_SUCCESS;
    const shape s = shape_for(device, args, grad, out);
    xpu_kernel *sums, *finish;
    XPU_TRY(get_kernel(index, GRADIENT, false, args, &s, &sums));
    XPU_TRY(get_kernel(index, GRADIENT_FINISH, false, args, &s, &finish));
    int64_t chunk = ceil_div(args->count, MOST_CHUNKS);
    if (chunk < SHORTEST_CHUNK) chunk = SHORTEST_CHUNK;
    const int64_t chunks = ceil_div(args->count, chunk);
    const size_t bytes = (size_t)(chunks * args->width) * xpu_dtype_size(compute_dtype(args->dtype));
    void *memory;
    xpu_fault *place;
    XPU_TRY(xpu_fault_watch(stream, &place));
    XPU_TRY(xpu_workspace_take(stream, 2 * bytes, &memory));
    const rows_gradient_params p = {
        .grad = XPU_ADDR(grad),
        .keys = XPU_ADDR(keys),
        .places = XPU_ADDR(places),
        .bag = XPU_ADDR(bag),
        .sizes = XPU_ADDR(sizes),
        .sample_weights = XPU_ADDR(sample_weights),
        .out = XPU_ADDR(out),
        .heads = XPU_ADDR(memory),
        .tails = XPU_ADDR(memory) + bytes,
        .watch = {XPU_ADDR(place), XPU_ADDR("embedding_backward")},
        .rows = args->rows,
        .count = args->count,
        .bags = args->bags,
        .padding_index = args->padding_index,
        .sample_weight_stride = args->sample_weight_stride,
        .chunk = chunk,
        .chunks = chunks,
        .width = (uint32_t)args->width,
        .by_frequency = by_frequency,
    };
    xpu_range range = range_for(&s, ceil_div(chunks, s.rows), args->width, args->count * args->width * 2);
    xpu_status status = xpu_launch(stream, sums, &range, &p, sizeof p);
    if (status == XPU_SUCCESS && chunks > 1) {
        range.work = (uint64_t)(chunks * args->width);
        status = xpu_launch(stream, finish, &range, &p, sizeof p);
    }
    if (status == XPU_SUCCESS) status = xpu_fault_raise(stream, place);
    return workspace_release(memory, status);
}

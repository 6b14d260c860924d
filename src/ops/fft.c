/* FFT: splits lengths into passes, chooses specialized or generic kernels, and builds real, Bluestein and
 * multi-dimensional transforms from complex passes (kernels/fft.cl has the algorithm). */
#include "xpu/ops/fft.h"

#include <stdlib.h>
#include <string.h>

#include "core/tuning.h"
#include "kernels/fft.h"
#include "ops/iter.h"
#include "ops/kernel.h"
#include "ops/row_walk.h"
#include "xpu/memory.h"

#define SMALL 1024                 /* values in local memory, if that is enough */
#define LONGEST ((int64_t)1 << 30) /* the kernel multiplies by 2 in 32 bits */
#define MAX_PASSES 10              /* 13 to the power of 8 is more than LONGEST */
#define WORK_BYTES ((int64_t)32 << 20)
#define FEW_COLUMNS 4 /* neighbors that are read together, where they aren't a row's */
#define MAX_STAGES 6
#define GROUP_ITEMS 256 /* of kernels of one length */

static const uint32_t WRITE_FLAGS =
    FFT_WRITE_INNER_SWAPPED | FFT_WRITE_TIMES_CHIRP | FFT_WRITE_SWAPPED | FFT_WRITE_REAL;
static const uint32_t READ_FLAGS =
    FFT_READ_REAL | FFT_READ_HALF | FFT_READ_CHIRP | FFT_READ_SWAPPED | FFT_READ_TIMES_CHIRP;

/* Source or destination of a pass. */
typedef struct place {
    xpu_addr data;
    xpu_dtype dtype; /* of real numbers, and of the parts of complex ones */
    int64_t along;
    int64_t stride[ROW_WALK_DIMS];
} place;

/* A set of rows of one length, and the workspace for their transform. */
typedef struct fft_job {
    xpu_stream *stream;
    xpu_dtype dtype; /* compute type, fp32 or fp64 */
    bool is_cpu;
    int most;       /* numbers that fit into local memory */
    int most_items; /* of a work-group */
    bool adjacent;  /* in the workspace, element k of all rows is contiguous */
    int64_t first, rows;
    row_walk walk;
    int64_t n; /* length in the workspace */
    xpu_addr work[2];
} fft_job;

/* A kernel that is specialized for a length: ascending radices, so that the first stage, which needs no
 * twiddle factors, has most butterflies. */
typedef struct fft_stages {
    int count;
    int radix[MAX_STAGES];
    int items; /* a column */
    int each;  /* most values of a work-item */
    int columns;
} fft_stages;

static void begin_spec(kernel_spec *spec, const fft_job *job, xpu_dtype in, xpu_dtype out, int row_dims) {
    static const char *const pairs[] = {"c64", "c128"};
    const bool wide = job->dtype == XPU_FLOAT64;
    spec_begin(spec, FAMILY_FFT);
    spec_dtype(spec, "IN", in);
    spec_dtype(spec, "OUT", out);
    spec_option(spec, "R=", dtype_computed(job->dtype));
    spec_option(spec, "PAIR=", pairs[wide]);
    spec_option(spec, "IN_PAIR=", in == job->dtype ? pairs[wide] : NULL);
    spec_option(spec, "OUT_PAIR=", out == job->dtype ? pairs[wide] : NULL);
    spec_option_flag(spec, "WIDE", wide);
    spec_int(spec, "ROW_DIMS", row_dims, 8);
}

/* The generic kernel (fft.cl) with `held` values in local memory. */
static xpu_status get_kernel(int device, const fft_job *job, xpu_dtype in, xpu_dtype out, int held,
                             int row_dims, xpu_kernel **kernel) {
    kernel_spec spec;
    begin_spec(&spec, job, in, out, row_dims);
    spec_int(&spec, "HELD", held, 16);
    spec_option_int(&spec, "GROUP", held / FFT_VALUES_PER_ITEM);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(device, &spec, "fft.cl", "fft_pass", kernel, "fft %s->%s", dtype_token(in),
                            dtype_token(out));
}

/* The kernel that is specialized for the pass's length and flags (fft_length.cl). */
static xpu_status get_length_kernel(int device, const fft_job *job, xpu_dtype in, xpu_dtype out,
                                    const fft_stages *s, const fft_params *p, int row_dims,
                                    xpu_kernel **kernel) {
    static const char *const radices[MAX_STAGES] = {"RADIX_0", "RADIX_1", "RADIX_2",
                                                    "RADIX_3", "RADIX_4", "RADIX_5"};
    kernel_spec spec;
    begin_spec(&spec, job, in, out, row_dims);
    spec_key_only(&spec, "HELD", 0, 16);
    spec_int(&spec, "LENGTH", p->length, 16);
    spec_int(&spec, "COLUMNS", s->columns, 8);
    spec_int(&spec, "FLAGS", p->flags, 12);
    spec_flag(&spec, "DONE_1", p->done == 1);
    spec_option_int(&spec, "STAGES", s->count);
    for (int i = 0; i < s->count; i++) spec_option_int(&spec, radices[i], s->radix[i]);
    spec_option_int(&spec, "LAST", s->radix[s->count - 1]);
    spec_option_int(&spec, "ITEMS", s->items);
    spec_option_int(&spec, "EACH", s->each);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(device, &spec, "fft_length.cl", "fft_length", kernel, "fft of %u %s->%s",
                            p->length, dtype_token(in), dtype_token(out));
}

/* --- lengths --- */

static bool is_smooth(int64_t n) {
    static const int primes[] = {2, 3, 5, 7, 11, 13};
    for (int i = 0; i < 6; i++)
        while (n % primes[i] == 0) n /= primes[i];
    return n == 1;
}

static bool reaches(int64_t base, int power, int64_t n) {
    int64_t product = 1;
    while (power-- > 0 && product < n) product *= base;
    return product >= n;
}

/* Splits a smooth n into at most `passes` factors of at most `most`, as equal as possible. Returns their
 * number, or 0 if there is no such split. */
static int split_in(int64_t n, int64_t most, int passes, uint32_t *lengths) {
    if (passes == 1) {
        lengths[0] = (uint32_t)n;
        return n <= most;
    }
    int64_t length = 1;
    while (length <= most && !reaches(length, passes, n)) length++;
    for (; length <= most; length++) {
        if (n % length) continue;
        lengths[0] = (uint32_t)length;
        const int rest = split_in(n / length, most, passes - 1, lengths + 1);
        if (rest) return rest + 1;
    }
    return 0;
}

/* The lengths of the passes; returns their number. If elements of a row aren't contiguous, adjacent rows are
 * read together. */
static int split(const fft_job *job, int64_t n, bool is_along, uint32_t *lengths) {
    if (split_in(n, is_along ? job->most : job->most / FEW_COLUMNS, 1, lengths)) return 1;
    int passes = 2;
    while (!split_in(n, job->most / FEW_COLUMNS, passes, lengths)) passes++;
    return passes;
}

/* A pass's radices, 4 bits each. */
static uint64_t radices_of(uint32_t length) {
    static const uint32_t radices[] = {13, 11, 7, 5, 3};
    uint64_t found = 0;
    for (int i = 0; i < 5; i++)
        for (; length % radices[i] == 0; length /= radices[i]) found = found << 4 | radices[i];
    while (length > 1) {
        const uint32_t radix = length == 2 ? 2 : length == 4 || length == 16 ? 4 : 8;
        found = found << 4 | radix;
        length /= radix;
    }
    return found;
}

/* --- kernels of one length --- */

/* Finds `count` ascending radices, as equal as possible, that fit into the registers of a work-item. */
static bool find_radices(int length, int least, int count, bool wide, int *radix) {
    const int most = wide ? 10 : 16;
    if (count == 1) {
        radix[0] = length;
        return length >= least && (length <= most || length == 11 || length == 13);
    }
    for (int r = 16; r >= least; r--) {
        if (length % r || reaches(r, count, length + 1) || (r > most && r != 11 && r != 13)) continue;
        radix[0] = r;
        if (find_radices(length / r, r, count - 1, wide, radix + 1)) return true;
    }
    return false;
}

static int parts_of(int count, int parts) { return (count + parts - 1) / parts; }

/* Chooses radices and work-items per column with the least total work whose values fit into registers, and as
 * many columns as local memory allows. False if there is no such kernel. */
static bool find_stages(const fft_job *job, const fft_params *p, bool by_column, int most_items,
                        fft_stages *s) {
    const int length = (int)p->length;
    const bool wide = job->dtype == XPU_FLOAT64;
    /* short rows get several work-items anyway, for contiguous reads */
    s->count = length > 4 && length <= 16 && !by_column ? 2 : 1;
    while (s->count <= MAX_STAGES && !find_radices(length, 2, s->count, wide, s->radix)) s->count++;
    if (s->count > MAX_STAGES) {
        s->count = 1;
        if (!find_radices(length, 2, 1, wide, s->radix)) return false;
    }
    int64_t best = INT64_MAX;
    for (int i = 0; i < s->count; i++) {
        const int items = length / s->radix[i];
        int each = 0;
        int64_t work = 0;
        for (int j = 0; j < s->count; j++) {
            const int numbers = parts_of(length / s->radix[j], items) * s->radix[j];
            each = numbers > each ? numbers : each;
            work += (int64_t)numbers * items;
        }
        if (items > most_items || each > 20 || work >= best) continue;
        best = work;
        s->items = items;
        s->each = each;
    }
    if (best == INT64_MAX) return false;
    const int limit = most_items < GROUP_ITEMS ? most_items : GROUP_ITEMS;
    s->columns = 1;
    while (s->columns < FFT_COLUMNS && 2 * s->columns * length <= job->most && s->columns < p->columns &&
           2 * s->columns * s->items <= (by_column && s->columns < 2 * FEW_COLUMNS ? most_items : limit))
        s->columns *= 2;
    return true;
}

/* --- passes --- */

static bool are_rows_adjacent(const fft_job *job, const place *at) {
    return job->walk.rows > 1 && llabs(at->stride[0]) < llabs(at->along);
}

static place work_place(const fft_job *job, int which) {
    place at = {.data = job->work[which], .dtype = job->dtype, .along = job->adjacent ? job->rows : 1};
    int64_t stride = job->adjacent ? 1 : job->n;
    at.data -= (xpu_addr)(job->first * stride) * xpu_dtype_size(job->dtype) * 2;
    for (int d = 0; d < ROW_WALK_DIMS; d++) {
        at.stride[d] = stride;
        stride *= job->walk.size[d];
    }
    return at;
}

/* Launches one pass; `p` has its flags and length. */
static xpu_status launch(const fft_job *job, const place *from, const place *to, bool rows_first,
                         fft_params *p) {
    const int device = xpu_stream_device(job->stream);
    const int64_t length = p->length, apart = p->n / length;
    const bool next_row = rows_first || apart == 1;
    p->in = from->data;
    p->out = to->data;
    p->radices = radices_of(p->length);
    p->first_row = job->first;
    p->rows = job->rows;
    p->columns = job->rows * apart;
    p->walk = job->walk;
    p->walk.along[0] = from->along;
    p->walk.along[1] = to->along;
    memcpy(p->walk.stride[0], from->stride, sizeof from->stride);
    memcpy(p->walk.stride[1], to->stride, sizeof to->stride);
    const bool read_by_column = llabs(next_row ? from->stride[0] : from->along) <= llabs(apart * from->along);
    const bool write_by_column = llabs(next_row       ? to->stride[0]
                                       : p->done == 1 ? length * to->along
                                                      : to->along) <= llabs((int64_t)p->done * to->along);
    if (rows_first) p->flags |= FFT_ROWS_FIRST;
    if (read_by_column) p->flags |= FFT_READ_BY_COLUMN;
    if (write_by_column) p->flags |= FFT_WRITE_BY_COLUMN;
    const bool by_column = (read_by_column || write_by_column) && p->columns > 1;
    int row_dims = ROW_WALK_DIMS;
    while (row_dims > 1 && job->walk.size[row_dims - 1] == 1) row_dims--;
    if (row_dims > 1) row_dims = row_dims <= 3 ? 3 : ROW_WALK_DIMS;
    xpu_range range = {.dims = 1, .work = (uint64_t)(p->columns * length * 50)};
    xpu_kernel *kernel;
    fft_stages stages;
    if (p->columns * length >= TUNED(job->is_cpu, FFT_LENGTH) &&
        find_stages(job, p, by_column, job->most_items, &stages)) {
        range.local[0] = (size_t)(stages.items * stages.columns);
        range.groups[0] = (size_t)((p->columns + stages.columns - 1) / stages.columns);
        XPU_TRY(get_length_kernel(device, job, from->dtype, to->dtype, &stages, p, row_dims, &kernel));
    } else {
        const int64_t wanted = by_column ? 2 * FEW_COLUMNS : 1;
        const int held = length * wanted <= SMALL ? SMALL : job->most;
        while (p->column_bits < 7 && length << (p->column_bits + 1) <= held &&
               1 << p->column_bits < p->columns)
            p->column_bits++;
        const int64_t columns = (int64_t)1 << p->column_bits;
        range.local[0] = (size_t)(held / FFT_VALUES_PER_ITEM);
        range.groups[0] = (size_t)((p->columns + columns - 1) / columns);
        XPU_TRY(get_kernel(device, job, from->dtype, to->dtype, held, row_dims, &kernel));
    }
    return xpu_launch(job->stream, kernel, &range, p, sizeof *p);
}

static void set_scale(const fft_job *job, fft_params *p, double scale) {
    const xpu_scalar scalar = {.dtype = XPU_FLOAT64, .value.f = scale};
    scalar_bits(&scalar, job->dtype, p->scale);
}

/* Launches all passes over the job's rows of length p.n; `next` is the half of the workspace that the first
 * pass writes to. */
static xpu_status transform(const fft_job *job, const uint32_t *lengths, int passes, const place *from,
                            const place *to, int next, const fft_params *p) {
    uint32_t done = 1;
    for (int i = 0; i < passes; i++) {
        const bool is_first = i == 0, is_last = i == passes - 1;
        fft_params pass = *p;
        pass.length = lengths[i];
        pass.done = done;
        if (!is_first) {
            pass.flags &= ~READ_FLAGS;
            pass.spectrum = 0;
        }
        if (!is_last) {
            pass.flags &= ~WRITE_FLAGS;
            pass.stored = p->n;
            set_scale(job, &pass, 1);
        }
        const place target = is_last ? *to : work_place(job, next);
        const place source = is_first ? *from : work_place(job, next ^ 1);
        const bool rows_first = is_first ? are_rows_adjacent(job, from) : job->adjacent;
        XPU_TRY(launch(job, &source, &target, rows_first, &pass));
        next ^= 1;
        done *= lengths[i];
    }
    return XPU_SUCCESS;
}

static void begin_rows(fft_job *job, int64_t first, int64_t at_once, int64_t all) {
    job->first = first;
    job->rows = at_once < all - first ? at_once : all - first;
}

static xpu_status take_work(fft_job *job, int64_t rows, int buffers, int64_t others, void **memory) {
    const int64_t number = 2 * (int64_t)xpu_dtype_size(job->dtype), bytes = rows * job->n * number;
    if (buffers + others == 0) return XPU_SUCCESS;
    XPU_TRY(xpu_workspace_take(job->stream, (size_t)(buffers * bytes + others * number), memory));
    for (int i = 0; i < 2; i++) job->work[i] = XPU_ADDR(*memory) + (xpu_addr)(i * bytes);
    return XPU_SUCCESS;
}

static int64_t rows_at_once(const fft_job *job, int buffers) {
    const int64_t row = buffers * job->n * 2 * (int64_t)xpu_dtype_size(job->dtype);
    const int64_t rows = row ? WORK_BYTES / row : job->walk.rows;
    return rows < 1 ? 1 : rows < job->walk.rows ? rows : job->walk.rows;
}

static xpu_status by_passes(fft_job *job, const place *from, const place *to, fft_params *p, double scale) {
    uint32_t lengths[MAX_PASSES];
    job->n = p->n;
    const bool is_along = !are_rows_adjacent(job, from) && !are_rows_adjacent(job, to);
    const int passes = split(job, job->n, is_along, lengths), buffers = passes > 3 ? 2 : passes - 1;
    const int64_t all = job->walk.rows, rows = rows_at_once(job, buffers);
    void *memory = NULL;
    XPU_TRY(take_work(job, rows, buffers, 0, &memory));
    xpu_status status = XPU_SUCCESS;
    set_scale(job, p, scale);
    for (int64_t first = 0; first < all && status == XPU_SUCCESS; first += rows) {
        begin_rows(job, first, rows, all);
        status = transform(job, lengths, passes, from, to, 0, p);
    }
    return workspace_release(memory, status);
}

/* The spectrum of the conjugate chirp, by which rows are multiplied (Bluestein). */
static xpu_status transform_chirp(const fft_job *rows, const uint32_t *lengths, int passes, const place *to,
                                  fft_params p) {
    fft_job one = *rows;
    one.first = 0;
    one.rows = one.walk.rows = 1;
    one.adjacent = false;
    for (int d = 0; d < ROW_WALK_DIMS; d++) one.walk.size[d] = 1;
    p.flags = FFT_READ_CHIRP;
    p.stored = p.n;
    set_scale(rows, &p, 1);
    const place nothing = {.dtype = rows->dtype, .along = 1};
    return transform(&one, lengths, passes, &nothing, to, 0, &p);
}

static xpu_status by_convolution(fft_job *job, const place *from, const place *to, fft_params *p,
                                 double scale) {
    uint32_t lengths[MAX_PASSES];
    job->n = 1;
    while (job->n < 2 * (int64_t)p->signal - 1) job->n *= 2;
    p->n = (uint32_t)job->n;
    const int passes = split(job, job->n, !job->adjacent, lengths), buffers = passes == 1 ? 1 : 2;
    const int last = (passes - 1) % 2; /* the half of the workspace with the spectra */
    const int64_t all = job->walk.rows, rows = rows_at_once(job, buffers);
    void *memory = NULL;
    XPU_TRY(take_work(job, rows, buffers, job->n, &memory));
    const place chirp = {.data = job->work[0] + (job->work[1] - job->work[0]) * (xpu_addr)buffers,
                         .dtype = job->dtype,
                         .along = 1};
    fft_params there = *p, back = *p;
    there.flags = (p->flags & READ_FLAGS) | FFT_READ_TIMES_CHIRP;
    there.stored = p->n;
    set_scale(job, &there, 1);
    back.flags =
        FFT_READ_SWAPPED | FFT_WRITE_INNER_SWAPPED | FFT_WRITE_TIMES_CHIRP | (p->flags & WRITE_FLAGS);
    back.spectrum = chirp.data;
    set_scale(job, &back, scale / (double)job->n);
    xpu_status status = transform_chirp(job, lengths, passes, &chirp, *p);
    for (int64_t first = 0; first < all && status == XPU_SUCCESS; first += rows) {
        begin_rows(job, first, rows, all);
        const place spectra = work_place(job, last);
        status = transform(job, lengths, passes, from, &spectra, 0, &there);
        if (status == XPU_SUCCESS) status = transform(job, lengths, passes, &spectra, to, last ^ 1, &back);
    }
    return workspace_release(memory, status);
}

/* --- dimensions --- */

static place place_of(const xpu_tensor *tensor, const row_walk *walk, int which) {
    place at = {.data = XPU_ADDR(tensor->data), .dtype = tensor->dtype, .along = walk->along[which]};
    memcpy(at.stride, walk->stride[which], sizeof at.stride);
    return at;
}

static int most_in_local(const xpu_device_properties *device, xpu_dtype dtype) {
    const uint64_t number = 2 * xpu_dtype_size(dtype);
    uint64_t most = 65536 / (2 * number); /* 32 KiB */
    while (most > SMALL && (most * number / 16 * 17 + FFT_COLUMNS * 20 > device->local_mem_size ||
                            most / FFT_VALUES_PER_ITEM > device->max_work_group_size))
        most /= 2;
    return (int)most;
}

/* One dimension. */
static xpu_status along(xpu_stream *stream, const xpu_tensor *in, const xpu_tensor *out, int dim,
                        xpu_fft_kind kind, bool inverse, double scale) {
    const xpu_device_properties *device;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &device));
    const int64_t n = kind == XPU_FFT_C2R ? out->size[dim] : in->size[dim];
    const bool smooth = is_smooth(n);
    if (n > (smooth ? LONGEST : LONGEST / 2))
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "fft: a transform of length %lld is too long", (long long)n);
    const xpu_tensor *const tensors[3] = {in, out, out};
    fft_job job = {.stream = stream, .dtype = in->dtype == XPU_FLOAT64 ? XPU_FLOAT64 : XPU_FLOAT32};
    const int dims = row_walk_fill(tensors, dim, &job.walk);
    for (int d = dims; d < ROW_WALK_DIMS; d++) job.walk.size[d] = 1;
    const place from = place_of(in, &job.walk, 0), to = place_of(out, &job.walk, 1);
    job.most = most_in_local(device, job.dtype);
    job.most_items = device->max_work_group_size < 512 ? (int)device->max_work_group_size : 512;
    job.is_cpu = device->type == XPU_DEVICE_CPU;
    job.rows = job.walk.rows;
    job.adjacent = are_rows_adjacent(&job, &to);
    fft_params p = {.n = (uint32_t)n, .signal = (uint32_t)n, .stored = (uint32_t)out->size[dim]};
    if (kind == XPU_FFT_R2C) p.flags |= FFT_READ_REAL;
    if (kind == XPU_FFT_C2R) p.flags |= FFT_READ_HALF | FFT_WRITE_REAL;
    if (inverse) p.flags |= FFT_READ_SWAPPED | FFT_WRITE_SWAPPED;
    return (smooth ? by_passes : by_convolution)(&job, &from, &to, &p, scale);
}

static xpu_status check(const xpu_fft_args *args, const xpu_device_properties *device) {
    const xpu_tensor *in = &args->in, *out = &args->out;
    if (in->dtype != XPU_FLOAT16 && in->dtype != XPU_FLOAT32 &&
        (in->dtype != XPU_FLOAT64 || !device->has_fp64))
        return op_unsupported_dtype("fft", in->dtype, device);
    if (out->dtype != in->dtype)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "fft: the input is %s, the output %s; both must have the same dtype",
                       dtype_token(in->dtype), dtype_token(out->dtype));
    if (in->dims != out->dims || in->dims > XPU_MAX_DIMS || args->count < 1)
        return op_fail(
            XPU_ERROR_INVALID_ARGUMENT,
            "fft: can't transform %d dimensions of an input with %d dimensions and an output with %d",
            args->count, in->dims, out->dims);
    unsigned seen = 0;
    for (int i = 0; i < args->count; i++) {
        const int d = args->dim[i];
        if (d < 0 || d >= in->dims || seen >> d & 1)
            return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                           "fft: dimension %d is repeated or out of range for %d dimensions", d, in->dims);
        seen |= 1u << d;
    }
    const int last = args->dim[args->count - 1];
    for (int d = 0; d < in->dims; d++) {
        const int64_t from = in->size[d], to = out->size[d];
        const bool fits = d != last || args->kind == XPU_FFT_C2C ? from == to
                          : args->kind == XPU_FFT_C2R            ? from >= to / 2 + 1
                                                                 : to == from || to == from / 2 + 1;
        if (!fits || ((seen >> d & 1) && (from < 1 || to < 1)))
            return op_fail(
                XPU_ERROR_INVALID_ARGUMENT,
                "fft: the input has %lld elements and the output %lld along dimension %d, which don't match",
                (long long)from, (long long)to, d);
    }
    return XPU_SUCCESS;
}

/* A contiguous complex tensor of the given shape with the precision of `dtype`. */
static xpu_tensor between(xpu_dtype dtype, int dims, const int64_t *size, int64_t *stride) {
    int64_t count = 1;
    for (int d = dims - 1; d >= 0; d--) {
        stride[d] = count;
        count *= size[d];
    }
    return (xpu_tensor){
        .dtype = dtype == XPU_FLOAT16 ? XPU_FLOAT32 : dtype, .dims = dims, .size = size, .stride = stride};
}

xpu_status xpu_fft(xpu_stream *stream, const xpu_fft_args *args) {
    const xpu_device_properties *device;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &device));
    XPU_TRY(check(args, device));
    const int count = args->count, last = args->dim[count - 1], dims = args->in.dims;
    const bool to_real = args->kind == XPU_FFT_C2R;
    int64_t size[XPU_MAX_DIMS], stride[XPU_MAX_DIMS], numbers = 1;
    memcpy(size, args->out.size, (size_t)dims * sizeof *size);
    if (to_real) size[last] = size[last] / 2 + 1;
    for (int d = 0; d < dims; d++) numbers *= size[d];
    if (numbers == 0) return XPU_SUCCESS;
    xpu_tensor in = args->in, middle = args->out;
    if (to_real) in.size = size;
    void *memory = NULL;
    if (count > 1 && (to_real || in.dtype == XPU_FLOAT16)) {
        middle = between(in.dtype, dims, size, stride);
        XPU_TRY(xpu_workspace_take(stream, (size_t)numbers * 2 * xpu_dtype_size(middle.dtype), &memory));
        middle.data = memory;
    }
    xpu_status status = XPU_SUCCESS;
    for (int i = 0; i < count && status == XPU_SUCCESS; i++) {
        /* dimensions from last to first; a complex-to-real transform of the last dimension comes at the end
         */
        const bool is_last = i == count - 1;
        const int d = !to_real ? args->dim[count - 1 - i] : is_last ? last : args->dim[count - 2 - i];
        const bool is_real = to_real ? is_last : i == 0;
        status = along(stream, &in, is_last ? &args->out : &middle, d, is_real ? args->kind : XPU_FFT_C2C,
                       args->inverse, is_last ? args->scale : 1);
        in = middle;
    }
    return workspace_release(memory, status);
}

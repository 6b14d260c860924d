/* Packages: a written package is read back and runs; truncated, damaged, foreign or contradictory ones are
 * rejected with a reason. Argument: number of damaged programs to try. */
#include "package_test.h"
#include "xpu/dlpack.h"

/* out = 2 (x w), x: [s, 4] with s from 1 to 64, w: [4, 3] */
static const int64_t program[] = {
    /* registers */ 12,
    CONST,
    0,
    0,
    CONST,
    1,
    0,
    CONST,
    3,
    0,
    CONST,
    4,
    0,
    SIZE,
    0,
    0,
    CONST,
    64,
    0, //
    LE,
    1,
    4,
    LE,
    4,
    5,
    MUL,
    4,
    2,
    CONST,
    15,
    0,
    ADD,
    8,
    9,
    CONST,
    16,
    0, //
    /* checks */ 2,
    6,
    TEXT4('1', '<', '=', 's'),
    7,
    TEXT4('s', '<', '6', '4'), //
    /* constants: w */ 1,
    0,
    48,
    0, //
    /* inputs */ 1,
    TEXT4('x', 'x', 'x', 'x'),
    XPU_FLOAT32,
    2,
    4,
    3,
    3,
    1, //
    /* tensors: x, w, new, its view */ 4,
    0,
    XPU_FLOAT32,
    2,
    4,
    3,
    3,
    1,
    0,
    0, //
    1,
    XPU_FLOAT32,
    2,
    3,
    2,
    2,
    1,
    0,
    0, //
    2,
    XPU_FLOAT32,
    2,
    4,
    2,
    2,
    1,
    0,
    0, //
    3,
    XPU_FLOAT32,
    1,
    8,
    1,
    2,
    0, //
    /* outputs */ 1,
    TEXT4('o', 'u', 't', '0'),
    2, //
    /* images */ 1,
    0,
    -1 /* its size */,
    0,
    0 /* no binary */, //
    /* steps */ 2,
    -1,
    2,
    'm' | 'm' << 8,
    3,
    1,
    2,
    1,
    0,
    1,
    1, //
    0,
    4,
    1,
    1,
    2,
    1,
    3,
    2,
    8,
};
enum { WORDS = sizeof program / sizeof *program };
_Static_assert((int)WORDS <= (int)WORDS_MOST, "write_words has room for it");

static void it_runs(void **state) {
    xpu_package *package;
    xpu_stream *stream;
    const xpu_package_port *ports;
    int count;
    SUCCEEDS(write_words(program, WORDS));
    SUCCEEDS(xpu_stream_default(0, &stream));
    SUCCEEDS(xpu_package_open(path, 0, &package));
    assert_string_equal(xpu_package_about(package), "of a test");
    SUCCEEDS(xpu_package_inputs(package, &ports, &count));
    assert_int_equal(count, 1);
    assert_string_equal(ports[0].name, "xxxx");
    assert_int_equal(ports[0].size[0], -1);
    assert_int_equal(ports[0].size[1], 4);
    assert_false(ports[0].is_written);
    SUCCEEDS(xpu_package_outputs(package, &ports, &count));
    assert_string_equal(ports[0].name, "out0");
    float x[65 * 5 + 1], y[64 * 7 + 1];
    for (int i = 0; i < 65 * 5 + 1; i++) x[i] = (float)(i % 11) - 4;
    static const int sizes[] = {1, 5, 64, 5, 17};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int shape = 0; shape < 3; shape++) { /* dense; with gaps; at an odd address */
            const int rows = sizes[s], line = shape == 1 ? 5 : 4, first = shape == 2,
                      gap = shape == 1 ? 7 : 3;
            xpu_package_tensor in = {x + first, true, XPU_FLOAT32, 2, {rows, 4}, {line, 1}};
            xpu_package_tensor out = {0};
            for (int i = 0; i < 64 * 7 + 1; i++) y[i] = -7;
            SUCCEEDS(xpu_package_shapes(package, &in, 1, &out, 1));
            assert_int_equal(out.size[0], rows);
            assert_int_equal(out.stride[0], 3);
            out.data = y + first, out.is_host = true, out.stride[0] = gap;
            SUCCEEDS(xpu_package_run(package, stream, &in, 1, &out, 1));
            xpu_package_tensor made = {0};
            SUCCEEDS(xpu_package_run(package, stream, &in, 1, &made, 1));
            float z[64 * 3];
            SUCCEEDS(xpu_memcpy(stream, z, made.data, (size_t)rows * 3 * sizeof *z, true));
            SUCCEEDS(xpu_stream_synchronize(stream));
            SUCCEEDS(xpu_free(made.data));
            for (int i = 0; i < rows; i++)
                for (int j = 0; j < 3; j++) {
                    float sum = 0;
                    for (int k = 0; k < 4; k++) sum += x[first + i * line + k] * w[k * 3 + j];
                    assert_float_equal(y[first + i * gap + j], 2 * sum, 0);
                    assert_float_equal(z[i * 3 + j], 2 * sum, 0);
                }
            if (shape == 1) assert_float_equal(y[3], -7, 0); /* gaps are unchanged */
        }
    xpu_package_close(package);
}

#if defined(__linux__)
/* Not instrumented, because a page of a library's constants may start in a red zone of AddressSanitizer. */
__attribute__((no_sanitize("address"))) static void read_pages(uintptr_t at, uintptr_t end) {
    volatile unsigned char read = 0;
    for (; at < end; at += 4096) read += *(const unsigned char *)at;
}

/* Resident KB of the read-only parts of libraries; with `touch`, all of them are read first. */
static unsigned long libraries_in_memory(bool touch) {
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[1024], mode[5];
    unsigned long long start, end;
    unsigned long sum = 0, number;
    bool counts = false;
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "%llx-%llx %4s", &start, &end, mode) == 3) {
            counts = mode[0] == 'r' && mode[1] == '-' && mode[3] == 'p' && strstr(line, ".so");
            if (counts && touch) read_pages((uintptr_t)start, (uintptr_t)end);
        } else if (counts && sscanf(line, "Rss: %lu", &number) == 1) {
            sum += number;
        }
    fclose(file);
    return sum;
}

/* After its first run, when kernels are built, a package on a CPU device releases what the driver read of its
 * libraries. Later runs don't, and work. */
static void the_first_run_gives_memory_back(void **state) {
    enum { PACKAGES = 2, LEAST = 1024 };
    const xpu_device_properties *properties;
    xpu_package *package;
    xpu_stream *stream;
    SUCCEEDS(xpu_device_get_properties(0, &properties));
    if (properties->type != XPU_DEVICE_CPU || !properties->host_unified_memory) return;
    SUCCEEDS(xpu_stream_default(0, &stream));
    SUCCEEDS(write_words(program, WORDS));
    for (int i = 0; i < PACKAGES; i++) {
        SUCCEEDS(xpu_package_open(path, 0, &package));
        for (int run = 0; run < 3; run++) {
            float x[4] = {1, 2, (float)run, 4}, y[3];
            const xpu_package_tensor in = {x, true, XPU_FLOAT32, 2, {1, 4}, {4, 1}};
            xpu_package_tensor out = {y, true, XPU_FLOAT32, 2, {1, 3}, {3, 1}};
            libraries_in_memory(true);
            const unsigned long before = libraries_in_memory(false);
            SUCCEEDS(xpu_package_run(package, stream, &in, 1, &out, 1));
            const unsigned long after = libraries_in_memory(false);
            if ((after + LEAST < before) != (run == 0))
                fail_msg("run %d: %lu KB of libraries, %lu before", run, after, before);
            for (int j = 0; j < 3; j++) {
                float sum = 0;
                for (int k = 0; k < 4; k++) sum += x[k] * w[k * 3 + j];
                assert_float_equal(y[j], 2 * sum, 0);
            }
        }
        xpu_package_close(package);
    }
}
#endif

static void wrong_inputs_are_refused(void **state) {
    xpu_package *package;
    xpu_stream *stream;
    float x[65 * 4] = {0};
    SUCCEEDS(write_words(program, WORDS));
    SUCCEEDS(xpu_stream_default(0, &stream));
    SUCCEEDS(xpu_package_open(path, 0, &package));
    const struct {
        xpu_package_tensor in;
        const char *text;
    } wrong[] = {
        {{x, true, XPU_FLOAT32, 2, {65, 4}, {4, 1}}, "\"s<64\""},
        {{x, true, XPU_FLOAT32, 2, {0, 4}, {4, 1}}, "\"1<=s\""},
        {{x, true, XPU_FLOAT32, 2, {5, 3}, {4, 1}},
         "input xxxx has size 3 in dimension 1, but the model expects 4"},
        {{x, true, XPU_FLOAT32, 1, {5}, {4}}, "input xxxx has 1 dimensions"},
        {{x, true, XPU_FLOAT64, 2, {5, 4}, {4, 1}}, "input xxxx has dtype f64"},
        {{x, true, (xpu_dtype)77, 2, {5, 4}, {4, 1}}, "input xxxx has dtype unknown"},
        {{x, true, XPU_FLOAT32, 2, {-5, 4}, {4, 1}}, "size -5"},
        {{x, true, XPU_FLOAT32, 2, {5, 4}, {-4, 1}}, "negative stride"},
        {{x, true, XPU_FLOAT32, 2, {5, 4}, {INT64_MAX / 4, 1}},
         "strides of input xxxx exceed the address space"},
        {{x, true, XPU_FLOAT32, 2, {5, 4}, {INT64_MAX, INT64_MAX}},
         "strides of input xxxx exceed the address space"},
        {{NULL, true, XPU_FLOAT32, 2, {5, 4}, {4, 1}}, "data pointer of input xxxx is NULL"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        xpu_package_tensor out = {0};
        assert_int_equal(xpu_package_run(package, stream, &wrong[i].in, 1, &out, 1),
                         XPU_ERROR_INVALID_ARGUMENT);
        assert_null(out.data);
        if (!strstr(xpu_last_error(), wrong[i].text)) fail_msg("%s", xpu_last_error());
    }
    xpu_package_tensor in = {x, true, XPU_FLOAT32, 2, {5, 4}, {4, 1}}, out = {0};
    assert_int_equal(xpu_package_run(package, stream, &in, 2, &out, 1), XPU_ERROR_INVALID_ARGUMENT);
    assert_int_equal(xpu_package_run(package, stream, &in, 1, &out, 0), XPU_ERROR_INVALID_ARGUMENT);
    out = (xpu_package_tensor){x, true, XPU_FLOAT32, 2, {4, 3}, {3, 1}};
    assert_int_equal(xpu_package_run(package, stream, &in, 1, &out, 1), XPU_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(xpu_last_error(), "output out0 has size 4 in dimension 0; expected 5"));
    for (int is_negative = 0; is_negative < 2; is_negative++) {
        out = (xpu_package_tensor){x, true, XPU_FLOAT32, 2, {5, 3}, {is_negative ? -3 : INT64_MAX / 2, 1}};
        assert_int_equal(xpu_package_run(package, stream, &in, 1, &out, 1), XPU_ERROR_INVALID_ARGUMENT);
        if (!strstr(xpu_last_error(),
                    is_negative ? "output out0 has a negative stride" : "exceed the address space"))
            fail_msg("%s", xpu_last_error());
    }
    /* a dimension of size 1 may have any stride, as in NumPy */
    in = (xpu_package_tensor){x, true, XPU_FLOAT32, 2, {1, 4}, {INT64_MAX, 1}};
    float y[4] = {7, 7, 7, 7};
    out = (xpu_package_tensor){y, true, XPU_FLOAT32, 2, {1, 3}, {INT64_MAX / 2, 1}};
    SUCCEEDS(xpu_package_run(package, stream, &in, 1, &out, 1));
    SUCCEEDS(xpu_stream_synchronize(stream));
    assert_true(y[0] != 7 && y[1] != 7 && y[2] != 7 && y[3] == 7);
    xpu_package_close(package);
}

static void dlpack_goes_in_and_out(void **state) {
    enum { ROWS = 3 };
    xpu_package *package;
    xpu_stream *stream;
    const xpu_device_properties *properties;
    float x[1 + ROWS * 5], y[ROWS * 3];
    int64_t shape[] = {ROWS, 4}, strides[] = {5, 1};
    for (int i = 0; i < 1 + ROWS * 5; i++) x[i] = (float)(i % 7) - 2;
    DLTensor given = {x, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, strides, sizeof *x};
    xpu_package_tensor in, out = {0};
    SUCCEEDS(write_words(program, WORDS));
    SUCCEEDS(xpu_stream_default(0, &stream));
    SUCCEEDS(xpu_device_get_properties(0, &properties));
    SUCCEEDS(xpu_package_open(path, 0, &package));
    SUCCEEDS(xpu_package_tensor_from_dlpack(&given, 0, &in));
    assert_true(in.is_host && in.data == x + 1 && in.stride[0] == 5);
    SUCCEEDS(xpu_package_run(package, stream, &in, 1, &out, 1));
    const void *memory = out.data;
    DLManagedTensorVersioned *managed;
    SUCCEEDS(xpu_package_tensor_to_dlpack(&out, stream, &managed));
    assert_null(out.data);
    const DLTensor *made = &managed->dl_tensor;
    assert_true(managed->version.major == 1 && made->data == memory && !made->byte_offset && !managed->flags);
    assert_true(made->ndim == 2 && made->shape[0] == ROWS && made->shape[1] == 3 && made->strides[0] == 3);
    assert_true(made->dtype.code == kDLFloat && made->dtype.bits == 32 && made->dtype.lanes == 1);
    const bool is_host = properties->type == XPU_DEVICE_CPU && properties->host_unified_memory;
    assert_int_equal(made->device.device_type, is_host ? kDLCPU : kDLOneAPI);
    xpu_package_tensor again; /* and back */
    SUCCEEDS(xpu_package_tensor_from_dlpack(made, 0, &again));
    assert_true(again.data == memory && again.is_host == is_host && again.size[1] == 3);
    SUCCEEDS(xpu_memcpy(stream, y, made->data, sizeof y, true));
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < 3; j++) {
            float sum = 0;
            for (int k = 0; k < 4; k++) sum += x[1 + i * 5 + k] * w[k * 3 + j];
            assert_float_equal(y[i * 3 + j], 2 * sum, 0);
        }
    managed->deleter(managed);
    shape[0] = 1, strides[0] = -5; /* a reversed row of a matrix */
    SUCCEEDS(xpu_package_tensor_from_dlpack(&given, 0, &in));
    assert_true(in.size[0] == 1 && in.stride[0] == 4 && in.stride[1] == 1);
    out = (xpu_package_tensor){y, true, XPU_FLOAT32, 2, {1, 3}, {3, 1}};
    SUCCEEDS(xpu_package_run(package, stream, &in, 1, &out, 1));
    SUCCEEDS(xpu_stream_synchronize(stream));
    shape[0] = ROWS;
    assert_int_equal(xpu_package_tensor_from_dlpack(&given, 0, &in), XPU_ERROR_INVALID_ARGUMENT);
    given.strides = NULL; /* without gaps */
    SUCCEEDS(xpu_package_tensor_from_dlpack(&given, 0, &in));
    assert_int_equal(in.stride[0], 4);

    xpu_package_tensor borrowed = {y, true, XPU_FLOAT32, 1, {3}, {1}};
    assert_int_equal(xpu_package_tensor_to_dlpack(&borrowed, stream, &managed), XPU_ERROR_INVALID_ARGUMENT);
    given.device.device_type = kDLOpenCL;
    assert_int_equal(xpu_package_tensor_from_dlpack(&given, 0, &in), XPU_ERROR_NOT_SUPPORTED);
    given.device = (DLDevice){kDLOneAPI, 1};
    assert_int_equal(xpu_package_tensor_from_dlpack(&given, 0, &in), XPU_ERROR_NOT_SUPPORTED);
    SUCCEEDS(xpu_package_tensor_from_dlpack(&given, 1, &in));
    assert_false(in.is_host);
    given.dtype.lanes = 4;
    assert_int_equal(xpu_package_tensor_from_dlpack(&given, 1, &in), XPU_ERROR_NOT_SUPPORTED);
    given.dtype = (DLDataType){kDLBfloat, 16, 1};
    SUCCEEDS(xpu_package_tensor_from_dlpack(&given, 1, &in));
    assert_int_equal(in.dtype, XPU_BFLOAT16);
    shape[0] = -1;
    assert_int_equal(xpu_package_tensor_from_dlpack(&given, 1, &in), XPU_ERROR_INVALID_ARGUMENT);
    shape[0] = INT64_MAX;
    assert_int_equal(xpu_package_tensor_from_dlpack(&given, 1, &in), XPU_ERROR_INVALID_ARGUMENT);
    given.ndim = XPU_MAX_DIMS + 1;
    assert_int_equal(xpu_package_tensor_from_dlpack(&given, 1, &in), XPU_ERROR_INVALID_ARGUMENT);
    xpu_package_close(package);
}

static char *read_all(size_t *size) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *bytes = malloc(1 << 20);
    *size = fread(bytes, 1, 1 << 20, file);
    fclose(file);
    return bytes;
}
static void write_all(const char *bytes, size_t size) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
}

static void damaged_files_are_refused(void **state) {
    size_t size;
    SUCCEEDS(write_words(program, WORDS));
    char *bytes = read_all(&size);
    assert_int_equal(remove(path), 0);
    open_refused(XPU_ERROR_IO, "could not read");
    for (size_t cut = 0; cut < size; cut += cut < 300 ? 7 : 501) {
        write_all(bytes, cut);
        open_refused(cut ? XPU_ERROR_INVALID_ARGUMENT : XPU_ERROR_IO, "package: ");
    }
    /* every significant byte; the gaps between sections are not checked */
    static const size_t from[] = {0, 4096, 8192, 12288, 16384};
    for (size_t s = 0; s < sizeof from / sizeof *from; s++)
        for (size_t i = from[s]; i < from[s] + 40 && i < size; i += 3) {
            if (s == 1 && i >= 4096 + sizeof "of a test" - 1) break;
            if (i >= 8 && i < 12) continue; /* the version */
            bytes[i] ^= 1 << (i & 7);
            write_all(bytes, size);
            open_refused(XPU_ERROR_INVALID_ARGUMENT, i < 8 ? "are not a package" : "damaged");
            bytes[i] ^= 1 << (i & 7);
        }
    bytes[8]++;
    write_all(bytes, size);
    open_refused(XPU_ERROR_NOT_SUPPORTED, "version 3, but this libxpu reads version 2");
    free(bytes);
}

/* Kernels for another target are not tried. */
static void other_targets_are_refused(void **state) {
    xpu_tile_target other;
    char target[XPU_TILE_TARGET_TEXT];
    SUCCEEDS(xpu_tile_target_of_device(0, &other));
    other.lanes = 48 - other.lanes; /* must be 16 or 32 */
    other.matrix_lanes = 0;         /* depends on the lanes */
    SUCCEEDS(xpu_tile_target_write(&other, target, sizeof target));
    for (int i = 0; i < 2; i++) {
        char *kept = image;
        const size_t kept_size = image_size;
        xpu_image foreign = twice;
        foreign.target = i ? "no target" : target;
        SUCCEEDS(xpu_image_write(&foreign, NULL, 0, &image_size));
        image = malloc(image_size);
        SUCCEEDS(xpu_image_write(&foreign, image, image_size, &image_size));
        SUCCEEDS(write_words(program, WORDS));
        free(image);
        image = kept, image_size = kept_size;
        open_refused(i ? XPU_ERROR_INVALID_ARGUMENT : XPU_ERROR_NOT_SUPPORTED,
                     i ? "is not a known field" : "for another kind of device");
    }
}

/* Writes a program with an image and its binary at these offsets. */
static size_t put_program(int64_t *to, int64_t offset, int64_t size, int64_t binary_offset,
                          int64_t binary_size) {
    to[0] = WORDS;
    memcpy(to + 1, program, sizeof program);
    for (int i = 1; i < WORDS; i++)
        if (to[i] == 1 && to[i + 1] == 0 && to[i + 2] == -1) {
            to[i + 1] = offset, to[i + 2] = size;
            to[i + 3] = binary_offset, to[i + 4] = binary_size;
        }
    return WORDS + 1;
}
static char *image_bytes(const xpu_image *from, size_t *size) {
    SUCCEEDS(xpu_image_write(from, NULL, 0, size));
    char *bytes = malloc(*size);
    SUCCEEDS(xpu_image_write(from, bytes, *size, size));
    return bytes;
}
static xpu_status run_once(float *got) {
    xpu_package *package;
    xpu_stream *stream;
    float x[4] = {1, 2, 3, 4};
    xpu_package_tensor in = {x, true, XPU_FLOAT32, 2, {1, 4}, {4, 1}};
    xpu_package_tensor out = {got, true, XPU_FLOAT32, 2, {1, 3}, {3, 1}};
    XPU_TRY(xpu_stream_default(0, &stream));
    XPU_TRY(xpu_package_open(path, 0, &package));
    const xpu_status status = xpu_package_run(package, stream, &in, 1, &out, 1);
    xpu_package_close(package);
    return status;
}

/* The first program whose kernels suit the device is chosen. Kernels are binaries if the driver accepts them;
 * here the binary can be told by its factor of 4. */
static void several_kinds_of_devices(void **state) {
    xpu_tile_target other;
    char target[XPU_TILE_TARGET_TEXT], *quadruple = strdup(source);
    SUCCEEDS(xpu_tile_target_of_device(0, &other));
    other.is_cpu = !other.is_cpu;
    SUCCEEDS(xpu_tile_target_write(&other, target, sizeof target));
    strstr(quadruple, "*= 2")[3] = '4';
    xpu_image foreign = twice, four = twice, broken = twice, *binary;
    foreign.target = target, four.code = quadruple;
    SUCCEEDS(xpu_image_build(&four, 0, &binary));
    xpu_image offline = *binary;
    offline.device = "";
    broken.kind = XPU_IMAGE_BINARY, broken.code = "nothing that a driver takes", broken.code_size = 27;
    size_t sizes[4];
    char *bytes[] = {image_bytes(&twice, &sizes[0]), image_bytes(&foreign, &sizes[1]),
                     image_bytes(&offline, &sizes[2]), image_bytes(&broken, &sizes[3])};
    xpu_package_chunk images[4];
    int64_t at[4], next = 0;
    for (int i = 0; i < 4; i++) {
        images[i] = (xpu_package_chunk){bytes[i], sizes[i]};
        at[i] = next, next += ((int64_t)sizes[i] + 7) / 8 * 8;
    }
    const xpu_package_chunk weights = {w, sizeof w};
    /* the other target only; both; with a binary; with a broken one; with a broken one, and one with the
     * binary */
    for (int with = 0; with < 5; with++) {
        int64_t words[3 * WORDS + 4] = {with == 4 ? 3 : with ? 2 : 1};
        float got[3] = {0};
        size_t count = 1 + put_program(words + 1, at[1], (int64_t)sizes[1], 0, 0);
        if (with)
            count +=
                put_program(words + count, at[0], (int64_t)sizes[0], with > 1 ? at[with == 2 ? 2 : 3] : 0,
                            with > 1 ? (int64_t)sizes[with == 2 ? 2 : 3] : 0);
        if (with == 4)
            count += put_program(words + count, at[0], (int64_t)sizes[0], at[2], (int64_t)sizes[2]);
        SUCCEEDS(xpu_package_write(path, "", words, count, images, 4, &weights, 1));
        const xpu_status status = run_once(got);
        assert_int_equal(status, with ? XPU_SUCCESS : XPU_ERROR_NOT_SUPPORTED);
        if (!with) continue;
        for (int j = 0; j < 3; j++)
            assert_float_equal(
                got[j],
                (with == 2 || with == 4 ? 4 : 2) * (w[j] + 2 * w[3 + j] + 3 * w[6 + j] + 4 * w[9 + j]), 0);
        words[0]++; /* one that isn't there */
        SUCCEEDS(xpu_package_write(path, "", words, count, images, 4, &weights, 1));
        open_refused(XPU_ERROR_INVALID_ARGUMENT, "is cut off");
    }
    for (int i = 0; i < 4; i++) free(bytes[i]);
    xpu_image_free(binary);
    free(quadruple);
}

/* A program with one changed word, written with correct hashes. */
static void lies_are_refused(void **state) {
    static const struct {
        int64_t was[3], is[3];
        int count;
        xpu_status status;
        const char *text;
    } lies[] = {
        {{2, 'm' | 'm' << 8},
         {2, 'm' | 'x' << 8},
         2,
         XPU_ERROR_NOT_SUPPORTED,
         "operator mx, which this libxpu does not have"},
        {{0, 48, 0}, {64, 48, 0}, 3, XPU_ERROR_INVALID_ARGUMENT, "48 bytes at 64 of 64"},
        {{0, 48, 0}, {0, INT64_MAX, 0}, 3, XPU_ERROR_INVALID_ARGUMENT, "constant 0"},
        {{0, 48, 0}, {-64, 48, 0}, 3, XPU_ERROR_INVALID_ARGUMENT, "constant 0"},
        {{1, 0, -1}, {1, 8, -2}, 3, XPU_ERROR_INVALID_ARGUMENT, "image 0"},
        {{0, CONST, 64}, {2, CONST, 64}, 3, XPU_ERROR_INVALID_ARGUMENT, "a size that no input has"},
        {{MUL, 4, 2}, {MUL, 8, 2}, 3, XPU_ERROR_INVALID_ARGUMENT, "is not computed before it"},
        {{MUL, 4, 2}, {99, 4, 2}, 3, XPU_ERROR_INVALID_ARGUMENT, "has unknown operation 99"},
        {{1, 0, 1}, {0, 0, 0}, 3, XPU_ERROR_INVALID_ARGUMENT, "have the wrong types"},
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        int64_t words[WORDS];
        memcpy(words, program, sizeof words);
        replace_words(words, WORDS, lies[i].was, lies[i].is, lies[i].count);
        SUCCEEDS(write_words(words, WORDS));
        open_refused(lies[i].status, lies[i].text);
    }
    for (size_t cut = 0; cut < WORDS; cut++) {
        SUCCEEDS(write_words(program, cut));
        open_refused(XPU_ERROR_INVALID_ARGUMENT, "package: ");
    }
    int64_t longer[WORDS + 1] = {0};
    memcpy(longer, program, sizeof program);
    SUCCEEDS(write_words(longer, WORDS + 1));
    open_refused(XPU_ERROR_INVALID_ARGUMENT, "1 words follow");
    /* out-of-bounds views and overflowing sizes are found when the inputs' sizes are known */
    static const int64_t larger[] = {3, 48, INT64_MAX / 2, -1};
    for (int i = 0; i < 4; i++) {
        int64_t words[WORDS];
        memcpy(words, program, sizeof words);
        words[1 + 3 * 2 + 1] = larger[i]; /* the register of 3 */
        SUCCEEDS(write_words(words, WORDS));
        xpu_package *package;
        SUCCEEDS(xpu_package_open(path, 0, &package));
        xpu_package_tensor in = {NULL, true, XPU_FLOAT32, 2, {5, 4}, {4, 1}}, out = {0};
        assert_int_equal(xpu_package_shapes(package, &in, 1, &out, 1),
                         i ? XPU_ERROR_INVALID_ARGUMENT : XPU_SUCCESS);
        xpu_package_close(package);
    }
    /* more than 2^63 logical elements in one element of memory, and a stride that is never used, all within
     * its memory */
    static const int64_t view[] = {3, XPU_FLOAT32, 1, 8, 1, 2, 0};
    static const int64_t untrue[2][7] = {{3, XPU_FLOAT32, 1, 9, 0, 2, 0}, {3, XPU_FLOAT32, 1, 1, 9, 2, 0}};
    int64_t words[WORDS];
    int at = 0;
    memcpy(words, program, sizeof words);
    while (memcmp(words + at, view, sizeof view)) assert_true(++at < WORDS - 7);
    for (int lie = 0; lie < 4; lie++) {
        const int i = lie % 2;
        memcpy(words + at, untrue[lie / 2], sizeof view);
        words[1 + 3 * 9 + 1] = i ? INT64_C(1) << 62 : 1 << 20; /* the register of 15 */
        SUCCEEDS(write_words(words, WORDS));
        xpu_package *package;
        SUCCEEDS(xpu_package_open(path, 0, &package));
        xpu_package_tensor in = {NULL, true, XPU_FLOAT32, 2, {5, 4}, {4, 1}}, out = {0};
        assert_int_equal(xpu_package_shapes(package, &in, 1, &out, 1),
                         i ? XPU_ERROR_INVALID_ARGUMENT : XPU_SUCCESS);
        if (i) assert_non_null(strstr(xpu_last_error(), "tensor 3 is too large"));
        xpu_package_close(package);
    }
}

/* Tensors that start after the start of their memory: nothing is there in an input, and a new tensor includes
 * it. */
static void offsets_stay_within(void **state) {
    enum { ROWS = 5, OUT = 3 * ROWS };
    xpu_package *package;
    xpu_stream *stream;
    int64_t words[WORDS];
    float x[ROWS * 4] = {0}, y[OUT + 4];
    xpu_package_tensor in = {x, true, XPU_FLOAT32, 2, {ROWS, 4}, {4, 1}};
    xpu_package_tensor out = {y, true, XPU_FLOAT32, 2, {ROWS, 3}, {3, 1}};
    memcpy(words, program, sizeof words);
    words[2] = 2; /* the register of 0, by which all tensors begin */
    SUCCEEDS(write_words(words, WORDS));
    SUCCEEDS(xpu_package_open(path, 0, &package));
    assert_int_equal(xpu_package_shapes(package, &in, 1, &out, 1), XPU_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(xpu_last_error(), "tensor 0 needs 88 bytes of memory that has 80"));
    xpu_package_close(package);

    memcpy(words, program, sizeof words);
    static const int64_t made[] = {2, XPU_FLOAT32, 2, 4, 2, 2, 1, 0, 0}; /* the new tensor */
    int at = 0;
    while (memcmp(words + at, made, sizeof made)) assert_true(++at + (int)(sizeof made / 8) <= WORDS);
    words[at + 8] = 1; /* one element later */
    SUCCEEDS(write_words(words, WORDS));
    SUCCEEDS(xpu_stream_default(0, &stream));
    SUCCEEDS(xpu_package_open(path, 0, &package));
    for (int i = 0; i < OUT + 4; i++) y[i] = -7;
    SUCCEEDS(xpu_package_run(package, stream, &in, 1, &out, 1));
    for (int i = 0; i < OUT + 4; i++) assert_float_equal(y[i], i < OUT ? 0 : -7, 0);
    xpu_package_close(package);
}
static void random_programs_are_harmless(void **state) { try_random(program, WORDS); }

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_runs),
#if defined(__linux__)
        cmocka_unit_test(the_first_run_gives_memory_back),
#endif
        cmocka_unit_test(wrong_inputs_are_refused),
        cmocka_unit_test(dlpack_goes_in_and_out),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(other_targets_are_refused),
        cmocka_unit_test(several_kinds_of_devices),
        cmocka_unit_test(lies_are_refused),
        cmocka_unit_test(offsets_stay_within),
        cmocka_unit_test(random_programs_are_harmless),
    };
    return run_package_tests(argc, argv, tests, sizeof tests / sizeof *tests);
}

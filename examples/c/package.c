/* A model exported from PyTorch, run by a C program: reads a package and an input each from .npy files, runs
 * it and writes each output as a .npy file.
 *
 *     openxpu export model.pt2 -o model.xpk         # on a machine with PyTorch; or openxpu.package in Python
 *     cc package.c $(pkg-config --cflags --libs xpu) -o package
 *     ./package model.xpk ids.npy mask.npy          # on one with a driver and libxpu alone: output0.npy, …
 *     ./package --bench 20 model.xpk ids.npy mask.npy
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <xpu/xpu.h>

/* Stops the program when a call fails, with the library's account of it. */
#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        if ((call) != XPU_SUCCESS) {                                                                         \
            fprintf(stderr, "%s\n", xpu_last_error());                                                       \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

static void fail(const char *path, const char *what) {
    fprintf(stderr, "%s: %s\n", path, what);
    exit(1);
}

static double seconds(void) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* --- NumPy's files: a magic, a version, the length of a line of Python, that line, the numbers --- */

static const struct {
    const char *name;
    xpu_dtype dtype;
} names[] = {{"|b1", XPU_BOOL},    {"|i1", XPU_INT8},     {"|u1", XPU_UINT8},   {"<i2", XPU_INT16},
             {"<i4", XPU_INT32},   {"<i8", XPU_INT64},    {"<f2", XPU_FLOAT16}, {"<f4", XPU_FLOAT32},
             {"<f8", XPU_FLOAT64}, {"<c8", XPU_COMPLEX64}};
enum { NAMES = sizeof names / sizeof *names };

/* Sizes, for a tensor without gaps. */
static size_t pack(xpu_package_tensor *t) {
    int64_t count = 1;
    for (int d = t->dims - 1; d >= 0; d--) {
        t->stride[d] = count;
        count *= t->size[d];
    }
    return (size_t)count * xpu_dtype_size(t->dtype);
}

static xpu_package_tensor read_npy(const char *path) {
    xpu_package_tensor t = {.is_host = true};
    unsigned char head[10];
    char line[4096];
    FILE *file = fopen(path, "rb");
    if (!file || fread(head, 1, 10, file) != 10 || memcmp(head, "\x93NUMPY\x01", 7))
        fail(path, "no .npy file of version 1");
    const size_t length = head[8] + 256u * head[9];
    if (length >= sizeof line || fread(line, 1, length, file) != length)
        fail(path, "its first line is cut off");
    line[length] = 0;
    const char *descr = strstr(line, "'descr': '"), *shape = strstr(line, "'shape': (");
    if (!descr || !shape || strstr(line, "'fortran_order': True"))
        fail(path, "an array that this example can't read");
    int found = 0;
    while (found < NAMES && strncmp(descr + 10, names[found].name, 3)) found++;
    if (found == NAMES) fail(path, "a dtype that this example can't read");
    t.dtype = names[found].dtype;
    for (char *at = (char *)shape + 10; *at && *at != ')';) {
        char *end;
        const long long size = strtoll(at, &end, 10);
        if (end == at || t.dims == XPU_MAX_DIMS || size < 0)
            fail(path, "a shape that this example can't read");
        t.size[t.dims++] = size;
        at = end + strspn(end, ", ");
    }
    const size_t bytes = pack(&t);
    t.data = malloc(bytes + 1);
    if (!t.data || fread(t.data, 1, bytes, file) != bytes) fail(path, "its numbers are cut off");
    fclose(file);
    return t;
}

static void write_npy(const char *path, const xpu_package_tensor *t) {
    char line[512];
    int found = 0, used;
    while (found < NAMES && names[found].dtype != t->dtype) found++;
    if (found == NAMES) fail(path, "a dtype that NumPy lacks");
    used =
        snprintf(line, sizeof line, "{'descr': '%s', 'fortran_order': False, 'shape': (", names[found].name);
    for (int d = 0; d < t->dims; d++)
        used += snprintf(line + used, sizeof line - used, "%lld,", (long long)t->size[d]);
    used += snprintf(line + used, sizeof line - used, "), }");
    while ((used + 11) % 64) line[used++] = ' ';
    line[used++] = '\n';
    xpu_package_tensor packed = *t;
    const size_t bytes = pack(&packed);
    const unsigned char head[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, used & 255, used >> 8};
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(head, 1, 10, file) != 10 || fwrite(line, 1, (size_t)used, file) != (size_t)used ||
        fwrite(t->data, 1, bytes, file) != bytes || fclose(file))
        fail(path, "can't be written");
}

static void print(const char *what, const xpu_package_port *port) {
    printf("%s %s: %s [", what, port->name, xpu_dtype_name(port->dtype));
    for (int d = 0; d < port->dims; d++) {
        if (d) printf(", ");
        port->size[d] < 0 ? (void)printf("any") : (void)printf("%lld", (long long)port->size[d]);
    }
    printf("]%s\n", port->is_written ? ", changed in place" : "");
}

int main(int argc, char **argv) {
    int times = 0;
    if (argc > 2 && !strcmp(argv[1], "--bench")) {
        times = atoi(argv[2]);
        argc -= 2, argv += 2;
    }
    if (argc < 2) {
        fprintf(stderr, "package [--bench TIMES] model.xpk [input.npy …]\n");
        return 2;
    }
    const double start = seconds();
    const int device = 0;
    int devices, inputs, outputs;
    CHECK(xpu_device_count(&devices));
    if (!devices) {
        fprintf(stderr, "%s\n", xpu_no_device_hint());
        return 1;
    }
    xpu_package *package;
    xpu_stream *stream;
    const xpu_package_port *ports;
    CHECK(xpu_stream_default(device, &stream));
    CHECK(xpu_package_open(argv[1], device, &package));
    CHECK(xpu_package_inputs(package, &ports, &inputs));
    printf("%s\n", xpu_package_about(package));
    for (int i = 0; i < inputs; i++) print("input", &ports[i]);
    CHECK(xpu_package_outputs(package, &ports, &outputs));
    for (int i = 0; i < outputs; i++) print("output", &ports[i]);
    printf("ready after %.3f s\n", seconds() - start);
    if (argc == 2) return 0;
    if (argc - 2 != inputs) fail(argv[1], "it has another number of inputs");

    xpu_package_tensor *in = calloc((size_t)inputs + 1, sizeof *in),
                       *out = calloc((size_t)outputs + 1, sizeof *out);
    if (!in || !out) return 1;
    for (int i = 0; i < inputs; i++) in[i] = read_npy(argv[2 + i]);
    CHECK(xpu_package_shapes(package, in, inputs, out, outputs));
    for (int i = 0; i < outputs; i++) { /* in memory of ours, without gaps */
        out[i].is_host = true;
        out[i].data = malloc(pack(&out[i]) + 1);
        if (!out[i].data) return 1;
    }
    const double first = seconds();
    CHECK(xpu_package_run(package, stream, in, inputs, out, outputs));
    printf("first run %.3f ms, %.3f s after the start\n", 1e3 * (seconds() - first), seconds() - start);
    double best = 1e30, total = 0;
    for (int i = 0; i < times; i++) {
        const double begin = seconds();
        CHECK(xpu_package_run(package, stream, in, inputs, out, outputs));
        const double took = seconds() - begin;
        total += took;
        if (took < best) best = took;
    }
    if (times > 0) printf("%d runs: best %.3f ms, mean %.3f ms\n", times, 1e3 * best, 1e3 * total / times);
    xpu_package_memory memory;
    CHECK(xpu_package_memory_of(package, &memory));
    printf("bytes: file %llu, weights %llu, state %llu, between steps %llu\n",
           (unsigned long long)memory.file, (unsigned long long)memory.weights,
           (unsigned long long)memory.state, (unsigned long long)memory.planned);
    for (int i = 0; i < outputs; i++) {
        char path[64];
        snprintf(path, sizeof path, "output%d.npy", i);
        write_npy(path, &out[i]);
        printf("%s\n", path);
        free(out[i].data);
    }
    for (int i = 0; i < inputs; i++) free(in[i].data);
    free(in);
    free(out);
    xpu_package_close(package);
    return 0;
}

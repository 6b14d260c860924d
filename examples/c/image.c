/* A Triton kernel in a C program: loads its image, which `openxpu compile` or Triton made, launches it on
 * data, and compares with a plain loop. No compiler of Triton's is needed here, nor Python.
 *
 *     openxpu compile --image saxpy.ttir -o saxpy.image     # for the processor; --device 0: for device 0
 *     cc image.c $(pkg-config --cflags --libs xpu) -lm -o image && ./image saxpy.image
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <xpu/xpu.h>

/* Stops the program when a call fails, with the library's account of it. */
#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        if ((call) != XPU_SUCCESS) {                                                                         \
            fprintf(stderr, "%s: %s\n", #call, xpu_last_error());                                            \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

static void *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    size_t room = 1 << 16;
    char *bytes = malloc(room);
    *size = 0;
    if (!file || !bytes) {
        fprintf(stderr, "can't read %s\n", path);
        exit(1);
    }
    for (size_t got; (got = fread(bytes + *size, 1, room - *size, file)) > 0;) {
        *size += got;
        if (*size == room && !(bytes = realloc(bytes, room *= 2))) exit(1);
    }
    fclose(file);
    return bytes;
}

/* Memory on the device with `count` numbers from the host. */
static float *on_device(xpu_stream *stream, const float *numbers, size_t count) {
    void *memory;
    CHECK(xpu_malloc(stream, count * sizeof *numbers, &memory));
    CHECK(xpu_memcpy(stream, memory, numbers, count * sizeof *numbers, true));
    return memory;
}

/* saxpy(x, y, out, a, n): out[i] = a*x[i] + y[i]; each program does BLOCK elements */
enum { BLOCK = 1024 };

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "image saxpy.image\n");
        return 2;
    }
    int count, device = 0;
    CHECK(xpu_device_count(&count));
    if (count == 0) {
        fprintf(stderr, "%s\n", xpu_no_device_hint());
        return 1;
    }
    xpu_stream *stream;
    CHECK(xpu_stream_default(device, &stream));

    size_t size;
    void *bytes = read_file(argv[1], &size);
    xpu_image *image;
    xpu_kernel *kernel;
    CHECK(xpu_image_read(bytes, size, &image));
    CHECK(xpu_image_kernel(image, device, &kernel));
    free(bytes);
    printf("%s: %d parameters in %u bytes, programs of %u work-items\n", image->name, image->param_count,
           image->params_size, image->local_size);

    enum { N = 1000003 };
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y), *out = malloc(N * sizeof *out), a = 0.75f;
    if (!x || !y || !out) return 1;
    for (size_t i = 0; i < N; i++) {
        x[i] = (float)(i * 7919 % 101) / 50 - 1;
        y[i] = (float)(i * 104729 % 97) / 40 - 1;
        out[i] = 0;
    }
    float *x_device = on_device(stream, x, N), *y_device = on_device(stream, y, N),
          *out_device = on_device(stream, out, N);
    int n = N;
    const void *arguments[] = {&x_device, &y_device, &out_device, &a, &n};
    const uint32_t grid[3] = {(N + BLOCK - 1) / BLOCK, 1, 1};
    CHECK(xpu_image_launch(stream, image, kernel, grid, arguments, 5));
    CHECK(xpu_memcpy(stream, out, out_device, N * sizeof *out, true));

    int wrong = 0;
    for (size_t i = 0; i < N; i++)
        if (!(fabs(out[i] - ((double)a * x[i] + y[i])) < 1e-6)) wrong++;
    printf("out = a*x + y on %d numbers: %d differ from the host's\n", N, wrong);
    CHECK(xpu_free(x_device));
    CHECK(xpu_free(y_device));
    CHECK(xpu_free(out_device));
    xpu_image_free(image);
    free(x);
    free(y);
    free(out);
    return wrong != 0;
}

/* The op library without Python: softmax of three rows, on the first device there is.
 *
 *     cc softmax.c $(pkg-config --cflags --libs xpu) -o softmax && ./softmax
 */
#include <stdio.h>
#include <stdlib.h>

#include <xpu/ops/softmax.h>
#include <xpu/xpu.h>

static void check(xpu_status status) {
    if (status == XPU_SUCCESS) return;
    fprintf(stderr, "%s: %s\n", xpu_status_name(status), xpu_last_error());
    exit(1);
}

int main(void) {
    enum { ROWS = 3, COLUMNS = 4 };
    const float numbers[ROWS][COLUMNS] = {{1, 2, 3, 4}, {0, 0, 0, 0}, {-1, 100, 0, 1}};
    float result[ROWS][COLUMNS];
    const xpu_softmax args = {.outer = ROWS,
                              .length = COLUMNS,
                              .inner = 1,
                              .input_dtype = XPU_FLOAT32,
                              .output_dtype = XPU_FLOAT32};
    xpu_stream *stream;
    void *memory;
    check(xpu_stream_default(0, &stream));
    check(xpu_malloc(stream, sizeof numbers, &memory));
    check(xpu_memcpy(stream, memory, numbers, sizeof numbers, false));
    check(xpu_softmax_forward(stream, &args, memory, memory));      /* in place */
    check(xpu_memcpy(stream, result, memory, sizeof result, true)); /* true: waits */
    check(xpu_free(memory));
    for (int row = 0; row < ROWS; row++) {
        for (int column = 0; column < COLUMNS; column++) printf("%8.4f", result[row][column]);
        printf("\n");
    }
    return 0;
}

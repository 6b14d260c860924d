/* Fuzzes the reader of kernel images with bytes, unchanged and with a corrected hash: no crash, no sanitizer
 * error, every error has a message, and an accepted image is written back to the same bytes. fuzz.sh builds
 * it with libFuzzer. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "xpu/image.h"

static void read_image(const char *bytes, size_t size) {
    xpu_image *image;
    size_t again_size;
    if (xpu_image_read(bytes, size, &image) != XPU_SUCCESS) {
        if (!xpu_last_error()[0]) abort();
        return;
    }
    char *again = malloc(size);
    if (xpu_image_write(image, again, size, &again_size) != XPU_SUCCESS || again_size != size ||
        memcmp(again, bytes, size) != 0)
        abort();
    free(again);
    xpu_image_free(image);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { TAIL = HASH128_DIGITS + 3 }; /* the digits of the hash and the newline */
    read_image((const char *)data, size);
    const char *end = memchr(data, '\n', size);
    const size_t line = end ? (size_t)(end + 1 - (const char *)data) : 0;
    if (line < TAIL) return 0;
    char *mended = malloc(size), digits[HASH128_DIGITS + 1];
    memcpy(mended, data, size);
    hash128 hash = hash128_add(HASH128_START, mended, line - TAIL);
    hash128_text(hash128_add(hash, mended + line, size - line), digits);
    memcpy(mended + line - TAIL, digits, HASH128_DIGITS);
    read_image(mended, size);
    free(mended);
    return 0;
}

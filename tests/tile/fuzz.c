/* Fuzzes the compiler with damaged Triton IR: no crash, no hang, no sanitizer error. fuzz.sh builds it with
 * libFuzzer (-DLIBFUZZER). Without libFuzzer, build it with the sanitizers alone:
 *
 *     cc -g -O1 -fsanitize=address,undefined -Iinclude -Isrc tests/tile/fuzz.c src/tile/[a-z]*.c
 * src/core/[a-z]*.c src/runtime/image.c build/embedded_kernels.c -lpthread -lm -o build/fuzz && build/fuzz
 * FOLDER [seconds [seed]] */
#define _XOPEN_SOURCE 700
#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include "xpu/device.h"
#include "xpu/tile.h"

/* the compiler alone, without the runtime */
xpu_status xpu_device_get_properties(int device, const xpu_device_properties **properties) {
    return XPU_ERROR_NO_DEVICE;
}

/* The size of the text selects the target and the other options. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[] = {"cpu", "bmg", "generic", "dg2", "tgllp", "nvidia"};
    xpu_tile_target target;
    xpu_tile_program *program;
    setitimer(ITIMER_VIRTUAL, &(struct itimerval){.it_value.tv_sec = 10}, NULL);
    xpu_tile_target_find(names[size % 6], &target);
    xpu_tile_options options = {
        .target = &target,
        .num_warps = 1 << (size / 6 % 4),
        .comments = size & 16,
        .debug_asserts = true,
        .dump_after = size % 11 ? XPU_TILE_NONE : (xpu_tile_stage)(size / 11 % XPU_TILE_STAGES),
    };
    if (xpu_tile_compile((const char *)data, size, &options, &program) == XPU_SUCCESS)
        xpu_tile_program_free(program);
    else if (!xpu_last_error()[0])
        abort(); /* every error has a message */
    return 0;
}

static uint64_t state = 1;
static uint32_t rnd(uint32_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return below ? (uint32_t)(state >> 33) % below : 0;
}

static size_t word_at(const char *text, size_t size,
                      size_t *at) { /* a run of name characters, or one other character */
    size_t start = *at = rnd((uint32_t)size), end = start;
    while (end < size &&
           (strchr("_.%@^!#", text[end]) || (text[end] | 32) - 'a' < 26u || text[end] - '0' < 10u))
        end++;
    while (start && (strchr("_.%@^!#", text[start - 1]) || (text[start - 1] | 32) - 'a' < 26u ||
                     text[start - 1] - '0' < 10u))
        start--;
    *at = start;
    return end > start ? end - start : 1;
}

/* Replaces, deletes and repeats words and lines. New words come from the same text, so most of it still
 * parses. */
static size_t mutate(char *text, size_t size, size_t room) {
    for (uint32_t n = 1 + rnd(4); n; n--) {
        size_t a, b, from = word_at(text, size, &a), to = word_at(text, size, &b);
        char word[256];
        if (from > sizeof word || size + from + 2 >= room || size < 4) continue;
        switch (rnd(5)) {
        case 0: /* replace by another word of the text */
            memcpy(word, text + a, from);
            memmove(text + b + from, text + b + to, size - b - to);
            memcpy(text + b, word, from);
            size = size - to + from;
            break;
        case 1: /* delete a word */
            memmove(text + b, text + b + to, size - b - to);
            size -= to;
            break;
        case 2: text[a] = "0123456789{}()<>[],:=\"%^#!-"[rnd(27)]; break;
        case 3: { /* repeat a line */
            size_t start = a, end = a;
            while (start && text[start - 1] != '\n') start--;
            while (end < size && text[end] != '\n') end++;
            size_t length = end - start;
            if (size + length + 2 >= room) break;
            memmove(text + end + length, text + end, size - end);
            memmove(text + end, text + start, length);
            size += length;
            break;
        }
        default: { /* delete a line */
            size_t start = a, end = a;
            while (start && text[start - 1] != '\n') start--;
            while (end < size && text[end] != '\n') end++;
            memmove(text + start, text + end, size - end);
            size -= end - start;
        }
        }
    }
    return size;
}

#ifdef LIBFUZZER
/* Hangs are detected by CPU time, since libFuzzer's wall clock also counts other work on the machine. */
static void hangs(int signal_number) { abort(); }

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    signal(SIGVTALRM, hangs);
    return 0;
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);

/* Half of the mutations change words and lines; the others are libFuzzer's own. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned int seed) {
    state = seed;
    if (rnd(2) || size < 16) return LLVMFuzzerMutate(data, size, room);
    return mutate((char *)data, size, room);
}
#else
int main(int argc, char **argv) {
    static char text[1 << 20], copy[1 << 20];
    double seconds = argc > 2 ? atof(argv[2]) : 60;
    struct dirent **list;
    int count = argc > 1 ? scandir(argv[1], &list, NULL, alphasort) : -1;
    if (count <= 2) return 2;
    state = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    time_t end = time(NULL) + (time_t)seconds;
    long runs = 0;
    while (time(NULL) < end) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", argv[1], list[rnd((uint32_t)count)]->d_name);
        FILE *f = strstr(path, ".ttir") ? fopen(path, "rb") : NULL;
        if (!f) continue;
        size_t size = fread(text, 1, sizeof text / 2, f);
        fclose(f);
        for (int i = 0; i < 50; i++, runs++) {
            memcpy(copy, text, size);
            size_t changed = mutate(copy, size, sizeof copy);
            f = fopen("/tmp/tile_fuzz_last", "wb"); /* keeps the input of a crash */
            if (f) {
                fwrite(copy, 1, changed, f);
                fclose(f);
            }
            LLVMFuzzerTestOneInput((const uint8_t *)copy, changed);
        }
    }
    printf("%ld runs\n", runs);
    for (int i = 0; i < count; i++) free(list[i]);
    free(list);
    return 0;
}
#endif

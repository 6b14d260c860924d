/* Compiles Triton IR files and builds the kernels with the device's driver:
 *
 *     build_all FOLDER [every [first]]
 *
 * Takes every `every`th file, starting with number `first`. Prints failures; the exit status is nonzero if
 * there are any.
 */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "xpu/program.h"
#include "xpu/tile.h"

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static char *read_file(const char *folder, const char *name, size_t *size) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*size + 1);
    *size = fread(data, 1, *size, f);
    fclose(f);
    return data;
}

int main(int argc, char **argv) {
    int every = argc > 2 ? atoi(argv[2]) : 1, first = argc > 3 ? atoi(argv[3]) : 0, failed = 0, built = 0;
    struct dirent **list;
    int count = argc > 1 ? scandir(argv[1], &list, NULL, alphasort) : -1;
    xpu_tile_target target;
    if (count < 0 || every < 1 || xpu_tile_target_of_device(0, &target) != XPU_SUCCESS) {
        fprintf(stderr, "build_all FOLDER [every [first]]: %s\n", xpu_last_error());
        return 2;
    }
    double slowest = 0, total = now();
    for (int i = 0, k = 0; i < count; i++) {
        size_t size;
        const char *name = list[i]->d_name;
        if (!strstr(name, ".ttir") || (k++ - first) % every || k <= first) continue;
        char *text = read_file(argv[1], name, &size);
        xpu_tile_options options = {.target = &target, .file = name};
        xpu_tile_program *p;
        xpu_kernel *kernel;
        if (!text || xpu_tile_compile(text, size, &options, &p) != XPU_SUCCESS) {
            printf("COMPILE %s\n", xpu_last_error());
            /* rejected by design, or a configuration that an autotuner skips */
            failed +=
                !strstr(xpu_last_error(), "inline assembly") && !strstr(xpu_last_error(), "local memory");
            free(text);
            continue;
        }
        double start = now();
        if (xpu_kernel_create(0, p->source, p->build_options, p->name, NULL, &kernel) == XPU_SUCCESS) {
            built++;
        } else {
            printf("BUILD %s: %.1500s\n", name, xpu_last_error());
            failed++;
        }
        double seconds = now() - start;
        if (seconds > 1) printf("SLOW %s: %.1f s\n", name, seconds);
        slowest = seconds > slowest ? seconds : slowest;
        xpu_tile_program_free(p);
        free(text);
        fflush(stdout);
    }
    for (int i = 0; i < count; i++) free(list[i]);
    free(list);
    printf("%d built, %d failed, %.1f s, the slowest %.1f s\n", built, failed, now() - total, slowest);
    return failed > 0;
}

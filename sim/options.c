/* The options, and what goes to stderr.
 *
 *     OPENXPU_SIM_DEVICE        a product's name (products.c); without it nothing is simulated
 *     OPENXPU_SIM_DEVICES       how many devices there are; 1
 *     OPENXPU_SIM_LOG           enum sim_log_level; 0
 *     OPENXPU_SIM_CHECK         races,memory,uninitialized; none
 *     OPENXPU_SIM_PROFILE       1: count what kernels do
 *     OPENXPU_SIM_SAMPLE        work-groups of a walk that run; all. Results are then wrong
 *     OPENXPU_SIM_SEED          of the interleaving of threads; 0: in order
 *     OPENXPU_SIM_THREADS       host threads that run work-groups; the number of processors
 *     OPENXPU_SIM_INSTRUCTIONS  limit of one walk; 10^11
 *     OPENXPU_SIM_WAIT          seconds that a batch may wait for a semaphore while nothing else runs; 20
 *     OPENXPU_SIM_RINGS         1: the driver submits through rings in memory
 *     OPENXPU_SIM_LOADER, OPENXPU_SIM_LIBRARIES, OPENXPU_SIM_CARRIED  see launch.c
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sim.h"

#define PRINTED_FAULTS 20 /* further ones are only counted */
#define FAULT_STATUS 3

static struct sim_options options;
static pthread_once_t options_read = PTHREAD_ONCE_INIT;
static atomic_uint faults;

static uint64_t number(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    if (!text || !*text) return otherwise;
    char *end;
    uint64_t value = strtoull(text, &end, 0);
    if (*end) sim_fault("%s=%s is not a number", name, text);
    return value;
}

/* The bits of a list's words, separated by commas. */
static unsigned check_bits(const char *list) {
    static const char *const words[] = {"races", "memory", "uninitialized"}; /* enum sim_check */
    unsigned bits = 0;
    for (const char *at = list; at && *at; at += *at == ',') {
        size_t length = strcspn(at, ","), word = 0;
        while (word < 3 && (strlen(words[word]) != length || strncmp(at, words[word], length))) word++;
        if (word == 3)
            sim_fault("OPENXPU_SIM_CHECK: %.*s is not a check", (int)length, at);
        else
            bits |= 1u << word;
        at += length;
    }
    return bits;
}

static void forget_faults(void) { atomic_store(&faults, 0); }

static void read_options(void) {
    const char *device = getenv("OPENXPU_SIM_DEVICE");
    if (!device || !*device) return;
    options.product = sim_product_find(device);
    if (!options.product) sim_fault("OPENXPU_SIM_DEVICE: no product is called %s", device);
    options.log = (enum sim_log_level)number("OPENXPU_SIM_LOG", 0);
    options.devices = (int)number("OPENXPU_SIM_DEVICES", 1);
    options.checks = check_bits(getenv("OPENXPU_SIM_CHECK"));
    options.profile = number("OPENXPU_SIM_PROFILE", 0) != 0;
    options.sample = options.profile ? number("OPENXPU_SIM_SAMPLE", 0) : 0;
    options.seed = number("OPENXPU_SIM_SEED", 0);
    options.instruction_limit = number("OPENXPU_SIM_INSTRUCTIONS", 100000000000ull);
    options.wait_limit_ns = number("OPENXPU_SIM_WAIT", 20) * 1000000000ull;
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    options.host_threads = (int)number("OPENXPU_SIM_THREADS", processors > 0 ? (uint64_t)processors : 1);
    options.rings = number("OPENXPU_SIM_RINGS", 0) != 0;
    options.loader = getenv("OPENXPU_SIM_LOADER");
    options.libraries = getenv("OPENXPU_SIM_LIBRARIES");
    if (options.loader && !*options.loader) options.loader = NULL;
    pthread_atfork(NULL, NULL, forget_faults); /* a child answers for its own */
}

const struct sim_options *sim_options(void) {
    pthread_once(&options_read, read_options);
    return &options;
}

static void print(const char *kind, const char *format, va_list arguments) {
    char line[4096]; /* one write for a line: threads and processes share stderr */
    int length = snprintf(line, sizeof line, "openxpu simulate: %s", kind);
    int more = vsnprintf(line + length, sizeof line - (size_t)length - 1, format, arguments);
    length += more < 0 ? 0 : more;
    if (length > (int)sizeof line - 2) length = (int)sizeof line - 2;
    line[length++] = '\n';
    fflush(stdout); /* so that both stand in order where stdout and stderr are one file */
    if (write(STDERR_FILENO, line, (size_t)length) < 0) return;
}

void sim_log_line(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    print("", format, arguments);
    va_end(arguments);
}

void sim_fault(const char *format, ...) {
    unsigned before = atomic_fetch_add(&faults, 1);
    if (before >= PRINTED_FAULTS) return;
    va_list arguments;
    va_start(arguments, format);
    print("fault: ", format, arguments);
    va_end(arguments);
}

unsigned sim_fault_count(void) { return atomic_load(&faults); }

int sim_exit_status(int status) {
    unsigned count = sim_fault_count();
    if (!count) return status;
    if (count > PRINTED_FAULTS)
        sim_log_line("%u faults, of which %d were printed", count, PRINTED_FAULTS);
    else
        sim_log_line("%u fault%s", count, count == 1 ? "" : "s");
    return status ? status : FAULT_STATUS;
}

uint64_t sim_time_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t sim_timestamp(void) {
    return (uint64_t)((unsigned __int128)sim_time_ns() * SIM_TIMESTAMP_HZ / 1000000000u);
}

#include "eu/iga.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

/* Intel's iga.h: iga_context_options_t, iga_disassemble_options_t (version 2), IGA_SUCCESS = 0 */
struct context_options {
    size_t size;
    uint32_t generation;
};
struct text_options {
    uint32_t size, flags, unused[4];
};
enum { OPTION_NUMERIC_LABELS = 1, OPTION_HEX_FLOATS = 4 };

typedef int create_function(const struct context_options *, void **);
typedef int text_function(void *, const struct text_options *, const void *, const char *(*)(int, void *),
                          void *, char **);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *context;
static uint32_t context_version;
static text_function *disassemble;

static bool open_library(enum sim_iga version) {
    static create_function *create;
    if (!create) {
        void *library = dlopen("libiga64.so.2", RTLD_NOW | RTLD_LOCAL);
        if (!library) library = dlopen("libiga64.so", RTLD_NOW | RTLD_LOCAL);
        if (!library) {
            sim_fault("Intel's disassembler (libiga64, package libigc2) can't be opened: %s", dlerror());
            return false;
        }
        *(void **)&create = dlsym(library, "iga_context_create");
        *(void **)&disassemble = dlsym(library, "iga_context_disassemble_instruction");
        if (!create || !disassemble) {
            sim_fault("Intel's disassembler has no iga_context_disassemble_instruction");
            create = NULL;
            return false;
        }
    }
    const struct context_options options = {sizeof options, version};
    if (create(&options, &context)) {
        sim_fault("Intel's disassembler does not know version %#x of the instruction set", version);
        return false;
    }
    context_version = version;
    return true;
}

bool iga_text(enum sim_iga version, const uint8_t code[16], char *text, size_t size) {
    static const struct text_options options = {
        sizeof options, OPTION_NUMERIC_LABELS | OPTION_HEX_FLOATS, {0}};
    pthread_mutex_lock(&lock);
    bool ok = (context && context_version == (uint32_t)version) || open_library(version);
    if (ok) {
        char *line = NULL; /* belongs to the context */
        ok = !disassemble(context, &options, code, NULL, NULL, &line) && line;
        snprintf(text, size, "%s", line ? line : "not an instruction");
    } else {
        snprintf(text, size, "no disassembler");
    }
    pthread_mutex_unlock(&lock);
    return ok;
}

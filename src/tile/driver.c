/* The compiler's public functions. They run the stages of one compilation. */
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/os.h"
#include "core/status.h"
#include "tile/tile.h"

#define MAX_TEXT (64 << 20) /* bytes per module */

static const char *const stage_names[XPU_TILE_STAGES] = {"none",    "parse",  "verify",
                                                         "analyze", "layout", "emit"};

const char *xpu_tile_stage_name(xpu_tile_stage stage) {
    return (unsigned)stage < XPU_TILE_STAGES ? stage_names[stage] : NULL;
}

/* The allocation that the caller receives: the public struct and the texts it points to. */
typedef struct result {
    xpu_tile_program program;
    text_buffer source, dump;
    char target[XPU_TILE_TARGET_TEXT];
    char *image; /* the program as text; NULL until requested */
} result;

static void (*const stages[XPU_TILE_STAGES])(tile *t) = {
    [XPU_TILE_PARSE] = tile_parse,   [XPU_TILE_VERIFY] = tile_verify, [XPU_TILE_ANALYZE] = tile_analyze,
    [XPU_TILE_LAYOUT] = tile_layout, [XPU_TILE_EMIT] = tile_emit,
};

xpu_status xpu_tile_image(const xpu_tile_program *program, xpu_image *image) {
    XPU_REJECT_IF(!program || !image, "NULL");
    XPU_REJECT_IF(!program->source, "compiled up to an earlier stage only");
    const xpu_tile_program *p = program;
    *image = (xpu_image){.kind = XPU_IMAGE_SOURCE,
                         .code = p->source,
                         .code_size = p->source_size,
                         .name = p->name,
                         .build_options = p->build_options,
                         .target = ((const result *)p)->target,
                         .device = "",
                         .params = p->params,
                         .param_count = p->param_count,
                         .params_size = p->params_size,
                         .grid_offset = p->grid_offset,
                         .fault_offset = p->fault_offset,
                         .local_size = p->local_size,
                         .local_memory = p->local_memory,
                         .work = p->work,
                         .asserts = p->asserts};
    return XPU_SUCCESS;
}

const char *xpu_tile_program_image(const xpu_tile_program *program) {
    result *r = (result *)(uintptr_t)program;
    xpu_image image;
    size_t size;
    if (!r || !program->source) return NULL;
    if (r->image || xpu_tile_image(program, &image) != XPU_SUCCESS ||
        xpu_image_write(&image, NULL, 0, &size) != XPU_SUCCESS)
        return r->image;
    char *bytes = core_malloc(size + 1);
    if (bytes && xpu_image_write(&image, bytes, size, &size) == XPU_SUCCESS) {
        bytes[size] = 0;
        r->image = bytes;
    } else {
        core_free(bytes);
    }
    return r->image;
}

const char *xpu_tile_program_dump(const xpu_tile_program *program) { return program ? program->dump : NULL; }

double xpu_tile_program_seconds(const xpu_tile_program *program, xpu_tile_stage stage) {
    return program && (unsigned)stage < XPU_TILE_STAGES ? program->seconds[stage] : 0;
}

/* Runs the stages; errors return here by longjmp. */
static xpu_status run(tile *t, result *r) {
    if (setjmp(t->fail)) return t->status;
    double start = os_seconds();
    for (int stage = XPU_TILE_PARSE; stage < XPU_TILE_STAGES; stage++) {
        if (stages[stage]) stages[stage](t);
        double end = os_seconds();
        r->program.seconds[stage] = end - start;
        start = end;
        if (t->options->dump_after == (xpu_tile_stage)stage) {
            if (stage == XPU_TILE_EMIT)
                text_append(&r->dump, r->source.data, r->source.size);
            else
                module_print(t, &r->dump);
            if (r->dump.failed) tile_no_memory(t);
            r->program.dump = r->dump.data;
            break;
        }
    }
    return XPU_SUCCESS;
}

xpu_status xpu_tile_compile(const char *input, size_t size, const xpu_tile_options *options,
                            xpu_tile_program **program) {
    static const xpu_tile_options defaults = {0};
    XPU_REJECT_IF((!input && size) || !program, "NULL");
    XPU_REJECT_IF(size > MAX_TEXT, "the module has %zu bytes; the limit is %d", size, MAX_TEXT);
    tile *t = core_calloc(1, sizeof *t);
    result *r = core_calloc(1, sizeof *r);
    char *copy = core_malloc(size + 1);
    xpu_status status = XPU_ERROR_OUT_OF_HOST_MEMORY;
    if (!t || !r || !copy) {
        xpu_fail(status, "out of host memory while compiling a Triton module");
        goto done;
    }
    memcpy(copy, input, size);
    copy[size] = 0; /* terminates every scan */
    t->text = copy;
    t->end = copy + size;
    t->options = options ? options : &defaults;
    if (t->options->target)
        t->target = *t->options->target;
    else
        xpu_tile_target_find("cpu", &t->target);
    t->source = &r->source;
    t->program = &r->program;
    if (xpu_tile_target_write(&t->target, r->target, sizeof r->target) != XPU_SUCCESS)
        r->target[0] = 0; /* a target made by the caller, whose name is not a single word */
    status = run(t, r);
    tile_free_all(t);
done:
    core_free(t);
    core_free(copy);
    if (status == XPU_SUCCESS)
        *program = &r->program;
    else if (r)
        xpu_tile_program_free(&r->program);
    return status;
}

xpu_status xpu_tile_compile_text(const char *input, size_t size, const char *target, const char *file,
                                 const char *options, xpu_tile_program **program) {
    xpu_tile_target described;
    xpu_tile_options parsed = {.target = &described, .file = file};
    XPU_TRY(xpu_tile_target_read(target, &described));
    XPU_TRY(tile_read_options(options, &parsed));
    return xpu_tile_compile(input, size, &parsed, program);
}

void xpu_tile_program_free(xpu_tile_program *program) {
    if (!program) return;
    result *r = (result *)program;
    text_free(&r->source);
    text_free(&r->dump);
    core_free(r->image);
    core_free((void *)(uintptr_t)program->params);
    core_free((void *)(uintptr_t)program->asserts);
    core_free((void *)(uintptr_t)program->name);
    core_free((void *)(uintptr_t)program->build_options);
    core_free(r);
}

/* Assembles the kernel around the emitted code: parameters, attributes, and the library functions it calls.
 */
#include <string.h>

#include "core/embedded.h"
#include "core/memory.h"
#include "tile/emit.h"

enum { MOST_STAGES = 3 /* pipeline stages of prefetched operands */ };

static char *own_copy(tile *t, const char *text) {
    char *copy = core_strdup(text);
    if (!copy) tile_no_memory(t);
    return copy;
}

/* Lays out the parameter struct and binds each parameter to its field. */
static void emit_params(emitter *e, const op *kernel, buffer *fields, buffer *roots) {
    tile *t = e->t;
    const block *entry = kernel->regions[0].first;
    core_free((void *)(uintptr_t)t->program->params); /* from the trial emission */
    t->program->params = NULL;
    xpu_param *params = core_calloc((size_t)entry->arg_count + 1, sizeof *params);
    if (!params) tile_no_memory(t);
    t->program->params = params;
    t->program->param_count = entry->arg_count;
    uint32_t offset = 0;
    for (int i = 0; i < entry->arg_count; i++) {
        value *v = entry->args[i];
        element el = v->type->element;
        xpu_param *p = &params[i];
        p->kind = v->type->is_pointer ? XPU_PARAM_POINTER
                  : is_float(v->type) ? XPU_PARAM_FLOAT
                                      : XPU_PARAM_INTEGER;
        p->size = v->type->is_pointer ? 8 : (uint32_t)(element_bits(el) + 7) / 8;
        p->is_bf16 = el == BF16 && !v->type->is_pointer;
        offset = (offset + p->size - 1) / p->size * p->size;
        p->offset = offset;
        offset += p->size;
        const char *name = tile_format(t, "arg%d", i);
        expr x = {.text = name,
                  .kind = UNIFORM,
                  .depth = 0,
                  .divisor = op_attr_int(kernel, tile_format(t, "arg%d.divisibility", i), 1)};
        int bytes = (element_bits(el) + 7) / 8;
        if (v->type->is_pointer) x.divisor = x.divisor > bytes ? x.divisor / bytes : 1; /* in elements */
        if (x.divisor < 1 || (x.divisor & (x.divisor - 1))) x.divisor = 1;
        if (v->type->is_pointer) {
            buffer_addf(t, fields, "    ulong a%d;\n", i);
            if (v->uses)
                buffer_addf(t, roots, "    __global %s *const %s = (__global %s *)p.a%d;\n", c_stored(el),
                            name, c_stored(el), i);
            x.root = name;
            x.text = "0";
            x.is_constant = true;
        } else {
            buffer_addf(t, fields, "    %s a%d;\n", el == F16 ? "ushort" : c_stored(el),
                        i); /* half-precision values as bits */
            if (v->uses) {
                bool narrow = is_float(v->type) && element_bits(el) < 32;
                const char *field = tile_format(t, "p.a%d", i);
                if (narrow && el == F16)
                    field = tile_format(t, "%s((ushort)%s)", use(e, "tile_half_bits"), field);
                else if (narrow)
                    field = tile_format(t, "%s(%s)",
                                        el == BF16 ? use(e, "tile_from_bf16") : widening_f8(e, el), field);
                buffer_addf(t, roots, "    const %s %s = %s;\n", c_type(v->type), name, field);
            }
        }
        remember(e, v, NULL, x);
    }
    offset = (offset + 3) & ~3u;
    t->program->grid_offset = offset;
    t->program->params_size = (offset + 12 + 7) & ~7u;
    buffer_addf(t, fields, "    int grid[3];\n");
    if ((offset + 12) & 7) buffer_addf(t, fields, "    int padding;\n");
    if (!t->program->asserts) return;
    buffer_addf(t, fields, "    ulong faults, asserts;\n");
    t->program->fault_offset = t->program->params_size;
    t->program->params_size += 16;
}

/* --- assertions --- */

/* Returns "file:line:column" of a location, NULL if it has none. The location may be an alias ("#loc1"), or a
 * name followed by a location. */
static const char *place_of(tile *t, const char *loc) {
    for (int steps = 0; loc && steps < 16; steps++) {
        loc += strcspn(loc, "\"#\n");
        if (*loc == '#') {
            size_t size = 1 + strspn(loc + 1, "abcdefghijklmnopqrstuvwxyz0123456789_");
            const char *mark = tile_format(t, "\n%s = loc(", tile_strndup(t, loc, size));
            const char *line = strstr(t->text, mark);
            loc = line                                            ? line + strlen(mark)
                  : !strncmp(t->text, mark + 1, strlen(mark) - 1) ? t->text + strlen(mark) - 1
                                                                  : NULL;
            continue;
        }
        if (*loc != '"') return NULL;
        size_t size = strcspn(loc + 1, "\"\n");
        const char *file = loc + 1, *numbers = file + size + 1;
        if (file[size] != '"') return NULL;
        if (*numbers == ':')
            return tile_format(t, "%s%s", tile_strndup(t, file, size),
                               tile_strndup(t, numbers, strspn(numbers, ":0123456789")));
        loc = numbers;
    }
    return NULL;
}

static int number_asserts(region *r, op **all, int count) {
    for (block *b = r->first; b; b = b->next)
        for (op *o = b->first; o; o = o->next) {
            if (o->code == OP_ASSERT) {
                o->number = count++;
                if (all) all[o->number] = o;
            }
            for (int i = 0; i < o->region_count; i++) count = number_asserts(&o->regions[i], all, count);
        }
    return count;
}

/* Numbers the assertions and returns their texts for error reports to the caller. */
static void describe_asserts(tile *t, const char *kernel) {
    region *body = &t->kernel->regions[0];
    int count = t->options->debug_asserts ? number_asserts(body, NULL, 0) : 0;
    if (!count) return;
    op **all = NEW_ARRAY(t, op *, count);
    buffer texts = {0};
    number_asserts(body, all, 0);
    for (int i = 0; i < count; i++) {
        const attr *message = op_attr(all[i], "message");
        const char *place = place_of(t, all[i]->loc);
        bool has = message && message->kind == ATTR_STRING && message->length;
        buffer_addf(t, &texts, "%s: assertion failed%s%s%s%s", kernel, has ? ": " : "",
                    has ? tile_strndup(t, message->string, message->length) : "", place ? ", at " : "",
                    place ? place : "");
        buffer_add(t, &texts, "", 1);
    }
    /* a single allocation: the pointers, then the texts */
    char **list = core_malloc(sizeof *list * ((size_t)count + 1) + texts.size);
    if (!list) tile_no_memory(t);
    char *text = memcpy(list + count + 1, texts.data, texts.size);
    for (int i = 0; i < count; i++, text += strlen(text) + 1) list[i] = text;
    list[count] = NULL;
    t->program->asserts = (const char *const *)list;
}

static void mark_written(tile *t, const value *v) {
    for (; v; v = v->def && v->def->arg_count ? v->def->args[0] : NULL)
        if (!v->def && v->owner == t->kernel->regions[0].first)
            ((xpu_param *)(uintptr_t)t->program->params)[v->index].is_written = true;
}

static void find_written(tile *t, const region *r) {
    for (const block *b = r->first; b; b = b->next)
        for (const op *o = b->first; o; o = o->next) {
            if (op_writes(o)) mark_written(t, o->args[0]);
            for (int i = 0; i < o->region_count; i++) find_written(t, &o->regions[i]);
        }
}

static const char *file_text(const char *name) {
    const embedded_file *file = embedded_find(name, strlen(name));
    return file ? file->text : "";
}

/* Appends text and replaces each line `#include "file"` by that file of the operator library. */
static void add_with_files(tile *t, buffer *out, const char *from, size_t size) {
    static const char mark[] = "#include \"";
    for (const char *end = from + size; from < end;) {
        const char *line_end = memchr(from, '\n', (size_t)(end - from));
        line_end = line_end ? line_end + 1 : end;
        if (!strncmp(from, mark, sizeof mark - 1)) {
            const char *name = from + sizeof mark - 1;
            const char *text = file_text(tile_strndup(t, name, strcspn(name, "\"")));
            add_with_files(t, out, text, strlen(text));
        } else {
            buffer_add(t, out, from, (size_t)(line_end - from));
        }
        from = line_end;
    }
}

/* Appends a section of the library after the sections that it needs. A section begins with a line
 * "//! name other other", where the others are the sections that it needs. */
static void add_piece(emitter *e, const char *name, buffer *out, buffer *done, int depth) {
    const char *mark = tile_format(e->t, "\n%s\n", name);
    if (done->size && strstr(done->data, mark)) return;
    buffer_addf(e->t, done, "%s%s\n", done->size ? "" : "\n", name);
    size_t size = strlen(name);
    const char *piece = file_text("tile_library.cl");
    while ((piece = strstr(piece, "//! "))) {
        piece += 4;
        if (!strncmp(piece, name, size) && (piece[size] == ' ' || piece[size] == '\n')) break;
    }
    if (!piece || depth > 20) tile_error(e->t, NULL, "internal error: no function %s in the library", name);
    const char *line_end = strchr(piece, '\n');
    for (const char *c = piece + size; c < line_end;) {
        while (c < line_end && *c == ' ') c++;
        const char *start = c;
        while (c < line_end && *c != ' ') c++;
        if (c > start) add_piece(e, tile_strndup(e->t, start, (size_t)(c - start)), out, done, depth + 1);
    }
    const char *stop = strstr(line_end, "//! ");
    add_with_files(e->t, out, line_end + 1, stop ? (size_t)(stop - line_end - 1) : strlen(line_end + 1));
}

static void add_library(emitter *e, buffer *out) {
    buffer done = {0};
    for (const char *c = e->library.data; c && *c;) {
        while (*c == '\n') c++;
        size_t size = strcspn(c, "\n");
        if (size) add_piece(e, tile_strndup(e->t, c, size), out, &done, 0);
        c += size;
    }
}

/* Appends the used files of special functions from the operator library, and the definitions that they need.
 */
static void add_special(const emitter *e, text_buffer *out) {
    static const char gamma[] = "#include \"pointwise/pointwise_special.cl\"\n";
    static const char bessel[] = "#include \"pointwise/pointwise_bessel.cl\"\n";
    static const char error_functions[] = "#include \"pointwise/erf_double.h\"\n";
    buffer files = {0};
    if (e->special_wide) add_with_files(e->t, &files, error_functions, sizeof error_functions - 1);
    if (e->special & SPECIAL_GAMMA) add_with_files(e->t, &files, gamma, sizeof gamma - 1);
    if (e->special & SPECIAL_BESSEL) add_with_files(e->t, &files, bessel, sizeof bessel - 1);
    if (e->t->target.has_fp64) text_add(out, "#define XPU_HAS_FP64 1\n");
    text_add(out, e->special_wide ? "#define R_IS_DOUBLE 1\n#define R double\n#define K(x) x\n"
                                  : "#define R float\n#define K(x) x##f\n");
    text_add(out, "#define PI K(3.14159265358979323846)\n");
    text_append(out, files.data, files.size);
    text_add(out, "#undef R\n#undef K\n#undef PI\n#undef WIDE\n\n");
}

/* The kernel's name in C. The name of a Python function may be a keyword or built-in of OpenCL C, such as
 * `kernel`, `half` or `dot`; names that cannot be one are kept unchanged. */
static const char *c_identifier(tile *t, const char *name) {
    char *copy = tile_strndup(t, name, strlen(name));
    for (char *c = copy; *c; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || *c == '_'))
            *c = '_';
    size_t size = strlen(copy);
    bool own = !strncmp(copy, "triton_", 7) || (size > 7 && !strcmp(copy + size - 7, "_kernel"));
    if (own && strncmp(copy, "__", 2)) return copy;
    return tile_format(t, "%s%s_kernel", copy[0] >= '0' && copy[0] <= '9' ? "_" : "", copy);
}

/* Reports an error at an operation whose type the target lacks. */
static void check_types(tile *t, const region *r) {
    for (const block *b = r->first; b; b = b->next)
        for (const op *o = b->first; o; o = o->next) {
            for (int i = 0; i < o->result_count; i++)
                if (o->results[i].type->element == F64 && !o->results[i].type->is_pointer &&
                    !t->target.has_fp64)
                    tile_unsupported(t, o->at, "%s has no fp64", t->target.name);
            for (int i = 0; i < o->region_count; i++) check_types(t, &o->regions[i]);
        }
}

int tile_lanes(const tile *t) {
    return t->target.is_cpu ? t->target.lanes
                            : (t->options->num_warps ? t->options->num_warps : 4) * t->target.lanes;
}

/* Emits the kernel's body and the declarations before it. */
static emitter *emit_kernel(tile *t, bool is_trial, buffer *fields, buffer *roots) {
    emitter *e = NEW(t, emitter);
    op *kernel = t->kernel;
    *fields = *roots = (buffer){0};
    e->t = t;
    e->weight = 1;
    e->is_trial = is_trial;
    int warps = t->options->num_warps ? t->options->num_warps : 4;
    e->lanes = tile_lanes(t);
    if (warps < 0 || warps > 64 || (warps & (warps - 1)) || e->lanes > t->target.max_lanes)
        tile_unsupported(t, kernel->at,
                         "%d subgroups of %d lanes are too many: %s supports %d work-items, in powers of two",
                         warps, t->target.lanes, t->target.name, t->target.max_lanes);
    e->scopes[0] = (scope){.serial = ++e->serials, .indent = 1};
    emit_params(e, kernel, fields, roots);
    emit_body(e, &kernel->regions[0]);
    return e;
}

/* Do lanes synchronize? */
static bool lanes_synchronize(const emitter *e) {
    const char *body = e->scopes[0].text.size ? e->scopes[0].text.data : "";
    return strstr(body, "barrier(") || strstr(body, "sub_group_") || strstr(body, "tile_warp_");
}

void tile_emit(tile *t) {
    op *kernel = t->kernel;
    buffer fields, roots, library = {0};
    const char *name = c_identifier(t, op_attr(kernel, "sym_name")->string);
    check_types(t, &kernel->regions[0]);
    describe_asserts(t, name);
    t->parts = t->target.is_cpu ? 1 : tile_parts(t);
    t->stages = t->target.matrix_lanes == 32 ? MOST_STAGES : 1;
    for (bool trying = !t->target.is_cpu; trying;) {
        tile_scratch(t, true);
        bool splits = emit_kernel(t, true, &fields, &roots)->splits;
        tile_scratch(t, false);
        trying = tile_iterate_layout(t, splits);
    }
    emitter *e = emit_kernel(t, false, &fields, &roots);
    while (t->stages > 1 && e->local_memory > t->target.local_memory) {
        t->stages--;
        tile_iterate_layout(t, false);
        e = emit_kernel(t, false, &fields, &roots);
    }
    find_written(t, &kernel->regions[0]);
    add_library(e, &library);

    text_buffer *out = t->source;
    text_addf(out, "/* %s, from Triton IR for %s: one program is one %s of %d lanes */\n", name,
              t->target.name, t->target.is_cpu ? "subgroup" : "work-group", e->lanes);
    if (t->target.has_fp64) text_add(out, "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n");
    if (t->target.has_fp16)
        text_add(out, "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n#define TILE_HAS_FP16\n");
    if (t->target.has_ptx_bf16) text_add(out, "#define TILE_HAS_PTX_BF16\n");
    if (library.size) text_addf(out, "#define TILE_LANES %d\n", e->lanes * t->parts);
    bool meet = t->program->asserts && !t->target.is_cpu && lanes_synchronize(e);
    if (meet) {
        buffer_addf(t, &e->locals, "    __local int tile_failed[2];\n");
        e->local_memory += 8;
    }
    if (t->program->asserts && t->target.is_cpu) text_add(out, "#define TILE_LANES_GO_TOGETHER\n");
    if (t->target.is_cpu) text_add(out, "#define TILE_RECONVERGE sub_group_barrier(0)\n");
    if (meet) text_add(out, "#define TILE_LANES_SYNCHRONIZE\n");
    text_add(out,
             t->target.has_inline_ptx /* its compiler would divide; only CPUs split launches */
                 ? "#define XPU_GROUP(d) get_group_id(d)\n\n"
                 : "#define XPU_GROUP(d) (get_group_id(d) + get_global_offset(d) / get_local_size(d))\n\n");
    if (library.size) text_append(out, library.data, library.size);
    if (e->special) add_special(e, out);
    text_addf(out, "typedef struct params {\n%s} params;\n\n", fields.data);
    if (t->target.has_subgroups)
        text_addf(out, "__attribute__((intel_reqd_sub_group_size(%d)))\n", t->subgroup);
    text_addf(out, "__attribute__((reqd_work_group_size(%d, 1, 1)))\n", e->lanes);
    text_addf(out, "__kernel void %s(const params p) {\n", name);
    if (e->locals.size) text_append(out, e->locals.data, e->locals.size);
    /* On CPUs the subgroup's local ID: its known range 0 ... 15 turns lane masks into constants. For Ponte
     * Vecchio, which the target does not tell from Xe2, Intel's compiler turns a store at uniform index +
     * get_local_id(0) into a block store, and then loses the lane wherever else that sum is used
     * (docs/internals/compiler-faults.md). */
    const bool loses_local_id = t->target.has_subgroups && t->target.matrix_lanes == 16;
    const char *const lane =
        t->target.is_cpu ? "get_sub_group_local_id()"
        : loses_local_id ? tile_format(t, "(get_sub_group_id() * %d + get_sub_group_local_id())", t->subgroup)
                         : "get_local_id(0)";
    text_addf(out, "    const int lane = (int)%s;\n", lane);
    if (t->joined > 1) text_addf(out, "    if (XPU_GROUP(0) %% %d) return;\n", t->joined);
    if (meet)
        text_add(out, "    int tile_asserted = 0;\n    if (lane < 2) tile_failed[lane] = 0;\n"
                      "    barrier(CLK_LOCAL_MEM_FENCE);\n");
    if (roots.size) text_append(out, roots.data, roots.size);
    if (e->scopes[0].text.size) text_append(out, e->scopes[0].text.data, e->scopes[0].text.size);
    text_add(out, "}\n");
    if (out->failed) tile_no_memory(t);
    t->program->source = out->data;
    t->program->source_size = out->size;
    t->program->name = own_copy(t, name);
    t->program->build_options =
        own_copy(t, t->is_large ? "-cl-std=CL3.0 -cl-intel-256-GRF-per-thread" : "-cl-std=CL3.0");
    t->program->local_size = (uint32_t)e->lanes;
    t->program->local_memory = (uint32_t)e->local_memory;
    t->program->work = e->work + 1;
}

/* The arena, error reporting, types, and construction, modification and printing of the IR. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "tile/tile.h"

/* --- arena --- */

#define CHUNK_SIZE ((size_t)64 << 10)
typedef struct chunk {
    struct chunk *next;
    size_t room;
    _Alignas(16) char data[];
} chunk;

#if defined(OPENXPU_FAULTS) || defined(__SANITIZE_ADDRESS__) || defined(LIBFUZZER)
#define RECYCLES false /* lets memory checkers find uses of scratch memory after a trial */
#else
#define RECYCLES true
#endif

static void free_chunks(chunk **list) {
    for (chunk *c = *list, *next; c; c = next) {
        next = c->next;
        core_free(c);
    }
    *list = NULL;
}

static chunk *new_chunk(tile *t, size_t size) {
    chunk *c = t->spare;
    if (c && size <= CHUNK_SIZE) {
        t->spare = c->next;
        return c;
    }
    size_t room = size > CHUNK_SIZE ? size : CHUNK_SIZE;
    c = core_malloc(sizeof *c + room);
    if (!c) tile_no_memory(t);
    c->room = room;
    return c;
}

static arena *current(tile *t) { return t->is_scratch ? &t->scratch : &t->kept; }

static void *take(tile *t, arena *a, size_t size) {
    size = (size + 15) & ~(size_t)15;
    if (!a->chunks || a->used + size > a->chunks->room) { /* does it not fit? */
        chunk *c = new_chunk(t, size);
        c->next = a->chunks;
        a->chunks = c;
        a->used = 0;
    }
    void *p = a->chunks->data + a->used;
    a->used += size;
    return p;
}

void *tile_alloc(tile *t, size_t size) { return memset(take(t, current(t), size), 0, size); }
void *tile_keep(tile *t, size_t size) { return memset(take(t, &t->kept, size), 0, size); }

void tile_scratch(tile *t, bool on) {
    t->is_scratch = on;
    if (on) return;
    for (chunk *c = t->scratch.chunks, *next; c; c = next) {
        next = c->next;
        if (RECYCLES && c->room == CHUNK_SIZE) {
            c->next = t->spare;
            t->spare = c;
        } else {
            core_free(c);
        }
    }
    t->scratch = (arena){0};
}

void tile_free_all(tile *t) {
    free_chunks(&t->kept.chunks);
    free_chunks(&t->scratch.chunks);
    free_chunks(&t->spare);
}

char *tile_strndup(tile *t, const char *text, size_t size) {
    char *copy = take(t, current(t), size + 1);
    memcpy(copy, text, size);
    copy[size] = 0;
    return copy;
}

/* vsnprintf with fast paths for "%s", "%d" and "%lld", in which the emitter spends most of its time. */
size_t tile_vformat(char *to, size_t room, const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    size_t size = 0;
    for (const char *c = format;;) {
        const char *plain = c, *from;
        char digits[24], *first = digits + sizeof digits;
        while (*c && *c != '%') c++;
        size_t more = (size_t)(c - plain);
        if (more && size + more < room) memcpy(to + size, plain, more);
        size += more;
        if (!*c) break;
        if (c[1] == 's') {
            from = va_arg(again, const char *);
            more = strlen(from);
            c += 2;
        } else if (c[1] == 'd' || !strncmp(c, "%ld", 3) || !strncmp(c, "%lld", 4)) {
            int longs = 0;
            while (*++c == 'l') longs++;
            int64_t v = longs == 2 ? va_arg(again, long long)
                        : longs    ? va_arg(again, long)
                                   : va_arg(again, int);
            uint64_t u = v < 0 ? -(uint64_t)v : (uint64_t)v;
            do *--first = (char)('0' + u % 10);
            while (u /= 10);
            if (v < 0) *--first = '-';
            from = first;
            more = (size_t)(digits + sizeof digits - first);
            c++;
        } else if (c[1] == '%') {
            from = c;
            more = 1;
            c += 2;
        } else { /* any other conversion: leave the whole text to vsnprintf */
            va_end(again);
            return (size_t)vsnprintf(to, room, format, args);
        }
        if (size + more < room) memcpy(to + size, from, more);
        size += more;
    }
    va_end(again);
    if (size < room) to[size] = 0;
    return size;
}

char *tile_format(tile *t, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    arena *a = current(t);
    size_t room = a->chunks ? a->chunks->room - a->used : 0; /* usually enough */
    size_t size = tile_vformat(room ? a->chunks->data + a->used : NULL, room, format, args);
    char *out = take(t, a, size + 1);
    if (size >= room) tile_vformat(out, size + 1, format, again);
    va_end(again);
    va_end(args);
    return out;
}

/* --- errors --- */

#define SHOWN_WIDTH 100 /* of a long line, only the part around the error is shown */

/* kernel.ttir:12:8: error: reason
 *     %3 = tt.load %2 : tensor<128xf32>
 *                  ^ */
static void report(tile *t, const char *at, const char *reason) {
    const char *file = t->options->file ? t->options->file : "<ttir>";
    if (!at || at < t->text || at > t->end) {
        xpu_fail(t->status, "%s: error: %s", file, reason);
        return;
    }
    int line = 1;
    const char *start = t->text, *stop = at;
    for (const char *c = t->text; c < at; c++)
        if (*c == '\n') {
            line++;
            start = c + 1;
        }
    while (stop < t->end && *stop != '\n') stop++;
    int column = (int)(at - start);
    const char *from = column > SHOWN_WIDTH - 20 ? at - (SHOWN_WIDTH - 20) : start;
    int shown = (int)(stop - from) > SHOWN_WIDTH ? SHOWN_WIDTH : (int)(stop - from);
    xpu_fail(t->status, "%s:%d:%d: error: %s\n    ", file, line, column + 1, reason);
    for (int i = 0; i < shown; i++) /* unprintable characters become '?', tabs become spaces */
        xpu_fail_add("%c", from[i] == '\t' ? ' ' : from[i] >= ' ' && from[i] < 127 ? from[i] : '?');
    xpu_fail_add("\n    %*s^", (int)(at - from), "");
}

static _Noreturn void fail_at(tile *t, xpu_status status, const char *at, const char *format, va_list args) {
    char reason[512];
    vsnprintf(reason, sizeof reason, format, args);
    t->status = status;
    report(t, at, reason);
    longjmp(t->fail, 1);
}

void tile_error(tile *t, const char *at, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fail_at(t, XPU_ERROR_INVALID_ARGUMENT, at, format, args);
}

void tile_unsupported(tile *t, const char *at, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fail_at(t, XPU_ERROR_NOT_SUPPORTED, at, format, args);
}

void tile_too_large(tile *t, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fail_at(t, XPU_ERROR_OUT_OF_MEMORY, NULL, format, args);
}

void tile_no_memory(tile *t) {
    t->status = xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory while compiling a Triton module");
    longjmp(t->fail, 1);
}

/* --- types --- */

const char *const element_names[ELEMENTS] = {
    [NOTHING] = "none",
    [I1] = "i1",
    [I8] = "i8",
    [I16] = "i16",
    [I32] = "i32",
    [I64] = "i64",
    [F8E4M3FN] = "f8E4M3FN",
    [F8E5M2] = "f8E5M2",
    [F8E4M3FNUZ] = "f8E4M3FNUZ",
    [F8E5M2FNUZ] = "f8E5M2FNUZ",
    [F8E4M3B11FNUZ] = "f8E4M3B11FNUZ",
    [F16] = "f16",
    [BF16] = "bf16",
    [F32] = "f32",
    [F64] = "f64",
};

int element_bits(element e) {
    static const uint8_t bits[ELEMENTS] = {
        [I1] = 1,       [I8] = 8,     [I16] = 16,       [I32] = 32,         [I64] = 64,
        [F8E4M3FN] = 8, [F8E5M2] = 8, [F8E4M3FNUZ] = 8, [F8E5M2FNUZ] = 8,   [F16] = 16,
        [BF16] = 16,    [F32] = 32,   [F64] = 64,       [F8E4M3B11FNUZ] = 8};
    return bits[e];
}

const type *type_make(tile *t, type want) {
    unsigned h = want.element * 7u + want.is_pointer * 3u + want.is_tensor + want.is_descriptor * 5u;
    want.count = 1;
    for (int i = 0; i < want.rank; i++) {
        h = h * 31u + (unsigned)want.shape[i];
        want.count *= want.shape[i];
    }
    type **slot = &t->types[h % (sizeof t->types / sizeof *t->types)];
    for (type *ty = *slot; ty; ty = ty->next)
        if (ty->element == want.element && ty->is_pointer == want.is_pointer &&
            ty->is_tensor == want.is_tensor && ty->is_descriptor == want.is_descriptor &&
            ty->rank == want.rank && !memcmp(ty->shape, want.shape, sizeof(int32_t) * (size_t)want.rank))
            return ty;
    type *ty = tile_keep(t, sizeof *ty);
    *ty = want;
    ty->next = *slot;
    return *slot = ty;
}

const type *type_scalar(tile *t, element e) { return type_make(t, (type){.element = e}); }

const type *type_with(tile *t, const type *shape, const type *of) {
    type want = *shape;
    want.element = of->element;
    want.is_pointer = of->is_pointer;
    return type_make(t, want);
}

const type *type_element(tile *t, const type *ty) {
    return type_make(t, (type){.element = ty->element, .is_pointer = ty->is_pointer});
}

bool is_int(const type *ty) {
    return !ty->is_pointer && !ty->is_descriptor && ty->element >= I1 && ty->element <= I64;
}
bool is_float(const type *ty) { return !ty->is_pointer && !ty->is_descriptor && ty->element >= F8E4M3FN; }

void type_print(text_buffer *out, const type *ty) {
    if (!ty) {
        text_add(out, "?");
        return;
    }
    if (ty->is_descriptor) text_add(out, "!tt.tensordesc<");
    if (ty->is_tensor || ty->is_descriptor) {
        text_add(out, "tensor<");
        for (int i = 0; i < ty->rank; i++) text_addf(out, "%dx", ty->shape[i]);
    }
    if (ty->is_pointer)
        text_addf(out, "!tt.ptr<%s>", element_names[ty->element]);
    else
        text_add(out, element_names[ty->element]);
    if (ty->is_tensor || ty->is_descriptor) text_add(out, ">");
    if (ty->is_descriptor) text_add(out, ">");
}

/* --- operations --- */

const op_info op_table[OP_COUNT] = {
#define OP(code, name, form, kind, formula) {name, FORM_##form, KIND_##kind, formula},
#include "tile/ops.def"
};

const char *const cmpi_names[CMPI_COUNT] = {"eq",  "ne",  "slt", "sle", "sgt",
                                            "sge", "ult", "ule", "ugt", "uge"};
const char *const cmpf_names[CMPF_COUNT] = {"false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord",
                                            "ueq",   "ugt", "uge", "ult", "ule", "une", "uno", "true"};
const char *const rmw_names[RMW_COUNT] = {NULL,  "and", "or",   "xor",  "add", "fadd",
                                          "max", "min", "umax", "umin", "exch"};

op *op_new(tile *t, op_code code, const char *at, int args, int results, int regions) {
    op *o = NEW(t, op);
    o->code = code;
    o->at = at;
    o->id = t->next_op++;
    o->arg_count = args;
    o->args = NEW_ARRAY(t, value *, args);
    o->result_count = results;
    o->results = NEW_ARRAY(t, value, results);
    for (int i = 0; i < results; i++) {
        o->results[i].def = o;
        o->results[i].index = i;
        o->results[i].id = t->next_value++;
    }
    o->region_count = regions;
    o->regions = NEW_ARRAY(t, region, regions);
    for (int i = 0; i < regions; i++) o->regions[i].owner = o;
    return o;
}

block *block_new(tile *t, region *r) {
    block *b = NEW(t, block), **last = &r->first;
    while (*last) last = &(*last)->next;
    *last = b;
    b->owner = r;
    b->id = r->block_count++;
    return b;
}

value *block_add_arg(tile *t, block *b, const type *ty) {
    value **args = NEW_ARRAY(t, value *, b->arg_count + 1);
    for (int i = 0; i < b->arg_count; i++) args[i] = b->args[i];
    value *v = NEW(t, value);
    v->type = ty;
    v->owner = b;
    v->index = b->arg_count;
    v->id = t->next_value++;
    args[b->arg_count++] = v;
    b->args = args;
    return v;
}

void block_append(block *b, op *o) {
    o->owner = b;
    o->prev = b->last;
    o->next = NULL;
    *(b->last ? &b->last->next : &b->first) = o;
    b->last = o;
}

void op_remove(op *o) {
    *(o->prev ? &o->prev->next : &o->owner->first) = o->next;
    *(o->next ? &o->next->prev : &o->owner->last) = o->prev;
    o->prev = o->next = NULL;
    o->owner = NULL;
}

void op_insert_before(op *o, op *before) {
    o->owner = before->owner;
    o->next = before;
    o->prev = before->prev;
    *(o->prev ? &o->prev->next : &o->owner->first) = o;
    before->prev = o;
}

const attr *op_attr(const op *o, const char *name) {
    for (const attr *a = o->attrs; a; a = a->next)
        if (!strcmp(a->name, name)) return a;
    return NULL;
}

bool is_elementwise(const op *o) {
    return op_table[o->code].kind >= KIND_INT1 && op_table[o->code].kind <= KIND_ELEMENTWISE;
}

int64_t op_attr_int(const op *o, const char *name, int64_t otherwise) {
    const attr *a = op_attr(o, name);
    return a && (a->kind == ATTR_INT || a->kind == ATTR_UNIT) ? a->integer : otherwise;
}

attr *op_set_attr(tile *t, op *o, const char *name) {
    attr *a = NEW(t, attr);
    a->name = name;
    attr **last = &o->attrs;
    while (*last) last = &(*last)->next;
    return *last = a;
}

/* --- printing, in MLIR's generic form --- */

static void print_string(text_buffer *out, const char *s, size_t size) {
    text_add(out, "\"");
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c == '"' || c == '\\' || c < ' ' || c > 126)
            text_addf(out, "\\%02X", c);
        else
            text_append(out, s + i, 1);
    }
    text_add(out, "\"");
}

static void print_number(text_buffer *out, const attr *a) {
    if (a->kind == ATTR_INT) {
        if (a->type && a->type->element == I1)
            text_add(out, a->integer ? "true" : "false");
        else
            text_addf(out, "%" PRId64, a->integer);
    } else if (isfinite(a->real)) {
        text_addf(out, "%.17e", a->real);
    } else { /* the bits, as MLIR does */
        uint64_t bits;
        memcpy(&bits, &a->real, 8);
        int width = a->type ? element_bits(a->type->element) : 64;
        bool negative = bits >> 63, nan = a->real != a->real;
        if (width == 64)
            text_addf(out, "0x%016" PRIX64, bits);
        else if (width == 32)
            text_addf(out, "0x%08X", (negative ? 0x80000000u : 0) | (nan ? 0x7FC00000u : 0x7F800000u));
        else if (a->type->element == BF16)
            text_addf(out, "0x%04X", (negative ? 0x8000u : 0) | (nan ? 0x7FC0u : 0x7F80u));
        else
            text_addf(out, "0x%04X", (negative ? 0x8000u : 0) | (nan ? 0x7E00u : 0x7C00u));
    }
}

static void print_attr(text_buffer *out, const attr *a) {
    switch (a->kind) {
    case ATTR_UNIT: break;
    case ATTR_INT:
    case ATTR_FLOAT:
        print_number(out, a);
        if (a->type && !(a->kind == ATTR_INT && a->type->element == I1)) {
            text_add(out, " : ");
            type_print(out, a->type);
        }
        break;
    case ATTR_STRING: print_string(out, a->string, a->length); break;
    case ATTR_TYPE: type_print(out, a->type); break;
    case ATTR_OTHER: /* a keyword's "<nsw>" needs a name before it */
        if (a->string[0] == '<') text_addf(out, "#%s", a->name);
        text_append(out, a->string, a->length);
        break;
    case ATTR_DENSE:
        text_add(out, "dense<");
        if (a->count > 1) text_add(out, "[");
        for (int i = 0; i < a->count; i++) {
            if (i) text_add(out, ", ");
            print_number(out, &a->list[i]);
        }
        text_add(out, a->count > 1 ? "]> : " : "> : ");
        type_print(out, a->type);
        break;
    case ATTR_ARRAY:
        text_add(out, a->type ? "array<" : "[");
        if (a->type) type_print(out, a->type);
        for (int i = 0; i < a->count; i++) {
            text_add(out, i ? ", " : a->type ? ": " : "");
            if (a->type)
                print_number(out, &a->list[i]);
            else
                print_attr(out, &a->list[i]);
        }
        text_add(out, a->type ? ">" : "]");
        break;
    }
}

static void print_values(text_buffer *out, value *const *values, int count) {
    for (int i = 0; i < count; i++) text_addf(out, "%s%%%d", i ? ", " : "", values[i]->id);
}

static void print_block(tile *t, text_buffer *out, const block *b, int indent);

static void print_op(tile *t, text_buffer *out, const op *o, int indent) {
    text_addf(out, "%*s", indent, "");
    for (int i = 0; i < o->result_count; i++) text_addf(out, "%s%%%d", i ? ", " : "", o->results[i].id);
    text_addf(out, "%s\"%s\"(", o->result_count ? " = " : "", op_table[o->code].name);
    print_values(out, o->args, o->arg_count);
    text_add(out, ")");
    for (int i = 0; i < o->target_count; i++)
        text_addf(out, "%s^bb%d%s", i ? ", " : "[", o->targets[i]->id, i + 1 == o->target_count ? "]" : "");
    if (o->attrs) {
        text_add(out, " <{");
        for (const attr *a = o->attrs; a; a = a->next) {
            text_addf(out, "%s%s", a == o->attrs ? "" : ", ", a->name);
            if (a->kind != ATTR_UNIT) text_add(out, " = ");
            print_attr(out, a);
        }
        text_add(out, "}>");
    }
    if (o->region_count) {
        text_add(out, " (");
        for (int i = 0; i < o->region_count; i++) {
            text_add(out, i ? ", {\n" : "{\n");
            for (const block *b = o->regions[i].first; b; b = b->next) {
                if (b->arg_count || b->id) {
                    text_addf(out, "%*s^bb%d", indent, "", b->id);
                    for (int k = 0; k < b->arg_count; k++) {
                        text_addf(out, "%s%%%d: ", k ? ", " : "(", b->args[k]->id);
                        type_print(out, b->args[k]->type);
                    }
                    text_add(out, b->arg_count ? "):\n" : ":\n");
                }
                print_block(t, out, b, indent + 2);
            }
            text_addf(out, "%*s}", indent, "");
        }
        text_add(out, ")");
    }
    text_add(out, " : (");
    for (int i = 0; i < o->arg_count; i++) {
        if (i) text_add(out, ", ");
        type_print(out, o->args[i]->type);
    }
    text_add(out, ") -> (");
    for (int i = 0; i < o->result_count; i++) {
        if (i) text_add(out, ", ");
        type_print(out, o->results[i].type);
    }
    text_add(out, ")");
    for (int i = 0; i < o->result_count; i++)
        if (t->note) t->note(t, out, &o->results[i]);
    text_add(out, "\n");
}

static void print_block(tile *t, text_buffer *out, const block *b, int indent) {
    for (const op *o = b->first; o; o = o->next) print_op(t, out, o, indent);
}

void module_print(tile *t, text_buffer *out) {
    text_add(out, "\"builtin.module\"() ({\n");
    print_block(t, out, t->module->regions[0].first, 2);
    text_add(out, "}) : () -> ()\n");
}

const attr *splat_constant(const value *v) {
    const op *o = v->def;
    if (o && o->code == OP_SPLAT) return splat_constant(o->args[0]);
    const attr *a = o && o->code == OP_CONSTANT ? op_attr(o, "value") : NULL;
    return !a ? NULL : a->kind != ATTR_DENSE ? a : a->count == 1 ? &a->list[0] : NULL;
}

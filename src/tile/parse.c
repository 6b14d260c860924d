/* A recursive-descent parser from tokens to IR. Each function quotes the grammar rule that it parses: 'x' is
 * a token, [x] is optional, {x} is repeated any number of times. All value names are in one hash table; a
 * list records which names each region added. */
#include <stdlib.h>
#include <string.h>

#include "tile/parse.h"

/* --- tokens --- */

void next(parser *p) { p->tok = lex(p->t, p->tok.start + p->tok.size); }

bool is(const parser *p, const char *text) {
    return p->tok.size == strlen(text) && !memcmp(p->tok.start, text, p->tok.size) &&
           p->tok.kind != TOKEN_STRING;
}

bool accept(parser *p, const char *text) {
    if (!is(p, text)) return false;
    next(p);
    return true;
}

_Noreturn void unexpected(parser *p, const char *wanted) {
    if (p->tok.kind == TOKEN_END) tile_error(p->t, p->tok.start, "expected %s, but the text ends", wanted);
    tile_error(p->t, p->tok.start, "expected %s, got %.*s", wanted, p->tok.size > 40 ? 40 : (int)p->tok.size,
               p->tok.start);
}

void expect(parser *p, const char *text) {
    if (!is(p, text)) {
        char wanted[64] = "'";
        strncat(strncat(wanted, text, 40), "'", 2);
        unexpected(p, wanted);
    }
    next(p);
}

token take(parser *p, token_kind kind, const char *wanted) {
    token tok = p->tok;
    if (tok.kind != kind) unexpected(p, wanted);
    next(p);
    return tok;
}

const char *take_name(parser *p, const char *wanted) {
    token tok = take(p, TOKEN_NAME, wanted);
    return tile_strndup(p->t, tok.start, tok.size);
}

static void enter(parser *p) {
    if (++p->depth > MAX_DEPTH)
        tile_error(p->t, p->tok.start, "regions nested more than %d deep are not supported", MAX_DEPTH);
}
static void leave(parser *p) { p->depth--; }

/* int := ['-'] INT */
int64_t parse_int(parser *p) {
    const char *at = p->tok.start;
    bool negative = accept(p, "-");
    token tok = take(p, TOKEN_INT, "a number");
    if (tok.size > 20) tile_error(p->t, at, "this integer does not fit in 64 bits");
    uint64_t v = strtoull(tok.start, NULL, 0);
    return (int64_t)(negative ? 0 - v : v);
}

/* Parses a string token; returns its text without quotes and escapes. */
const char *parse_string(parser *p, size_t *length) {
    token tok = take(p, TOKEN_STRING, "a string");
    char *out = tile_alloc(p->t, tok.size);
    size_t n = 0;
    for (const char *c = tok.start + 1; c < tok.start + tok.size - 1; c++) {
        if (*c == '\\') {
            char hex[3] = {c[1], c[2], 0}, *stop;
            long code = strtol(hex, &stop, 16);
            if (stop == hex + 2) { /* \0A */
                out[n++] = (char)code;
                c += 2;
                continue;
            }
            c++;
            out[n++] = (char)(*c == 'n' ? '\n' : *c == 't' ? '\t' : *c);
        } else {
            out[n++] = *c;
        }
    }
    *length = n;
    return out;
}

/* --- names of values --- */

typedef struct binding {
    const char *name;
    size_t size;
    value **values; /* the results of one operation */
    int count;
    struct binding *shadowed, *older; /* next in the bucket; previous definition */
} binding;

static unsigned bucket(const char *name, size_t size) {
    unsigned h = 2166136261u;
    for (size_t i = 0; i < size; i++) h = (h ^ (unsigned char)name[i]) * 16777619u;
    return h & (NAME_BUCKETS - 1);
}

static binding *find(parser *p, token name) {
    for (binding *b = p->names[bucket(name.start, name.size)]; b; b = b->shadowed)
        if (b->size == name.size && !memcmp(b->name, name.start, name.size)) return b;
    return NULL;
}

void define(parser *p, token name, value **values, int count) {
    binding *b = NEW(p->t, binding), **slot = &p->names[bucket(name.start, name.size)];
    if (find(p, name)) tile_error(p->t, name.start, "redefinition of %.*s", (int)name.size, name.start);
    *b = (binding){name.start, name.size, values, count, *slot, p->newest};
    *slot = p->newest = b;
}

static void forget(parser *p, binding *until) { /* at the end of a region, its names go out of scope */
    for (; p->newest != until; p->newest = p->newest->older)
        p->names[bucket(p->newest->name, p->newest->size)] = p->newest->shadowed;
}

/* value := VALUE ['#' INT] */
value *parse_value(parser *p) {
    token name = take(p, TOKEN_VALUE, "a value (%name)");
    binding *b = find(p, name);
    if (!b) tile_error(p->t, name.start, "%.*s is not defined", (int)name.size, name.start);
    long index = 0;
    if (p->tok.kind == TOKEN_HASH && p->tok.start == name.start + name.size) { /* "#1" directly after? */
        index = strtol(p->tok.start + 1, NULL, 10);
        next(p);
    }
    if (index < 0 || index >= b->count)
        tile_error(p->t, name.start, "%.*s has %d results", (int)name.size, name.start, b->count);
    return b->values[index];
}

/* values := [value {',' value}]; returns their count */
int parse_values(parser *p, value **out, int room) {
    int n = 0;
    if (p->tok.kind != TOKEN_VALUE) return 0;
    do {
        if (n == room) tile_error(p->t, p->tok.start, "more than %d operands", room);
        out[n++] = parse_value(p);
    } while (accept(p, ","));
    return n;
}

/* --- types --- */

static element element_named(token tok) {
    for (int e = I1; e < ELEMENTS; e++)
        if (strlen(element_names[e]) == tok.size && !memcmp(element_names[e], tok.start, tok.size)) return e;
    if (tok.size == 5 && !memcmp(tok.start, "index", 5)) return I64;
    return NOTHING;
}

/* dims := {INT 'x'}. Scans characters, since "128x32xf32" does not split into tokens. */
static void parse_dims(parser *p, type *want) {
    const char *c = p->tok.start;
    for (;;) {
        const char *start = c;
        int64_t size = 0;
        while (*c >= '0' && *c <= '9' && size <= MAX_ELEMENTS) size = 10 * size + (*c++ - '0');
        if (c == start) break;
        if (*c != 'x') tile_error(p->t, c, "expected 'x' after a dimension");
        if (want->rank == MAX_RANK) tile_unsupported(p->t, start, "more than %d dimensions", MAX_RANK);
        if (size < 1 || size > MAX_ELEMENTS)
            tile_error(p->t, start, "a dimension must have 1 to %d elements", MAX_ELEMENTS);
        want->shape[want->rank++] = (int32_t)size;
        c++;
    }
    int64_t count = 1;
    for (int i = 0; i < want->rank; i++) {
        count *= want->shape[i];
        if (count > MAX_ELEMENTS)
            tile_error(p->t, p->tok.start, "a tensor has at most %d elements", MAX_ELEMENTS);
    }
    p->tok = lex(p->t, c);
}

/* pointer := '<' type [',' INT] '>' */
static type parse_pointee(parser *p) {
    const char *at = p->tok.start;
    expect(p, "<");
    const type *of = parse_type(p);
    if (of->is_tensor)
        tile_unsupported(p->t, at, "block pointers: run Triton's rewrite-tensor-pointer pass first");
    if (of->is_pointer || of->is_descriptor)
        tile_unsupported(p->t, at, "pointers to pointers are not supported");
    if (accept(p, ",")) parse_int(p);
    expect(p, ">");
    return (type){.element = of->element, .is_pointer = true};
}

/* descriptor := '<' ( 'tensor' '<' dims element '>' | dims element ) [',' attribute] '>' */
static type parse_block(parser *p) {
    type want = {.is_descriptor = true};
    if (!is(p, "<")) unexpected(p, "'<'");
    next(p);
    bool wrapped = accept(p, "tensor");
    if (wrapped) expect(p, "<");
    parse_dims(p, &want);
    token name = take(p, TOKEN_NAME, "an element type");
    want.element = element_named(name);
    if (!want.element) tile_error(p->t, name.start, "unknown element type %.*s", (int)name.size, name.start);
    if (wrapped) expect(p, ">");
    if (accept(p, ",")) parse_attr(p, "encoding");
    expect(p, ">");
    return want;
}

/* type := 'tensor' '<' dims (element | '!tt.ptr' pointer) [',' attribute] '>'
 *       | '!tt.ptr' pointer | '!tt.tensordesc' descriptor | element */
const type *parse_type(parser *p) {
    token tok = p->tok;
    type want = {0};
    enter(p);
    next(p);
    if (tok.size == 6 && !memcmp(tok.start, "tensor", 6)) {
        if (!is(p, "<")) unexpected(p, "'<'");
        type dims = {.is_tensor = true};
        next(p);
        parse_dims(p, &dims);
        const type *of = parse_type(p);
        if (of->is_tensor || of->is_descriptor)
            tile_error(p->t, tok.start, "a tensor's elements must be scalars");
        dims.element = of->element;
        dims.is_pointer = of->is_pointer;
        if (accept(p, ",")) parse_attr(p, "encoding");
        expect(p, ">");
        want = dims;
    } else if (tok.kind == TOKEN_TYPE && tok.size == 7 && !memcmp(tok.start, "!tt.ptr", 7)) {
        want = parse_pointee(p);
    } else if (tok.kind == TOKEN_TYPE && tok.size == 14 && !memcmp(tok.start, "!tt.tensordesc", 14)) {
        want = parse_block(p);
    } else if (tok.kind == TOKEN_NAME && (want.element = element_named(tok)) != NOTHING) {
        ;
    } else {
        p->tok = tok;
        unexpected(p, "a type");
    }
    leave(p);
    return type_make(p->t, want);
}

/* A type whose "!tt.ptr" or "!tt.tensordesc" may be omitted: short := type | pointer | descriptor */
const type *parse_short_type(parser *p, bool is_descriptor) {
    if (!is(p, "<")) return parse_type(p);
    return type_make(p->t, is_descriptor ? parse_block(p) : parse_pointee(p));
}

/* types := '(' [type {',' type}] ')' | type */
int parse_types(parser *p, const type **out, int room) {
    int n = 0;
    if (!accept(p, "(")) {
        out[0] = parse_type(p);
        return 1;
    }
    if (accept(p, ")")) return 0;
    do {
        if (n == room) tile_error(p->t, p->tok.start, "more than %d types", room);
        out[n++] = parse_type(p);
        if (is(p, "{")) skip_balanced(p); /* attributes of an argument or a result */
    } while (accept(p, ","));
    expect(p, ")");
    return n;
}

/* --- attributes --- */

/* Skips everything up to the bracket that closes the current one. */
void skip_balanced(parser *p) {
    int depth = 0;
    do {
        if (p->tok.kind == TOKEN_END) unexpected(p, "a closing bracket");
        if (is(p, "(") || is(p, "[") || is(p, "{") || is(p, "<")) depth++;
        if (is(p, ")") || is(p, "]") || is(p, "}") || is(p, ">")) depth--;
        next(p);
    } while (depth > 0);
}

/* number := ['-'] INT | ['-'] FLOAT | 'true' | 'false'. A hexadecimal number is the bit pattern of a float if
 * the type after it is a float type. */
static attr *parse_number(parser *p) {
    attr *a = NEW(p->t, attr);
    a->string = p->tok.start;
    if (is(p, "true") || is(p, "false")) {
        a->kind = ATTR_INT;
        a->integer = is(p, "true");
        a->type = type_scalar(p->t, I1);
        next(p);
        return a;
    }
    token tok = p->tok;
    bool negative = accept(p, "-");
    if (p->tok.kind == TOKEN_FLOAT) {
        a->kind = ATTR_FLOAT;
        a->real = strtod(p->tok.start, NULL) * (negative ? -1 : 1);
        next(p);
    } else {
        p->tok = tok;
        a->kind = ATTR_INT;
        a->integer = parse_int(p);
    }
    return a;
}

static double bits_to_double(uint64_t bits, element e) {
    int exponent_bits, mantissa_bits, bias;
    switch (e) {
    case F64: {
        double d;
        memcpy(&d, &bits, 8);
        return d;
    }
    case F32: {
        float f;
        uint32_t low = (uint32_t)bits;
        memcpy(&f, &low, 4);
        return f;
    }
    case BF16: return bits_to_double(bits << 16, F32);
    case F16: exponent_bits = 5, mantissa_bits = 10, bias = 15; break;
    case F8E5M2: exponent_bits = 5, mantissa_bits = 2, bias = 15; break;
    default: exponent_bits = 4, mantissa_bits = 3, bias = 7; break;
    }
    uint64_t top = (1u << exponent_bits) - 1, mantissa = bits & ((1u << mantissa_bits) - 1);
    uint64_t exponent = bits >> mantissa_bits & top;
    double sign = bits >> (exponent_bits + mantissa_bits) & 1 ? -1 : 1, unit = (double)(1u << mantissa_bits);
    if (exponent == top && exponent_bits == 5)
        return mantissa ? strtod("nan", NULL) : sign * strtod("inf", NULL);
    if (exponent == top && mantissa == 7) return strtod("nan", NULL); /* f8E4M3FN has no infinity */
    double m = exponent ? 1 + (double)mantissa / unit : (double)mantissa / unit;
    for (int e2 = (int)(exponent ? exponent : 1) - bias; e2; e2 += e2 > 0 ? -1 : 1)
        m = e2 > 0 ? m * 2 : m / 2;
    return sign * m;
}

/* Applies the type that follows a number. */
static void type_number(parser *p, attr *a, const type *ty) {
    if (is_float(ty) && a->kind == ATTR_INT) {
        if (a->string[0] != '0' || a->string[1] != 'x')
            tile_error(p->t, a->string, "an integer constant for a float type");
        a->kind = ATTR_FLOAT;
        a->real = bits_to_double((uint64_t)a->integer, ty->element);
    }
    if (is_int(ty) && a->kind == ATTR_FLOAT)
        tile_error(p->t, a->string, "a float constant for an integer type");
    a->type = type_element(p->t, ty);
}

/* dense := 'dense' '<' (number | '[' [dense-list {',' dense-list}] ']') '>' ':' type
 * dense-list := number | '[' … ']' */
static void parse_dense_list(parser *p, attr *a, int *room) {
    enter(p);
    if (accept(p, "[")) {
        if (!is(p, "]")) do
                parse_dense_list(p, a, room);
            while (accept(p, ","));
        expect(p, "]");
    } else {
        if (a->count == *room) {
            attr *more = NEW_ARRAY(p->t, attr, 2 * *room + 4);
            if (a->count) memcpy(more, a->list, sizeof(attr) * (size_t)a->count);
            a->list = more;
            *room = 2 * *room + 4;
        }
        a->list[a->count++] = *parse_number(p);
    }
    leave(p);
}

static attr *parse_dense(parser *p) {
    attr *a = NEW(p->t, attr);
    const char *at = p->tok.start;
    a->kind = ATTR_DENSE;
    expect(p, "dense");
    expect(p, "<");
    if (p->tok.kind == TOKEN_STRING) tile_unsupported(p->t, at, "constants given as bytes are not supported");
    int room = 0;
    parse_dense_list(p, a, &room);
    expect(p, ">");
    expect(p, ":");
    a->type = parse_type(p);
    if (!a->type->is_tensor) tile_error(p->t, at, "dense<…> needs a tensor type");
    if (a->count != 1 && a->count != a->type->count)
        tile_error(p->t, at, "%d values for a tensor of %lld elements", a->count, (long long)a->type->count);
    for (int i = 0; i < a->count; i++) type_number(p, &a->list[i], a->type);
    return a;
}

/* array := 'array' '<' type [':' number {',' number}] '>' */
static attr *parse_array(parser *p) {
    attr *a = NEW(p->t, attr);
    int room = 0;
    a->kind = ATTR_ARRAY;
    expect(p, "array");
    expect(p, "<");
    a->type = parse_type(p);
    if (accept(p, ":")) do
            parse_dense_list(p, a, &room);
        while (accept(p, ","));
    expect(p, ">");
    for (int i = 0; i < a->count; i++) type_number(p, &a->list[i], a->type);
    return a;
}

/* attribute := number [':' type] | STRING | dense | array | '[' [attribute {',' attribute}] ']' | 'unit'
 *            | type | HASH ['<' … '>'] | SYMBOL | '{' … '}' | 'loc' '(' … ')' */
attr *parse_attr(parser *p, const char *name) {
    attr *a;
    token start = p->tok;
    enter(p);
    if (start.kind == TOKEN_INT || start.kind == TOKEN_FLOAT || is(p, "-") || is(p, "true") ||
        is(p, "false")) {
        a = parse_number(p);
        if (accept(p, ":")) {
            const type *ty = parse_type(p);
            if (ty->is_tensor || ty->is_pointer || ty->is_descriptor)
                tile_error(p->t, a->string, "the type of a number must be a scalar");
            type_number(p, a, ty);
        }
    } else if (is(p, "dense")) {
        a = parse_dense(p);
    } else if (is(p, "array")) {
        a = parse_array(p);
    } else {
        a = NEW(p->t, attr);
        if (start.kind == TOKEN_STRING) {
            a->kind = ATTR_STRING;
            a->string = parse_string(p, &a->length);
            if (accept(p, ":")) parse_type(p);
        } else if (accept(p, "[")) {
            int room = 0;
            a->kind = ATTR_ARRAY;
            if (!is(p, "]")) do {
                    if (a->count == room) {
                        attr *more = NEW_ARRAY(p->t, attr, 2 * room + 4);
                        if (a->count) memcpy(more, a->list, sizeof(attr) * (size_t)a->count);
                        a->list = more;
                        room = 2 * room + 4;
                    }
                    a->list[a->count++] = *parse_attr(p, NULL);
                } while (accept(p, ","));
            expect(p, "]");
        } else if (accept(p, "unit")) {
            a->kind = ATTR_UNIT;
            a->integer = 1;
        } else if (start.kind == TOKEN_TYPE || is(p, "tensor") ||
                   (start.kind == TOKEN_NAME && element_named(start) != NOTHING)) {
            a->kind = ATTR_TYPE;
            a->type = parse_type(p);
        } else { /* kept as text */
            a->kind = ATTR_OTHER;
            if (is(p, "{")) {
                skip_balanced(p);
            } else {
                if (start.kind != TOKEN_HASH && start.kind != TOKEN_SYMBOL && start.kind != TOKEN_NAME)
                    unexpected(p, "an attribute");
                next(p);
                if (is(p, "<") || is(p, "(")) skip_balanced(p);
            }
            a->string = start.start;
            const char *stop = p->tok.start;
            while (stop > start.start && (stop[-1] == ' ' || stop[-1] == '\n')) stop--;
            a->length = (size_t)(stop - start.start);
        }
    }
    leave(p);
    a->name = name;
    return a;
}

/* attr-dict := ['{' [entry {',' entry}] '}']      entry := (NAME | STRING) ['=' attribute] */
void parse_attr_dict(parser *p, op *o) {
    if (!accept(p, "{")) return;
    if (accept(p, "}")) return;
    do {
        const char *name;
        size_t length;
        if (p->tok.kind == TOKEN_STRING)
            name = parse_string(p, &length);
        else
            name = take_name(p, "an attribute's name");
        if (!accept(p, "=")) {
            add_attr(p, o, name);
            continue;
        }
        attr *a = parse_attr(p, name), **last = &o->attrs;
        while (*last) last = &(*last)->next;
        *last = a;
    } while (accept(p, ","));
    expect(p, "}");
}

attr *add_attr(parser *p, op *o, const char *name) {
    attr *a = op_set_attr(p->t, o, name);
    a->kind = ATTR_UNIT;
    a->integer = 1;
    return a;
}

void add_int(parser *p, op *o, const char *name, int64_t v, element e) {
    attr *a = add_attr(p, o, name);
    a->kind = ATTR_INT;
    a->integer = v;
    a->type = type_scalar(p->t, e);
}

/* keywords := {NAME ['=' NAME] ['<' … '>']}: "fastmath<contract>", "evictionPolicy = evict_first" */
void parse_keywords(parser *p, op *o, const char *stop) {
    while (p->tok.kind == TOKEN_NAME && !is(p, stop)) {
        const char *name = take_name(p, "a keyword");
        attr *a = add_attr(p, o, name);
        const char *start = p->tok.start;
        if (accept(p, "=")) {
            start = p->tok.start;
            next(p);
        } else if (is(p, "<")) {
            skip_balanced(p);
        } else {
            continue;
        }
        a->kind = ATTR_OTHER;
        a->string = start;
        a->length = (size_t)(p->tok.start - start);
        while (a->length && a->string[a->length - 1] == ' ') a->length--;
    }
}

/* --- locations --- */

/* location := ['loc' '(' … ')']; the text is kept for comments in the output */
void parse_location(parser *p, op *o) {
    if (!is(p, "loc")) return;
    token start = p->tok;
    next(p);
    if (!is(p, "(")) unexpected(p, "'('");
    const char *inside = p->tok.start + 1;
    skip_balanced(p);
    if (o) {
        const char *stop = p->tok.start;
        while (stop > inside && *stop != ')') stop--;
        o->loc = tile_strndup(p->t, inside, (size_t)(stop - inside));
    }
    (void)start;
}

/* --- regions --- */

static block *find_block(parser *p, region *r, token label) {
    for (label_list *l = p->labels; l; l = l->next)
        if (l->block->owner == r && l->size == label.size && !memcmp(l->name, label.start, label.size))
            return l->block;
    if (r->block_count == MAX_BLOCKS)
        tile_unsupported(p->t, label.start, "more than %d blocks in a region", MAX_BLOCKS);
    block *b = block_new(p->t, r);
    label_list *l = NEW(p->t, label_list);
    *l = (label_list){label.start, label.size, b, p->labels};
    p->labels = l;
    return b;
}

/* target := BLOCK ['(' values ':' type {',' type} ')'] */
void parse_target(parser *p, op *o, region *r, value **args, int *count, int room) {
    token label = take(p, TOKEN_BLOCK, "a block (^name)");
    int index = o->target_count++, n = 0;
    o->targets[index] = find_block(p, r, label);
    if (accept(p, "(")) {
        n = parse_values(p, args + *count, room - *count);
        expect(p, ":");
        for (int i = 0; i < n; i++) {
            if (i) expect(p, ",");
            check_type(p, args[*count + i], parse_type(p), label.start);
        }
        expect(p, ")");
    }
    o->target_args[index] = n;
    *count += n;
}

/* arguments := '(' [VALUE ':' type [attr-dict] [location] {',' …}] ')' */
static void parse_block_args(parser *p, block *b) {
    if (!accept(p, "(")) return;
    if (accept(p, ")")) return;
    do {
        token name = take(p, TOKEN_VALUE, "an argument (%name)");
        expect(p, ":");
        value *v = block_add_arg(p->t, b, parse_type(p));
        if (is(p, "{")) skip_balanced(p);
        parse_location(p, NULL);
        value **one = NEW(p->t, value *);
        *one = v;
        define(p, name, one, 1);
    } while (accept(p, ","));
    expect(p, ")");
}

/* region := '{' {op} {BLOCK [arguments] ':' {op}} '}'
 * `given` are the names of first-block arguments that the operation itself introduced. */
void parse_region(parser *p, region *r, const token *given, const type *const *types, int count) {
    binding *mark = p->newest;
    region *outer = p->region;
    const char *at = p->tok.start;
    enter(p);
    expect(p, "{");
    p->region = r;
    block *b = NULL;
    if (p->tok.kind != TOKEN_BLOCK || count) {
        b = block_new(p->t, r);
        b->at = at;
        for (int i = 0; i < count; i++) {
            value **one = NEW(p->t, value *);
            *one = block_add_arg(p->t, b, types[i]);
            define(p, given[i], one, 1);
        }
    }
    while (!is(p, "}")) {
        if (p->tok.kind == TOKEN_BLOCK) {
            token label = p->tok;
            next(p);
            b = find_block(p, r, label);
            if (b->at)
                tile_error(p->t, label.start, "redefinition of block %.*s", (int)label.size, label.start);
            b->at = label.start;
            parse_block_args(p, b);
            expect(p, ":");
        } else {
            if (p->tok.kind == TOKEN_END) unexpected(p, "'}'");
            block_append(b, parse_op(p));
        }
    }
    next(p);
    for (block *c = r->first; c; c = c->next)
        if (!c->at) tile_error(p->t, at, "a branch target is missing in this region");
    /* blocks are numbered and kept in the order in which they stand: a label seen first in a branch moved up
     */
    if (r->block_count > 1) {
        block *list = NULL;
        while (r->first) { /* insertion sort by position */
            block *c = r->first, **slot = &list;
            r->first = c->next;
            while (*slot && (*slot)->at < c->at) slot = &(*slot)->next;
            c->next = *slot;
            *slot = c;
        }
        r->first = list;
        int id = 0;
        for (block *c = list; c; c = c->next) c->id = id++;
    }
    forget(p, mark);
    p->region = outer;
    leave(p);
}

/* --- the module --- */

/* alias := HASH '=' attribute. Aliases only serve locations, so they are skipped. */
static void parse_alias(parser *p) {
    next(p);
    expect(p, "=");
    if (is(p, "loc"))
        parse_location(p, NULL);
    else
        parse_attr(p, NULL);
}

/* module := {alias} ['module' [SYMBOL] ['attributes' attr-dict] '{' {op} '}' [location] | op] {alias}
 *         | '"builtin.module"' '(' ')' … */
void tile_parse(tile *t) {
    parser *p = NEW(t, parser);
    p->t = t;
    for (int code = 0; code < OP_COUNT; code++) {
        unsigned h = bucket(op_table[code].name, strlen(op_table[code].name));
        p->next_op[code] = p->ops[h];
        p->ops[h] = (uint16_t)(code + 1);
    }
    p->tok = lex(t, t->text);
    t->module = op_new(t, OP_FUNC, t->text, 0, 0, 1);
    while (p->tok.kind == TOKEN_HASH) parse_alias(p);
    if (is(p, "module")) {
        next(p);
        if (p->tok.kind == TOKEN_SYMBOL) next(p);
        if (accept(p, "attributes")) parse_attr_dict(p, t->module);
        parse_region(p, &t->module->regions[0], NULL, NULL, 0);
    } else if (p->tok.kind == TOKEN_STRING && p->tok.size == 16 &&
               !memcmp(p->tok.start, "\"builtin.module\"", 16)) {
        next(p); /* generic form */
        expect(p, "(");
        expect(p, ")");
        if (is(p, "<")) skip_balanced(p);
        expect(p, "(");
        parse_region(p, &t->module->regions[0], NULL, NULL, 0);
        expect(p, ")");
        parse_attr_dict(p, t->module);
        expect(p, ":");
        expect(p, "(");
        expect(p, ")");
        expect(p, "->");
        expect(p, "(");
        expect(p, ")");
    } else {
        unexpected(p, "'module'");
    }
    parse_location(p, NULL);
    while (p->tok.kind == TOKEN_HASH) parse_alias(p);
    if (p->tok.kind != TOKEN_END) unexpected(p, "the end of the text");
}

op_code op_named(parser *p, const char *name, size_t size) {
    for (unsigned i = p->ops[bucket(name, size)]; i; i = p->next_op[i - 1])
        if (strlen(op_table[i - 1].name) == size && !memcmp(op_table[i - 1].name, name, size))
            return (op_code)(i - 1);
    return OP_COUNT;
}

/* Parses one operation, with one function for each syntactic form. Attributes have MLIR's names, so the
 * custom and the generic form of an operation produce the same IR. */
#include <string.h>

#include "tile/parse.h"

/* An operation under construction. */
typedef struct draft {
    op *o;
    const char *at;
    value *args[MAX_OPERANDS];
    int count;
    const type *results[MAX_OPERANDS];
    int result_count;
} draft;

void check_type(parser *p, const value *v, const type *ty, const char *at) {
    if (v->type == ty) return;
    text_buffer have = {0}, said = {0};
    type_print(&have, v->type);
    type_print(&said, ty);
    char *message = tile_format(p->t, "the value has type %s, but the text says %s",
                                have.data ? have.data : "?", said.data ? said.data : "?");
    text_free(&have);
    text_free(&said);
    tile_error(p->t, at, "%s", message);
}

static void add_values(parser *p, draft *d) {
    d->count += parse_values(p, d->args + d->count, MAX_OPERANDS - d->count);
}

static void add_value(parser *p, draft *d) {
    if (d->count == MAX_OPERANDS) tile_error(p->t, p->tok.start, "more than %d operands", MAX_OPERANDS);
    d->args[d->count++] = parse_value(p);
}

static void check_args(parser *p, draft *d, const type *const *types, int count, const char *at) {
    if (count != d->count) tile_error(p->t, at, "%d types for %d operands", count, d->count);
    for (int i = 0; i < count; i++) check_type(p, d->args[i], types[i], at);
}

/* functional := types '->' types: operand types, result types */
static void parse_functional(parser *p, draft *d) {
    const type *types[MAX_OPERANDS];
    const char *at = p->tok.start;
    if (!is(p, "(")) unexpected(p, "'('");
    check_args(p, d, types, parse_types(p, types, MAX_OPERANDS), at);
    expect(p, "->");
    d->result_count = parse_types(p, d->results, MAX_OPERANDS);
}

/* values '{' attr-dict '}' ':' type: all operands and the result have this type
 *     arith.addi %0, %1 overflow<nsw> : tensor<16xi32> */
static void parse_same(parser *p, draft *d, int results) {
    add_values(p, d);
    parse_keywords(p, d->o, "");
    parse_attr_dict(p, d->o);
    expect(p, ":");
    const char *at = p->tok.start;
    const type *ty = parse_type(p);
    for (int i = 0; i < d->count; i++) check_type(p, d->args[i], ty, at);
    d->results[0] = ty;
    d->result_count = results;
}

/* tt.clampf %x, %low, %high, propagateNan = none : tensor<16xf32> */
static void parse_clamp(parser *p, draft *d) {
    for (int i = 0; i < 3; i++) {
        add_value(p, d);
        expect(p, ",");
    }
    parse_same(p, d, 1);
}

static int find_name(const char *name, const char *const *names, int count) {
    for (int i = 0; i < count; i++)
        if (names[i] && !strcmp(names[i], name)) return i;
    return -1;
}

/* arith.cmpi slt, %0, %1 : tensor<16xi32> */
static void parse_compare(parser *p, draft *d) {
    const char *at = p->tok.start, *name = take_name(p, "a predicate");
    bool ints = d->o->code == OP_CMPI;
    int order = find_name(name, ints ? cmpi_names : cmpf_names, ints ? CMPI_COUNT : CMPF_COUNT);
    if (order < 0) tile_error(p->t, at, "unknown predicate %s", name);
    expect(p, ",");
    parse_same(p, d, 1);
    add_int(p, d->o, "predicate", order, I64);
    type bits = *d->results[0];
    bits.element = I1;
    bits.is_pointer = false;
    d->results[0] = type_make(p->t, bits);
}

/* arith.select %c, %a, %b : [type-of-c ','] type */
static void parse_select(parser *p, draft *d) {
    add_values(p, d);
    if (d->count != 3) tile_error(p->t, d->at, "arith.select has 3 operands, not %d", d->count);
    parse_keywords(p, d->o, "");
    parse_attr_dict(p, d->o);
    expect(p, ":");
    const char *at = p->tok.start;
    const type *ty = parse_type(p);
    if (accept(p, ",")) {
        check_type(p, d->args[0], ty, at);
        at = p->tok.start;
        ty = parse_type(p);
    }
    check_type(p, d->args[1], ty, at);
    check_type(p, d->args[2], ty, at);
    d->results[d->result_count++] = ty;
}

/* arith.extsi %0 : tensor<16xi32> to tensor<16xi64> */
static void parse_cast(parser *p, draft *d) {
    add_value(p, d);
    parse_keywords(p, d->o, "to");
    parse_attr_dict(p, d->o);
    expect(p, ":");
    const char *at = p->tok.start;
    check_type(p, d->args[0], parse_type(p), at);
    expect(p, "to");
    d->results[d->result_count++] = parse_type(p);
}

/* tt.splat %0 : i32 -> tensor<16xi32>; with two operands the type is that of the first:
 * tt.join %0, %1 : tensor<16xf32> -> tensor<16x2xf32>; a single result type applies to all results */
static void parse_arrow(parser *p, draft *d, int results) {
    add_values(p, d);
    parse_keywords(p, d->o, "");
    parse_attr_dict(p, d->o);
    expect(p, ":");
    const char *at = p->tok.start;
    if (d->count) check_type(p, d->args[0], parse_type(p), at);
    while (accept(p, ",")) parse_type(p);
    expect(p, "->");
    const type *ty = parse_type(p);
    for (int i = 0; i < results; i++) d->results[d->result_count++] = ty;
}

/* tt.unsplat %0 : tensor<1xf32> */
static void parse_arrow_in(parser *p, draft *d) {
    parse_same(p, d, 1);
    d->results[0] = type_element(p->t, d->results[0]);
}

/* tt.fp_to_fp %0 [, rounding = rtne] : type -> type */
static void parse_fp_to_fp(parser *p, draft *d) {
    add_value(p, d);
    parse_attr_dict(p, d->o);
    if (accept(p, ",")) parse_keywords(p, d->o, "");
    parse_arrow(p, d, 1);
}

/* tt.extern_elementwise %0, %1 {symbol = "…"} : (types) -> type */
static void parse_with_functional(parser *p, draft *d) {
    add_values(p, d);
    parse_attr_dict(p, d->o);
    expect(p, ":");
    parse_functional(p, d);
}

/* Parses a string and stores it as attribute `name`. */
static void parse_string_attr(parser *p, op *o, const char *name) {
    attr *a = add_attr(p, o, name);
    a->kind = ATTR_STRING;
    a->string = parse_string(p, &a->length);
}

/* tt.elementwise_inline_asm "…" {attributes} %0, %1 : type, type -> type, type */
static void parse_inline_asm(parser *p, draft *d) {
    parse_string_attr(p, d->o, "asm_string");
    parse_attr_dict(p, d->o);
    add_values(p, d);
    if (accept(p, ":")) {
        int n = 0;
        if (!is(p, "->")) do {
                const char *at = p->tok.start;
                if (n == d->count) tile_error(p->t, at, "more types than operands");
                check_type(p, d->args[n++], parse_type(p), at);
            } while (accept(p, ","));
        expect(p, "->");
        do {
            if (d->result_count == MAX_OPERANDS) tile_error(p->t, p->tok.start, "too many results");
            d->results[d->result_count++] = parse_type(p);
        } while (accept(p, ","));
    }
}

/* arith.constant [attr-dict] attribute; the attribute contains the type */
static void parse_constant(parser *p, draft *d) {
    parse_attr_dict(p, d->o);
    attr *a = parse_attr(p, "value"), **last = &d->o->attrs;
    if (a->kind != ATTR_INT && a->kind != ATTR_FLOAT && a->kind != ATTR_DENSE)
        tile_error(p->t, d->at, "a constant must be a number or dense<…>");
    if (!a->type) a->type = type_scalar(p->t, a->kind == ATTR_INT ? I64 : F64);
    while (*last) last = &(*last)->next;
    *last = a;
    d->results[d->result_count++] = a->type;
}

/* ub.poison : type */
static void parse_poison(parser *p, draft *d) {
    parse_attr_dict(p, d->o);
    expect(p, ":");
    d->results[d->result_count++] = parse_type(p);
}

/* tt.make_range {end = 16 : i32, start = 0 : i32} : type */
static void parse_range(parser *p, draft *d) { parse_poison(p, d); }

/* tt.gather %0[%1] {axis = 1 : i32} : (types) -> type */
static void parse_gather(parser *p, draft *d) {
    add_value(p, d);
    expect(p, "[");
    add_value(p, d);
    expect(p, "]");
    parse_attr_dict(p, d->o);
    expect(p, ":");
    parse_functional(p, d);
}

/* tt.addptr %0, %1 : type, type — the result has the first operand's type */
static void parse_list(parser *p, draft *d) {
    add_values(p, d);
    parse_attr_dict(p, d->o);
    expect(p, ":");
    for (int i = 0; i < d->count; i++) {
        const char *at = p->tok.start;
        if (i) expect(p, ",");
        check_type(p, d->args[i], parse_type(p), at);
    }
    if (d->count) d->results[d->result_count++] = d->args[0]->type;
}

/* tt.load %p [, %mask [, %other]] {keyword '=' word} attr-dict : type-of-p
 * tt.store %p, %v [, %mask] {keyword '=' word} attr-dict : type-of-p */
static void parse_memory(parser *p, draft *d) {
    add_values(p, d);
    parse_keywords(p, d->o, "");
    parse_attr_dict(p, d->o);
    expect(p, ":");
    const char *at = p->tok.start;
    const type *ty = parse_type(p);
    if (!d->count) tile_error(p->t, at, "no pointer");
    check_type(p, d->args[0], ty, at);
    if (d->o->code != OP_LOAD) return;
    type of = *ty;
    of.is_pointer = false;
    d->results[d->result_count++] = type_make(p->t, of);
}

/* tt.atomic_rmw fadd, acq_rel, gpu, %p, %v [, %mask] attr-dict : (types) -> type
 * tt.atomic_cas acq_rel, gpu, %p, %expected, %v attr-dict : (types) -> type */
static void parse_atomic(parser *p, draft *d) {
    if (d->o->code == OP_ATOMIC_RMW) {
        const char *at = p->tok.start, *name = take_name(p, "an atomic operation");
        int order = find_name(name, rmw_names, RMW_COUNT);
        if (order < 0) tile_error(p->t, at, "unknown atomic operation %s", name);
        add_int(p, d->o, "atomic_rmw_op", order, I32);
        expect(p, ",");
    }
    static const char *const sems[] = {"", "relaxed", "acquire", "release", "acq_rel"};
    static const char *const scopes[] = {"", "gpu", "cta", "sys"};
    const char *at = p->tok.start;
    int sem = find_name(take_name(p, "a memory order"), sems, 5);
    expect(p, ",");
    int scope = find_name(take_name(p, "a scope"), scopes, 4);
    if (sem < 1 || scope < 1) tile_error(p->t, at, "expected a memory order and a scope");
    add_int(p, d->o, "sem", sem, I32);
    add_int(p, d->o, "scope", scope, I32);
    expect(p, ",");
    parse_with_functional(p, d);
}

/* tt.dot %a, %b, %c [, inputPrecision = tf32] attr-dict : type '*' type '->' type */
static void parse_dot(parser *p, draft *d) {
    for (int i = 0; i < 3; i++) {
        if (i) expect(p, ",");
        add_value(p, d);
    }
    if (accept(p, ",")) parse_keywords(p, d->o, "");
    parse_attr_dict(p, d->o);
    expect(p, ":");
    for (int i = 0; i < 2; i++) {
        const char *at = p->tok.start;
        if (i) expect(p, "*");
        check_type(p, d->args[i], parse_type(p), at);
    }
    expect(p, "->");
    d->results[d->result_count++] = parse_type(p);
}

/* tt.dot_scaled %a [scale %sa], %b [scale %sb], %c lhs '=' NAME rhs '=' NAME attr-dict
 *     ':' type [',' type] '*' type [',' type] '->' type */
static void parse_dot_scaled(parser *p, draft *d) {
    bool scale[2] = {false, false};
    value *scales[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        add_value(p, d);
        if (accept(p, "scale")) {
            scale[i] = true;
            scales[i] = parse_value(p);
        }
        expect(p, ",");
    }
    add_value(p, d);
    parse_keywords(p, d->o, "");
    parse_attr_dict(p, d->o);
    expect(p, ":");
    for (int i = 0; i < 2; i++) {
        const char *at = p->tok.start;
        if (i) expect(p, "*");
        check_type(p, d->args[i], parse_type(p), at);
        if (!scale[i]) continue;
        expect(p, ",");
        check_type(p, scales[i], parse_type(p), at);
    }
    for (int i = 0; i < 2; i++) { /* scales come last; two attributes say which are present */
        if (scale[i]) d->args[d->count++] = scales[i];
        add_int(p, d->o, i ? "has_rhs_scale" : "has_lhs_scale", scale[i], I32);
    }
    expect(p, "->");
    d->results[d->result_count++] = parse_type(p);
}

/* tt.return [values ':' type {',' type}] attr-dict */
static void parse_terminator(parser *p, draft *d) {
    const char *at = p->tok.start;
    add_values(p, d);
    parse_attr_dict(p, d->o);
    if (!d->count) return;
    expect(p, ":");
    for (int i = 0; i < d->count; i++) {
        if (i) expect(p, ",");
        check_type(p, d->args[i], parse_type(p), at);
    }
}

/* tt.get_program_id x : i32 */
static void parse_axis(parser *p, draft *d) {
    static const char *const axes[] = {"x", "y", "z"};
    const char *at = p->tok.start;
    int axis = find_name(take_name(p, "x, y or z"), axes, 3);
    if (axis < 0) tile_error(p->t, at, "expected x, y or z");
    add_int(p, d->o, "axis", axis, I32);
    parse_poison(p, d);
}

/* tt.assert %c, "message" attr-dict : type */
static void parse_assert(parser *p, draft *d) {
    add_value(p, d);
    expect(p, ",");
    parse_string_attr(p, d->o, "message");
    parse_attr_dict(p, d->o);
    expect(p, ":");
    check_type(p, d->args[0], parse_type(p), d->at);
}

/* tt.print "prefix" attr-dict [':' values ':' types] */
static void parse_print(parser *p, draft *d) {
    parse_string_attr(p, d->o, "prefix");
    parse_attr_dict(p, d->o);
    if (!accept(p, ":")) return;
    const char *at = p->tok.start;
    add_values(p, d);
    expect(p, ":");
    for (int i = 0; i < d->count; i++) {
        if (i) expect(p, ",");
        check_type(p, d->args[i], parse_type(p), at);
    }
}

/* ttg.barrier {NAME ['|']} attr-dict */
static void parse_barrier(parser *p, draft *d) {
    while (p->tok.kind == TOKEN_NAME && op_named(p, p->tok.start, p->tok.size) == OP_COUNT && !is(p, "loc")) {
        next(p);
        accept(p, "|");
    }
    parse_attr_dict(p, d->o);
}

/* tt.make_tensor_descriptor %base, '[' values ']', '[' values ']' attr-dict ':' short, short */
static void parse_make_descriptor(parser *p, draft *d) {
    add_value(p, d);
    for (int i = 0; i < 2; i++) {
        expect(p, ",");
        expect(p, "[");
        add_values(p, d);
        expect(p, "]");
    }
    parse_keywords(p, d->o, "");
    parse_attr_dict(p, d->o);
    expect(p, ":");
    const char *at = p->tok.start;
    check_type(p, d->args[0], parse_short_type(p, false), at);
    expect(p, ",");
    d->results[d->result_count++] = parse_short_type(p, true);
}

/* tt.descriptor_load %d '[' values ']' {keyword} attr-dict : descriptor '->' type
 * tt.descriptor_store %d '[' values ']', %v attr-dict : descriptor, type
 * tt.descriptor_reduce NAME, %d '[' values ']', %v attr-dict : descriptor, type
 * tt.descriptor_gather %d '[' %x, %y ']' attr-dict : (types) -> type
 * tt.descriptor_scatter %d '[' %x, %y ']', %v attr-dict : type, type, type, type
 * The value comes last. */
static void parse_descriptor(parser *p, draft *d) {
    op_code code = d->o->code;
    if (code == OP_DESCRIPTOR_REDUCE) {
        static const char *const kinds[] = {"", "add", "min", "max", "inc", "dec", "and", "or", "xor"};
        const char *at = p->tok.start;
        int kind = find_name(take_name(p, "a reduction"), kinds, 9);
        if (kind < 1) tile_error(p->t, at, "unknown reduction");
        add_int(p, d->o, "kind", kind, I32);
        expect(p, ",");
    }
    add_value(p, d);
    expect(p, "[");
    add_values(p, d);
    expect(p, "]");
    bool loads = code == OP_DESCRIPTOR_LOAD || code == OP_DESCRIPTOR_GATHER;
    if (!loads) {
        expect(p, ",");
        add_value(p, d);
    }
    parse_keywords(p, d->o, "");
    parse_attr_dict(p, d->o);
    expect(p, ":");
    const char *at = p->tok.start;
    if (code == OP_DESCRIPTOR_GATHER) {
        parse_functional(p, d);
        return;
    }
    check_type(p, d->args[0], parse_short_type(p, true), at);
    if (loads) {
        expect(p, "->");
        d->results[d->result_count++] = parse_type(p);
        return;
    }
    while (accept(p, ",")) {
        at = p->tok.start;
        const type *ty = parse_type(p);
        if (!is(p, ",")) check_type(p, d->args[d->count - 1], ty, at);
    }
}

/* tt.func [public|private|nested] SYMBOL '(' {VALUE ':' type [attr-dict] [loc]} ')' ['->' types]
 *     ['attributes' attr-dict] [region] */
static void parse_func(parser *p, draft *d) {
    while (is(p, "public") || is(p, "private") || is(p, "nested")) {
        if (is(p, "public")) add_attr(p, d->o, "public");
        next(p);
    }
    token symbol = take(p, TOKEN_SYMBOL, "the function's name (@name)");
    attr *a = add_attr(p, d->o, "sym_name");
    a->kind = ATTR_STRING;
    a->string = tile_strndup(p->t, symbol.start + 1, symbol.size - 1);
    a->length = symbol.size - 1;
    token names[MAX_PARAMETERS];
    const type *types[MAX_PARAMETERS];
    int count = 0;
    expect(p, "(");
    if (!is(p, ")")) do {
            if (count == MAX_PARAMETERS)
                tile_unsupported(p->t, p->tok.start, "more than %d parameters", MAX_PARAMETERS);
            names[count] = take(p, TOKEN_VALUE, "a parameter (%name)");
            expect(p, ":");
            types[count] = parse_type(p);
            if (is(p, "{")) { /* argument attributes are stored as "argN.name" */
                op *holder = op_new(p->t, OP_FUNC, d->at, 0, 0, 0);
                parse_attr_dict(p, holder);
                const attr *known = op_attr(holder, "tt.divisibility");
                if (known && known->kind == ATTR_INT)
                    add_int(p, d->o, tile_format(p->t, "arg%d.divisibility", count), known->integer, I32);
            }
            parse_location(p, NULL);
            count++;
        } while (accept(p, ","));
    expect(p, ")");
    if (accept(p, "->")) {
        int n = parse_types(p, d->results, MAX_OPERANDS);
        a = add_attr(p, d->o, "results");
        a->kind = ATTR_ARRAY;
        a->count = n;
        a->list = NEW_ARRAY(p->t, attr, n);
        for (int i = 0; i < n; i++) {
            a->list[i].kind = ATTR_TYPE;
            a->list[i].type = d->results[i];
        }
    }
    d->result_count = 0;
    if (accept(p, "attributes")) parse_attr_dict(p, d->o);
    if (!is(p, "{")) tile_error(p->t, d->at, "a function has no body");
    parse_region(p, &d->o->regions[0], names, types, count);
}

/* tt.call SYMBOL '(' values ')' attr-dict ':' functional */
static void parse_call(parser *p, draft *d) {
    token symbol = take(p, TOKEN_SYMBOL, "a function (@name)");
    attr *a = add_attr(p, d->o, "callee");
    a->kind = ATTR_STRING;
    a->string = tile_strndup(p->t, symbol.start + 1, symbol.size - 1);
    a->length = symbol.size - 1;
    expect(p, "(");
    add_values(p, d);
    expect(p, ")");
    parse_attr_dict(p, d->o);
    expect(p, ":");
    parse_functional(p, d);
}

/* iteration := VALUE '=' value {',' …} ')' */
static int parse_iteration(parser *p, draft *d, token *names, int count, int room) {
    if (accept(p, ")")) return count;
    do {
        if (count == room) tile_error(p->t, p->tok.start, "too many loop-carried values");
        names[count++] = take(p, TOKEN_VALUE, "a loop-carried value (%name)");
        expect(p, "=");
        add_value(p, d);
    } while (accept(p, ","));
    expect(p, ")");
    return count;
}

/* scf.for [unsigned] VALUE '=' value 'to' value 'step' value ['iter_args' '(' iteration '->' types]
 *     [':' type] region attr-dict */
static void parse_for(parser *p, draft *d) {
    token names[MAX_OPERANDS];
    const type *types[MAX_OPERANDS];
    if (accept(p, "unsigned")) add_attr(p, d->o, "unsignedCmp");
    names[0] = take(p, TOKEN_VALUE, "the loop's index (%name)");
    expect(p, "=");
    add_value(p, d);
    expect(p, "to");
    add_value(p, d);
    expect(p, "step");
    add_value(p, d);
    types[0] = d->args[0]->type;
    int count = 1;
    if (accept(p, "iter_args")) {
        expect(p, "(");
        count = parse_iteration(p, d, names, 1, MAX_OPERANDS);
        expect(p, "->");
        const char *at = p->tok.start;
        d->result_count = parse_types(p, d->results, MAX_OPERANDS);
        if (d->result_count != count - 1)
            tile_error(p->t, at, "%d types for %d values", d->result_count, count - 1);
        for (int i = 0; i < d->result_count; i++) {
            types[i + 1] = d->results[i];
            check_type(p, d->args[i + 3], types[i + 1], at);
        }
    }
    if (accept(p, ":")) types[0] = parse_type(p);
    for (int i = 0; i < 3; i++) check_type(p, d->args[i], types[0], d->at);
    parse_region(p, &d->o->regions[0], names, types, count);
    parse_attr_dict(p, d->o);
}

/* scf.if value ['->' types] region ['else' region] attr-dict */
static void parse_if(parser *p, draft *d) {
    add_value(p, d);
    if (accept(p, "->")) d->result_count = parse_types(p, d->results, MAX_OPERANDS);
    parse_region(p, &d->o->regions[0], NULL, NULL, 0);
    if (accept(p, "else")) parse_region(p, &d->o->regions[1], NULL, NULL, 0);
    parse_attr_dict(p, d->o);
}

/* scf.while ['(' iteration] ':' functional region 'do' region ['attributes' attr-dict] */
static void parse_while(parser *p, draft *d) {
    token names[MAX_OPERANDS];
    int count = 0;
    if (accept(p, "(")) count = parse_iteration(p, d, names, 0, MAX_OPERANDS);
    expect(p, ":");
    parse_functional(p, d);
    const type *types[MAX_OPERANDS];
    for (int i = 0; i < count; i++) types[i] = d->args[i]->type;
    parse_region(p, &d->o->regions[0], names, types, count);
    expect(p, "do");
    parse_region(p, &d->o->regions[1], NULL, NULL, 0);
    if (accept(p, "attributes")) parse_attr_dict(p, d->o);
}

/* scf.condition '(' value ')' [values ':' types] */
static void parse_condition(parser *p, draft *d) {
    expect(p, "(");
    add_value(p, d);
    expect(p, ")");
    const char *at = p->tok.start;
    add_values(p, d);
    parse_attr_dict(p, d->o);
    if (d->count == 1) return;
    expect(p, ":");
    for (int i = 1; i < d->count; i++) {
        if (i > 1) expect(p, ",");
        check_type(p, d->args[i], parse_type(p), at);
    }
}

/* cf.br target          cf.cond_br value ',' target ',' target attr-dict */
static void parse_branch(parser *p, draft *d) {
    d->o->targets = NEW_ARRAY(p->t, block *, 2);
    d->o->target_args = NEW_ARRAY(p->t, int, 2);
    if (d->o->code == OP_COND_BR) {
        add_value(p, d);
        parse_keywords(p, d->o, "");
        expect(p, ",");
        parse_target(p, d->o, p->region, d->args, &d->count, MAX_OPERANDS);
        expect(p, ",");
    }
    parse_target(p, d->o, p->region, d->args, &d->count, MAX_OPERANDS);
    parse_attr_dict(p, d->o);
}

/* generic := STRING '(' values ')' ['[' BLOCK {',' BLOCK} ']'] ['<' attr-dict '>']
 *     ['(' region {',' region} ')'] attr-dict ':' functional */
static void parse_generic(parser *p, draft *d) {
    expect(p, "(");
    add_values(p, d);
    expect(p, ")");
    if (is(p, "[")) {
        next(p);
        d->o->targets = NEW_ARRAY(p->t, block *, MAX_OPERANDS);
        d->o->target_args = NEW_ARRAY(p->t, int, MAX_OPERANDS);
        do {
            if (d->o->target_count == MAX_OPERANDS) tile_error(p->t, p->tok.start, "too many successors");
            int none = 0;
            parse_target(p, d->o, p->region, NULL, &none, 0);
        } while (accept(p, ","));
        expect(p, "]");
    }
    if (accept(p, "<")) {
        parse_attr_dict(p, d->o);
        expect(p, ">");
    }
    if (accept(p, "(")) {
        int n = 0;
        region *regions = NEW_ARRAY(p->t, region, MAX_REGIONS);
        do {
            if (n == MAX_REGIONS) tile_error(p->t, p->tok.start, "more than %d regions", MAX_REGIONS);
            regions[n].owner = d->o;
            parse_region(p, &regions[n++], NULL, NULL, 0);
        } while (accept(p, ","));
        expect(p, ")");
        d->o->regions = regions;
        d->o->region_count = n;
    }
    parse_attr_dict(p, d->o);
    expect(p, ":");
    parse_functional(p, d);
    if (d->o->code == OP_BR && d->o->target_count) d->o->target_args[0] = d->count;
    const attr *sizes = op_attr(d->o, "operandSegmentSizes");
    if (d->o->code == OP_COND_BR && sizes && sizes->count == 3)
        for (int i = 0; i < 2 && i < d->o->target_count; i++)
            d->o->target_args[i] = (int)sizes->list[i + 1].integer;
}

static void parse_form(parser *p, draft *d) {
    switch (op_table[d->o->code].form) {
    case FORM_SAME: parse_same(p, d, 1); break;
    case FORM_SAME0: parse_same(p, d, 0); break;
    case FORM_CLAMP: parse_clamp(p, d); break;
    case FORM_COMPARE: parse_compare(p, d); break;
    case FORM_SELECT: parse_select(p, d); break;
    case FORM_CAST: parse_cast(p, d); break;
    case FORM_ARROW: parse_arrow(p, d, d->o->code == OP_SPLIT ? 2 : 1); break;
    case FORM_ARROW_IN: parse_arrow_in(p, d); break;
    case FORM_FP_TO_FP: parse_fp_to_fp(p, d); break;
    case FORM_FUNCTIONAL: parse_with_functional(p, d); break;
    case FORM_INLINE_ASM: parse_inline_asm(p, d); break;
    case FORM_CONSTANT: parse_constant(p, d); break;
    case FORM_POISON: parse_poison(p, d); break;
    case FORM_RANGE: parse_range(p, d); break;
    case FORM_GATHER: parse_gather(p, d); break;
    case FORM_LIST: parse_list(p, d); break;
    case FORM_MEMORY: parse_memory(p, d); break;
    case FORM_ATOMIC: parse_atomic(p, d); break;
    case FORM_DOT: parse_dot(p, d); break;
    case FORM_DOT_SCALED: parse_dot_scaled(p, d); break;
    case FORM_TERMINATOR: parse_terminator(p, d); break;
    case FORM_AXIS: parse_axis(p, d); break;
    case FORM_ASSERT: parse_assert(p, d); break;
    case FORM_PRINT: parse_print(p, d); break;
    case FORM_BARRIER: parse_barrier(p, d); break;
    case FORM_MAKE_DESCRIPTOR: parse_make_descriptor(p, d); break;
    case FORM_DESCRIPTOR: parse_descriptor(p, d); break;
    case FORM_FUNC: parse_func(p, d); break;
    case FORM_CALL: parse_call(p, d); break;
    case FORM_FOR: parse_for(p, d); break;
    case FORM_IF: parse_if(p, d); break;
    case FORM_WHILE: parse_while(p, d); break;
    case FORM_CONDITION: parse_condition(p, d); break;
    case FORM_BRANCH: parse_branch(p, d); break;
    default: tile_error(p->t, d->at, "%s must be written in quotes", op_table[d->o->code].name);
    }
}

static int region_count(op_code code) {
    switch (code) {
    case OP_FUNC:
    case OP_FOR: return 1;
    case OP_IF:
    case OP_WHILE: return 2;
    default: return 0;
    }
}

/* results := VALUE [':' INT] {',' VALUE [':' INT]} '=' */
typedef struct result_names {
    token names[MAX_OPERANDS];
    int counts[MAX_OPERANDS], groups, total;
} result_names;

static void parse_result_names(parser *p, result_names *r) {
    if (p->tok.kind != TOKEN_VALUE) return;
    do {
        if (r->groups == MAX_OPERANDS) tile_error(p->t, p->tok.start, "more than %d results", MAX_OPERANDS);
        r->names[r->groups] = take(p, TOKEN_VALUE, "a result (%name)");
        int64_t n = 1;
        if (accept(p, ":")) n = parse_int(p);
        if (n < 1 || n > MAX_OPERANDS)
            tile_error(p->t, p->tok.start, "expected 1 to %d results", MAX_OPERANDS);
        r->counts[r->groups++] = (int)n;
        r->total += (int)n;
    } while (accept(p, ","));
    expect(p, "=");
}

/* op := [results] (NAME form | generic) [location] */
op *parse_op(parser *p) {
    result_names names, *r = &names;
    draft parts, *d = &parts;
    r->groups = r->total = 0;
    d->count = d->result_count = 0;
    parse_result_names(p, r);
    token name = p->tok;
    bool generic = name.kind == TOKEN_STRING;
    if (!generic && name.kind != TOKEN_NAME) unexpected(p, "an operation");
    op_code code = generic ? op_named(p, name.start + 1, name.size - 2) : op_named(p, name.start, name.size);
    if (code == OP_COUNT)
        tile_unsupported(p->t, name.start, "unknown operation %.*s", (int)name.size, name.start);
    next(p);
    d->at = name.start;
    d->o = op_new(p->t, code, name.start, 0, 0, generic ? 0 : region_count(code));
    if (generic)
        parse_generic(p, d);
    else
        parse_form(p, d);
    op *o = d->o;
    if (code == OP_IF && o->region_count == 2 && !o->regions[1].first) o->region_count = 1;
    o->arg_count = d->count;
    o->args = NEW_ARRAY(p->t, value *, d->count);
    memcpy(o->args, d->args, sizeof(value *) * (size_t)d->count);
    o->result_count = d->result_count;
    o->results = NEW_ARRAY(p->t, value, d->result_count);
    for (int i = 0; i < d->result_count; i++)
        o->results[i] = (value){.type = d->results[i], .def = o, .index = i, .id = p->t->next_value++};
    if (r->groups && r->total != d->result_count)
        tile_error(p->t, name.start, "%d names for %d results", r->total, d->result_count);
    for (int i = 0, k = 0; i < r->groups; k += r->counts[i++]) {
        value **list = NEW_ARRAY(p->t, value *, r->counts[i]);
        for (int j = 0; j < r->counts[i]; j++) list[j] = &o->results[k + j];
        define(p, r->names[i], list, r->counts[i]);
    }
    parse_location(p, o);
    return o;
}

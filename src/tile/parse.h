/* Interface between the parser's two files: parse.c handles tokens, names, types, attributes and regions;
 * parse_op.c has one function for each syntactic form of an operation. */
#ifndef TILE_PARSE_H
#define TILE_PARSE_H

#include "tile/tile.h"

#define NAME_BUCKETS 1024
#define MAX_OPERANDS 64 /* operands of one operation; also its results */
#define MAX_PARAMETERS 256
#define MAX_REGIONS 4
#define MAX_BLOCKS 500 /* per region */

typedef struct label_list {
    const char *name;
    size_t size;
    block *block;
    struct label_list *next;
} label_list;

typedef struct parser {
    tile *t;
    token tok; /* lookahead */
    struct binding *names[NAME_BUCKETS], *newest;
    uint16_t ops[NAME_BUCKETS], next_op[OP_COUNT]; /* hash table of operation names: code + 1 */
    label_list *labels;
    region *region; /* the one being parsed */
    int depth;
} parser;

void next(parser *p);
bool is(const parser *p, const char *text);
bool accept(parser *p, const char *text);
void expect(parser *p, const char *text);
token take(parser *p, token_kind kind, const char *wanted);
const char *take_name(parser *p, const char *wanted);
_Noreturn void unexpected(parser *p, const char *wanted);
int64_t parse_int(parser *p);
const char *parse_string(parser *p, size_t *length);
void define(parser *p, token name, value **values, int count);
value *parse_value(parser *p);
int parse_values(parser *p, value **out, int room);
const type *parse_type(parser *p);
const type *parse_short_type(parser *p, bool is_descriptor);
int parse_types(parser *p, const type **out, int room);
attr *parse_attr(parser *p, const char *name);
void parse_attr_dict(parser *p, op *o);
void parse_keywords(parser *p, op *o, const char *stop);
void parse_location(parser *p, op *o);
attr *add_attr(parser *p, op *o, const char *name);
void add_int(parser *p, op *o, const char *name, int64_t v, element e);
void skip_balanced(parser *p);
void parse_target(parser *p, op *o, region *r, value **args, int *count, int room);
void parse_region(parser *p, region *r, const token *given, const type *const *types, int count);
op_code op_named(parser *p, const char *name, size_t size);
/* Reports an error at `at` unless `v` has type `ty`. */
void check_type(parser *p, const value *v, const type *ty, const char *at);
op *parse_op(parser *p);

#endif

/* The verifier. Checks the invariants of later stages: operand and result counts, types, regions,
 * terminators, dominance. Adds what the text may omit (an scf.yield without values) and inlines calls. */
#include <string.h>

#include "tile/tile.h"

static const char *name_of(const op *o) { return op_table[o->code].name; }

static void want(tile *t, const op *o, bool holds, const char *what) {
    if (!holds) tile_error(t, o->at, "%s: %s", name_of(o), what);
}

static void want_counts(tile *t, const op *o, int args, int results) {
    if (o->arg_count != args)
        tile_error(t, o->at, "%s has %d operands, not %d", name_of(o), args, o->arg_count);
    if (o->result_count != results)
        tile_error(t, o->at, "%s has %d results, not %d", name_of(o), results, o->result_count);
}

static void want_type(tile *t, const op *o, const type *have, const type *wanted, const char *what) {
    if (have == wanted) return;
    text_buffer a = {0}, b = {0};
    type_print(&a, wanted);
    type_print(&b, have);
    char *message = tile_format(t, "%s: %s is of type %s, not %s", name_of(o), what, b.data ? b.data : "?",
                                a.data ? a.data : "?");
    text_free(&a);
    text_free(&b);
    tile_error(t, o->at, "%s", message);
}

static const type *arg_type(const op *o, int i) { return o->args[i]->type; }
static const type *result_type(const op *o, int i) { return o->results[i].type; }

static bool same_shape(const type *a, const type *b) {
    return a->is_tensor == b->is_tensor && a->rank == b->rank &&
           !memcmp(a->shape, b->shape, sizeof(int32_t) * (size_t)a->rank);
}

/* Requires n operands and one result, all of one type, for which `is_right` holds. */
static void verify_same(tile *t, const op *o, int n, bool (*is_right)(const type *), const char *what) {
    want_counts(t, o, n, 1);
    want(t, o, is_right(result_type(o, 0)), what);
    for (int i = 0; i < n; i++) want_type(t, o, arg_type(o, i), result_type(o, 0), "an operand");
}

static const type *bits_like(tile *t, const type *ty) { return type_with(t, ty, type_scalar(t, I1)); }

static void verify_compare(tile *t, const op *o) {
    want_counts(t, o, 2, 1);
    want_type(t, o, arg_type(o, 1), arg_type(o, 0), "the second operand");
    want_type(t, o, result_type(o, 0), bits_like(t, arg_type(o, 0)), "the result");
    bool ints = o->code == OP_CMPI;
    want(t, o, ints ? is_int(arg_type(o, 0)) : is_float(arg_type(o, 0)), "the operands have the wrong type");
    int64_t order = op_attr_int(o, "predicate", -1);
    want(t, o, order >= 0 && order < (ints ? CMPI_COUNT : CMPF_COUNT), "unknown predicate");
}

static void verify_select(tile *t, const op *o) {
    want_counts(t, o, 3, 1);
    const type *c = arg_type(o, 0);
    want(t, o, is_int(c) && c->element == I1, "the condition must be i1");
    want(t, o, !c->is_tensor || same_shape(c, result_type(o, 0)),
         "the condition and the result have different shapes");
    want_type(t, o, arg_type(o, 1), result_type(o, 0), "the second operand");
    want_type(t, o, arg_type(o, 2), result_type(o, 0), "the third operand");
}

static void verify_cast(tile *t, const op *o) {
    want_counts(t, o, 1, 1);
    const type *from = arg_type(o, 0), *to = result_type(o, 0);
    want(t, o, same_shape(from, to), "the shapes differ");
    int a = element_bits(from->element), b = element_bits(to->element);
    bool ok = true;
    switch (o->code) {
    case OP_EXTSI:
    case OP_EXTUI: ok = is_int(from) && is_int(to) && a < b; break;
    case OP_TRUNCI: ok = is_int(from) && is_int(to) && a > b; break;
    case OP_INDEX_CAST: ok = is_int(from) && is_int(to); break;
    case OP_EXTF: ok = is_float(from) && is_float(to) && a < b; break;
    case OP_TRUNCF: ok = is_float(from) && is_float(to) && a > b; break;
    case OP_FP_TO_FP: ok = is_float(from) && is_float(to); break;
    case OP_SITOFP:
    case OP_UITOFP: ok = is_int(from) && is_float(to); break;
    case OP_FPTOSI:
    case OP_FPTOUI: ok = is_float(from) && is_int(to); break;
    default: break;
    }
    want(t, o, ok, "this conversion is not defined between these types");
}

static void verify_bitcast(tile *t, const op *o) {
    want_counts(t, o, 1, 1);
    const type *from = arg_type(o, 0), *to = result_type(o, 0);
    want(t, o, same_shape(from, to), "the shapes differ");
    int a = from->is_pointer ? 64 : element_bits(from->element),
        b = to->is_pointer ? 64 : element_bits(to->element);
    want(t, o, a == b, "the element sizes differ");
    want(t, o, !from->is_descriptor && !to->is_descriptor, "descriptors can't be cast");
}

static void verify_elementwise(tile *t, const op *o) {
    want(t, o, o->result_count >= 1, "no result");
    const type *shape = result_type(o, 0);
    for (int i = 0; i < o->result_count; i++)
        want(t, o, same_shape(result_type(o, i), shape), "the results' shapes differ");
    for (int i = 0; i < o->arg_count; i++)
        want(t, o, same_shape(arg_type(o, i), shape), "an operand's shape differs from the result's");
}

static void verify_constant(tile *t, const op *o) {
    want_counts(t, o, 0, 1);
    const attr *a = op_attr(o, "value");
    want(t, o, a && (a->kind == ATTR_INT || a->kind == ATTR_FLOAT || a->kind == ATTR_DENSE), "no value");
    want_type(t, o, result_type(o, 0), a->type, "the result");
    want(t, o, !a->type->is_pointer, "a constant can't be a pointer");
}

static void verify_range(tile *t, const op *o) {
    want_counts(t, o, 0, 1);
    const type *ty = result_type(o, 0);
    int64_t start = op_attr_int(o, "start", 0), end = op_attr_int(o, "end", 0);
    want(t, o, ty->is_tensor && ty->rank == 1 && is_int(ty), "the result must be a 1D tensor of integers");
    want(t, o, end - start == ty->shape[0], "end - start must be the length of the result");
    want(t, o, start >= INT32_MIN && end <= INT32_MAX, "start and end must fit in 32 bits");
}

static void verify_splat(tile *t, const op *o) {
    want_counts(t, o, 1, 1);
    want(t, o, !arg_type(o, 0)->is_tensor && result_type(o, 0)->is_tensor,
         "the operand must be a scalar and the result a tensor");
    want_type(t, o, type_element(t, result_type(o, 0)), arg_type(o, 0), "the element");
}

static void verify_unsplat(tile *t, const op *o) {
    want_counts(t, o, 1, 1);
    want(t, o, arg_type(o, 0)->is_tensor && arg_type(o, 0)->count == 1,
         "the operand must be a tensor with one element");
}

static bool same_element(const type *a, const type *b) {
    return a->element == b->element && a->is_pointer == b->is_pointer;
}

static void verify_broadcast(tile *t, const op *o) {
    want_counts(t, o, 1, 1);
    const type *from = arg_type(o, 0), *to = result_type(o, 0);
    want(t, o, from->is_tensor && to->is_tensor && from->rank == to->rank && same_element(from, to),
         "operand and result must have the same rank and element type");
    for (int i = 0; i < to->rank; i++)
        want(t, o, from->shape[i] == to->shape[i] || from->shape[i] == 1,
             "only dimensions of length 1 can be broadcast");
}

static void verify_expand_dims(tile *t, const op *o) {
    want_counts(t, o, 1, 1);
    const type *from = arg_type(o, 0), *to = result_type(o, 0);
    int64_t axis = op_attr_int(o, "axis", -1);
    bool ok = from->is_tensor && to->is_tensor && to->rank == from->rank + 1 && same_element(from, to) &&
              axis >= 0 && axis < to->rank && to->shape[axis] == 1;
    for (int i = 0; ok && i < from->rank; i++) ok = from->shape[i] == to->shape[i < axis ? i : i + 1];
    want(t, o, ok, "the result must be the operand with a dimension of length 1 inserted at `axis`");
}

static void verify_reshape(tile *t, const op *o) {
    want_counts(t, o, 1, 1);
    const type *from = arg_type(o, 0), *to = result_type(o, 0);
    want(t, o, from->is_tensor && to->is_tensor && from->count == to->count && same_element(from, to),
         "operand and result must have the same element type and number of elements");
}

static void verify_trans(tile *t, const op *o) {
    want_counts(t, o, 1, 1);
    const type *from = arg_type(o, 0), *to = result_type(o, 0);
    const attr *order = op_attr(o, "order");
    want(t, o, from->is_tensor && from->rank == to->rank && same_element(from, to),
         "operand and result must have the same rank and element type");
    want(t, o, order && order->kind == ATTR_ARRAY && order->count == from->rank,
         "`order` must contain each dimension once");
    unsigned seen = 0;
    for (int i = 0; i < to->rank; i++) {
        int64_t from_dim = order->list[i].integer;
        want(t, o, from_dim >= 0 && from_dim < to->rank, "`order` must contain each dimension once");
        want(t, o, to->shape[i] == from->shape[from_dim],
             "the result's shape must be the permuted shape of the operand");
        seen |= 1u << from_dim;
    }
    want(t, o, seen == (1u << to->rank) - 1, "`order` must contain each dimension once");
}

static void verify_join(tile *t, const op *o) {
    bool join = o->code == OP_JOIN;
    want_counts(t, o, join ? 2 : 1, join ? 1 : 2);
    const type *whole = join ? result_type(o, 0) : arg_type(o, 0),
               *part = join ? arg_type(o, 0) : result_type(o, 0);
    want_type(t, o, join ? arg_type(o, 1) : result_type(o, 1), part, "the second part");
    bool ok = whole->is_tensor && whole->rank == part->rank + 1 && same_element(whole, part) &&
              whole->rank > 0 && whole->shape[whole->rank - 1] == 2 && whole->count == 2 * part->count;
    for (int i = 0; ok && i < part->rank; i++) ok = whole->shape[i] == part->shape[i];
    want(t, o, ok, "the joined tensor must have the parts' shape with a last dimension of 2");
}

static void verify_cat(tile *t, const op *o) {
    want_counts(t, o, 2, 1);
    want_type(t, o, arg_type(o, 1), arg_type(o, 0), "the second operand");
    const type *from = arg_type(o, 0), *to = result_type(o, 0);
    bool ok = from->is_tensor && from->rank >= 1 && to->rank == from->rank && same_element(from, to) &&
              to->count == 2 * from->count && to->shape[0] == 2 * from->shape[0];
    want(t, o, ok, "the result must be twice as long as an operand in the first dimension");
}

static void verify_gather(tile *t, const op *o) {
    want_counts(t, o, 2, 1);
    const type *from = arg_type(o, 0), *index = arg_type(o, 1), *to = result_type(o, 0);
    int64_t axis = op_attr_int(o, "axis", -1);
    want(t, o, from->is_tensor && is_int(index) && same_shape(index, to) && same_element(from, to),
         "the operands and the result have incompatible types");
    want(t, o, from->rank == to->rank && axis >= 0 && axis < to->rank, "`axis` is out of range");
    for (int i = 0; i < to->rank; i++)
        want(t, o, i == axis || from->shape[i] == to->shape[i], "the shapes differ outside `axis`");
}

static void verify_histogram(tile *t, const op *o) {
    want_counts(t, o, o->arg_count == 2 ? 2 : 1, 1);
    const type *from = arg_type(o, 0), *to = result_type(o, 0);
    want(t, o,
         from->is_tensor && from->rank == 1 && is_int(from) && to->is_tensor && to->rank == 1 && is_int(to),
         "expected 1D tensors of integers");
    if (o->arg_count == 2) want_type(t, o, arg_type(o, 1), bits_like(t, from), "the mask");
}

static void verify_addptr(tile *t, const op *o) {
    want_counts(t, o, 2, 1);
    want_type(t, o, result_type(o, 0), arg_type(o, 0), "the result");
    want(t, o, arg_type(o, 0)->is_pointer && is_int(arg_type(o, 1)), "expected a pointer and an integer");
    want(t, o, same_shape(arg_type(o, 0), arg_type(o, 1)), "the shapes differ");
}

static const type *pointee(tile *t, const type *ty) {
    type of = *ty;
    of.is_pointer = false;
    return type_make(t, of);
}

static void verify_load(tile *t, const op *o) {
    want(t, o, o->arg_count >= 1 && o->arg_count <= 3 && o->result_count == 1,
         "expected 1 to 3 operands and one result");
    want(t, o, arg_type(o, 0)->is_pointer, "the first operand must be a pointer");
    const type *ty = pointee(t, arg_type(o, 0));
    want_type(t, o, result_type(o, 0), ty, "the result");
    if (o->arg_count > 1) want_type(t, o, arg_type(o, 1), bits_like(t, ty), "the mask");
    if (o->arg_count > 2) want_type(t, o, arg_type(o, 2), ty, "the value for masked elements");
}

static void verify_store(tile *t, const op *o) {
    want(t, o, o->arg_count >= 2 && o->arg_count <= 3 && o->result_count == 0,
         "expected 2 or 3 operands and no result");
    want(t, o, arg_type(o, 0)->is_pointer, "the first operand must be a pointer");
    const type *ty = pointee(t, arg_type(o, 0));
    want_type(t, o, arg_type(o, 1), ty, "the stored value");
    if (o->arg_count > 2) want_type(t, o, arg_type(o, 2), bits_like(t, ty), "the mask");
}

static void verify_atomic(tile *t, const op *o) {
    want(t, o, o->result_count == 1 && o->arg_count >= 2 && o->arg_count <= 3,
         "expected 2 or 3 operands and one result");
    want(t, o, arg_type(o, 0)->is_pointer, "the first operand must be a pointer");
    const type *ty = pointee(t, arg_type(o, 0));
    want_type(t, o, arg_type(o, 1), ty, "the value");
    want_type(t, o, result_type(o, 0), ty, "the result");
    if (o->code == OP_ATOMIC_CAS) {
        want_counts(t, o, 3, 1);
        want_type(t, o, arg_type(o, 2), ty, "the new value");
        return;
    }
    if (o->arg_count > 2) want_type(t, o, arg_type(o, 2), bits_like(t, ty), "the mask");
    int64_t order = op_attr_int(o, "atomic_rmw_op", 0);
    want(t, o, order > RMW_NONE && order < RMW_COUNT, "unknown atomic operation");
    want(t, o, order == RMW_XCHG || (order == RMW_FADD ? is_float(ty) : is_int(ty)),
         "the atomic operation is not defined for this type");
}

static void verify_dot(tile *t, const op *o) {
    want_counts(t, o, 3, 1);
    const type *a = arg_type(o, 0), *b = arg_type(o, 1), *c = arg_type(o, 2);
    want_type(t, o, result_type(o, 0), c, "the result");
    int r = c->rank;
    want(t, o, a->is_tensor && b->is_tensor && (r == 2 || r == 3) && a->rank == r && b->rank == r,
         "the operands must have 2 or 3 dimensions");
    want(t, o,
         a->shape[r - 1] == b->shape[r - 2] && c->shape[r - 2] == a->shape[r - 2] &&
             c->shape[r - 1] == b->shape[r - 1],
         "the shapes must be M×K, K×N and M×N");
    want(t, o, r == 2 || (a->shape[0] == b->shape[0] && a->shape[0] == c->shape[0]),
         "the batch sizes differ");
    want(t, o, is_int(a) == is_int(c) && is_int(b) == is_int(c) && (is_int(c) || is_float(c)),
         "integers and floats can't be mixed");
}

static void verify_dot_scaled(tile *t, const op *o) {
    int64_t left = op_attr_int(o, "has_lhs_scale", o->arg_count > 3),
            right = op_attr_int(o, "has_rhs_scale", o->arg_count > 4);
    want(t, o, (left == 0 || left == 1) && (right == 0 || right == 1),
         "expected at most one matrix of scales per operand");
    want_counts(t, o, (int)(3 + left + right), 1);
    want_type(t, o, result_type(o, 0), arg_type(o, 2), "the result");
    for (int i = 0; i < 3; i++)
        want(t, o, arg_type(o, i)->is_tensor && arg_type(o, i)->rank == 2, "matrices");
    for (int i = 3; i < o->arg_count; i++)
        want(t, o, is_int(arg_type(o, i)) && arg_type(o, i)->rank == 2,
             "the scales must be a matrix of integers");
    const type *a = arg_type(o, 0), *b = arg_type(o, 1), *c = arg_type(o, 2);
    int ka = a->shape[1], kb = b->shape[0]; /* either may be packed, two elements per byte */
    want(t, o,
         c->shape[0] == a->shape[0] && c->shape[1] == b->shape[1] &&
             (ka == kb || ka == 2 * kb || kb == 2 * ka),
         "the shapes must be M×K, K×N and M×N");
}

static void verify_axis(tile *t, const op *o) {
    want_counts(t, o, 0, 1);
    int64_t axis = op_attr_int(o, "axis", -1);
    want(t, o, axis >= 0 && axis < 3, "the axis must be x, y or z");
    want_type(t, o, result_type(o, 0), type_scalar(t, I32), "the result");
}

/* reduce, scan: the region takes 2n scalars and yields n */
static void verify_combine(tile *t, const op *o) {
    int n = o->arg_count;
    want(t, o, n >= 1 && o->result_count == n && o->region_count == 1,
         "expected n operands, n results and one region");
    const type *shape = arg_type(o, 0);
    int64_t axis = op_attr_int(o, "axis", -1);
    want(t, o, shape->is_tensor && axis >= 0 && axis < shape->rank, "`axis` is out of range");
    const region *r = &o->regions[0];
    want(t, o, r->block_count == 1 && r->first->arg_count == 2 * n,
         "the region must take 2n scalars for n operands");
    type reduced = {.is_tensor = shape->rank > 1, .rank = shape->rank - 1};
    for (int i = 0, k = 0; i < shape->rank; i++)
        if (i != axis) reduced.shape[k++] = shape->shape[i];
    for (int i = 0; i < n; i++) {
        want(t, o, same_shape(arg_type(o, i), shape), "the operands' shapes differ");
        const type *e = type_element(t, arg_type(o, i));
        want_type(t, o, r->first->args[i]->type, e, "an argument of the region");
        want_type(t, o, r->first->args[n + i]->type, e, "an argument of the region");
        const type *result = o->code == OP_SCAN ? arg_type(o, i) : type_with(t, type_make(t, reduced), e);
        want_type(t, o, result_type(o, i), result, "a result");
        const op *last = r->first->last;
        want(t, o, last && last->arg_count == n, "the region must return n values");
        want_type(t, o, last->args[i]->type, e, "a value of the region");
    }
}

static void verify_map(tile *t, const op *o) {
    verify_elementwise(t, o);
    want(t, o, op_attr_int(o, "pack", 1) == 1, "only pack = 1 is supported");
    want(t, o, o->region_count == 1 && o->regions[0].first->arg_count == o->arg_count,
         "expected one region with an argument per operand");
    for (int i = 0; i < o->arg_count; i++)
        want_type(t, o, o->regions[0].first->args[i]->type, type_element(t, arg_type(o, i)),
                  "an argument of the region");
    for (const block *b = o->regions[0].first; b; b = b->next) {
        if (!b->last || b->last->code != OP_MAP_RETURN) continue;
        want(t, o, b->last->arg_count == o->result_count, "the region must return a value per result");
        for (int i = 0; i < o->result_count; i++)
            want_type(t, o, b->last->args[i]->type, type_element(t, result_type(o, i)),
                      "a value of the region");
    }
}

static void want_values(tile *t, const op *o, value *const *values, int count, value *const *others,
                        int other_count, const char *what) {
    want(t, o, count == other_count, what);
    for (int i = 0; i < count; i++) want_type(t, o, values[i]->type, others[i]->type, what);
}

static void want_results(tile *t, const op *o, const op *last, int skip) {
    want(t, o, last->arg_count - skip == o->result_count, "the region must yield a value per result");
    for (int i = 0; i < o->result_count; i++)
        want_type(t, o, last->args[i + skip]->type, result_type(o, i), "a value of a region");
}

static void verify_for(tile *t, const op *o) {
    int n = o->arg_count - 3;
    want(t, o, n >= 0 && o->result_count == n && o->region_count == 1,
         "expected 3 bounds, n initial values and n results");
    const block *b = o->regions[0].first;
    want(t, o, o->regions[0].block_count == 1 && b->arg_count == n + 1,
         "the body must take the index and n values");
    for (int i = 0; i < 3; i++) want_type(t, o, arg_type(o, i), b->args[0]->type, "a bound");
    want(t, o, is_int(b->args[0]->type) && !b->args[0]->type->is_tensor, "the index must be an integer");
    want_values(t, o, o->args + 3, n, b->args + 1, n, "the body's arguments");
    want_results(t, o, b->last, 0);
    for (int i = 0; i < n; i++) want_type(t, o, result_type(o, i), b->args[i + 1]->type, "a result");
}

static void verify_if(tile *t, const op *o) {
    want(t, o, o->arg_count == 1 && (o->region_count == 1 || o->region_count == 2),
         "expected a condition and one or two regions");
    want_type(t, o, arg_type(o, 0), type_scalar(t, I1), "the condition");
    want(t, o, o->region_count == 2 || !o->result_count, "an scf.if with results needs an else region");
    for (int i = 0; i < o->region_count; i++) {
        want(t, o, o->regions[i].block_count == 1 && !o->regions[i].first->arg_count,
             "a region must be one block without arguments");
        want_results(t, o, o->regions[i].first->last, 0);
    }
}

static void verify_while(tile *t, const op *o) {
    want(t, o, o->region_count == 2 && o->regions[0].block_count == 1 && o->regions[1].block_count == 1,
         "two regions");
    const block *before = o->regions[0].first, *after = o->regions[1].first;
    want_values(t, o, before->args, before->arg_count, o->args, o->arg_count, "the first region's arguments");
    want(t, o, before->last->code == OP_CONDITION, "the first region must end with scf.condition");
    want_results(t, o, before->last, 1);
    want_type(t, o, arg_type(before->last, 0), type_scalar(t, I1), "the condition");
    want(t, o, after->arg_count == o->result_count, "the second region's arguments");
    for (int i = 0; i < o->result_count; i++)
        want_type(t, o, after->args[i]->type, result_type(o, i), "the second region's argument");
    want(t, o, after->last->code == OP_YIELD, "the second region must end with scf.yield");
    want_values(t, o, after->last->args, after->last->arg_count, o->args, o->arg_count,
                "the second region's values");
}

static void verify_make_descriptor(tile *t, const op *o) {
    const type *d = o->result_count == 1 ? result_type(o, 0) : NULL;
    want(t, o, d && d->is_descriptor && o->arg_count == 1 + 2 * d->rank,
         "expected a pointer, a shape and strides");
    want(t, o, arg_type(o, 0)->is_pointer && !arg_type(o, 0)->is_tensor, "the base must be a pointer");
    for (int i = 1; i < o->arg_count; i++)
        want(t, o, is_int(arg_type(o, i)) && !arg_type(o, i)->is_tensor,
             "shape and strides must be integers");
}

static void verify_descriptor(tile *t, const op *o) {
    const type *d = o->arg_count ? arg_type(o, 0) : NULL;
    want(t, o, d && d->is_descriptor, "the first operand must be a descriptor");
    bool loads = o->code == OP_DESCRIPTOR_LOAD || o->code == OP_DESCRIPTOR_GATHER;
    bool indexed = o->code == OP_DESCRIPTOR_GATHER || o->code == OP_DESCRIPTOR_SCATTER;
    want_counts(t, o, 1 + (indexed ? 2 : d->rank) + !loads, loads);
    const type *tile_type = loads ? result_type(o, 0) : arg_type(o, o->arg_count - 1);
    want(t, o, tile_type->is_tensor && tile_type->element == d->element,
         "the block and the descriptor have different element types");
    want(t, o, indexed || tile_type->count == d->count, "the block and the descriptor have different sizes");
    for (int i = 1; i < (indexed ? 3 : 1 + d->rank); i++) {
        const type *at = arg_type(o, i);
        bool rows = indexed && i == 1;
        want(t, o, is_int(at) && at->is_tensor == rows && (!rows || at->rank == 1),
             "the offsets must be integers");
    }
    want(t, o,
         !indexed || (d->rank == 2 && tile_type->rank == 2 &&
                      tile_type->shape[0] == arg_type(o, 1)->shape[0] && tile_type->shape[1] == d->shape[1]),
         "the block's rows don't match the row indices");
}

static void verify_types(tile *t, const op *o, const type *ty) {
    for (int i = 0; i < ty->rank; i++)
        if (ty->shape[i] & (ty->shape[i] - 1))
            tile_error(t, o->at, "%s: a block of %d elements: lengths must be powers of two", name_of(o),
                       ty->shape[i]);
}

static void verify_op(tile *t, const op *o) {
    for (int i = 0; i < o->result_count; i++) verify_types(t, o, result_type(o, i));
    switch (op_table[o->code].kind) {
    case KIND_INT1: verify_same(t, o, 1, is_int, "integers"); break;
    case KIND_INT2: verify_same(t, o, 2, is_int, "integers"); break;
    case KIND_FLOAT1: verify_same(t, o, 1, is_float, "floats"); break;
    case KIND_FLOAT2: verify_same(t, o, 2, is_float, "floats"); break;
    case KIND_FLOAT3: verify_same(t, o, 3, is_float, "floats"); break;
    case KIND_COMPARE: verify_compare(t, o); break;
    case KIND_SELECT: verify_select(t, o); break;
    case KIND_CAST: verify_cast(t, o); break;
    case KIND_BITCAST: verify_bitcast(t, o); break;
    case KIND_ELEMENTWISE: verify_elementwise(t, o); break;
    case KIND_MAP: verify_map(t, o); break;
    case KIND_CONSTANT: verify_constant(t, o); break;
    case KIND_RANGE: verify_range(t, o); break;
    case KIND_SPLAT: verify_splat(t, o); break;
    case KIND_UNSPLAT: verify_unsplat(t, o); break;
    case KIND_BROADCAST: verify_broadcast(t, o); break;
    case KIND_EXPAND_DIMS: verify_expand_dims(t, o); break;
    case KIND_RESHAPE: verify_reshape(t, o); break;
    case KIND_TRANS: verify_trans(t, o); break;
    case KIND_JOIN:
    case KIND_SPLIT: verify_join(t, o); break;
    case KIND_CAT: verify_cat(t, o); break;
    case KIND_GATHER: verify_gather(t, o); break;
    case KIND_HISTOGRAM: verify_histogram(t, o); break;
    case KIND_ADDPTR: verify_addptr(t, o); break;
    case KIND_LOAD: verify_load(t, o); break;
    case KIND_STORE: verify_store(t, o); break;
    case KIND_ATOMIC_RMW:
    case KIND_ATOMIC_CAS: verify_atomic(t, o); break;
    case KIND_DOT: verify_dot(t, o); break;
    case KIND_DOT_SCALED: verify_dot_scaled(t, o); break;
    case KIND_REDUCE:
    case KIND_SCAN: verify_combine(t, o); break;
    case KIND_AXIS: verify_axis(t, o); break;
    case KIND_MAKE_DESCRIPTOR: verify_make_descriptor(t, o); break;
    case KIND_DESCRIPTOR: verify_descriptor(t, o); break;
    case KIND_FOR: verify_for(t, o); break;
    case KIND_IF: verify_if(t, o); break;
    case KIND_WHILE: verify_while(t, o); break;
    case KIND_NONE:
        for (int i = 1; o->code == OP_PRINT && i < o->arg_count; i++)
            if (!same_shape(arg_type(o, 0), arg_type(o, i)))
                tile_unsupported(t, o->at, "printing values of different shapes at once is not supported");
        if (o->code != OP_ASSERT && o->code != OP_ASSUME) break;
        want_counts(t, o, 1, 0);
        want(t, o, is_int(arg_type(o, 0)), "the condition must be an integer");
        break;
    default: break;
    }
}

/* --- regions --- */

static bool is_terminator(op_code code) { return op_table[code].kind == KIND_END; }

static bool may_end(op_code parent, op_code end, int which) {
    switch (parent) {
    case OP_FUNC: return end == OP_RETURN || end == OP_BR || end == OP_COND_BR;
    case OP_FOR:
    case OP_IF: return end == OP_YIELD;
    case OP_WHILE: return end == (which ? OP_YIELD : OP_CONDITION);
    case OP_REDUCE: return end == OP_REDUCE_RETURN;
    case OP_SCAN: return end == OP_SCAN_RETURN;
    case OP_MAP_ELEMENTWISE: return end == OP_MAP_RETURN || end == OP_BR || end == OP_COND_BR;
    default: return false;
    }
}

static void verify_targets(tile *t, const op *o) {
    int used = o->code == OP_COND_BR;
    if (o->code != OP_BR && o->code != OP_COND_BR) {
        want(t, o, !o->target_count, "only branches can have successor blocks");
        return;
    }
    want(t, o, o->target_count == 1 + used && o->arg_count >= used,
         "a branch has the wrong number of successor blocks");
    if (used) want_type(t, o, arg_type(o, 0), type_scalar(t, I1), "the condition");
    for (int i = 0; i < o->target_count; used += o->target_args[i++]) {
        const block *b = o->targets[i];
        want(t, o, b != b->owner->first, "a branch can't target a region's first block");
        want(t, o, o->target_args[i] == b->arg_count && used + b->arg_count <= o->arg_count,
             "the branch passes the wrong number of values to the block");
        for (int k = 0; k < b->arg_count; k++)
            want_type(t, o, arg_type(o, used + k), b->args[k]->type, "a block's argument");
    }
    want(t, o, used == o->arg_count, "more operands than the successor blocks take");
}

static void number_blocks(block *b, int *order) { /* depth first: reverse post-order, counted from the end */
    if (b->order) return;
    b->order = -1;
    for (int i = 0; b->last && i < b->last->target_count; i++) number_blocks(b->last->targets[i], order);
    b->order = ++*order;
}

static block *common(block *a, block *b) {
    while (a != b) {
        while (a->order < b->order) a = a->dominator;
        while (b->order < a->order) b = b->dominator;
    }
    return a;
}

/* Computes immediate dominators with the iterative algorithm of Cooper, Harvey and Kennedy. */
static void find_dominators(region *r) {
    int order = 0;
    number_blocks(r->first, &order);
    r->first->dominator = r->first;
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = order - 1; i >= 1; i--)
            for (block *b = r->first; b; b = b->next) {
                if (b->order != i) continue;
                block *best = NULL;
                for (block *from = r->first; from; from = from->next)
                    for (int k = 0; from->dominator && from->last && k < from->last->target_count; k++)
                        if (from->last->targets[k] == b) best = best ? common(best, from) : from;
                if (best && b->dominator != best) {
                    b->dominator = best;
                    changed = true;
                }
            }
    }
}

static bool dominates(const block *a, const block *b) {
    if (!b->order) return true; /* unreachable */
    for (; b != a; b = b->dominator)
        if (b == b->dominator) return false;
    return true;
}

/* The parser ensures that a value is visible and defined before its use. Between blocks of one region, the
 * defining block must also dominate the use. */
static void verify_dominance(tile *t, const op *o) {
    for (int i = 0; i < o->arg_count; i++) {
        const block *home = o->args[i]->def ? o->args[i]->def->owner : o->args[i]->owner, *b = o->owner;
        while (b->owner != home->owner) b = b->owner->owner->owner;
        if (b != home && !dominates(home, b))
            tile_error(t, o->at, "%s: an operand's definition does not dominate its use", name_of(o));
    }
}

static void verify_region(tile *t, region *r, int which);

static void verify_block(tile *t, block *b, int which) {
    op *parent = b->owner->owner;
    bool may_be_left_out = (parent->code == OP_FOR || parent->code == OP_IF) && !parent->result_count;
    if (may_be_left_out && (!b->last || !is_terminator(b->last->code)))
        block_append(b, op_new(t, OP_YIELD, parent->at, 0, 0, 0));
    if (!b->last) tile_error(t, b->at, "a block is empty");
    if (!may_end(parent->code, b->last->code, which))
        tile_error(t, b->last->at, "%s can't end a region of %s", name_of(b->last), name_of(parent));
    for (int i = 0; i < b->arg_count; i++) verify_types(t, parent, b->args[i]->type);
    for (op *o = b->first; o; o = o->next) {
        if (is_terminator(o->code) && o->next)
            tile_error(t, o->at, "%s must be the last operation of a block", name_of(o));
        if (o->code == OP_FUNC) tile_error(t, o->at, "a function can't contain a function");
        verify_targets(t, o);
        for (int i = 0; i < o->region_count; i++) verify_region(t, &o->regions[i], i);
        verify_op(t, o);
        if (b->owner->block_count > 1 || b->id) verify_dominance(t, o);
    }
}

static void verify_region(tile *t, region *r, int which) {
    if (!r->first) tile_error(t, r->owner->at, "%s: a region is empty", name_of(r->owner));
    if (r->block_count > 1) find_dominators(r);
    for (block *b = r->first; b; b = b->next) verify_block(t, b, which);
}

/* --- functions --- */

static op *function_named(tile *t, const char *name) {
    for (op *f = t->module->regions[0].first->first; f; f = f->next)
        if (!strcmp(op_attr(f, "sym_name")->string, name)) return f;
    return NULL;
}

static void verify_returns(tile *t, op *f) {
    const attr *results = op_attr(f, "results");
    for (const block *b = f->regions[0].first; b; b = b->next) {
        const op *o = b->last;
        if (o->code != OP_RETURN) continue;
        want(t, o, o->arg_count == (results ? results->count : 0),
             "the function returns a different number of values");
        for (int i = 0; i < o->arg_count; i++)
            want_type(t, o, arg_type(o, i), results->list[i].type, "a value");
    }
}

static value *mapped(value *v) { return v->same ? v->same : v; }

static region *clone_region(tile *t, const region *from, op *owner);

/* Copies `from` with its operands replaced by their copies. */
op *clone_op(tile *t, op *from) {
    op *o = op_new(t, from->code, from->at, from->arg_count, from->result_count, 0);
    o->loc = from->loc;
    o->attrs = from->attrs;
    for (int i = 0; i < from->arg_count; i++) o->args[i] = mapped(from->args[i]);
    for (int i = 0; i < from->result_count; i++) {
        o->results[i].type = from->results[i].type;
        from->results[i].same = &o->results[i];
    }
    o->region_count = from->region_count;
    o->regions = NEW_ARRAY(t, region, from->region_count);
    for (int i = 0; i < from->region_count; i++) o->regions[i] = *clone_region(t, &from->regions[i], o);
    for (int i = 0; i < o->region_count; i++)
        for (block *b = o->regions[i].first; b; b = b->next) b->owner = &o->regions[i];
    return o;
}

static region *clone_region(tile *t, const region *from, op *owner) {
    region *r = NEW(t, region);
    r->owner = owner;
    if (from->block_count > 1)
        tile_unsupported(t, owner->at, "calling a function with branches is not supported");
    for (block *b = from->first; b; b = b->next) {
        block *copy = block_new(t, r);
        copy->at = b->at;
        for (int i = 0; i < b->arg_count; i++) b->args[i]->same = block_add_arg(t, copy, b->args[i]->type);
        for (op *o = b->first; o; o = o->next) block_append(copy, clone_op(t, o));
    }
    return r;
}

void replace_uses(region *r, value *old, value *by) {
    for (block *b = r->first; b; b = b->next)
        for (op *o = b->first; o; o = o->next) {
            for (int i = 0; i < o->arg_count; i++)
                if (o->args[i] == old) o->args[i] = by;
            for (int i = 0; i < o->region_count; i++) replace_uses(&o->regions[i], old, by);
        }
}

/* Reports direct and indirect recursion. A function's `epoch` is 1 while its calls are being followed, and 2
 * if none leads back to it. */
static void find_recursion(tile *t, const region *r, int depth) {
    for (const block *b = r->first; b; b = b->next)
        for (const op *o = b->first; o; o = o->next) {
            for (int i = 0; i < o->region_count; i++) find_recursion(t, &o->regions[i], depth);
            const attr *callee = o->code == OP_CALL ? op_attr(o, "callee") : NULL;
            op *f = callee && callee->kind == ATTR_STRING ? function_named(t, callee->string) : NULL;
            if (!f || f->epoch == 2) continue;
            if (f->epoch == 1)
                tile_unsupported(t, o->at, "recursion is not supported: the function calls itself");
            if (depth == MAX_DEPTH)
                tile_unsupported(t, o->at, "calls nested more than %d deep are not supported", MAX_DEPTH);
            f->epoch = 1;
            find_recursion(t, &f->regions[0], depth + 1);
            f->epoch = 2;
        }
}

#define MAX_CALLS 1000

static void inline_calls(tile *t, region *r, op *kernel, int *calls) {
    for (block *b = r->first; b; b = b->next)
        for (op *o = b->first, *after; o; o = after) {
            after = o->next;
            for (int i = 0; i < o->region_count; i++) inline_calls(t, &o->regions[i], kernel, calls);
            if (o->code != OP_CALL) continue;
            if (++*calls > MAX_CALLS)
                tile_unsupported(t, o->at, "more than %d calls are not supported", MAX_CALLS);
            const attr *callee = op_attr(o, "callee");
            op *f = callee && callee->kind == ATTR_STRING ? function_named(t, callee->string) : NULL;
            want(t, o, f, "the module has no such function");
            region *body = &f->regions[0];
            if (body->block_count > 1)
                tile_unsupported(t, o->at, "calling a function with branches is not supported");
            want_values(t, o, o->args, o->arg_count, body->first->args, body->first->arg_count,
                        "the parameters");
            want(t, o, body->first->last->arg_count == o->result_count,
                 "the function returns a different number of values");
            for (int i = 0; i < o->arg_count; i++) body->first->args[i]->same = o->args[i];
            op *first = NULL;
            for (op *c = body->first->first; c->next; c = c->next) {
                op *copy = clone_op(t, c);
                op_insert_before(copy, o);
                if (!first) first = copy;
            }
            for (int i = 0; i < o->result_count; i++) {
                value *v = mapped(body->first->last->args[i]);
                want_type(t, o, result_type(o, i), v->type, "a result");
                replace_uses(&kernel->regions[0], &o->results[i], v);
            }
            op_remove(o);
            if (first) after = first; /* the inlined code may contain calls */
        }
}

void tile_verify(tile *t) {
    block *top = t->module->regions[0].first;
    int public_count = 0;
    for (op *f = top->first; f; f = f->next) {
        if (f->code != OP_FUNC) tile_error(t, f->at, "%s is outside of a function", name_of(f));
        if (!op_attr(f, "sym_name") || op_attr(f, "sym_name")->kind != ATTR_STRING)
            tile_error(t, f->at, "a function has no name");
        if (f->region_count != 1) tile_error(t, f->at, "a function must have one region");
    }
    for (op *f = top->first; f; f = f->next) {
        if (function_named(t, op_attr(f, "sym_name")->string) != f)
            tile_error(t, f->at, "another function has this name");
        const attr *visible = op_attr(f, "sym_visibility");
        if (!visible || (visible->kind == ATTR_STRING && !strcmp(visible->string, "public"))) {
            if (op_attr(f, "public") || visible || !t->kernel) t->kernel = f;
            public_count += op_attr(f, "public") != NULL;
        }
    }
    if (!t->kernel) tile_error(t, t->text, "no public function, so there is no kernel");
    if (public_count > 1)
        tile_unsupported(t, t->kernel->at, "more than one public function is not supported");
    for (op *f = top->first; f; f = f->next) {
        verify_region(t, &f->regions[0], 0);
        verify_returns(t, f);
    }
    const block *entry = t->kernel->regions[0].first;
    for (int i = 0; i < entry->arg_count; i++)
        if (entry->args[i]->type->is_tensor || entry->args[i]->type->is_descriptor)
            tile_unsupported(t, t->kernel->at,
                             "kernel parameters other than scalars and pointers are not supported");
    if (op_attr(t->kernel, "results")) tile_error(t, t->kernel->at, "a kernel can't return values");
    t->kernel->epoch = 1;
    find_recursion(t, &t->kernel->regions[0], 0);
    int calls = 0;
    inline_calls(t, &t->kernel->regions[0], t->kernel, &calls);
}

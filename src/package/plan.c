/* Plans. A plan holds, for one set of input sizes, the register values, the tensors' sizes and strides, and
 * the offsets of intermediate tensors in the arena. Tensors whose lifetimes do not overlap may share memory:
 * greedy by size, the largest first, each at the lowest free offset. A package keeps the last PLANS plans and
 * owns them. Sizes for which the model was not compiled fail with XPU_ERROR_INVALID_ARGUMENT. */
#include "package/format.h"

static bool floor_divide(int64_t a, int64_t b, int64_t *quotient, int64_t *rest) {
    if (b == 0 || (a == INT64_MIN && b == -1)) return false;
    *quotient = a / b, *rest = a % b;
    if (*rest && (*rest < 0) != (b < 0)) *quotient -= 1, *rest += b;
    return true;
}

static bool evaluate_one(const xpu_package *p, const int64_t *values, const pack_int *n, int64_t *to) {
    int64_t other;
    if (n->op == INT_CONST) {
        *to = n->a;
        return true;
    }
    if (n->op == INT_SIZE) {
        int64_t at = n->b;
        for (int i = 0; i < n->a; i++) at += p->expected[i].dims;
        *to = p->sizes[at];
        return true;
    }
    const int64_t a = values[n->a], b = values[n->b];
    switch ((int_op)n->op) {
    case INT_ADD: return !__builtin_add_overflow(a, b, to);
    case INT_SUB: return !__builtin_sub_overflow(a, b, to);
    case INT_MUL: return !__builtin_mul_overflow(a, b, to);
    case INT_FLOORDIV: return floor_divide(a, b, to, &other);
    case INT_MOD: return floor_divide(a, b, &other, to);
    case INT_LESSER: *to = a < b ? a : b; return true;
    case INT_GREATER: *to = a > b ? a : b; return true;
    case INT_EQ: *to = a == b; return true;
    case INT_NE: *to = a != b; return true;
    case INT_LT: *to = a < b; return true;
    case INT_LE: *to = a <= b; return true;
    case INT_AND: *to = a && b; return true;
    case INT_OR: *to = a || b; return true;
    default: *to = !a; return true;
    }
}

static xpu_status evaluate(const xpu_package *p, int64_t *values) {
    for (int i = 0; i < p->int_count; i++)
        BAD_IF(!evaluate_one(p, values, &p->ints[i], &values[i]),
               "an expression of the inputs' sizes divides by zero or overflows");
    for (int i = 0; i < p->check_count; i++)
        BAD_IF(!values[p->checks[i].reg], "the inputs' sizes don't satisfy \"%.200s\"", p->checks[i].text);
    return XPU_SUCCESS;
}

bool reach_of(int dims, const int64_t *size, const int64_t *stride, uint64_t offset, uint64_t element,
              uint64_t *bytes) {
    uint64_t end = 0;
    bool good = !__builtin_add_overflow(offset, 1, &end);
    for (int d = 0; d < dims; d++) {
        uint64_t step;
        if (size[d] > 0)
            good = good && !__builtin_mul_overflow((uint64_t)(size[d] - 1), (uint64_t)stride[d], &step) &&
                   !__builtin_add_overflow(end, step, &end);
    }
    return good && !__builtin_mul_overflow(end, element, bytes) && *bytes <= MOST_BYTES;
}

/* Computes a tensor's sizes, strides, and the bytes from its base's start to the end of its last element.
 * Also checks that a contiguous tensor of these sizes is possible, because outputs may be returned as one. */
static xpu_status shape(const pack_plan *plan, const pack_tensor *t, const char *what, int number,
                        plan_tensor *to) {
    const uint64_t element = xpu_dtype_size(t->dtype);
    uint64_t dense = element;
    bool is_empty = false, good = true;
    for (int d = 0; d < t->dims; d++) {
        const int64_t size = to->size[d] = plan->values[t->size[d]];
        const int64_t stride = to->stride[d] = plan->values[t->stride[d]];
        BAD_IF(size < 0 || stride < 0, "%s %d has an invalid size %lld or stride %lld in dimension %d", what,
               number, (long long)size, (long long)stride, d);
        if (size == 0) is_empty = true;
        good = good && (uint64_t)stride <= MOST_BYTES / element; /* also in size-1 dimensions */
        good = good && !__builtin_mul_overflow(dense, (uint64_t)(size > 1 ? size : 1), &dense);
    }
    const int64_t offset = t->offset < 0 ? 0 : plan->values[t->offset];
    BAD_IF(offset < 0, "%s %d starts before its memory", what, number);
    good = good && dense <= MOST_BYTES &&
           reach_of(t->dims, to->size, to->stride, (uint64_t)offset, element, &to->bytes);
    BAD_IF(!good, "%s %d is too large", what, number);
    to->offset = (int64_t)((uint64_t)offset * element);
    if (is_empty) to->bytes = 0;
    return XPU_SUCCESS;
}

static bool is_placed(const xpu_package *p, const plan_tensor *t, int slot) {
    const pack_tensor *of = &p->tensors[slot];
    return of->kind == TENSOR_NEW && of->first <= of->last && of->last < p->step_count && t->bytes;
}

static uint64_t rounded(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

typedef struct placed {
    uint64_t size;
    int slot;
} placed;
static int larger_first(const void *a, const void *b) {
    const placed *x = a, *y = b;
    if (x->size != y->size) return x->size < y->size ? 1 : -1;
    return x->slot < y->slot ? -1 : 1;
}
static int lower_first(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return x[0] < y[0] ? -1 : x[0] > y[0];
}

static xpu_status place(const xpu_package *p, pack_plan *plan) {
    placed *order = core_malloc(((size_t)p->tensor_count + 1) * sizeof *order);
    uint64_t (*taken)[2] = core_malloc(((size_t)p->tensor_count + 1) * sizeof *taken);
    int count = 0;
    if (order && taken) {
        for (int i = 0; i < p->tensor_count; i++)
            if (is_placed(p, &plan->tensors[i], i)) order[count++] = (placed){plan->tensors[i].bytes, i};
        qsort(order, (size_t)count, sizeof *order, larger_first);
        for (int i = 0; i < count; i++) {
            const pack_tensor *t = &p->tensors[order[i].slot];
            size_t others = 0;
            for (int j = 0; j < i; j++) {
                const pack_tensor *o = &p->tensors[order[j].slot];
                const plan_tensor *at = &plan->tensors[order[j].slot];
                if (o->first > t->last || o->last < t->first) continue;
                taken[others][0] = at->start, taken[others++][1] = at->start + rounded(at->bytes);
            }
            qsort(taken, others, sizeof *taken, lower_first);
            uint64_t start = 0;
            for (size_t j = 0; j < others && start + rounded(order[i].size) > taken[j][0]; j++)
                if (taken[j][1] > start) start = taken[j][1];
            plan->tensors[order[i].slot].start = start;
            if (start + rounded(order[i].size) > plan->arena) plan->arena = start + rounded(order[i].size);
        }
        for (int s = 0; s < p->step_count; s++) {
            uint64_t now = 0;
            for (int i = 0; i < count; i++) {
                const pack_tensor *t = &p->tensors[order[i].slot];
                if (t->first <= s && s <= t->last) now += order[i].size;
            }
            if (now > plan->peak) plan->peak = now;
        }
    }
    const bool good = order && taken;
    core_free(order);
    core_free(taken);
    return good ? XPU_SUCCESS
                : xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for a package's memory plan");
}

static xpu_status check_bases(const xpu_package *p, const pack_plan *plan) {
    for (int i = 0; i < p->tensor_count; i++) {
        const pack_tensor *t = &p->tensors[i];
        uint64_t room = UINT64_MAX;
        if (t->kind == TENSOR_INPUT) room = plan->expected[t->base].bytes;
        if (t->kind == TENSOR_CONSTANT) room = p->constants[t->base].size;
        if (t->kind == TENSOR_VIEW) room = plan->tensors[t->base].bytes;
        BAD_IF(plan->tensors[i].bytes > room, "tensor %d needs %llu bytes of memory that has %llu", i,
               (unsigned long long)plan->tensors[i].bytes, (unsigned long long)room);
    }
    return XPU_SUCCESS;
}

/* Checks that the inputs' sizes are ones that the model was compiled for. */
static xpu_status check_inputs(const xpu_package *p, const pack_plan *plan) {
    const int64_t *size = p->sizes;
    for (int i = 0; i < p->input_count; i++)
        for (int d = 0; d < p->expected[i].dims; d++, size++)
            BAD_IF(*size != plan->expected[i].size[d],
                   "input %s has size %lld in dimension %d, but the model expects %lld",
                   p->input_ports[i].name, (long long)*size, d, (long long)plan->expected[i].size[d]);
    return XPU_SUCCESS;
}

static xpu_status make(const xpu_package *p, pack_plan *plan) {
    XPU_TRY(evaluate(p, plan->values));
    for (int i = 0; i < p->input_count; i++)
        XPU_TRY(shape(plan, &p->expected[i], "input", i, &plan->expected[i]));
    XPU_TRY(check_inputs(p, plan));
    for (int i = 0; i < p->tensor_count; i++)
        XPU_TRY(shape(plan, &p->tensors[i], "tensor", i, &plan->tensors[i]));
    XPU_TRY(check_bases(p, plan));
    return place(p, plan);
}

static pack_plan *new_plan(const xpu_package *p) {
    size_t numbers = (size_t)p->size_count + (size_t)p->int_count;
    for (int i = 0; i < p->input_count; i++) numbers += 2 * (size_t)p->expected[i].dims;
    for (int i = 0; i < p->tensor_count; i++) numbers += 2 * (size_t)p->tensors[i].dims;
    const size_t tensors = (size_t)p->tensor_count + (size_t)p->input_count;
    pack_plan *plan =
        core_calloc(1, sizeof *plan + tensors * sizeof(plan_tensor) + numbers * sizeof(int64_t));
    if (!plan) return NULL;
    plan->tensors = (plan_tensor *)(plan + 1);
    plan->expected = plan->tensors + p->tensor_count;
    int64_t *at = (int64_t *)(plan->tensors + tensors);
    plan->key = at, at += p->size_count;
    plan->values = at, at += p->int_count;
    for (int i = 0; i < p->input_count; i++) {
        plan->expected[i].size = at, at += p->expected[i].dims;
        plan->expected[i].stride = at, at += p->expected[i].dims;
    }
    for (int i = 0; i < p->tensor_count; i++) {
        plan->tensors[i].size = at, at += p->tensors[i].dims;
        plan->tensors[i].stride = at, at += p->tensors[i].dims;
    }
    memcpy(plan->key, p->sizes, (size_t)p->size_count * sizeof *plan->key);
    return plan;
}

void plan_free(pack_plan *plan) { core_free(plan); }

xpu_status plan_find(xpu_package *p, pack_plan **plan) {
    int at = 0;
    pack_plan *found = NULL;
    for (; at < PLANS && p->plans[at]; at++)
        if (!memcmp(p->plans[at]->key, p->sizes, (size_t)p->size_count * sizeof *p->sizes)) {
            found = p->plans[at];
            break;
        }
    if (!found) {
        if (!(found = new_plan(p)))
            return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for a package's memory plan");
        const xpu_status status = make(p, found);
        if (status != XPU_SUCCESS) {
            plan_free(found);
            return status;
        }
        if (at == PLANS) plan_free(p->plans[--at]);
    }
    memmove(&p->plans[1], &p->plans[0], (size_t)at * sizeof *p->plans);
    p->plans[0] = found;
    p->memory.planned = found->arena;
    p->memory.peak_step = found->peak;
    *plan = found;
    return XPU_SUCCESS;
}

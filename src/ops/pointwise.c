/* Pointwise operations: generates a kernel's source from a line of the table, the dtypes and the layout. */
#include "xpu/ops/pointwise.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "core/os.h"
#include "core/text.h"
#include "kernels/pointwise/pointwise.h"
#include "ops/iter.h"
#include "ops/kernel.h"
#include "ops/pointwise_text.h"

typedef struct formulas {
    const char *r, *f, *i, *u, *b, *c, *n, *p;
} formulas;

typedef struct operation {
    const char *name, *signature;
    formulas text;
} operation;

static const operation operations[] = {
#define X(name, aten, signature, ...) {#name, signature, {__VA_ARGS__}},
#include "tables/pointwise.def"
#undef X
};

/* The parsed signature of an operation. */
typedef struct arity {
    unsigned char inputs, scalars, outputs;
    unsigned char cost; /* simple operations per element, roughly */
    char input[POINTWISE_OPERANDS], scalar[POINTWISE_SCALARS], output[POINTWISE_OPERANDS];
    char name[40]; /* in lower case */
} arity;

static arity arities[XPU_POINTWISE_COUNT];
static os_once arities_once = OS_ONCE_INIT;

/* Does a formula call functions that take more than an instruction or two? */
static bool calls_much(const char *formula) {
    static const char *const little[] = {"",       "K",     "fabs",  "min",   "max",     "trunc",
                                         "rint",   "floor", "ceil",  "isnan", "m_abs",   "signbit",
                                         "m_sign", "m_min", "m_max", "m_not", "m_clamp", "c_conj"};
    for (const char *c = strchr(formula, '('); c; c = strchr(c + 1, '(')) {
        const char *name = c;
        while (name > formula && (isalnum((unsigned char)name[-1]) || name[-1] == '_')) name--;
        bool is_little = false;
        for (size_t i = 0; i < sizeof little / sizeof *little && !is_little; i++)
            is_little =
                strlen(little[i]) == (size_t)(c - name) && !strncmp(little[i], name, (size_t)(c - name));
        if (!is_little) return true;
    }
    return false;
}

static void read_arities(void) {
    for (int op = 0; op < XPU_POINTWISE_COUNT; op++) {
        arity *a = &arities[op];
        const operation *o = &operations[op];
        const char *c = o->signature;
        while (isalpha((unsigned char)*c)) a->input[a->inputs++] = *c++;
        if (*c == ',')
            for (c++; isalpha((unsigned char)*c);) a->scalar[a->scalars++] = *c++;
        for (c++; isalpha((unsigned char)*c);) a->output[a->outputs++] = *c++;
        for (int i = 0; o->name[i] && i < (int)sizeof a->name - 1; i++)
            a->name[i] = (char)tolower(o->name[i]);
        const char *formula = o->text.f ? o->text.f : o->text.r ? o->text.r : "";
        a->cost = calls_much(formula) ? 8 : 1;
    }
}

static inline const arity *arity_of(xpu_pointwise_op op) {
    if ((unsigned)op >= XPU_POINTWISE_COUNT) return NULL;
    os_once_call(&arities_once, read_arities);
    return &arities[op];
}

const char *xpu_pointwise_name(xpu_pointwise_op op) {
    const arity *a = arity_of(op);
    return a ? a->name : NULL;
}

xpu_pointwise_op pointwise_named(const char *name) {
    int op = 0;
    while (op < XPU_POINTWISE_COUNT && strcmp(arity_of((xpu_pointwise_op)op)->name, name)) op++;
    return (xpu_pointwise_op)op;
}

xpu_status xpu_pointwise_arity(xpu_pointwise_op op, int *outputs, int *inputs, int *scalars) {
    const arity *a = arity_of(op);
    if (!a) return op_fail(XPU_ERROR_INVALID_ARGUMENT, "xpu_pointwise_arity: unknown operation %d", (int)op);
    *outputs = a->outputs;
    *inputs = a->inputs;
    *scalars = a->scalars;
    return XPU_SUCCESS;
}

/* The most specific formula for the dtype, or NULL. */
const char *pointwise_formula(xpu_pointwise_op op, xpu_dtype compute) {
    const formulas *t = &operations[op].text;
    switch (dtype_class(compute)) {
    case DTYPE_CLASS_BOOL: return t->b ? t->b : t->r;
    case DTYPE_CLASS_SIGNED: return t->i ? t->i : t->r;
    case DTYPE_CLASS_UNSIGNED: return t->u ? t->u : t->i ? t->i : t->r;
    case DTYPE_CLASS_FLOAT: return t->f ? t->f : t->r;
    case DTYPE_CLASS_COMPLEX: return t->c;
    case DTYPE_CLASS_NARROW: return t->n;
    default: return xpu_dtype_size(compute) ? t->p : NULL;
    }
}

bool xpu_pointwise_defined(xpu_pointwise_op op, xpu_dtype compute) {
    return (unsigned)op < XPU_POINTWISE_COUNT && (unsigned)compute < XPU_DTYPE_COUNT &&
           pointwise_formula(op, compute);
}

/* --- source generation --- */

/* Most elements of a vector; and the number of elements from which on vectors pay off. */
#define MAX_VECTOR_SIZE 8

typedef struct plan {
    xpu_pointwise_op op;
    const arity *arity;
    xpu_dtype compute;
    const xpu_iter *iter;
    iter_layout layout;
    int pack; /* elements per vector load and store, if more than 1 */
    int dims; /* strided kernels: dimensions of the iteration, rounded up */
} plan;

/* Converts the expression `value` from the compute type of `from` to that of `to`, rounded to `to`. */
static void add_conversion(text_buffer *t, const char *value, xpu_dtype from, xpu_dtype to) {
    char class_from = dtype_class(from), class_to = dtype_class(to);
    if (from == to) {
        text_add(t, value);
    } else if (class_to == DTYPE_CLASS_COMPLEX && class_from == DTYPE_CLASS_COMPLEX) {
        text_addf(t, "convert_%s(%s)", dtype_computed(to), value);
    } else if (class_to == DTYPE_CLASS_COMPLEX) {
        text_addf(t, "(%s)((%s)(%s), 0)", dtype_computed(to), dtype_computed(dtype_real(to)), value);
    } else if (class_from == DTYPE_CLASS_COMPLEX) {
        char real[128];
        snprintf(real, sizeof real, "(%s).x", value);
        if (class_to == DTYPE_CLASS_BOOL)
            text_addf(t, "((%s).x != 0 || (%s).y != 0)", value, value);
        else
            add_conversion(t, real, dtype_real(from), to);
    } else if (class_to == DTYPE_CLASS_BOOL) {
        text_addf(t, "((%s) != 0)", value);
    } else if (dtype_is_narrow(to)) {
        text_addf(t, "xpu_round_%s((float)(%s))", dtype_token(to), value);
    } else if (dtype_is_floating(from) && to == XPU_UINT64) {
        /* Negative values wrap around; values from 2^63 on don't fit long. */
        text_addf(t, "((%s) >= 0x1p63f ? (ulong)(%s) : (ulong)(long)(%s))", value, value, value);
    } else if (dtype_is_floating(from) && !dtype_is_floating(to)) {
        /* Values out of range of small integer types wrap around, as on x86 and in CUDA. */
        bool wide = xpu_dtype_size(to) == 8 || to == XPU_UINT32;
        text_addf(t, "(%s)(%s)(%s)", dtype_computed(to), wide ? "long" : "int", value);
    } else {
        text_addf(t, "(%s)(%s)", dtype_computed(to), value);
    }
}

/* Does the kernel compute an offset for operand `i`? */
static bool has_offset(const plan *p, int i) {
    if (p->layout.kind == LAYOUT_FLAT || p->layout.access[i] == ACCESS_VALUE) return false;
    return p->layout.kind == LAYOUT_ROWS || p->layout.access[i] == ACCESS_STRIDED;
}

/* 2, 3 or 4 if operand `i` has that constant stride along rows: compilers then load whole vectors and
 * shuffle. Otherwise 0. */
static int constant_step(const plan *p, int i) {
    if (p->layout.kind != LAYOUT_ROWS || p->layout.access[i] != ACCESS_STRIDED) return 0;
    const xpu_operand *o = &p->iter->operand[i];
    int64_t size = (int64_t)xpu_dtype_size(o->dtype), step = size ? o->stride[0] / size : 0;
    return step >= 2 && step <= 4 && step * size == o->stride[0] ? (int)step : 0;
}

/* The address of operand `i`: base and element index. */
static void add_place(text_buffer *t, const plan *p, int i, bool constant) {
    const char *token = dtype_token(p->iter->operand[i].dtype);
    access_kind access = p->layout.access[i];
    text_addf(t, "%s(s_%s, p.pointer[%d]", constant ? "XPU_CPTR" : "XPU_PTR", token, i);
    if (has_offset(p, i)) text_addf(t, " + (long)at%d", i);
    int step = constant_step(p, i);
    if (p->layout.kind == LAYOUT_ROWS && access == ACCESS_STRIDED && !step)
        text_addf(t, " + (long)i * p.stride[0][%d]", i);
    if (step)
        text_addf(t, "), i * %d", step);
    else
        text_addf(t, "), %s", access == ACCESS_NEXT ? "i" : "0");
}

void pointwise_add_number(text_buffer *t, xpu_dtype dtype, const char *low, const char *high) {
    switch (dtype_class(dtype)) {
    case DTYPE_CLASS_FLOAT:
    case DTYPE_CLASS_NARROW:
        text_addf(t, dtype_needs_fp64(dtype) ? "as_double(%s)" : "as_float((uint)%s)", low);
        break;
    case DTYPE_CLASS_COMPLEX:
        if (dtype_needs_fp64(dtype))
            text_addf(t, "(double2)(as_double(%s), as_double(%s))", low, high);
        else
            text_addf(t, "as_float2(%s)", low);
        break;
    default: text_addf(t, "(%s)%s", dtype_computed(dtype), low);
    }
}

static void add_bits(text_buffer *t, const char *field, int i, xpu_dtype dtype) {
    char low[40], high[40];
    snprintf(low, sizeof low, "p.%s[%d][0]", field, i);
    snprintf(high, sizeof high, "p.%s[%d][1]", field, i);
    pointwise_add_number(t, dtype, low, high);
}

/* Suffix of the special strided loads and stores of kernels/pointwise/pointwise.h, or NULL. */
static const char *apart(const plan *p, int i) {
    xpu_dtype dtype = p->iter->operand[i].dtype;
    bool four = dtype == XPU_FLOAT32 || dtype == XPU_INT32 || dtype == XPU_UINT32;
    return four && p->layout.access[i] == ACCESS_STRIDED && !constant_step(p, i) ? "strided_" : "";
}

/* Is operand `i` loaded or stored as vectors? */
static bool is_packed(const plan *p, int i) { return p->pack > 1 && p->layout.access[i] == ACCESS_NEXT; }

static void add_input(text_buffer *t, const plan *p, int input) {
    int i = p->iter->outputs + input;
    const xpu_operand *o = &p->iter->operand[i];
    bool mask = p->arity->input[input] == 'm';
    char name = (char)('a' + input);
    text_addf(t, "    const %s %c = ", mask ? "int" : "T", name);
    if (p->layout.access[i] == ACCESS_VALUE) {
        add_bits(t, "value", i, mask ? XPU_BOOL : p->compute);
    } else {
        text_buffer place = {0};
        if (is_packed(p, i)) {
            text_addf(&place, "widen_%s(pack%d.element[k])", dtype_token(o->dtype), i);
        } else {
            text_addf(&place, "load_%s%s(", apart(p, i), dtype_token(o->dtype));
            add_place(&place, p, i, true);
            text_add(&place, ")");
        }
        if (place.failed)
            t->failed = true;
        else if (!mask)
            add_conversion(t, place.data, o->dtype, p->compute);
        else if (!dtype_is_complex(o->dtype))
            text_addf(t, "%s != 0", place.data);
        else
            text_addf(t, "any(%s != 0)", place.data);
        text_free(&place);
    }
    text_add(t, ";\n");
}

static void add_output(text_buffer *t, const plan *p, int output, const char *formula, size_t length) {
    const xpu_operand *o = &p->iter->operand[output];
    xpu_dtype result = p->compute; /* result type of the formula */
    const char *type = "T";
    char name[8];
    snprintf(name, sizeof name, "r%d", output);
    switch (p->arity->output[output]) {
    case 'b': result = XPU_BOOL, type = "uchar"; break;
    case 'i': result = XPU_INT32, type = "int"; break;
    case 'r': result = dtype_real(p->compute), type = dtype_computed(result); break;
    case 'z': result = p->compute == XPU_FLOAT64 ? XPU_COMPLEX128 : XPU_COMPLEX64, type = "T2"; break;
    default: break;
    }
    text_addf(t, "    const %s r%d = (%s)(", type, output, type);
    text_append(t, formula, length);
    text_add(t, result == XPU_BOOL ? ") != 0;\n" : ");\n");
    if (is_packed(p, output)) {
        text_addf(t, "    pack%d.element[k] = narrow_%s(", output, dtype_token(o->dtype));
    } else {
        text_addf(t, "    store_%s%s(", apart(p, output), dtype_token(o->dtype));
        add_place(t, p, output, false);
        text_add(t, ", ");
    }
    const bool exact = p->op == XPU_POINTWISE_COPY && dtype_class(o->dtype) == DTYPE_CLASS_NARROW;
    if (dtype_is_narrow(result) && o->dtype != result && !exact) { /* NaN's sign would go, too */
        char rounded[40];
        snprintf(rounded, sizeof rounded, "xpu_round_%s(%s)", dtype_token(result), name);
        add_conversion(t, rounded, result, o->dtype);
    } else if (dtype_is_narrow(o->dtype) && result != o->dtype && !dtype_is_complex(result)) {
        text_addf(t, "(float)%s", name); /* the store rounds */
    } else {
        add_conversion(t, name, result, o->dtype);
    }
    text_add(t, ");\n");
}

void pointwise_add_types(text_buffer *t, xpu_dtype compute, const char *formula) {
    static const char *const classes[] = {['b'] = "BOOL",  ['i'] = "SIGNED",  ['u'] = "UNSIGNED",
                                          ['f'] = "FLOAT", ['c'] = "COMPLEX", ['n'] = "NARROW",
                                          ['p'] = "PACKED"};
    char class = dtype_class(compute);
    bool wide = dtype_needs_fp64(compute);
    text_addf(t, "typedef %s T;\n#define T_IS_%s 1\n", dtype_computed(compute), classes[(int)class]);
    text_addf(t, "typedef %s R;\n", dtype_computed(dtype_real(compute)));
    text_add(t, wide ? "typedef double2 T2;\n#define R_IS_DOUBLE 1\n#define K(x) x\n"
                     : "typedef float2 T2;\n#define K(x) x##f\n");
    if (class == DTYPE_CLASS_FLOAT && dtype_is_narrow(compute)) text_add(t, "#define COMPUTE_HALF 1\n");
    if (compute == XPU_BFLOAT16) text_add(t, "#define COMPUTE_BF16 1\n");
    const bool moves = strstr(formula, "sg_") != NULL, bessel = strstr(formula, "sb_") != NULL;
    const bool special = moves || strstr(formula, "sf_");
    if (wide && (special || bessel || strstr(formula, "m_erf") || strstr(formula, "m_gelu")))
        text_add(t, "#include \"pointwise/erf_double.h\"\n");
    text_add(t, "#include \"pointwise/pointwise.h\"\n#include \"pointwise/pointwise_math.cl\"\n");
    if (class == DTYPE_CLASS_COMPLEX) text_add(t, "#include \"pointwise/pointwise_complex.cl\"\n");
    if (special) text_add(t, "#include \"pointwise/pointwise_special.cl\"\n");
    if (moves) text_add(t, "#include \"pointwise/pointwise_sample.cl\"\n");
    if (bessel) text_add(t, "#include \"pointwise/pointwise_bessel.cl\"\n");
    if (strstr(formula, "sp_")) text_add(t, "#include \"pointwise/pointwise_polynomial.cl\"\n");
    if (strstr(formula, "sq_")) text_add(t, "#include \"pointwise/pointwise_quantize.cl\"\n");
}

/* The offsets of all tensors from n, the index of the element or (from dimension 1 on) of the row. */
static void add_offsets(text_buffer *t, const plan *p, int first) {
    int operands = p->iter->outputs + p->iter->inputs;
    for (int i = 0; i < operands; i++)
        if (has_offset(p, i)) text_addf(t, "    int at%d = 0;\n", i);
    for (int d = first; d < p->dims; d++) {
        bool last = d == p->dims - 1;
        if (!last)
            text_addf(t,
                      "    const uint q%d = (mul_hi(n, p.multiplier[%d]) + n) >> p.shift[%d], k%d = n - q%d "
                      "* p.size[%d];\n",
                      d, d, d, d, d, d);
        char index[16];
        snprintf(index, sizeof index, last ? "n" : "k%d", d);
        for (int i = 0; i < operands; i++)
            if (has_offset(p, i)) text_addf(t, "    at%d += (int)%s * p.stride[%d][%d];\n", i, index, d, i);
        if (!last) text_addf(t, "    n = q%d;\n", d);
    }
}

/* GPU: elements per vector, 16 bytes of the widest operand, if all operands are aligned to their vectors. */
static int pack_size(const plan *p) {
    if (p->layout.kind != LAYOUT_FLAT || p->layout.count < TUNED(false, VECTORIZE_FROM)) return 1;
    size_t widest = 1;
    uintptr_t unaligned = 0;
    int operands = p->iter->outputs + p->iter->inputs;
    for (int i = 0; i < operands; i++) {
        size_t size = xpu_dtype_size(p->iter->operand[i].dtype);
        if (p->layout.access[i] == ACCESS_NEXT && size > widest) widest = size;
    }
    int pack = widest >= 16 ? 1 : (int)(16 / widest);
    if (pack > MAX_VECTOR_SIZE) pack = MAX_VECTOR_SIZE;
    for (int i = 0; i < operands; i++) {
        size_t size = xpu_dtype_size(p->iter->operand[i].dtype);
        if (p->layout.access[i] == ACCESS_NEXT)
            unaligned |= (uintptr_t)p->iter->operand[i].data & (size * (size_t)pack - 1);
    }
    return unaligned ? 1 : pack;
}

static void add_scalars(text_buffer *t, const plan *p) {
    for (int s = 0; s < p->arity->scalars; s++) {
        bool integer = p->arity->scalar[s] == 'i';
        text_addf(t, "    const %s s%d = ", integer ? "int" : "T", s);
        add_bits(t, "scalar", s, integer ? XPU_INT32 : p->compute);
        text_add(t, ";\n");
    }
}

static void add_body(text_buffer *t, const plan *p, const char *formula) {
    for (int i = 0; i < p->arity->inputs; i++) add_input(t, p, i);
    for (int i = 0; i < p->arity->outputs; i++) {
        const char *end = strchr(formula, ';');
        size_t length = end ? (size_t)(end - formula) : strlen(formula);
        add_output(t, p, i, formula, length);
        formula = end ? end + 1 : formula + length;
    }
}

/* Moves the vector of operand `i` at once or, at the end of the tensor, element by element. */
static void add_move(text_buffer *t, const plan *p, int i, bool load) {
    const char *token = dtype_token(p->iter->operand[i].dtype);
    const char *qualifier = load ? "const " : "";
    char memory[80], element[80];
    snprintf(memory, sizeof memory, "((__global %sbits%d *)(p.pointer[%d]))[item]", qualifier, i, i);
    snprintf(element, sizeof element, "((__global %sraw_%s *)(p.pointer[%d]))[i + k]", qualifier, token, i);
    if (load)
        text_addf(t,
                  "    if (whole) pack%d.bits = %s;\n"
                  "    else for (int k = 0; k < left; k++) pack%d.element[k] = %s;\n",
                  i, memory, i, element);
    else
        text_addf(t,
                  "    if (whole) %s = pack%d.bits;\n"
                  "    else for (int k = 0; k < left; k++) %s = pack%d.element[k];\n",
                  memory, i, element, i);
}

/* GPUs reach their memory bandwidth with 16-byte accesses: a work-item has `pack` contiguous elements. */
static void write_packed_kernel(text_buffer *t, const plan *p) {
    static const char *const bits[] = {
        [1] = "uchar", [2] = "ushort", [4] = "uint", [8] = "uint2", [16] = "uint4"};
    const char *formula = pointwise_formula(p->op, p->compute);
    int operands = p->iter->outputs + p->iter->inputs;
    pointwise_add_types(t, p->compute, formula);
    for (int i = 0; i < operands; i++) {
        xpu_dtype dtype = p->iter->operand[i].dtype;
        if (is_packed(p, i))
            text_addf(t,
                      "typedef %s bits%d;\ntypedef union pack%d {\n    bits%d bits;\n    raw_%s "
                      "element[%d];\n} pack%d_t;\n",
                      bits[p->pack * (int)xpu_dtype_size(dtype)], i, i, i, dtype_token(dtype), p->pack, i);
    }
    text_addf(t,
              "__kernel void pointwise(const pointwise_flat p) {\n"
              "    const size_t item = get_global_id(0), i = item * %d;\n"
              "    if (i >= p.count) return;\n"
              "    const int left = (int)min(p.count - i, (ulong)%d);\n"
              "    const bool whole = left == %d;\n",
              p->pack, p->pack, p->pack);
    add_scalars(t, p);
    for (int i = 0; i < operands; i++) {
        if (!is_packed(p, i)) continue;
        text_addf(t, "    pack%d_t pack%d;\n", i, i);
        if (i >= p->iter->outputs) add_move(t, p, i, true);
    }
    text_addf(t, "#pragma unroll\n    for (int k = 0; k < %d; k++) {\n", p->pack);
    add_body(t, p, formula);
    text_add(t, "    }\n");
    for (int i = 0; i < p->iter->outputs; i++)
        if (is_packed(p, i)) add_move(t, p, i, false);
    text_add(t, "}\n");
}

static void write_kernel(text_buffer *t, const plan *p) {
    const char *formula = pointwise_formula(p->op, p->compute);
    pointwise_add_types(t, p->compute, formula);
    switch (p->layout.kind) {
    case LAYOUT_FLAT:
        text_add(t, "__kernel void pointwise(const pointwise_flat p) {\n"
                    "    const size_t i = get_global_id(0);\n"
                    "    if (i >= p.count) return;\n");
        break;
    case LAYOUT_ROWS:
        text_add(t, "__kernel void pointwise(const pointwise_strided p) {\n"
                    "    const size_t i = get_global_id(0);\n"
                    "    uint n = (uint)get_global_id(1);\n"
                    "    if (i >= p.inner || n >= p.count) return;\n");
        add_offsets(t, p, 1);
        break;
    case LAYOUT_STRIDED:
        text_add(t, "__kernel void pointwise(const pointwise_strided p) {\n"
                    "    const size_t i = get_global_id(0);\n"
                    "    uint n = (uint)i;\n"
                    "    if (n >= p.count) return;\n");
        add_offsets(t, p, 0);
        break;
    }
    add_scalars(t, p);
    add_body(t, p, formula);
    text_add(t, "}\n");
}

/* The properties that the source depends on: "pointwise add f32 0 2 1 f32.2.0 f32.2.0 f32.0.0" is compute
 * dtype, layout kind, dimensions, vector size; for each operand dtype, access and constant stride. */
static void add_plan(text_buffer *t, const plan *p) {
    text_addf(t, "pointwise %s %s %d %d %d", p->arity->name, dtype_token(p->compute), p->layout.kind, p->dims,
              p->pack);
    for (int i = 0; i < p->iter->outputs + p->iter->inputs; i++)
        text_addf(t, " %s.%d.%d", dtype_token(p->iter->operand[i].dtype), p->layout.access[i],
                  constant_step(p, i));
}

static void write_text(text_buffer *t, const plan *p) {
    if (p->pack > 1)
        write_packed_kernel(t, p);
    else
        write_kernel(t, p);
}

bool pointwise_read(text_buffer *out, const char *written) {
    char name[40], token[16];
    int kind, read;
    xpu_iter iter = {0};
    plan p = {.iter = &iter};
    if (sscanf(written, "%39s %15s %d %d %d%n", name, token, &kind, &p.dims, &p.pack, &read) != 5)
        return false;
    p.op = pointwise_named(name);
    p.compute = dtype_of_token(token);
    p.layout.kind = (layout_kind)kind;
    if (!xpu_pointwise_defined(p.op, p.compute) || kind < 0 || kind > LAYOUT_STRIDED || p.dims < 0 ||
        p.dims > POINTWISE_DIMS || p.pack < 1 || p.pack > 16)
        return false;
    p.arity = arity_of(p.op);
    iter.outputs = p.arity->outputs;
    iter.inputs = p.arity->inputs;
    for (int i = 0; i < iter.outputs + iter.inputs; i++) {
        int access, step;
        written += read;
        if (sscanf(written, " %15[a-z0-9].%d.%d%n", token, &access, &step, &read) != 3) return false;
        xpu_operand *o = &iter.operand[i];
        o->dtype = dtype_of_token(token);
        if (o->dtype == XPU_DTYPE_COUNT || access < 0 || access > ACCESS_STRIDED) return false;
        o->stride[0] = step * (int64_t)xpu_dtype_size(o->dtype);
        p.layout.access[i] = (access_kind)access;
    }
    write_text(out, &p);
    return true;
}

/* The dtype of a class-p operand that is converted as packed elements; XPU_DTYPE_COUNT if there is none. */
static xpu_dtype converts_packed(const plan *p) {
    for (int i = 0; i < p->iter->outputs + p->iter->inputs; i++) {
        const char kind = i < p->iter->outputs ? p->arity->output[i] : p->arity->input[i - p->iter->outputs];
        const bool value = p->layout.access[i] == ACCESS_VALUE;
        const xpu_dtype dtype = value ? p->compute : p->iter->operand[i].dtype;
        const bool same = kind == 'c' && !value && dtype == p->compute;
        if (dtype_class(dtype) == DTYPE_CLASS_PACKED && !same) return dtype;
        if (kind == 'c' && dtype_class(p->compute) == DTYPE_CLASS_PACKED && !same) return p->compute;
    }
    return XPU_DTYPE_COUNT;
}

static xpu_status make_kernel(int device, const kernel_spec *spec, const plan *p, xpu_kernel **kernel) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    xpu_dtype lacking = dtype_needs_fp64(p->compute) ? p->compute : XPU_DTYPE_COUNT; /* without fp64 */
    text_buffer label = {0}, source = {0}, written = {0};
    text_addf(&label, "%s ", p->arity->name);
    for (int i = 0; i < p->arity->inputs; i++) {
        xpu_dtype dtype = p->iter->operand[p->iter->outputs + i].dtype;
        bool value = p->layout.access[p->iter->outputs + i] == ACCESS_VALUE;
        text_addf(&label, "%s%s", i ? "," : "", value ? "number" : dtype_token(dtype));
        if (!value && dtype_needs_fp64(dtype)) lacking = dtype;
    }
    for (int i = 0; i < p->arity->outputs; i++) {
        xpu_dtype dtype = p->iter->operand[i].dtype;
        text_addf(&label, "%s%s", i ? "," : "->", dtype_token(dtype));
        if (dtype_needs_fp64(dtype)) lacking = dtype;
    }
    xpu_dtype packed = converts_packed(p);
    xpu_status status;
    if (packed != XPU_DTYPE_COUNT) {
        status = op_unsupported_dtype(p->arity->name, packed, NULL);
    } else if (!pointwise_formula(p->op, p->compute)) {
        status = op_unsupported_dtype(p->arity->name, p->compute, NULL);
    } else if (lacking != XPU_DTYPE_COUNT && !properties->has_fp64) {
        status = op_unsupported_dtype(p->arity->name, lacking, properties);
    } else {
        write_text(&source, p);
        add_plan(&written, p);
        kernel_build_spec build_spec = {
            .text = source.data, .written = written.data, .name = "pointwise", .label = label.data};
        status = source.failed || label.failed || written.failed
                     ? op_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for the source of kernel %s",
                               p->arity->name)
                     : kernel_build(device, spec, &build_spec, kernel);
    }
    text_free(&label);
    text_free(&source);
    text_free(&written);
    return status;
}

/* Everything is in the source, so there are no build options. */
static xpu_status find_kernel(int device, const plan *p, xpu_kernel **kernel) {
    const int operands = p->iter->outputs + p->iter->inputs;
    kernel_spec spec;
    spec_begin(&spec, FAMILY_POINTWISE);
    spec_key_only(&spec, "op", p->op, 16);
    spec_key_only(&spec, "compute", p->compute, 8);
    spec_key_only(&spec, "layout", p->layout.kind, 8);
    spec_key_only(&spec, "dims", p->dims, 8);
    spec_key_only(&spec, "pack", p->pack, 8);
    for (int i = 0; i < operands; i++) {
        spec_key_only(&spec, "dtype", p->iter->operand[i].dtype, 6);
        spec_key_only(&spec, "access", p->layout.access[i], 2);
        spec_key_only(&spec, "step", constant_step(p, i), 4);
    }
    *kernel = kernel_find(device, &spec);
    return *kernel ? XPU_SUCCESS : make_kernel(device, &spec, p, kernel);
}

/* --- launch --- */

static void fill_values(const plan *p, const xpu_scalar *scalars, xpu_addr *pointer, xpu_u64 (*value)[2],
                        xpu_u64 (*scalar)[2]) {
    for (int i = 0; i < p->iter->outputs + p->iter->inputs; i++) {
        const xpu_operand *o = &p->iter->operand[i];
        pointer[i] = XPU_ADDR(o->data);
        if (p->layout.access[i] != ACCESS_VALUE) continue;
        bool mask = p->arity->input[i - p->iter->outputs] == 'm';
        scalar_bits(&o->scalar, mask ? XPU_BOOL : p->compute, value[i]);
    }
    for (int s = 0; s < p->arity->scalars; s++)
        scalar_bits(&scalars[s], p->arity->scalar[s] == 'i' ? XPU_INT32 : p->compute, scalar[s]);
}

static inline size_t smaller(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* Work-group size: on CPUs, which run a group as a loop, large, but small enough to give every thread some
 * groups. */
static size_t group_size(const xpu_device_properties *properties, size_t count) {
    size_t best = properties->type != XPU_DEVICE_CPU ? 256 : count < 65536 ? 1024 : 4096;
    return smaller(best, properties->max_work_group_size);
}

static xpu_status run_flat(xpu_stream *stream, xpu_kernel *kernel, const plan *p, const xpu_scalar *scalars,
                           const xpu_device_properties *properties) {
    pointwise_flat params;
    fill_values(p, scalars, params.pointer, params.value, params.scalar);
    size_t count = (size_t)p->layout.count, each = (size_t)p->pack;
    size_t items = (count + each - 1) / each;
    size_t local = smaller(group_size(properties, items), round_up(items, 16));
    params.count = count;
    xpu_range range = {
        .dims = 1, .groups = {(items + local - 1) / local}, .local = {local}, .work = count * p->arity->cost};
    return xpu_launch_with_accesses(stream, kernel, &range, &params, sizeof params, iter_accesses, p->iter);
}

static xpu_status run_strided(xpu_stream *stream, xpu_kernel *kernel, const plan *p,
                              const xpu_scalar *scalars, const xpu_device_properties *properties) {
    const xpu_iter *iter = p->iter;
    pointwise_strided params;
    fill_values(p, scalars, params.pointer, params.value, params.scalar);
    for (int d = 0; d < p->dims; d++) {
        bool there = d < iter->dims;
        uint32_t size = there ? (uint32_t)iter->size[d] : 1;
        fast_divisor divisor = fast_divisor_of(size);
        params.size[d] = size;
        params.multiplier[d] = divisor.multiplier;
        params.shift[d] = divisor.shift;
        for (int i = 0; i < iter->outputs + iter->inputs; i++)
            params.stride[d][i] = there ? (int32_t)iter->operand[i].stride[d] : 0;
    }
    size_t count = (size_t)p->layout.count, group = group_size(properties, count);
    xpu_range range = {.dims = 1, .groups = {1, 1, 1}, .local = {1, 1, 1}, .work = count * p->arity->cost};
    if (p->layout.kind == LAYOUT_ROWS) {
        size_t inner = (size_t)iter->size[0], rows = count / inner;
        /* If an operand is contiguous along dimension 1, tiles reuse its cache lines. */
        size_t width = p->layout.transposed ? 16 : smaller(group, round_up(inner, 16));
        size_t height = smaller(
            p->layout.transposed ? smaller(group / width, (size_t)iter->size[1]) : group / width, rows);
        params.inner = (uint32_t)inner;
        params.count = (uint32_t)rows;
        range.dims = 2;
        range.local[0] = width;
        range.local[1] = height;
        range.groups[0] = (inner + width - 1) / width;
        range.groups[1] = (rows + height - 1) / height;
    } else {
        range.local[0] = smaller(group, round_up(count, 16));
        range.groups[0] = (count + range.local[0] - 1) / range.local[0];
        range.work *= 4;
        params.inner = 0;
        params.count = (uint32_t)count;
    }
    return xpu_launch_with_accesses(stream, kernel, &range, &params, sizeof params, iter_accesses, p->iter);
}

/* Texts are made for a few numbers of dimensions only; the dimensions put on have one element. */
static int rounded_dims(int dims) {
    return dims <= 2 ? 2 : dims <= 4 ? dims : dims <= 6 ? 6 : POINTWISE_DIMS;
}

static xpu_status run(xpu_stream *stream, plan *p, const xpu_scalar *scalars) {
    const xpu_device_properties *properties;
    int device = xpu_stream_device(stream);
    xpu_kernel *kernel;
    if (p->layout.kind != LAYOUT_FLAT) {
        if (!iter_fits_32bit(p->iter)) {
            xpu_iter half[2];
            iter_split(p->iter, &half[0], &half[1]);
            for (int i = 0; i < 2; i++) {
                plan part = *p;
                part.iter = &half[i];
                iter_get_layout(&half[i], &part.layout);
                XPU_TRY(run(stream, &part, scalars));
            }
            return XPU_SUCCESS;
        }
        p->dims = rounded_dims(p->iter->dims);
        if (p->layout.transposed > 1) {
            xpu_iter transposed = *p->iter;
            iter_swap(&transposed, 1, p->layout.transposed);
            plan part = *p;
            part.iter = &transposed;
            part.layout.transposed = 1;
            return run(stream, &part, scalars);
        }
    }
    XPU_TRY(xpu_device_get_properties(device, &properties));
    bool host = properties->type == XPU_DEVICE_CPU;
    p->pack = host ? 1 : pack_size(p);
    XPU_TRY(find_kernel(device, p, &kernel));
    return p->layout.kind == LAYOUT_FLAT ? run_flat(stream, kernel, p, scalars, properties)
                                         : run_strided(stream, kernel, p, scalars, properties);
}

/* Does the operation only select among float8 values? Then it moves their bits, including those of NaN. */
static bool moves_float8(xpu_pointwise_op op, xpu_dtype compute, const xpu_iter *iter) {
    if (op != XPU_POINTWISE_WHERE || dtype_class(compute) != DTYPE_CLASS_NARROW) return false;
    const xpu_operand *o = iter->operand;
    return o[0].dtype == compute && o[2].data && o[2].dtype == compute && o[3].data && o[3].dtype == compute;
}

xpu_status xpu_pointwise(xpu_stream *stream, xpu_pointwise_op op, xpu_dtype compute, const xpu_iter *iter,
                         const xpu_scalar *scalars, int scalar_count) {
    const arity *a = arity_of(op);
    if (!a) return op_fail(XPU_ERROR_INVALID_ARGUMENT, "xpu_pointwise: unknown operation %d", (int)op);
    if ((unsigned)compute >= XPU_DTYPE_COUNT)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "%s: unknown dtype %d", a->name, (int)compute);
    if (iter->outputs != a->outputs || iter->inputs != a->inputs || scalar_count != a->scalars)
        return op_fail(
            XPU_ERROR_INVALID_ARGUMENT,
            "%s: takes %d inputs, %d scalars and %d outputs; got %d inputs, %d scalars and %d outputs",
            a->name, a->inputs, a->scalars, a->outputs, iter->inputs, scalar_count, iter->outputs);
    xpu_iter merged;
    plan p = {.op = op, .arity = a, .compute = compute, .iter = iter};
    if (iter->dims > 1 && iter_has_mergeable_dims(iter)) {
        merged = *iter;
        xpu_iter_coalesce(&merged);
        p.iter = &merged;
    }
    if (moves_float8(op, compute, p.iter)) {
        if (p.iter != &merged) merged = *p.iter;
        p.iter = &merged;
        p.compute = merged.operand[0].dtype = merged.operand[2].dtype = merged.operand[3].dtype = XPU_UINT8;
    }
    iter_get_layout(p.iter, &p.layout);
    return p.layout.count ? run(stream, &p, scalars) : XPU_SUCCESS;
}

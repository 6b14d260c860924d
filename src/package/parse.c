/* Parses a package's program into tables. The words are untrusted: everything malformed is rejected here with
 * XPU_ERROR_INVALID_ARGUMENT. The plan and the run can therefore trust every value except those that depend
 * on the inputs' sizes. The package owns the tables and frees them, also after an error. */
#include "package/format.h"

typedef struct reader {
    const unsigned char *at;
    size_t left; /* words */
    bool is_short;
    char *texts;
    int *registers;
    pack_arg *args;
} reader;

static int64_t take(reader *r) {
    int64_t word = 0;
    if (!r->left) {
        r->is_short = true;
        return 0;
    }
    memcpy(&word, r->at, sizeof word);
    r->at += sizeof word;
    r->left--;
    return word;
}

/* Reads an index below `limit`; -1, which no table contains, if it is out of range. */
static int take_index(reader *r, int64_t limit) {
    const int64_t word = take(r);
    return !r->is_short && word >= 0 && word < limit ? (int)word : -1;
}

/* Reads a count of items with at least `words` words each; the rest of the program must have room for them.
 */
static int take_count(reader *r, size_t words) {
    const int64_t count = take(r);
    if (count < 0 || count > INT32_MAX || (uint64_t)count > r->left / words) r->is_short = true;
    return r->is_short ? 0 : (int)count;
}

static const char *take_text(reader *r) {
    const int64_t length = take(r);
    if (length < 0 || r->is_short || (uint64_t)length > r->left * 8) {
        r->is_short = true;
        return "";
    }
    char *text = r->texts;
    memcpy(text, r->at, (size_t)length);
    text[length] = 0;
    for (char *c = text; c < text + length; c++)
        if ((unsigned char)*c < 0x20) *c = '?';
    r->texts += length + 1;
    r->at += ((size_t)length + 7) / 8 * 8;
    r->left -= ((size_t)length + 7) / 8;
    return text;
}

static const int *take_registers(reader *r, const xpu_package *p, int count) {
    int *list = r->registers;
    for (int i = 0; i < count; i++)
        if ((list[i] = take_index(r, p->int_count)) < 0) return NULL;
    r->registers += count;
    return list;
}

static bool take_dtype_and_dims(reader *r, pack_tensor *t) {
    const int dtype = take_index(r, XPU_DTYPE_COUNT);
    t->dims = take_index(r, XPU_MAX_DIMS + 1);
    if (dtype < 0 || t->dims < 0 || xpu_dtype_size((xpu_dtype)dtype) == 0) return false;
    t->dtype = (xpu_dtype)dtype;
    return true;
}
static bool take_shape(reader *r, const xpu_package *p, pack_tensor *t) {
    if (!take_dtype_and_dims(r, t)) return false;
    t->size = take_registers(r, p, t->dims);
    t->stride = take_registers(r, p, t->dims);
    return t->size && t->stride;
}

/* --- sections of a program, in file order --- */

#define TABLE(pointer, count)                                                                                \
    do {                                                                                                     \
        if (!((pointer) = core_calloc((size_t)(count) + 1, sizeof *(pointer))))                              \
            return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for a package's tables");      \
    } while (0)
#define CUT_OFF_IF(r) BAD_IF((r)->is_short, "the program is cut off")

static xpu_status take_ints(reader *r, xpu_package *p) {
    p->int_count = take_count(r, 3);
    TABLE(p->ints, p->int_count);
    for (int i = 0; i < p->int_count; i++) {
        pack_int *n = &p->ints[i];
        n->op = take(r), n->a = take(r), n->b = take(r);
        BAD_IF(n->op < 0 || n->op >= INT_OPS, "register %d has unknown operation %lld", i, (long long)n->op);
        if (n->op != INT_CONST && n->op != INT_SIZE)
            BAD_IF(n->a < 0 || n->a >= i || n->b < 0 || n->b >= i,
                   "register %d uses a register that is not computed before it", i);
    }
    p->check_count = take_count(r, 2);
    TABLE(p->checks, p->check_count);
    for (int i = 0; i < p->check_count; i++) {
        p->checks[i].reg = take_index(r, p->int_count);
        p->checks[i].text = take_text(r);
        BAD_IF(p->checks[i].reg < 0, "check %d refers to no register", i);
    }
    CUT_OFF_IF(r);
    return XPU_SUCCESS;
}

static xpu_status take_constants(reader *r, xpu_package *p) {
    p->constant_count = take_count(r, 3);
    TABLE(p->constants, p->constant_count);
    for (int i = 0; i < p->constant_count; i++) {
        pack_constant *c = &p->constants[i];
        c->offset = (uint64_t)take(r), c->size = (uint64_t)take(r);
        c->is_state = take(r) != 0;
        BAD_IF(c->offset % XPU_PACKAGE_ALIGN || c->offset > p->weights_size ||
                   c->size > p->weights_size - c->offset,
               "constant %d is out of bounds: %llu bytes at %llu of %llu", i, (unsigned long long)c->size,
               (unsigned long long)c->offset, (unsigned long long)p->weights_size);
        if (c->is_state)
            p->state_size += (c->size + XPU_PACKAGE_ALIGN - 1) / XPU_PACKAGE_ALIGN * XPU_PACKAGE_ALIGN;
    }
    return XPU_SUCCESS;
}

/* Describes an input or output to callers; sizes that are the same in every call are filled in. */
static void fill_port(const xpu_package *p, const pack_tensor *t, const char *name, xpu_package_port *port) {
    *port = (xpu_package_port){.name = name, .dtype = t->dtype, .dims = t->dims};
    for (int d = 0; d < t->dims; d++) {
        const pack_int *n = &p->ints[t->size[d]];
        port->size[d] = n->op == INT_CONST ? n->a : -1;
    }
}

static xpu_status take_inputs(reader *r, xpu_package *p) {
    p->input_count = take_count(r, 3);
    TABLE(p->expected, p->input_count);
    TABLE(p->input_ports, p->input_count);
    for (int i = 0; i < p->input_count; i++) {
        const char *name = take_text(r);
        BAD_IF(!take_shape(r, p, &p->expected[i]), "input %d has no shape", i);
        fill_port(p, &p->expected[i], name, &p->input_ports[i]);
        p->expected[i].offset = -1;
        p->size_count += p->expected[i].dims;
    }
    for (int i = 0; i < p->int_count; i++)
        if (p->ints[i].op == INT_SIZE) {
            const int64_t input = p->ints[i].a, dim = p->ints[i].b;
            BAD_IF(input < 0 || input >= p->input_count || dim < 0 || dim >= p->expected[input].dims,
                   "register %d refers to a size that no input has", i);
        }
    TABLE(p->sizes, p->size_count);
    return XPU_SUCCESS;
}

static xpu_status take_tensors(reader *r, xpu_package *p) {
    p->tensor_count = take_count(r, 5);
    TABLE(p->tensors, p->tensor_count);
    TABLE(p->bases, p->tensor_count);
    for (int i = 0; i < p->tensor_count; i++) {
        pack_tensor *t = &p->tensors[i];
        const int kind = take_index(r, TENSOR_KINDS);
        BAD_IF(kind < 0 || !take_shape(r, p, t), "tensor %d has an invalid kind or shape", i);
        t->kind = (tensor_kind)kind;
        const int limits[TENSOR_KINDS] = {p->input_count, p->constant_count, 1, i};
        t->base = take_index(r, limits[kind]);
        t->offset = take_index(r, p->int_count);
        BAD_IF(t->base < 0 || t->offset < 0, "tensor %d refers to no input, constant or tensor", i);
        BAD_IF(t->kind == TENSOR_VIEW && p->tensors[t->base].kind == TENSOR_VIEW,
               "tensor %d is a view of a view", i);
        BAD_IF(t->kind == TENSOR_INPUT && (t->dtype != p->expected[t->base].dtype),
               "tensor %d and its input have different dtypes", i);
        t->first = INT32_MAX, t->last = -1;
    }
    p->output_count = take_count(r, 2);
    TABLE(p->outputs, p->output_count);
    TABLE(p->output_ports, p->output_count);
    for (int i = 0; i < p->output_count; i++) {
        const char *name = take_text(r);
        p->outputs[i] = take_index(r, p->tensor_count);
        BAD_IF(p->outputs[i] < 0, "output %d is not a tensor", i);
        fill_port(p, &p->tensors[p->outputs[i]], name, &p->output_ports[i]);
    }
    return XPU_SUCCESS;
}

static bool is_within(uint64_t offset, uint64_t size, uint64_t room) {
    return offset <= room && size <= room - offset;
}

static xpu_status take_images(reader *r, xpu_package *p, uint64_t images_size) {
    p->image_count = take_count(r, 4);
    TABLE(p->images, p->image_count);
    for (int i = 0; i < p->image_count; i++) {
        pack_image *image = &p->images[i];
        image->offset = (uint64_t)take(r), image->size = (uint64_t)take(r);
        image->binary_offset = (uint64_t)take(r), image->binary_size = (uint64_t)take(r);
        BAD_IF(!is_within(image->offset, image->size, images_size) ||
                   !is_within(image->binary_offset, image->binary_size, images_size),
               "image %d is out of bounds: %llu bytes at %llu of %llu, its binary %llu at %llu", i,
               (unsigned long long)image->size, (unsigned long long)image->offset,
               (unsigned long long)images_size, (unsigned long long)image->binary_size,
               (unsigned long long)image->binary_offset);
    }
    CUT_OFF_IF(r);
    return XPU_SUCCESS;
}

/* Notes that a step uses a tensor, and extends the lifetime of its base. */
static xpu_status use(xpu_package *p, int step, int64_t slot, bool is_written) {
    pack_tensor *t = &p->tensors[slot];
    if (t->kind == TENSOR_VIEW) t = &p->tensors[t->base];
    if (step < t->first) t->first = step;
    if (step > t->last) t->last = step;
    if (!is_written) return XPU_SUCCESS;
    if (t->kind == TENSOR_INPUT) p->input_ports[t->base].is_written = true;
    BAD_IF(t->kind == TENSOR_CONSTANT && !p->constants[t->base].is_state, "step %d writes to a constant",
           step);
    return XPU_SUCCESS;
}

static xpu_status take_args(reader *r, xpu_package *p, int at, pack_step *step) {
    step->arg_count = take_count(r, 2);
    step->args = r->args;
    int listed = 0;
    for (int i = 0; i < step->arg_count; i++) {
        pack_arg *arg = r->args++;
        const int tag = take_index(r, ARG_TAGS);
        arg->tag = (arg_tag)tag;
        arg->value = take(r);
        BAD_IF(tag < 0 || (tag == ARG_TENSOR && (arg->value < 0 || arg->value >= p->tensor_count)) ||
                   (tag == ARG_INT && (arg->value < 0 || arg->value >= p->int_count)) ||
                   (tag == ARG_LIST && (arg->value < 0 || arg->value >= step->arg_count - i)),
               "argument %d of step %d is invalid", i, at);
        BAD_IF(listed > 0 && tag != ARG_INT, "argument %d of step %d must not be in a list", i, at);
        if (listed > 0)
            listed--;
        else if (tag == ARG_LIST)
            listed = (int)arg->value;
    }
    CUT_OFF_IF(r);
    return XPU_SUCCESS;
}

static xpu_status check_operator(xpu_package *p, int at, const pack_step *step) {
    int i = 0;
    for (const char *s = step->op->signature; *s; s++, i++) {
        bool good = i < step->arg_count;
        const pack_arg *arg = good ? &step->args[i] : NULL;
        switch (*s) {
        case 'o':
        case 't': good = good && arg->tag == ARG_TENSOR; break;
        case '?': good = good && (arg->tag == ARG_TENSOR || arg->tag == ARG_NONE); break;
        case 'i': good = good && arg->tag == ARG_INT; break;
        case 'f': good = good && arg->tag == ARG_FLOAT; break;
        default:
            good = good && arg->tag == ARG_LIST;
            if (good) i += (int)arg->value;
        }
        BAD_IF(!good, "step %d: the arguments of %s have the wrong types", at, step->op->name);
        if (arg->tag == ARG_TENSOR) XPU_TRY(use(p, at, arg->value, *s == 'o'));
    }
    BAD_IF(i != step->arg_count, "step %d: too many arguments for %s", at, step->op->name);
    return XPU_SUCCESS;
}

static xpu_status check_launch(xpu_package *p, int at, const pack_step *step) {
    const xpu_image *image = p->images[step->image].image;
    BAD_IF(step->arg_count != image->param_count, "step %d: %s has %d parameters, not %d", at, image->name,
           image->param_count, step->arg_count);
    for (int i = 0; i < step->arg_count; i++) {
        static const arg_tag tags[] = {ARG_TENSOR, ARG_INT, ARG_FLOAT};
        const xpu_param *param = &image->params[i];
        BAD_IF(step->args[i].tag != tags[param->kind] || (param->kind == XPU_PARAM_FLOAT && param->size < 4),
               "step %d: argument %d of %s has the wrong type", at, i, image->name);
        if (param->kind == XPU_PARAM_POINTER) XPU_TRY(use(p, at, step->args[i].value, param->is_written));
    }
    return XPU_SUCCESS;
}

static xpu_status take_steps(reader *r, xpu_package *p) {
    p->step_count = take_count(r, 3);
    TABLE(p->steps, p->step_count);
    for (int i = 0; i < p->step_count; i++) {
        pack_step *step = &p->steps[i];
        const int64_t image = take(r);
        BAD_IF(image < -1 || image >= p->image_count, "step %d launches image %lld, which does not exist", i,
               (long long)image);
        step->image = (int)image;
        if (image >= 0) {
            for (int d = 0; d < 3; d++)
                BAD_IF((step->grid[d] = take_index(r, p->int_count)) < 0, "step %d has no grid", i);
        } else {
            const char *name = take_text(r);
            CUT_OFF_IF(r);
            step->op = operator_find(name);
            if (!step->op)
                return xpu_fail(XPU_ERROR_NOT_SUPPORTED,
                                "package: it needs the operator %.60s, which this libxpu does not have",
                                name);
        }
        XPU_TRY(take_args(r, p, i, step));
        XPU_TRY(image >= 0 ? check_launch(p, i, step) : check_operator(p, i, step));
    }
    for (int i = 0; i < p->output_count; i++) XPU_TRY(use(p, p->step_count, p->outputs[i], false));
    CUT_OFF_IF(r);
    BAD_IF(r->left, "%zu words follow the program", r->left);
    return XPU_SUCCESS;
}

static xpu_status read_images(xpu_package *p, const unsigned char *images) {
    for (int i = 0; i < p->image_count; i++)
        XPU_TRY(xpu_image_read(images + p->images[i].offset, p->images[i].size, &p->images[i].image));
    return XPU_SUCCESS;
}

xpu_status package_parse(xpu_package *p, const unsigned char *program, size_t size,
                         const unsigned char *images, uint64_t images_size) {
    const size_t words = size / 8;
    BAD_IF(size % 8 || words > INT32_MAX, "the size of the program, %zu bytes, is not valid", size);
    /* A text has at most a byte for the NUL beside the bytes of its words, a word each before it. */
    TABLE(p->texts, size);
    TABLE(p->registers, words);
    TABLE(p->args, words);
    reader r = {program, words, false, p->texts, p->registers, p->args};
    XPU_TRY(take_ints(&r, p));
    XPU_TRY(take_constants(&r, p));
    XPU_TRY(take_inputs(&r, p));
    XPU_TRY(take_tensors(&r, p));
    XPU_TRY(take_images(&r, p, images_size));
    XPU_TRY(read_images(p, images));
    return take_steps(&r, p);
}

/* Kernel images (xpu/image.h): serialization and strict parsing. The reader accepts exactly what the writer
 * produces, field by field and space by space. Equal images are therefore equal bytes, and an edited or
 * damaged image is rejected. The format:
 *
 *     {"xpu_image": 1, "kind": "source", "name": "…", …, "code_size": 1234, "hash": "32 digits"}
 *     the code
 *
 * The hash covers everything before it, and the code. No device is needed, and any thread may call. The
 * caller of xpu_image_read owns the image and frees it with xpu_image_free; assertion texts are never freed,
 * because a deferred error may refer to them later. Errors: XPU_ERROR_INVALID_ARGUMENT (malformed),
 * XPU_ERROR_NOT_SUPPORTED (another format version), XPU_ERROR_OUT_OF_HOST_MEMORY. */
#include "xpu/image.h"

#include "core/hash.h"
#include "core/memory.h"
#include "core/os.h"
#include "core/status.h"
#include "core/text.h"

static const char *const kinds[] = {"source", "binary"};
enum { FORMAT = 1, MOST_LINE = 1 << 20 };
enum { KINDS = sizeof kinds / sizeof *kinds, GRID_BYTES = 12, REPORT_BYTES = 16 };
#define END_OF_LINE "\"}\n"

/* --- validation --- */

static bool is_word(const char *text, bool (*is_part)(char)) {
    if (!*text) return false;
    for (; *text; text++)
        if (!is_part(*text)) return false;
    return true;
}
static bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }
static bool is_letter(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

#define BAD_IF(condition, ...)                                                                               \
    do {                                                                                                     \
        if (condition) {                                                                                     \
            xpu_fail(XPU_ERROR_INVALID_ARGUMENT, "kernel image: ");                                          \
            xpu_fail_add(__VA_ARGS__);                                                                       \
            return XPU_ERROR_INVALID_ARGUMENT;                                                               \
        }                                                                                                    \
    } while (0)

static xpu_status check_params(const xpu_image *image) {
    BAD_IF(image->params_size > XPU_IMAGE_PARAMS_MAX,
           "the parameters have %u bytes; at most %d are supported", image->params_size,
           XPU_IMAGE_PARAMS_MAX);
    uint64_t end = 0;
    for (int i = 0; i < image->param_count; i++) {
        const xpu_param *p = &image->params[i];
        const bool is_pointer = p->kind == XPU_PARAM_POINTER;
        BAD_IF(!is_pointer && p->kind != XPU_PARAM_INTEGER && p->kind != XPU_PARAM_FLOAT,
               "parameter %d has an invalid kind", i);
        BAD_IF((p->size != 1 && p->size != 2 && p->size != 4 && p->size != 8) || (is_pointer && p->size != 8),
               "parameter %d has an invalid size of %u bytes", i, p->size);
        BAD_IF(p->is_bf16 && (p->kind != XPU_PARAM_FLOAT || p->size != 2), "parameter %d can't be bf16", i);
        BAD_IF(p->is_written && !is_pointer, "parameter %d can't be written", i);
        BAD_IF(p->offset < end || p->offset % p->size || p->offset > image->params_size,
               "parameter %d overlaps, is misaligned or is out of bounds at byte %u", i, p->offset);
        end = (uint64_t)p->offset + p->size;
    }
    BAD_IF(image->grid_offset < end || image->grid_offset % 4 ||
               (uint64_t)image->grid_offset + GRID_BYTES > image->params_size,
           "the grid overlaps, is misaligned or is out of bounds at byte %u of %u", image->grid_offset,
           image->params_size);
    end = (uint64_t)image->grid_offset + GRID_BYTES;
    BAD_IF(image->asserts ? image->fault_offset < end || image->fault_offset % 8 ||
                                (uint64_t)image->fault_offset + REPORT_BYTES > image->params_size
                          : image->fault_offset != 0,
           "the error report's addresses overlap, are misaligned or are out of bounds at byte %u of %u",
           image->fault_offset, image->params_size);
    return XPU_SUCCESS;
}

static xpu_status check(const xpu_image *image) {
    BAD_IF((unsigned)image->kind >= KINDS, "kind %d", (int)image->kind);
    BAD_IF(!image->name || !image->build_options || !image->target || !image->device || !image->code,
           "a field is NULL");
    BAD_IF(!is_word(image->name, is_letter), "invalid kernel name \"%.100s\"", image->name);
    BAD_IF(image->kind == XPU_IMAGE_BINARY ? *image->device && (strlen(image->device) != HASH128_DIGITS ||
                                                                !is_word(image->device, is_hex))
                                           : *image->device,
           "invalid device \"%.100s\" of its code", image->device);
    BAD_IF(image->kind == XPU_IMAGE_SOURCE && memchr(image->code, 0, image->code_size),
           "its source contains a zero byte");
    BAD_IF(!image->code_size || image->code_size > XPU_IMAGE_SIZE_MAX, "invalid code size of %zu bytes",
           image->code_size);
    BAD_IF(image->param_count < 0 || (image->param_count && !image->params), "%d parameters",
           image->param_count);
    BAD_IF(image->asserts && !image->asserts[0], "an empty list of assertions");
    BAD_IF(!image->local_size || image->local_size > 1 << 16, "invalid work-group size %u",
           image->local_size);
    return check_params(image);
}

/* --- writing --- */

static void add_string(text_buffer *to, const char *string) {
    text_add(to, "\"");
    for (const char *c = string; *c; c++)
        if (*c == '"' || *c == '\\' || (unsigned char)*c < 0x20)
            text_addf(to, "\\u%04x", *c);
        else
            text_append(to, c, 1);
    text_add(to, "\"");
}

static void add_field(text_buffer *to, const char *name, const char *string) {
    text_addf(to, ", \"%s\": ", name);
    add_string(to, string);
}

/* The header line up to the hash's digits. */
static void add_line(text_buffer *to, const xpu_image *image) {
    text_addf(to, "{\"xpu_image\": %d, \"kind\": \"%s\"", FORMAT, kinds[image->kind]);
    add_field(to, "name", image->name);
    add_field(to, "build_options", image->build_options);
    add_field(to, "target", image->target);
    add_field(to, "device", image->device);
    text_addf(to, ", \"params_size\": %u, \"grid_offset\": %u, \"fault_offset\": %u, \"local_size\": %u",
              image->params_size, image->grid_offset, image->fault_offset, image->local_size);
    text_addf(to, ", \"local_memory\": %u, \"work\": %llu, \"params\": [", image->local_memory,
              (unsigned long long)image->work);
    for (int i = 0; i < image->param_count; i++) {
        const xpu_param *p = &image->params[i];
        text_addf(to, "%s[%d, %u, %u, %d, %d]", i ? ", " : "", (int)p->kind, p->size, p->offset, p->is_bf16,
                  p->is_written);
    }
    text_add(to, "], \"asserts\": [");
    for (int i = 0; image->asserts && image->asserts[i]; i++) {
        if (i) text_add(to, ", ");
        add_string(to, image->asserts[i]);
    }
    text_addf(to, "], \"code_size\": %llu, \"hash\": \"", (unsigned long long)image->code_size);
}

static xpu_status write_line(const xpu_image *image, const text_buffer *line, char *bytes, size_t room,
                             size_t *size) {
    if (line->failed) return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for a kernel image");
    const size_t end = line->size + HASH128_DIGITS + sizeof END_OF_LINE - 1, all = end + image->code_size;
    BAD_IF(all > XPU_IMAGE_SIZE_MAX, "%zu bytes; at most %d are supported", all, XPU_IMAGE_SIZE_MAX);
    BAD_IF(end > MOST_LINE, "a line of %zu bytes; at most %d are supported", end, MOST_LINE);
    *size = all;
    if (!bytes) return XPU_SUCCESS;
    XPU_REJECT_IF(room < all, "the buffer has room for %zu bytes of %zu", room, all);
    char digits[HASH128_DIGITS + 1];
    hash128_text(
        hash128_add(hash128_add(HASH128_START, line->data, line->size), image->code, image->code_size),
        digits);
    memcpy(bytes, line->data, line->size);
    memcpy(bytes + line->size, digits, HASH128_DIGITS);
    memcpy(bytes + line->size + HASH128_DIGITS, END_OF_LINE, sizeof END_OF_LINE - 1);
    memcpy(bytes + end, image->code, image->code_size);
    return XPU_SUCCESS;
}

xpu_status xpu_image_write(const xpu_image *image, void *bytes, size_t room, size_t *size) {
    XPU_REJECT_IF(!image || !size, "NULL");
    XPU_TRY(check(image));
    text_buffer line = {0};
    add_line(&line, image);
    const xpu_status status = write_line(image, &line, bytes, room, size);
    text_free(&line);
    return status;
}

/* --- reading --- */

/* Parser state. The first mismatch sets `wrong`, after which every step does nothing. Strings are copied to
 * `texts`, which has room for as many bytes as the line has. */
typedef struct walk {
    const char *at, *end;
    const char *wrong; /* what was expected */
    char *texts;
} walk;

static void take(walk *w, const char *wanted) {
    const size_t size = strlen(wanted);
    if (w->wrong) return;
    if ((size_t)(w->end - w->at) < size || memcmp(w->at, wanted, size))
        w->wrong = wanted;
    else
        w->at += size;
}

/* Skips `maybe` if it comes next; returns whether it did. */
static bool next_is(walk *w, const char *maybe) {
    const size_t size = strlen(maybe);
    if (w->wrong || (size_t)(w->end - w->at) < size || memcmp(w->at, maybe, size)) return false;
    w->at += size;
    return true;
}

static uint64_t take_number(walk *w, uint64_t most) {
    const char *start = w->at;
    uint64_t number = 0;
    bool fits = true;
    if (w->wrong) return 0;
    for (; w->at < w->end && *w->at >= '0' && *w->at <= '9'; w->at++) {
        const uint64_t digit = (uint64_t)(*w->at - '0');
        fits = fits && digit <= most && number <= (most - digit) / 10;
        number = fits ? number * 10 + digit : 0;
    }
    if (w->at == start || !fits || (*start == '0' && w->at > start + 1)) w->wrong = "valid number";
    return number;
}

/* Reads a "\u00xx" escape; accepts only characters that the writer escapes. */
static void take_escape(walk *w) {
    static const char digits[] = "0123456789abcdef";
    take(w, "\\u00");
    if (w->wrong || w->end - w->at < 2) {
        w->wrong = "valid character";
        return;
    }
    const char *high = memchr(digits, w->at[0], 16), *low = memchr(digits, w->at[1], 16);
    const int c = high && low ? (int)(high - digits) * 16 + (int)(low - digits) : 0;
    if (!c || (c >= 0x20 && c != '"' && c != '\\')) {
        w->wrong = "valid character";
        return;
    }
    w->at += 2;
    *w->texts++ = (char)c;
}

static const char *take_string(walk *w) {
    const char *start = w->texts;
    take(w, "\"");
    while (!w->wrong && !next_is(w, "\"")) {
        if (w->at == w->end || (unsigned char)*w->at < 0x20)
            w->wrong = "end of a string";
        else if (*w->at == '\\')
            take_escape(w);
        else
            *w->texts++ = *w->at++;
    }
    if (w->wrong) return "";
    *w->texts++ = 0; /* the quotes leave room for it */
    return start;
}

static void take_name(walk *w, const char *name) {
    take(w, ", \"");
    take(w, name);
    take(w, "\": ");
}
static const char *take_field(walk *w, const char *name) {
    take_name(w, name);
    return take_string(w);
}
static uint32_t take_size(walk *w, const char *name) {
    take_name(w, name);
    return (uint32_t)take_number(w, UINT32_MAX);
}

/* List elements are at least two bytes apart, so a line holds at most half as many elements as bytes. */
static int take_params(walk *w, xpu_param *params) {
    int count = 0;
    take_name(w, "params");
    take(w, "[");
    while (!w->wrong && !next_is(w, "]")) {
        xpu_param *p = &params[count];
        take(w, count++ ? ", [" : "[");
        p->kind = (xpu_param_kind)take_number(w, XPU_PARAM_FLOAT);
        take(w, ", ");
        p->size = (uint32_t)take_number(w, UINT32_MAX);
        take(w, ", ");
        p->offset = (uint32_t)take_number(w, UINT32_MAX);
        take(w, ", ");
        p->is_bf16 = take_number(w, 1);
        take(w, ", ");
        p->is_written = take_number(w, 1);
        take(w, "]");
    }
    return count;
}
static int take_asserts(walk *w, const char **asserts) {
    int count = 0;
    take_name(w, "asserts");
    take(w, "[");
    while (!w->wrong && !next_is(w, "]")) {
        if (count) take(w, ", ");
        asserts[count++] = take_string(w);
    }
    return count;
}

static void take_line(walk *w, xpu_image *image, xpu_param *params, const char **asserts,
                      uint64_t *code_size) {
    take(w, ", \"kind\": \"");
    image->kind = next_is(w, kinds[XPU_IMAGE_SOURCE]) ? XPU_IMAGE_SOURCE : XPU_IMAGE_BINARY;
    if (image->kind == XPU_IMAGE_BINARY) take(w, kinds[XPU_IMAGE_BINARY]);
    take(w, "\"");
    image->name = take_field(w, "name");
    image->build_options = take_field(w, "build_options");
    image->target = take_field(w, "target");
    image->device = take_field(w, "device");
    image->params_size = take_size(w, "params_size");
    image->grid_offset = take_size(w, "grid_offset");
    image->fault_offset = take_size(w, "fault_offset");
    image->local_size = take_size(w, "local_size");
    image->local_memory = take_size(w, "local_memory");
    take_name(w, "work");
    image->work = take_number(w, UINT64_MAX);
    image->params = params;
    image->param_count = take_params(w, params);
    image->asserts = take_asserts(w, asserts) ? asserts : NULL;
    take_name(w, "code_size");
    *code_size = take_number(w, XPU_IMAGE_SIZE_MAX);
    take_name(w, "hash");
    take(w, "\"");
}

/* Assertion texts outlive their image, because a fault may be reported after it is freed. */
typedef struct kept_asserts {
    struct kept_asserts *next;
    hash128 hash;
    size_t count;
    const char *texts[];
} kept_asserts;
static os_mutex kept_lock = OS_MUTEX_INIT; /* guards `kept` */
static kept_asserts *kept;

static bool same_asserts(const kept_asserts *k, const char *const *asserts, size_t count) {
    if (k->count != count) return false;
    for (size_t i = 0; i < count; i++)
        if (strcmp(k->texts[i], asserts[i])) return false;
    return true;
}

static kept_asserts *new_asserts(const char *const *asserts, size_t count, size_t bytes) {
    kept_asserts *k = core_malloc(sizeof *k + (count + 1) * sizeof(char *) + bytes);
    if (!k) return NULL;
    char *to = (char *)&k->texts[count + 1];
    k->count = count;
    for (size_t i = 0; i < count; i++) {
        const size_t size = strlen(asserts[i]) + 1;
        k->texts[i] = memcpy(to, asserts[i], size);
        to += size;
    }
    k->texts[count] = NULL;
    return k;
}

static xpu_status keep_asserts(const char *const **asserts) {
    if (!*asserts) return XPU_SUCCESS;
    hash128 hash = HASH128_START;
    size_t count = 0, bytes = 0;
    for (; (*asserts)[count]; count++) {
        const size_t size = strlen((*asserts)[count]) + 1;
        hash = hash128_add(hash, (*asserts)[count], size);
        bytes += size;
    }
    os_mutex_lock(&kept_lock);
    kept_asserts *k = kept;
    while (k && !(k->hash.a == hash.a && k->hash.b == hash.b && same_asserts(k, *asserts, count)))
        k = k->next;
    if (!k && (k = new_asserts(*asserts, count, bytes))) {
        k->hash = hash;
        k->next = kept;
        kept = k;
    }
    os_mutex_unlock(&kept_lock);
    if (!k) return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for the texts of assertions");
    *asserts = k->texts;
    return XPU_SUCCESS;
}

/* Reads the code behind the header line, and checks the hash. */
static xpu_status take_code(const walk *w, const char *bytes, uint64_t code_size, xpu_image *image,
                            char *code) {
    const size_t left = (size_t)(w->end - w->at), tail = HASH128_DIGITS + sizeof END_OF_LINE - 1;
    BAD_IF(left < tail || left - tail != code_size,
           "the code has %zu bytes instead of %llu: it was cut off or damaged", left < tail ? 0 : left - tail,
           (unsigned long long)code_size);
    BAD_IF(memcmp(w->at + HASH128_DIGITS, END_OF_LINE, sizeof END_OF_LINE - 1),
           "the header line does not end");
    memcpy(code, w->at + tail, code_size);
    code[code_size] = 0;
    image->code = code;
    image->code_size = code_size;
    char digits[HASH128_DIGITS + 1];
    hash128_text(hash128_add(hash128_add(HASH128_START, bytes, (size_t)(w->at - bytes)), code, code_size),
                 digits);
    BAD_IF(memcmp(w->at, digits, HASH128_DIGITS), "damaged: the hash does not match");
    XPU_TRY(check(image));
    return keep_asserts(&image->asserts);
}

xpu_status xpu_image_read(const void *bytes, size_t size, xpu_image **image) {
    XPU_REJECT_IF(!image || (size && !bytes), "NULL");
    BAD_IF(size > XPU_IMAGE_SIZE_MAX, "%zu bytes; at most %d are supported", size, XPU_IMAGE_SIZE_MAX);
    if (!size) bytes = "";
    walk w = {.at = bytes, .end = (const char *)bytes + size};
    take(&w, "{\"xpu_image\": ");
    BAD_IF(w.wrong, "these %zu bytes are not a kernel image", size);
    const uint64_t format = take_number(&w, UINT32_MAX);
    if (!w.wrong && format != FORMAT)
        return xpu_fail(
            XPU_ERROR_NOT_SUPPORTED,
            "kernel image: it has format %llu, but this libxpu reads format %d: compile the kernel again",
            (unsigned long long)format, FORMAT);
    /* One allocation holds the image, pointers, parameters, texts and code. The shortest parameter takes 15
     * bytes, the shortest text 2. */
    const char *line_end = memchr(bytes, '\n', size);
    const size_t line = line_end ? (size_t)(line_end - (const char *)bytes) : size;
    BAD_IF(line > MOST_LINE, "a line of %zu bytes; at most %d are supported", line, MOST_LINE);
    const size_t asserts = line / 2 + 2, params = line / 15 + 1;
    char *piece = core_malloc(sizeof **image + asserts * sizeof(char *) + params * sizeof(xpu_param) + line +
                              (size - line) + 1);
    if (!piece) return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for a kernel image");
    xpu_image *made = (xpu_image *)(void *)piece;
    const char **assert_list = (const char **)(void *)(made + 1);
    xpu_param *param_list = (xpu_param *)(void *)(assert_list + asserts);
    *made = (xpu_image){0};
    memset(assert_list, 0, asserts * sizeof *assert_list);
    w.texts = (char *)(param_list + params);
    uint64_t code_size = 0;
    take_line(&w, made, param_list, assert_list, &code_size);
    xpu_status status;
    if (w.wrong)
        status = xpu_fail(XPU_ERROR_INVALID_ARGUMENT, "kernel image: at byte %zu, expected %s",
                          (size_t)(w.at - (const char *)bytes), w.wrong);
    else
        status = take_code(&w, bytes, code_size, made, w.texts);
    if (status == XPU_SUCCESS)
        *image = made;
    else
        core_free(piece);
    return status;
}

void xpu_image_free(xpu_image *image) { core_free(image); }

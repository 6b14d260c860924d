/* Package files: writing, mapping, checking, and preparation for a device. The mapping and all tables belong
 * to the xpu_package. Errors: XPU_ERROR_IO (the file cannot be read), XPU_ERROR_INVALID_ARGUMENT (malformed
 * or damaged), XPU_ERROR_NOT_SUPPORTED (no program for this kind of device). */
#include <stdatomic.h>

#include "package/format.h"
#include "xpu/device.h"
#include "xpu/memory.h"
#include "xpu/tile.h"

hash128 head_hash(const file_head *head) {
    file_head copy = *head;
    copy.hash = (hash128){0, 0};
    return hash128_end(hash128_add(HASH128_START, &copy, sizeof copy));
}
static hash128 section_hash(const void *data, size_t size) {
    return hash128_end(hash128_add(HASH128_START, data, size));
}
static bool same_hash(hash128 a, hash128 b) { return a.a == b.a && a.b == b.b; }

/* --- writing --- */

static const char zeros[PAGE];

/* Concatenates buffers, each padded to a multiple of `align`, and hashes them. The hash must be fed in whole
 * words to equal that of the contiguous section (hash.h). */
enum { WORD = 8 };
typedef struct layout {
    os_bytes *pieces;
    int count;
    uint64_t at;
    hash128 hash;
} layout;
static void put(layout *l, const void *data, size_t size, size_t align) {
    const size_t rest = (align - size % align) % align, tail = rest ? size % WORD : 0;
    const os_bytes parts[2] = {{data, size}, {zeros, rest}};
    for (int i = 0; i < 2; i++) {
        if (!parts[i].size) continue;
        l->pieces[l->count++] = parts[i];
        l->at += parts[i].size;
    }
    l->hash = hash128_add(l->hash, data, size - tail);
    if (tail) { /* a word made of the last bytes and the first padding */
        char word[WORD] = {0};
        memcpy(word, (const char *)data + size - tail, tail);
        l->hash = hash128_add(l->hash, word, WORD);
    }
    l->hash = hash128_add(l->hash, zeros, tail ? rest - (WORD - tail) : rest);
}

xpu_status xpu_package_write(const char *path, const char *about, const int64_t *program, size_t words,
                             const xpu_package_chunk *images, size_t image_count,
                             const xpu_package_chunk *weights, size_t weight_count) {
    XPU_REJECT_IF(!path || !about || (words && !program) || (image_count && !images) ||
                      (weight_count && !weights),
                  "NULL");
    const size_t most = 2 * (image_count + weight_count) + 16;
    const xpu_package_chunk text = {about, strlen(about)}, code = {program, words * 8};
    const xpu_package_chunk *sections[SECTIONS] = {&text, &code, images, weights};
    const size_t counts[SECTIONS] = {1, 1, image_count, weight_count};
    file_head head = {.magic = MAGIC, .version = VERSION, .sections = SECTIONS};
    char first[PAGE] = {0};
    layout l = {.pieces = core_malloc(most * sizeof(os_bytes))};
    if (!l.pieces) return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory while writing %s", path);
    put(&l, first, sizeof first, 1);
    for (int s = 0; s < SECTIONS; s++) {
        head.section[s].offset = l.at;
        l.hash = HASH128_START;
        for (size_t i = 0; i < counts[s]; i++)
            put(&l, sections[s][i].data, sections[s][i].size,
                s == SECTION_WEIGHTS  ? XPU_PACKAGE_ALIGN
                : s == SECTION_IMAGES ? WORD
                                      : 1);
        head.section[s].size = l.at - head.section[s].offset;
        head.section[s].hash = hash128_end(l.hash);
        if (s + 1 < SECTIONS) put(&l, zeros, (PAGE - l.at % PAGE) % PAGE, 1);
    }
    head.size = l.at;
    head.hash = head_hash(&head);
    memcpy(first, &head, sizeof head);
    const bool good = os_file_write(path, l.pieces, l.count);
    core_free(l.pieces);
    return good ? XPU_SUCCESS : xpu_fail(XPU_ERROR_IO, "could not write %s", path);
}

/* --- reading --- */

static xpu_status check_head(const os_map *map, file_head *head) {
    BAD_IF(map->size < sizeof *head, "these %zu bytes are not a package", map->size);
    memcpy(head, map->data, sizeof *head);
    BAD_IF(memcmp(head->magic, MAGIC, sizeof head->magic), "these %zu bytes are not a package", map->size);
    if (head->version != VERSION)
        return xpu_fail(
            XPU_ERROR_NOT_SUPPORTED,
            "package: the file has version %u, but this libxpu reads version %d: export the model again",
            head->version, VERSION);
    const hash128 hash = head_hash(head);
    BAD_IF(!same_hash(hash, head->hash), "the file header is damaged");
    BAD_IF(head->sections != SECTIONS, "%u sections", head->sections);
    BAD_IF(head->size != map->size, "the file has %zu bytes instead of %llu: it was cut off", map->size,
           (unsigned long long)head->size);
    for (int s = 0; s < SECTIONS; s++) {
        const file_section *section = &head->section[s];
        BAD_IF(section->offset % PAGE || section->offset > map->size ||
                   section->size > map->size - section->offset,
               "section %d is out of bounds or misaligned: %llu bytes at %llu", s,
               (unsigned long long)section->size, (unsigned long long)section->offset);
        BAD_IF(!same_hash(section_hash(map->data + section->offset, section->size), section->hash),
               "section %d is damaged: its hash does not match", s);
    }
    return XPU_SUCCESS;
}

/* Loads a binary's kernel; leaves NULL if the driver rejects it, since it may have been compiled offline for
 * another device. */
static xpu_status binary_kernel(const xpu_package *p, const unsigned char *images, pack_image *of) {
    xpu_image *binary;
    if (!of->binary_size) return XPU_SUCCESS;
    XPU_TRY(xpu_image_read(images + of->binary_offset, of->binary_size, &binary));
    if (xpu_image_kernel(binary, p->device, &of->kernel) != XPU_SUCCESS) of->kernel = NULL;
    xpu_image_free(binary);
    return XPU_SUCCESS;
}

/* Builds the kernels that no binary has supplied. */
static xpu_status kernels_from_source(xpu_package *p) {
    const size_t most = (size_t)p->image_count + 1;
    const xpu_image **images = core_calloc(most, sizeof *images);
    xpu_kernel **kernels = core_calloc(most, sizeof *kernels);
    int count = 0;
    for (int i = 0; images && i < p->image_count; i++)
        if (!p->images[i].kernel) images[count++] = p->images[i].image;
    const xpu_status status =
        images && kernels ? xpu_image_kernels(images, count, p->device, kernels)
                          : xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for a package");
    for (int i = 0, k = 0; status == XPU_SUCCESS && i < p->image_count; i++)
        if (!p->images[i].kernel) p->images[i].kernel = kernels[k++];
    core_free(images);
    core_free(kernels);
    return status;
}

/* Creates a program's kernels from its binaries; with `from_source`, rejected binaries are replaced by
 * building the source. XPU_ERROR_NOT_SUPPORTED if the program is for another kind of device, or a binary is
 * rejected. The target is checked first, because source for another kind of device may build and give wrong
 * results. */
static xpu_status ready_kernels(xpu_package *p, const unsigned char *images, bool from_source) {
    for (int i = 0; i < p->image_count; i++)
        XPU_TRY(xpu_tile_target_check(p->images[i].image->target, p->device));
    for (int i = 0; i < p->image_count; i++) {
        pack_image *image = &p->images[i];
        XPU_TRY(binary_kernel(p, images, image));
        if (!image->kernel && image->binary_size && !from_source) return XPU_ERROR_NOT_SUPPORTED;
    }
    return kernels_from_source(p);
}

static void free_tables(xpu_package *p) {
    for (int i = 0; p->images && i < p->image_count; i++) xpu_image_free(p->images[i].image);
    void *const tables[] = {p->texts,    p->ints,    p->checks,      p->constants,    p->tensors,
                            p->expected, p->outputs, p->input_ports, p->output_ports, p->images,
                            p->steps,    p->args,    p->registers,   p->sizes,        p->bases};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) core_free(tables[i]);
}

static xpu_status check_lengths(const unsigned char *programs, size_t words, int64_t count) {
    size_t at = 1;
    BAD_IF(count < 1 || (uint64_t)count > words, "the file has no program");
    for (int64_t i = 0, length; i < count; i++, at += (size_t)length) {
        BAD_IF(at >= words, "program %lld is cut off", (long long)i);
        memcpy(&length, programs + 8 * at++, sizeof length);
        BAD_IF(length < 0 || (uint64_t)length > words - at, "program %lld is cut off", (long long)i);
    }
    BAD_IF(at != words, "%zu words follow the last program", words - at);
    return XPU_SUCCESS;
}

/* Reads the first program that suits the device; programs with usable binaries have priority. */
static xpu_status choose_program(xpu_package *p, const unsigned char *programs, size_t size,
                                 const unsigned char *images, uint64_t images_size) {
    const xpu_package bare = *p;
    int64_t count = 0, length;
    if (size >= 8) memcpy(&count, programs, sizeof count);
    BAD_IF(size % 8, "the size of the programs, %zu bytes, is not a multiple of 8", size);
    XPU_TRY(check_lengths(programs, size / 8, count));
    for (int from_source = 0; from_source < 2; from_source++) {
        const unsigned char *at = programs + 8;
        for (int64_t i = 0; i < count; i++, at += 8 * length) {
            memcpy(&length, at, sizeof length);
            at += 8;
            free_tables(p);
            *p = bare;
            XPU_TRY(package_parse(p, at, (size_t)length * 8, images, images_size));
            const xpu_status status = ready_kernels(p, images, from_source);
            if (status != XPU_ERROR_NOT_SUPPORTED) return status;
        }
    }
    if (count > 1) xpu_fail_add(" (the last of the package's %lld targets)", (long long)count);
    return XPU_ERROR_NOT_SUPPORTED;
}

static xpu_status ready_weights(xpu_package *p) {
    xpu_stream *stream;
    XPU_TRY(xpu_stream_default(p->device, &stream));
    const unsigned char *weights = p->weights;
    if (!p->is_mapped_there && p->weights_size) {
        XPU_TRY(xpu_malloc(stream, p->weights_size, &p->device_weights));
        XPU_TRY(xpu_memcpy(stream, p->device_weights, p->weights, p->weights_size, true));
        weights = p->device_weights;
    }
    if (p->state_size) XPU_TRY(xpu_malloc(stream, p->state_size, &p->state));
    uint64_t state = 0; /* bytes */
    for (int i = 0; i < p->constant_count; i++) {
        pack_constant *c = &p->constants[i];
        c->data = (void *)(uintptr_t)(weights + c->offset);
        if (!c->is_state) continue;
        c->data = p->state ? (char *)p->state + state : NULL;
        if (c->size) XPU_TRY(xpu_memcpy(stream, c->data, p->weights + c->offset, c->size, true));
        state += (c->size + XPU_PACKAGE_ALIGN - 1) / XPU_PACKAGE_ALIGN * XPU_PACKAGE_ALIGN;
    }
    return xpu_stream_synchronize(stream);
}

static xpu_status open_package(xpu_package *p, const char *path) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(p->device, &properties));
    p->is_mapped_there = properties->type == XPU_DEVICE_CPU && properties->host_unified_memory;
    /* Trim before the weights are read; the first run trims again after its kernels are built. */
    static _Atomic bool trimmed;
    if (p->is_mapped_there && !atomic_exchange(&trimmed, true)) XPU_TRY(xpu_device_trim(p->device));
    if (!os_file_map(path, &p->map)) return xpu_fail(XPU_ERROR_IO, "package: could not read %s", path);
    file_head head;
    XPU_TRY(check_head(&p->map, &head));
    const file_section *about = &head.section[SECTION_ABOUT], *program = &head.section[SECTION_PROGRAM],
                       *images = &head.section[SECTION_IMAGES], *weights = &head.section[SECTION_WEIGHTS];
    if (!(p->about = core_calloc(about->size + 1, 1)))
        return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for a package");
    memcpy(p->about, p->map.data + about->offset, about->size);
    p->weights = p->map.data + weights->offset;
    p->weights_size = weights->size;
    XPU_TRY(choose_program(p, p->map.data + program->offset, program->size, p->map.data + images->offset,
                           images->size));
    p->memory = (xpu_package_memory){.file = p->map.size, .weights = p->weights_size, .state = p->state_size};
    return ready_weights(p);
}

xpu_status xpu_package_open(const char *path, int device, xpu_package **package) {
    XPU_REJECT_IF(!path || !package, "NULL");
    xpu_package *p = core_calloc(1, sizeof *p);
    if (!p) return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for a package");
    p->device = device;
    const xpu_status status = open_package(p, path);
    if (status == XPU_SUCCESS)
        *package = p;
    else
        xpu_package_close(p);
    return status;
}

void xpu_package_close(xpu_package *p) {
    if (!p) return;
    if (p->state || p->device_weights || p->arena) xpu_device_synchronize(p->device);
    xpu_free(p->arena);
    xpu_free(p->state);
    xpu_free(p->device_weights);
    for (int i = 0; i < PLANS; i++) plan_free(p->plans[i]);
    free_tables(p);
    core_free(p->about);
    os_file_unmap(&p->map);
    core_free(p);
}

xpu_status xpu_package_inputs(const xpu_package *p, const xpu_package_port **ports, int *count) {
    XPU_REJECT_IF(!p || !ports || !count, "NULL");
    *ports = p->input_ports;
    *count = p->input_count;
    return XPU_SUCCESS;
}

xpu_status xpu_package_outputs(const xpu_package *p, const xpu_package_port **ports, int *count) {
    XPU_REJECT_IF(!p || !ports || !count, "NULL");
    *ports = p->output_ports;
    *count = p->output_count;
    return XPU_SUCCESS;
}

xpu_status xpu_package_memory_of(const xpu_package *p, xpu_package_memory *memory) {
    XPU_REJECT_IF(!p || !memory, "NULL");
    *memory = p->memory;
    return XPU_SUCCESS;
}

const char *xpu_package_about(const xpu_package *p) { return p->about; }

/* 2D block messages. The payload's first register holds the surface's base address, its width, height and
 * pitch in bytes less one, the block's position in elements, and its width, height and number less one. */
#include "eu/unit.h"

#include "check/check.h"
#include "eu/memory.h"
#include "profile.h"

struct block {
    uint64_t base;
    int64_t surface_width, surface_height, pitch; /* bytes, rows, bytes */
    int64_t x, y;                                 /* elements, rows */
    int width, height, count;                     /* elements, rows, blocks side by side */
    int element_bytes;
    bool vnni, transposed;
};

static int power_of_two(int n) {
    int p = 1;
    while (p < n) p *= 2;
    return p;
}

static struct block read_block(const struct thread *t, const struct instruction *in,
                               const struct message *m) {
    uint32_t d[8];
    memcpy(d, t->registers + in->source[0].lane[0], sizeof d);
    return (struct block){
        .base = d[0] | (uint64_t)d[1] << 32,
        .surface_width = d[2] + 1ll,
        .surface_height = d[3] + 1ll,
        .pitch = d[4] + 1ll,
        .x = (int32_t)d[5] + ((int32_t)(m->extended << 10) >> 22),
        .y = (int32_t)d[6] + ((int32_t)m->extended >> 22),
        .width = (int)(d[7] & 255) + 1,
        .height = (int)(d[7] >> 8 & 255) + 1,
        .count = (int)(d[7] >> 16 & 15) + 1,
        .element_bytes = 1 << (m->descriptor >> 9 & 7),
        .vnni = m->descriptor >> 7 & 1,
        .transposed = m->descriptor >> 15 & 1,
    };
}

/* What the hardware requires; it ignores low bits of what is not aligned, so that other data are read. */
static bool is_allowed(struct thread *t, const struct instruction *in, const struct block *b) {
    const int64_t limit = 1 << 24;
    const bool ok = !(b->base & 63) && b->pitch >= 64 && !(b->pitch & 7) && b->surface_width >= 64 &&
                    !(b->surface_width & 3) && b->surface_width <= b->pitch && b->pitch <= limit &&
                    b->surface_height <= limit && !(b->x * b->element_bytes & 3);
    return ok || thread_fault(
                     t, in,
                     "2D block message: base %#llx, width %lld, height %lld, pitch %lld, column %lld of %d "
                     "bytes are not allowed",
                     (unsigned long long)b->base, (long long)b->surface_width, (long long)b->surface_height,
                     (long long)b->pitch, (long long)b->x, b->element_bytes);
}

/* How one block lies in registers: rows of `row` bytes; VNNI: rows of dwords that hold 4 / element_bytes
 * rows. */
struct layout {
    int row, bytes, vnni;
};

static struct layout layout_of(const struct block *b, int register_size) {
    struct layout l = {.vnni = 1};
    int rows = b->height;
    if (b->transposed) {
        l.row = power_of_two(b->height * b->element_bytes);
        rows = b->width;
    } else if (b->vnni && b->element_bytes < 4) {
        l.vnni = 4 / b->element_bytes;
        l.row = power_of_two(b->width * 4);
        rows = (b->height + l.vnni - 1) / l.vnni;
    } else {
        l.row = power_of_two(b->width * b->element_bytes);
    }
    l.bytes = (l.row * rows + register_size - 1) / register_size * register_size;
    return l;
}

static int element_place(const struct block *b, const struct layout *l, int row, int column) {
    if (b->transposed) return column * l->row + row * b->element_bytes;
    if (l->vnni > 1) return row / l->vnni * l->row + column * 4 + row % l->vnni * b->element_bytes;
    return row * l->row + column * b->element_bytes;
}

/* Columns [first, last) of block n's row that lie inside of the surface. */
static void inside(const struct block *b, int n, int *first, int *last) {
    const int64_t start = b->x + (int64_t)n * b->width, end = b->surface_width / b->element_bytes;
    const int64_t low = start < 0 ? -start : 0, high = start + b->width > end ? end - start : b->width;
    *first = (int)(low > b->width ? b->width : low);
    *last = (int)(high < *first ? *first : high);
}

static void scatter(uint8_t *to, const uint8_t *from, int count, int stride, int size) {
    switch (size) {
    case 1:
        for (int i = 0; i < count; i++) to[i * stride] = from[i];
        break;
    case 2:
        for (int i = 0; i < count; i++) memcpy(to + i * stride, from + 2 * i, 2);
        break;
    case 4:
        for (int i = 0; i < count; i++) memcpy(to + i * stride, from + 4 * i, 4);
        break;
    default:
        for (int i = 0; i < count; i++) memcpy(to + i * stride, from + 8 * i, 8);
        break;
    }
}

/* One row of one block: at once where its elements are adjacent in registers. */
static bool transfer_row(const struct access *a, const struct block *b, const struct layout *l, int n,
                         int row, uint8_t *registers) {
    int first, last;
    const int size = b->element_bytes;
    const int64_t line = b->y + row;
    inside(b, n, &first, &last);
    if (line < 0 || line >= b->surface_height || first == last) return true;
    const uint64_t at = b->base + (uint64_t)(line * b->pitch + (b->x + (int64_t)n * b->width + first) * size);
    const uint32_t bytes = (uint32_t)((last - first) * size);
    if (!b->transposed && l->vnni == 1) {
        uint8_t *r = registers + element_place(b, l, row, first);
        if (!a->store) return memory_read(a, at, r, bytes);
        if (a->thread->group->worker->check) check_block_write(a, r, bytes);
        return memory_write(a, at, r, bytes);
    }
    uint8_t line_bytes[1024];
    if (!memory_read(a, at, line_bytes, bytes)) return false;
    const int stride = element_place(b, l, row, 1) - element_place(b, l, row, 0);
    scatter(registers + element_place(b, l, row, first), line_bytes, last - first, stride, size);
    return true;
}

static void count_rows(struct worker *w, const struct instruction *in, const struct message *m,
                       const struct block *b) {
    for (int n = 0; n < b->count; n++) {
        int first, last;
        inside(b, n, &first, &last);
        for (int64_t row = 0, line = b->y; row < b->height && first < last; row++, line++)
            if (line >= 0 && line < b->surface_height)
                profile_range(w, in, m,
                              b->base + (uint64_t)(line * b->pitch) +
                                  (uint64_t)((b->x + (int64_t)n * b->width + first) * b->element_bytes),
                              (uint64_t)((last - first) * b->element_bytes));
    }
}

static bool transfer(struct thread *t, const struct instruction *in, const struct message *m, uint32_t mask) {
    (void)mask;
    const struct block b = read_block(t, in, m);
    const struct layout l = layout_of(&b, register_bytes(t));
    const struct access a = {.thread = t, .in = in, .store = m->store};
    if (!is_allowed(t, in, &b)) return false;
    if (t->group->worker->counts) count_rows(t->group->worker, in, m, &b);
    if (is_prefetch(m, in)) return true;
    const int total = l.bytes * b.count / register_bytes(t), told = (int)(m->descriptor >> 20 & 31);
    if (!m->store && total != told && !(told == 31 && total == 32))
        return thread_fault(t, in, "2D block message of %d registers, but its descriptor says %d", total,
                            told);
    uint8_t *registers = t->registers + (m->store ? in->source[1].lane[0] : in->destination.lane[0]);
    for (int n = 0; n < b.count; n++, registers += l.bytes) {
        if (!m->store) memset(registers, 0, (size_t)l.bytes);
        for (int row = 0; row < b.height; row++)
            if (!transfer_row(&a, &b, &l, n, row, registers)) return false;
        if (!m->store && t->group->worker->check) check_block_read(t, registers, (uint32_t)l.bytes);
    }
    return true;
}

void block2d_decode(struct message *m, const struct instruction *in) {
    (void)in;
    const bool vnni = m->descriptor >> 7 & 1, transpose = m->descriptor >> 15 & 1;
    if ((m->descriptor >> 9 & 7) > 3 || (vnni && transpose) || (m->store && (vnni || transpose))) return;
    m->execute = transfer;
}

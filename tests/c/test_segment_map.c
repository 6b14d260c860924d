/* Lookup of segments by pointers, with any arrangement of segments within a granule, at any address. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fake_device.h"
#include "runtime/segment_map.h"

typedef struct piece {
    uintptr_t base;
    size_t size;
    int device;
    bool in;
} piece;

static struct segment *as_segment(piece *p) { return (struct segment *)p; }

static void check_ends(piece *pieces, int count) {
    for (int i = 0; i < count; i++) {
        uintptr_t at[] = {pieces[i].base, pieces[i].base + pieces[i].size - 1,
                          pieces[i].base + pieces[i].size / 2, pieces[i].base + MIB};
        for (int k = 0; k < 4; k++) {
            assert_int_equal(segment_map_device((void *)at[k]), pieces[i].in ? pieces[i].device : -1);
            assert_ptr_equal(segment_map_find((void *)at[k]), pieces[i].in ? as_segment(&pieces[i]) : NULL);
        }
    }
}

static void every_way_to_meet(void **state) {
    /* Low, usual, and top-of-memory addresses, as on GPUs with 57-bit address spaces. */
    static const uintptr_t regions[] = {0x200000, 0x7f1234567000, 0xffff8000ab400000, 0xff00000000200040};
    uint64_t r = 5;
    for (int region = 0; region < 4; region++) {
        enum { COUNT = 60 };
        piece pieces[COUNT];
        uintptr_t at = regions[region];
        for (int i = 0; i < COUNT; i++) {
            static const size_t sizes[] = {2 * MIB, 20 * MIB, 4 * MIB, 2 * MIB};
            at += 64 * (random_below(&r, 2) ? 0 : random_below(&r, 70000));
            pieces[i] = (piece){at, sizes[random_below(&r, 4)], (int)random_below(&r, 3), false};
            at += pieces[i].size;
        }
        assert_int_equal(segment_map_device((void *)regions[region]), -1);
        for (int step = 0; step < 1000; step++) {
            piece *p = &pieces[random_below(&r, COUNT)];
            if (p->in)
                segment_map_remove((char *)p->base, p->size);
            else
                assert_int_equal(segment_map_add(p->device, as_segment(p), (char *)p->base, p->size),
                                 XPU_SUCCESS);
            p->in = !p->in;
            check_ends(pieces, COUNT);
        }
        for (int i = 0; i < COUNT; i++)
            if (pieces[i].in) segment_map_remove((char *)pieces[i].base, pieces[i].size);
    }
}

static void overlaps_are_refused(void **state) {
    piece a = {0x10000000, 20 * MIB, 0, true};
    assert_int_equal(segment_map_add(0, as_segment(&a), (char *)a.base, a.size), XPU_SUCCESS);
    uintptr_t bases[] = {
        a.base, a.base + 64, a.base - MIB, a.base + 19 * MIB, a.base + 20 * MIB - 64, a.base - 8 * MIB + 64};
    size_t sizes[] = {2 * MIB, 20 * MIB, 2 * MIB, 4 * MIB, 2 * MIB, 8 * MIB};
    for (int i = 0; i < 6; i++) {
        piece b = {bases[i], sizes[i], 1, false};
        assert_int_equal(segment_map_add(1, as_segment(&b), (char *)b.base, b.size), XPU_ERROR_NOT_SUPPORTED);
        check_ends(&a, 1);
        /* Nothing of the rejected segment remains. */
        assert_int_equal(segment_map_device((char *)a.base - 1), -1);
        assert_int_equal(segment_map_device((char *)a.base + a.size), -1);
    }
    segment_map_remove((char *)a.base, a.size);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_way_to_meet),
                                       cmocka_unit_test(overlaps_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

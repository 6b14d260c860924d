/* The tree of ranges against a sorted array. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "fake_device.h"
#include "runtime/range_tree.h"

enum { COUNT = 200 };

static void as_a_sorted_array(void **state) {
    range_node nodes[COUNT];
    bool in[COUNT] = {false};
    range_node *root = NULL;
    uint64_t r = 9;
    for (int i = 0; i < COUNT; i++)
        nodes[i] = (range_node){.size = 512 * random_below(&r, 12),
                                .address = (char *)(0x1000 + 512 * (uintptr_t)i)};
    for (int step = 0; step < 20000; step++) {
        int i = (int)random_below(&r, COUNT);
        if (in[i])
            range_remove(&root, &nodes[i]);
        else
            range_insert(&root, &nodes[i]);
        in[i] = !in[i];
        range_node key = {.size = 512 * random_below(&r, 13),
                          .address = (char *)(0x1000 + random_below(&r, 512 * COUNT))};
        range_node *ceiling = NULL, *floor = NULL;
        for (int k = 0; k < COUNT; k++) {
            if (!in[k]) continue;
            if (!range_before(&nodes[k], &key) && (!ceiling || range_before(&nodes[k], ceiling)))
                ceiling = &nodes[k];
            if (!range_before(&key, &nodes[k]) && (!floor || range_before(floor, &nodes[k])))
                floor = &nodes[k];
        }
        assert_ptr_equal(range_ceiling(root, key.size, key.address), ceiling);
        assert_ptr_equal(range_floor(root, key.size, key.address), floor);
    }
}

static int depth(const range_node *n) {
    if (!n) return 0;
    int l = depth(n->left), r = depth(n->right);
    return 1 + (l > r ? l : r);
}

static void it_stays_flat(void **state) {
    /* In the order of addresses, as an allocator's blocks come: a plain tree would be a list. */
    static range_node nodes[1 << 14];
    range_node *root = NULL;
    for (int i = 0; i < 1 << 14; i++) {
        nodes[i] =
            (range_node){.size = 512, .address = (char *)(UINT64_C(0x7f0000000000) + 1024 * (uintptr_t)i)};
        range_insert(&root, &nodes[i]);
    }
    assert_true(depth(root) < 60);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_a_sorted_array), cmocka_unit_test(it_stays_flat)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

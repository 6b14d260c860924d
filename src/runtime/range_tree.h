/* An ordered set of memory ranges, by size and then address: a treap (Seidel and Aragon, "Randomized search
 * trees", 1996) whose priorities are hashes of the addresses. Nodes are embedded in the caller's structures,
 * which own them; nothing is allocated and nothing fails. A node's size and address must not change while it
 * is in a tree, and addresses are unique within a tree. The caller's lock guards the tree. */
#ifndef RUNTIME_RANGE_TREE_H
#define RUNTIME_RANGE_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct range_node {
    struct range_node *left, *right;
    size_t size;
    char *address;
} range_node;

static inline bool range_before(const range_node *a, const range_node *b) {
    return a->size != b->size ? a->size < b->size : a->address < b->address;
}

/* Multiplying by an odd number maps different addresses to different priorities. */
static inline uint64_t range_priority(const range_node *n) {
    return (uint64_t)(uintptr_t)n->address * UINT64_C(0x9E3779B97F4A7C15);
}

static inline void range_insert(range_node **root, range_node *node) {
    range_node **at = root;
    while (*at && range_priority(*at) >= range_priority(node))
        at = range_before(node, *at) ? &(*at)->left : &(*at)->right;
    /* `node` replaces the subtree found, which is split into its two children. */
    range_node *rest = *at, **left = &node->left, **right = &node->right;
    *at = node;
    while (rest) {
        if (range_before(rest, node)) {
            *left = rest;
            left = &rest->right;
            rest = rest->right;
        } else {
            *right = rest;
            right = &rest->left;
            rest = rest->left;
        }
    }
    *left = *right = NULL;
}

/* `node` is in the tree. */
static inline void range_remove(range_node **root, const range_node *node) {
    range_node **at = root;
    while (*at != node) at = range_before(node, *at) ? &(*at)->left : &(*at)->right;
    range_node *left = node->left, *right = node->right;
    while (left && right) {
        if (range_priority(left) >= range_priority(right)) {
            *at = left;
            at = &left->right;
            left = left->right;
        } else {
            *at = right;
            at = &right->left;
            right = right->left;
        }
    }
    *at = left ? left : right;
}

/* The first node of at least (size, address), or NULL. */
static inline range_node *range_ceiling(range_node *root, size_t size, const char *address) {
    const range_node key = {.size = size, .address = (char *)address};
    range_node *best = NULL;
    while (root) {
        if (range_before(root, &key)) {
            root = root->right;
        } else {
            best = root;
            root = root->left;
        }
    }
    return best;
}

/* The last node of at most (size, address), or NULL. */
static inline range_node *range_floor(range_node *root, size_t size, const char *address) {
    const range_node key = {.size = size, .address = (char *)address};
    range_node *best = NULL;
    while (root) {
        if (range_before(&key, root)) {
            root = root->left;
        } else {
            best = root;
            root = root->right;
        }
    }
    return best;
}

#endif

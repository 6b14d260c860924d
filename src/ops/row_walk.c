/* Fills the row_walk struct (row_walk.h). */
#include "row_walk.h"

#include <stdbool.h>
#include <string.h>

int row_walk_fill(const xpu_tensor *const tensors[3], int dim, row_walk *walk) {
    int n = 0;
    memset(walk, 0, sizeof *walk);
    walk->rows = 1;
    for (int i = 0; i < 3; i++) walk->along[i] = tensors[i]->stride[dim];
    for (int d = tensors[0]->dims - 1; d >= 0; d--) {
        int64_t size = tensors[0]->size[d];
        if (d == dim || size == 1) continue;
        bool merge = n > 0;
        for (int i = 0; i < 3; i++)
            if (merge && tensors[i]->stride[d] != walk->stride[i][n - 1] * walk->size[n - 1]) merge = false;
        if (merge) {
            walk->size[n - 1] *= size;
        } else {
            walk->size[n] = size;
            for (int i = 0; i < 3; i++) walk->stride[i][n] = tensors[i]->stride[d];
            n++;
        }
        walk->rows *= size;
    }
    return n;
}

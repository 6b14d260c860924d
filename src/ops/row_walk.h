/* Fills the row_walk struct of kernels/row_walk.h from tensors. */
#ifndef XPU_OPS_ROW_WALK_H
#define XPU_OPS_ROW_WALK_H

#include "kernels/row_walk.h"
#include "xpu/ops.h"

/* The dimensions other than `dim`, those of size 1 left out and neighbors merged where all three tensors
 * allow it; returns how many they are, for ROW_DIMS. */
int row_walk_fill(const xpu_tensor *const tensors[3], int dim, row_walk *walk);

#endif

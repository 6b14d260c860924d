/* Concatenation: out[r][offset_i + c] = in_i[r][c] for every input i and its columns c.
 *
 * Options:
 *   E=1|2|4|8|16   bytes of an element; dtypes are not distinguished
 *   TX, TY         work-group size in dimensions 0 and 1
 *   TALL           dimension 0 runs down the rows, for inputs with few columns
 *   BLOCK          CPU: one work-item per group copies BLOCK elements, part of a row or several rows, as
 *                  vectors
 *   BANDS          CPU, with BLOCK: a group copies p.band rows of all inputs
 *   INLINE=0|1     the table of inputs is in the parameters, or in memory
 * Launch: a group copies one tile of one input, TX columns of each of TY rows. */
#include "cat.h"
#include "element.h"
#if BLOCK
#include "copy_row.h"
#endif

/* On CPUs the table is in memory: indexing the by-value parameter struct would copy it to every work-item's
 * stack. */
#if INLINE
#define INPUT(i) p.input[i]
#else
#define INPUT(i) XPU_CPTR(struct cat_input, p.table)[i]
#endif

#if BLOCK
XPU_NO_VECTORIZE
#endif
__kernel void cat(const struct cat_params p) {
    const long group = XPU_GROUP(1);
#ifdef BANDS
    const long first = group * p.band, last = min(first + p.band, p.rows);
    for (long row = first; row < last; row++)
        for (int i = 0; i < p.count; i++)
            copy_row(XPU_PTR(T, p.out) + row * p.row_size + INPUT(i).offset,
                     XPU_CPTR(T, INPUT(i).data) + row * INPUT(i).columns, (ulong)INPUT(i).columns);
#else
    int i = 0;
    while (i + 1 < p.count && INPUT(i + 1).first <= group) i++;
    const long columns = INPUT(i).columns, tile = group - INPUT(i).first;
    __global const element *in = XPU_CPTR(element, INPUT(i).data);
    __global element *out = XPU_PTR(element, p.out) + INPUT(i).offset;
#if BLOCK
    const long across = (columns + BLOCK - 1) / BLOCK, down = max(BLOCK / columns, 1L);
    const long first = tile / across * down, column = tile % across * BLOCK;
    const long last = min(first + down, p.rows), length = min(columns - column, (long)BLOCK);
    for (long row = first; row < last; row++)
        copy_row((__global T *)out + row * p.row_size + column,
                 (__global const T *)in + row * columns + column, (ulong)length);
#elif TALL
    const long row = tile * TX + get_local_id(0);
    if (row >= p.rows) return;
    for (long c = 0; c < columns; c++) out[row * p.row_size + c] = in[row * columns + c];
#else
    const long across = (columns + TX - 1) / TX;
    const long row = tile / across * TY + get_local_id(1);
    const long column = tile % across * TX + get_local_id(0);
    if (row < p.rows && column < columns) out[row * p.row_size + column] = in[row * columns + column];
#endif
#endif
}

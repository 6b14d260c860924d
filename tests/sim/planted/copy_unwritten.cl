// copy_unwritten: y = x + 1, and a copy of bytes that nobody has written, which is allowed.
//
//     FAULT 1: uninitialized: the sum is that of an unwritten byte
//     FAULT 2: uninitialized: an unwritten byte decides which sum is stored
//     FAULT 3: uninitialized: an unwritten byte is an index
//     FAULT 4: global memory: the byte behind the copy is written
kernel void copy_unwritten(global const uchar *x, global const uchar *unwritten, global uchar *copy,
                           global uchar *y) {
    const int i = get_global_id(0);
    const uchar none = unwritten[i];
    copy[i + (FAULT == 4)] = none;
    if (FAULT == 1)
        y[i] = none + 1;
    else if (FAULT == 2)
        y[i] = none > 7 ? x[i] : x[i] + 1;
    else
        y[i] = x[FAULT == 3 ? none : i] + 1;
}

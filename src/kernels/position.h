/* Positions in tensors [batch, channels, depth, height, width] or, with LAST, [batch, depth, height, width,
 * channels]. Dimension 0 of the range runs along width (LAST: channels), dimension 1 (`rows` work-items)
 * along all others. `p` is the kernel's parameter struct. */

/* Declares this work-item's position at[3] in a tensor of `size` (in or out), and its channel and batch
 * entry. */
#ifdef LAST
#define POSITION(size)                                                                                       \
    const size_t channel = get_global_id(0);                                                                 \
    ulong row = get_global_id(1);                                                                            \
    if (channel >= (size_t)p.channels || row >= (ulong)p.rows) return;                                       \
    int at[3];                                                                                               \
    at[2] = row % size[2];                                                                                   \
    row /= size[2];                                                                                          \
    at[1] = row % size[1];                                                                                   \
    row /= size[1];                                                                                          \
    at[0] = row % size[0];                                                                                   \
    const size_t plane = row / size[0];
#define OFFSET(size, d, h, w)                                                                                \
    ((((plane * size[0] + (d)) * size[1] + (h)) * size[2] + (w)) * p.channels + channel)
#else
#define POSITION(size)                                                                                       \
    const size_t along = get_global_id(0);                                                                   \
    ulong row = get_global_id(1);                                                                            \
    if (along >= (size_t)size[2] || row >= (ulong)p.rows) return;                                            \
    int at[3];                                                                                               \
    at[2] = along;                                                                                           \
    at[1] = row % size[1];                                                                                   \
    row /= size[1];                                                                                          \
    at[0] = row % size[0];                                                                                   \
    const size_t plane = row / size[0];
#define OFFSET(size, d, h, w) (((plane * size[0] + (d)) * size[1] + (h)) * size[2] + (size_t)(w))
#endif

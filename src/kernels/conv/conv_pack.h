/* conv_pack: packs a tensor to channels-last, channels padded with zeros (conv_matrix.cl with VECTOR_SIZE).
 */
/* Where a pixel's channel 0 lies; `number` counts the pixels of one n. */
static inline long pixel_at(const conv_pack_params *p, uint number) {
    const uint lines = quotient(number, p->size[2]), d = quotient(lines, p->size[1]);
    return d * p->stride[2] + (lines - d * p->size[1].value) * p->stride[3] +
           (number - lines * p->size[2].value) * p->stride[4];
}

#if VECTOR_ELEMENTS == 4
#define CHUNK PART
#else
#define CHUNK uint4
#endif
#define VECTOR_BYTES (VECTOR_ELEMENTS * (int)sizeof(RAW(T)))
typedef union vec {
    CHUNK chunks[VECTOR_BYTES / sizeof(CHUNK)];
    uint words[VECTOR_BYTES / 4];
    RAW(T) of[VECTOR_ELEMENTS];
} vec;
static inline void write_vector(xpu_addr to, __private const vec *v) {
    for (int i = 0; i < VECTOR_BYTES / (int)sizeof(CHUNK); i++) XPU_PTR(CHUNK, to)[i] = v->chunks[i];
}

#if PIXELS_CONTIGUOUS
/* Offset in local memory: consecutive pixels in consecutive banks. */
#define LINE (SIDE + (sizeof(RAW(T)) == 2 ? 2 : sizeof(RAW(T)) == 1 ? 4 : 1))
__kernel __attribute__((reqd_work_group_size(256, 1, 1))) void conv_pack(const conv_pack_params p) {
    __local RAW(T) tile[SIDE * LINE] __attribute__((aligned(16)));
    const uint i = (uint)get_local_id(0), per_n = p.size[0].value * p.size[1].value * p.size[2].value;
    const uint width = p.groups * p.padded, across = (width + SIDE - 1) / SIDE, number = (uint)XPU_GROUP(0);
    const uint c0 = number % across * SIDE, first = number / across % p.tiles * SIDE,
               n = number / across / p.tiles;
    const uint pixel = first + i % SIDE;
    const long from = n * p.stride[0] + pixel_at(&p, min(pixel, per_n - 1));
    for (uint j = i / SIDE; j < SIDE; j += 256 / SIDE) {
        const uint c = c0 + j, group = c / p.padded, inside = c % p.padded;
        RAW(T) v = (RAW(T))0;
        if (c < width && inside < p.channels && pixel < per_n)
            v = XPU_CPTR(RAW(T), p.from)[from + (long)(group * p.channels + inside) * p.stride[1]];
        tile[i % SIDE * LINE + j] = v;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint j = i; j < SIDE * SIDE / VECTOR_ELEMENTS; j += 256) {
        const uint row = j / (SIDE / VECTOR_ELEMENTS), c = j % (SIDE / VECTOR_ELEMENTS) * VECTOR_ELEMENTS;
        if (first + row >= per_n || c0 + c >= width) continue;
        __local const uint *words = (__local const uint *)(tile + row * LINE + c);
        vec v;
        for (int w = 0; w < VECTOR_BYTES / 4; w++) v.words[w] = words[w];
        write_vector(p.to + (((long)n * per_n + first + row) * width + c0 + c) * sizeof(RAW(T)), &v);
    }
}
#else
__kernel void conv_pack(const conv_pack_params p) {
    const uint vecs = p.groups * p.padded / VECTOR_ELEMENTS,
               per_n = p.size[0].value * p.size[1].value * p.size[2].value;
    const long i = get_global_id(0);
    if (i >= p.pixels * vecs) return;
    const uint pixel = (uint)(i / vecs), c = (uint)(i % vecs) * VECTOR_ELEMENTS, group = c / p.padded,
               inside = c % p.padded;
    const uint n = pixel / per_n;
    const long from =
        n * p.stride[0] + pixel_at(&p, pixel - n * per_n) + (long)(group * p.channels + inside) * p.stride[1];
    vec v;
    for (uint j = 0; j < VECTOR_ELEMENTS; j++)
        v.of[j] = inside + j < p.channels ? XPU_CPTR(RAW(T), p.from)[from + j * p.stride[1]] : (RAW(T))0;
    write_vector(p.to + i * VECTOR_BYTES, &v);
}
#endif

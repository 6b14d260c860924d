/* Complex arithmetic on pairs of reals (real part in .x, imaginary part in .y). */
static inline value_t times(value_t a, value_t b) {
    return (value_t)(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}
static inline value_t conjugate(value_t a) { return (value_t)(a.x, -a.y); }

/* Complex arithmetic on pairs of reals (real part in .x, imaginary part in .y). */
static inline number times(number a, number b) {
    return (number)(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}
static inline number conjugate(number a) { return (number)(a.x, -a.y); }

/* Double-word arithmetic on A, a real or complex floating type: a value is the unevaluated sum hi + lo, which
 * has twice the precision of A (Dekker, 1971; sums by Knuth's two-sum, products by fma). If hi is infinite or
 * NaN, it is the value. For integers, lo is 0.
 * With WIDE, A already has twice the precision of the result, and a value is a plain A. */
#ifdef WIDE
typedef A twice;
static inline twice make_double_word(A hi, A lo) { return hi; }
static inline A double_word_value(twice a) { return a; }
static inline twice double_word_add(twice a, twice b) { return a + b; }
static inline twice double_word_mul_scalar(twice a, A x) { return a * x; }
static inline twice double_word_mul(twice a, twice b) { return a * b; }
#else
typedef struct {
    A hi, lo;
} twice;

static inline twice make_double_word(A hi, A lo) {
    twice r;
    r.hi = hi;
    r.lo = lo;
    return r;
}

#if defined(A_FLOAT) || defined(A_COMPLEX)
static inline A double_word_value(twice a) {
    const A none = a.lo - a.lo; /* 0 where lo is finite, NaN elsewhere */
#ifdef A_COMPLEX
    return (A)(none.x == 0 ? a.hi.x + a.lo.x : a.hi.x, none.y == 0 ? a.hi.y + a.lo.y : a.hi.y);
#else
    return none == 0 ? a.hi + a.lo : a.hi;
#endif
}
static inline twice double_word_add(twice a, twice b) {
    const A sum = a.hi + b.hi, of_b = sum - a.hi;
    return make_double_word(sum, ((a.hi - (sum - of_b)) + (b.hi - of_b)) + (a.lo + b.lo));
}
/* The exact product of two A. */
static inline twice double_word_exact_product(A a, A b) {
#pragma OPENCL FP_CONTRACT OFF
#ifdef A_COMPLEX
    const A x = (A)(a.x * b.x, a.x * b.y), y = (A)(-(a.y * b.y), a.y * b.x);
    const A x_rest = fma((A)(a.x, a.x), b, -x), y_rest = fma((A)(-a.y, a.y), (A)(b.y, b.x), -y);
    return double_word_add(make_double_word(x, x_rest), make_double_word(y, y_rest));
#else
    const A product = a * b;
    return make_double_word(product, fma(a, b, -product));
#endif
}
static inline twice double_word_mul_scalar(twice a, A x) {
    twice r = double_word_exact_product(a.hi, x);
    r.lo += MUL(a.lo, x);
    return r;
}
static inline twice double_word_mul(twice a, twice b) {
    twice r = double_word_exact_product(a.hi, b.hi);
    r.lo += MUL(a.hi, b.lo) + MUL(a.lo, b.hi + b.lo);
    return r;
}
#else
static inline A double_word_value(twice a) { return a.hi; }
static inline twice double_word_add(twice a, twice b) { return make_double_word(a.hi + b.hi, 0); }
static inline twice double_word_mul_scalar(twice a, A x) { return make_double_word(a.hi * x, 0); }
static inline twice double_word_mul(twice a, twice b) { return make_double_word(a.hi * b.hi, 0); }
#endif
#endif

/* Functions of pointwise.def for quantisation, for the floating compute type T. Their numbers are those of PyTorch's
 * CPU kernels to the bit: a product and a sum are rounded at once where it says fma, and nowhere else. */
#pragma OPENCL FP_CONTRACT OFF

/* x / scale to a whole number with the zero point added: not yet within the quantised range. */
static inline T sq_step(T x, T scale, T zero) { return zero + rint(x * (T)(1.0f / (float)scale)); }

/* A whole number cut off to [low, high]; NaN becomes the lowest. */
static inline T sq_cut(T q, int low, int high) { return fmin(fmax(q, (T)low), (T)high); }

static inline int sq_within(T q, int low, int high) { return q >= (T)low && q <= (T)high; }

/* How far the number of sq_step, cut off, is from the zero point. Integers beyond 2^24 have no float: the limits'
 * distances are taken as integers. */
static inline T sq_distance(T q, T zero, int low, int high) {
    return q > (T)high ? (T)((long)high - (long)zero) : !(q >= (T)low) ? (T)((long)low - (long)zero) : q - zero;
}

/* x as it comes back from a whole number. PyTorch computes this in float where one scale serves the whole tensor
 * (`in_float`), also of doubles. */
static inline T sq_fake(T x, T scale, T zero, int low, int high, int in_float) {
    T distance = sq_distance(sq_step(x, scale, zero), zero, low, high);
    return in_float ? (T)((float)distance * (float)scale) : distance * scale;
}
static inline int sq_fake_mask(T x, T scale, T zero, int low, int high) {
    return sq_within(sq_step(x, scale, zero), low, high);
}

/* The same with a zero point that is no whole number, and is added before rounding. */
static inline T sq_fraction_step(T x, T scale, T zero) {
    return (T)rint((float)fma(x, (T)(1.0f / (float)scale), zero));
}
static inline T sq_fake_fraction(T x, T scale, T zero, int low, int high) {
    T q = sq_cut(sq_fraction_step(x, scale, zero), low, high);
#ifdef R_IS_DOUBLE
    return (q - zero) * scale;
#else
    /* PyTorch does this in double and rounds once. The difference is `distance` and what was lost of it, the product
     * `result` and what was lost of that. */
    float distance = q - zero, part = distance - q, lost = (q - (distance - part)) + (-zero - part);
    float result = distance * scale, rest = fma(distance, scale, -result) + lost * scale;
    return isfinite(rest) ? result + rest : result;
#endif
}
static inline int sq_fake_fraction_mask(T x, T scale, T zero, int low, int high) {
    return sq_within(sq_fraction_step(x, scale, zero), low, high);
}

/* Gradients where scale and zero point are learnt: g of the result, with respect to x, the scale, the zero point. The
 * zero point is added before rounding. */
static inline T sq_learnt_step(T x, T scale, T zero) { return rint(fma(x, (T)(1.0f / (float)scale), zero)); }
static inline T sq_grad_x(T g, T x, T scale, T zero, int low, int high) {
    return g * (T)sq_within(sq_learnt_step(x, scale, zero), low, high);
}
static inline T sq_grad_scale(T g, T x, T scale, T zero, int low, int high, T factor) {
    T q = sq_learnt_step(x, scale, zero);
    if (q > (T)high) return g * ((T)high - zero) * factor;
    if (!(q >= (T)low)) return g * ((T)low - zero) * factor;
    return g * fma(q - zero, scale, -x) * (T)(1.0f / (float)scale) * factor;
}
static inline T sq_grad_zero(T g, T x, T scale, T zero, int low, int high, T factor) {
    return sq_within(sq_learnt_step(x, scale, zero), low, high) ? K(0.0) : -g * scale * factor;
}

/* What an observer remembers of an extreme: the first one, then a moving average. */
static inline T sq_moving(T known, T seen, T rate) { return isinf(known) ? seen : known + rate * (seen - known); }

/* The parameters that map numbers from low to high, and 0, to first … last; symmetric ones have their zero point in
 * the middle. PyTorch's are computed in double, and so should T be, where the device has that: with floats a zero point
 * that is nearly halfway between two integers may become the other one. */
typedef struct sq_parameters {
    T scale;
    int zero;
} sq_parameters;
static inline sq_parameters sq_choose(T lowest, T highest, int first, int last, int symmetric) {
    const float SMALLEST = 6.1e-5f; /* scales below would be subnormal as fp16 */
    const long steps = (long)last - first, half_steps = steps / 2;
    float low = (float)lowest, high = (float)highest;
    if (symmetric && low < 0 && high > 0) {
        T widest = fmax((T)fabs(low / (float)(-half_steps - 1)), (T)fabs(high / (float)half_steps));
        low = (float)(widest * (T)(-half_steps - 1));
        high = (float)(widest * (T)half_steps);
    }
    low = fmin(low, 0.0f);
    high = fmax(high, 0.0f);
    float scale = (float)(((T)high - (T)low) / (T)steps);
    if (scale == 0.0f || isinf(1.0f / scale)) scale = 0.1f;
    if (scale < SMALLEST) {
        const float wider = SMALLEST / scale, all = SMALLEST * (float)steps;
        const bool from_zero = low == 0, to_zero = high == 0 && !from_zero;
        low = to_zero ? -all : low * wider;
        high = from_zero ? all : high * wider;
        scale = SMALLEST;
    }
    T down = (T)low / (T)scale, up = (T)high / (T)scale;
    T from_first = (T)first - down, from_last = (T)last - up; /* the one that loses less: */
    T zero = fabs((T)first) - fabs(down) < fabs((T)last) - fabs(up) ? from_first : from_last;
    if (symmetric && low < 0 && high > 0) zero = ((T)first + (T)last) / 2;
    zero = zero < (T)first ? (T)first : zero > (T)last ? (T)last : rint(zero);
    sq_parameters chosen = {(T)scale, (int)zero};
    return chosen;
}

/* x as an integer that stands for it. */
static inline T sq_quantise(T x, T scale, int zero, int low, int high) {
    return sq_cut(rint(x * (T)(1.0f / (float)scale)) + (T)zero, low, high);
}

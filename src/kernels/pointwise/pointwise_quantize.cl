/* Quantization functions of pointwise.def, for the floating compute type T. Results equal PyTorch's CPU
 * kernels bit by bit:
 * a product and a sum are fused only where fma is written. */
#pragma OPENCL FP_CONTRACT OFF

/* round(x / scale) + zero point, not yet clamped to the quantized range. */
static inline T sq_step(T x, T scale, T zero) { return zero + rint(x * (T)(1.0f / (float)scale)); }

/* Clamps to [low, high]; NaN becomes low. */
static inline T sq_clamp(T q, int low, int high) { return fmin(fmax(q, (T)low), (T)high); }

static inline int sq_within(T q, int low, int high) { return q >= (T)low && q <= (T)high; }

/* The clamped result of sq_step minus the zero point. Floats can't represent all integers above 2^24, so the
 * distances of the limits are computed in integers. */
static inline T sq_distance(T q, T zero, int low, int high) {
    return q > (T)high      ? (T)((long)high - (long)zero)
           : !(q >= (T)low) ? (T)((long)low - (long)zero)
                            : q - zero;
}

/* Quantizes and dequantizes x. With one scale for the whole tensor (`in_float`) PyTorch computes this in
 * float, even for doubles. */
static inline T sq_fake_quantize(T x, T scale, T zero, int low, int high, int in_float) {
    T distance = sq_distance(sq_step(x, scale, zero), zero, low, high);
    return in_float ? (T)((float)distance * (float)scale) : distance * scale;
}
static inline int sq_fake_quantize_mask(T x, T scale, T zero, int low, int high) {
    return sq_within(sq_step(x, scale, zero), low, high);
}

/* The same with a floating-point zero point, which is added before rounding. */
static inline T sq_fraction_step(T x, T scale, T zero) {
    return (T)rint((float)fma(x, (T)(1.0f / (float)scale), zero));
}
static inline T sq_fake_quantize_learned(T x, T scale, T zero, int low, int high) {
    T q = sq_clamp(sq_fraction_step(x, scale, zero), low, high);
#ifdef R_IS_DOUBLE
    return (q - zero) * scale;
#else
    /* PyTorch computes this in double and rounds once. `lost` is the rounding error of `distance`, `rest`
     * that of the product. */
    float distance = q - zero, part = distance - q, lost = (q - (distance - part)) + (-zero - part);
    float result = distance * scale, rest = fma(distance, scale, -result) + lost * scale;
    return isfinite(rest) ? result + rest : result;
#endif
}
static inline int sq_fake_quantize_learned_mask(T x, T scale, T zero, int low, int high) {
    return sq_within(sq_fraction_step(x, scale, zero), low, high);
}

/* Learned quantization parameters: gradients with respect to x, the scale and the zero point, g the result's
 * gradient. The zero point is added before rounding. */
static inline T sq_learned_step(T x, T scale, T zero) { return rint(fma(x, (T)(1.0f / (float)scale), zero)); }
static inline T sq_grad_x(T g, T x, T scale, T zero, int low, int high) {
    return g * (T)sq_within(sq_learned_step(x, scale, zero), low, high);
}
static inline T sq_grad_scale(T g, T x, T scale, T zero, int low, int high, T factor) {
    T q = sq_learned_step(x, scale, zero);
    if (q > (T)high) return g * ((T)high - zero) * factor;
    if (!(q >= (T)low)) return g * ((T)low - zero) * factor;
    return g * fma(q - zero, scale, -x) * (T)(1.0f / (float)scale) * factor;
}
static inline T sq_grad_zero(T g, T x, T scale, T zero, int low, int high, T factor) {
    return sq_within(sq_learned_step(x, scale, zero), low, high) ? K(0.0) : -g * scale * factor;
}

/* An observer's running minimum or maximum: the first value, then a moving average. */
static inline T sq_moving(T known, T seen, T rate) {
    return isinf(known) ? seen : known + rate * (seen - known);
}

/* Scale and zero point that map [low, high], extended to contain 0, to first … last; symmetric ones have the
 * zero point in the middle. PyTorch computes them in double, and T should be double if the device has it: in
 * float, a zero point near the middle between two integers may be rounded the other way. */
typedef struct sq_parameters {
    T scale;
    int zero;
} sq_parameters;
static inline sq_parameters sq_choose(T lowest, T highest, int first, int last, int symmetric) {
    const float SMALLEST = 6.1e-5f; /* smaller scales would be subnormal in fp16 */
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
    T from_first = (T)first - down, from_last = (T)last - up; /* the candidate with the smaller error */
    T zero = fabs((T)first) - fabs(down) < fabs((T)last) - fabs(up) ? from_first : from_last;
    if (symmetric && low < 0 && high > 0) zero = ((T)first + (T)last) / 2;
    zero = zero<(T)first ? (T)first : zero>(T) last ? (T)last : rint(zero);
    sq_parameters chosen = {(T)scale, (int)zero};
    return chosen;
}

/* The quantized integer of x. */
static inline T sq_quantize(T x, T scale, int zero, int low, int high) {
    return sq_clamp(rint(x * (T)(1.0f / (float)scale)) + (T)zero, low, high);
}

/* Output conversion and requantization, and loads of the binary post-op's operand.
 *
 * Options: OUT_T, OTHER_T, dtypes of the output and of that operand (default T); OUT_BYTES, OTHER_BYTES, for
 * 8-bit dtypes:
 * the largest value (127 or 255); these have a scale and a zero point (epilogue.h). The includer defines
 * value_t. */
#ifndef OUT_T
#define OUT_T T
#endif
#ifndef OTHER_T
#define OTHER_T T
#endif

/* Converts a result to the output's type: clamp(rint(v / scale) + zero point) for 8-bit outputs. */
static inline COMPUTED(OUT_T) quantize_output(const output_quant_params *p, value_t v) {
#ifdef OUT_BYTES
    const float whole = rint(v * p->out_scale) + (float)p->out_zero;
    return (COMPUTED(OUT_T))(int)fmin(fmax(whole, OUT_BYTES - 255.0f), (float)OUT_BYTES);
#else
    return (COMPUTED(OUT_T))v;
#endif
}

/* Loads (and dequantizes) an element of the binary post-op's operand. */
static inline value_t load_post_op_operand(const output_quant_params *p, xpu_addr other, long place) {
#ifdef OTHER_BYTES
    return (value_t)((int)LOAD(OTHER_T, XPU_CPTR(STORED(OTHER_T), other), place) - p->other_zero) *
           p->other_scale;
#else
    return (value_t)LOAD(OTHER_T, XPU_CPTR(STORED(OTHER_T), other), place);
#endif
}

/* How a number leaves, and how what is combined with it comes in: -DOUT_T and -DOTHER_T, their dtypes where
 * these aren't T; of bytes, -DOUT_BYTES and -DOTHER_BYTES (the largest one), which have a scale and a zero
 * point (epilogue.h). Wants value_t. */
#ifndef OUT_T
#define OUT_T T
#endif
#ifndef OTHER_T
#define OTHER_T T
#endif

/* What is written of a number. */
static inline COMPUTED(OUT_T) leaving(const leaving_params *p, value_t v) {
#ifdef OUT_BYTES
    const float whole = rint(v * p->out_scale) + (float)p->out_zero;
    return (COMPUTED(OUT_T))(int)fmin(fmax(whole, OUT_BYTES - 255.0f), (float)OUT_BYTES);
#else
    return (COMPUTED(OUT_T))v;
#endif
}

/* The number at a place of what is combined. */
static inline value_t coming(const leaving_params *p, xpu_addr other, long place) {
#ifdef OTHER_BYTES
    return (value_t)((int)LOAD(OTHER_T, XPU_CPTR(STORED(OTHER_T), other), place) - p->other_zero) *
           p->other_scale;
#else
    return (value_t)LOAD(OTHER_T, XPU_CPTR(STORED(OTHER_T), other), place);
#endif
}

/* Atomic addition to floats and doubles; concurrent additions happen in any order. Doubles need 64-bit
 * atomics.
 *   XPU_ATOMIC_ADD(type, space, name)    defines name(p, v) for the address space `space`, by compare and
 *   swap
 *   XPU_ATOMIC_ADD_GLOBAL(type, name)    the same for global memory, by the device's instruction if it has
 *   one */
#define XPU_ATOMIC_ADD(type, space, name) XPU_CAT(XPU_ATOMIC_ADD_, type)(space, name)
#define XPU_ATOMIC_ADD_float(space, name) XPU_ATOMIC_ADD_CAS(space, name, float, uint, atomic_cmpxchg)
#define XPU_ATOMIC_ADD_double(space, name) XPU_ATOMIC_ADD_CAS(space, name, double, ulong, atom_cmpxchg)
#define XPU_ATOMIC_ADD_CAS(space, name, type, bits, swap)                                                    \
    static inline void name(volatile space type *place, type v) {                                            \
        volatile space bits *word = (volatile space bits *)place;                                            \
        bits seen = *word, old;                                                                              \
        do {                                                                                                 \
            old = seen;                                                                                      \
            seen = swap(word, old, as_##bits(as_##type(old) + v));                                           \
        } while (seen != old);                                                                               \
    }
#if defined(XPU_HAS_FLOAT_ATOMICS) && defined(__opencl_c_ext_fp32_global_atomic_add)
#define XPU_ATOMIC_ADD_GLOBAL(type, name) XPU_CAT(XPU_ATOMIC_ADD_EXT_, type)(name)
#define XPU_ATOMIC_ADD_EXT_double(name) XPU_ATOMIC_ADD_double(__global, name)
#define XPU_ATOMIC_ADD_EXT_float(name)                                                                       \
    static inline void name(volatile __global float *place, float v) {                                       \
        atomic_fetch_add_explicit((volatile __global atomic_float *)place, v, memory_order_relaxed,          \
                                  memory_scope_device);                                                      \
    }
#elif defined(XPU_HAS_INLINE_PTX)
#define XPU_ATOMIC_ADD_GLOBAL(type, name) XPU_CAT(XPU_ATOMIC_ADD_PTX_, type)(name)
#define XPU_ATOMIC_ADD_PTX_float(name) XPU_ATOMIC_ADD_PTX(name, float, "f32", "f")
#define XPU_ATOMIC_ADD_PTX_double(name) XPU_ATOMIC_ADD_PTX(name, double, "f64", "d")
#define XPU_ATOMIC_ADD_PTX(name, type, suffix, kind)                                                         \
    static inline void name(volatile __global type *place, type v) {                                         \
        __asm__ volatile("red.global.add." suffix " [%0], %1;" : : "l"(place), kind(v) : "memory");          \
    }
#else
#define XPU_ATOMIC_ADD_GLOBAL(type, name) XPU_ATOMIC_ADD(type, __global, name)
#endif

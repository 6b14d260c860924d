/* For tests: fills newly allocated memory with a byte, so that results that depend on uninitialized memory
 * show up regardless of its previous contents. Any thread may call these functions. */
#ifndef RUNTIME_POISON_H
#define RUNTIME_POISON_H

#include "xpu/memory.h"

/* The byte in OPENXPU_POISON (hexadecimal), or -1 if unset or invalid. ff is NaN in every float type and -1
 * as an integer; 7f is large and finite as float32, bfloat16 or float64, and a large integer. */
int poison_byte(void);

/* Fills device memory with that byte. Does nothing during a capture, which would record the fill. */
xpu_status poison_fill(xpu_stream *stream, void *memory, size_t size);

#endif

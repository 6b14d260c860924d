/* For tests: memory that is handed out is filled with a byte, so that what depends on memory that nobody
 * wrote to is seen, whatever lay there before. */
#ifndef RUNTIME_POISON_H
#define RUNTIME_POISON_H

#include "xpu/memory.h"

/* The byte that OPENXPU_POISON names in hexadecimal; -1 where it names none. ff is NaN in every float type
 * and -1 as an integer; 7f is large and finite as float32, bfloat16 or float64, and a large integer. */
int poison_byte(void);

/* Fills memory of the stream's device with that byte, but in a capture, of which it would become a part. */
xpu_status poison_fill(xpu_stream *stream, void *memory, size_t size);

#endif

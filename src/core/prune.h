/* Removes unused functions from OpenCL C source. OpenCL compilers otherwise spend a third of their time on
 * them. No state, so any thread may call. */
#ifndef CORE_PRUNE_H
#define CORE_PRUNE_H

#include "core/text.h"

/* Appends `source` without the functions that neither the rest of it nor the build options name.
 *
 * A function starts with `static inline` in column 1. It ends with that line, or with the first line that
 * starts with a brace; everything else is kept. A name may be pasted with `##` from a prefix that ends in an
 * underscore (load_) and a word of the source or options (f32). A line `XPU_PLAIN(f32, …)` defines such
 * functions for its word. Preprocessor conditions are ignored, so the result is valid for all devices. Lack
 * of memory sets out->failed. */
void prune_source(text_buffer *out, const char *source, const char *options);

#endif

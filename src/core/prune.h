/* Leaves functions out of OpenCL C that nobody calls: compilers read them all, and need a third of their time
 * for it. */
#ifndef CORE_PRUNE_H
#define CORE_PRUNE_H

#include "core/text.h"

/* Appends `source`, less the functions that the rest of it and the build options don't name. A function is
 * what begins with `static inline` in a line's first column and ends with the line, or else with the first
 * line that begins with a brace; all else stays. Names may be put together by `##`: from a prefix that ends
 * in an underscore, as load_, and a word of the source or the options, as f32. A line `XPU_PLAIN(f32, …)`
 * defines such functions for its word. Which branch of an #if counts is not looked at, so the result serves
 * all devices. */
void prune_source(text *out, const char *source, const char *options);

#endif

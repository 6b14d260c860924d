/* Host memory for the library itself. In the fault-testing build each allocation can be made to fail. */
#ifndef CORE_MEMORY_H
#define CORE_MEMORY_H

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#ifdef OPENXPU_FAULTS
void *core_malloc(size_t size);
void *core_calloc(size_t count, size_t size);
void *core_realloc(void *old, size_t size);
char *core_strdup(const char *text);
/* Makes the `n`th fallible step from now fail (1 is the next; 0 none), allocations and OpenCL calls alike.
 * Gives the number of steps passed since the last call. */
__attribute__((visibility("default"))) unsigned long xpu_fault_arm(unsigned long n);
/* One fallible step: true when it is the one to fail. */
int core_fault(void);
#else
#define core_malloc malloc
#define core_calloc calloc
#define core_realloc realloc
#define core_strdup strdup
#define core_fault() 0
#endif
#define core_free free

#endif

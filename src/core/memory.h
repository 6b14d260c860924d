/* Host memory for the library's own data: malloc and its relatives, which return NULL on failure. In the
 * fault-testing build (OPENXPU_FAULTS) a test can make any single allocation fail. */
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
/* Makes the `n`th fallible step (allocation or OpenCL call) from here fail: 1 is the next, 0 none. Returns
 * the number of steps since the previous call. */
__attribute__((visibility("default"))) unsigned long xpu_fault_arm(unsigned long n);
/* Counts one fallible step; true if it is the one to fail. */
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

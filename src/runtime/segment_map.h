/* Maps any pointer to the device memory segment that contains it: a three-level table over the address space,
 * one entry per 2 MiB. segment_map_device takes no lock and may be called from any thread; the other
 * functions need the device's allocator lock. The map does not own segments. */
#ifndef RUNTIME_SEGMENT_MAP_H
#define RUNTIME_SEGMENT_MAP_H

#include <stddef.h>

#include "xpu/status.h"

/* No segment is smaller than a granule, so at most two share one: the end of one and the start of the next.
 */
#define SEGMENT_GRANULE ((size_t)2 << 20)

struct segment;

/* The device whose segment contains `pointer`, or -1. */
int segment_map_device(const void *pointer);

/* The segment that contains `pointer`. The caller holds the lock of the device that segment_map_device
 * returned. */
struct segment *segment_map_find(const void *pointer);

/* Adds a segment; the caller holds the device's lock. Changes nothing on failure. */
xpu_status segment_map_add(int device, struct segment *segment, char *base, size_t size);
void segment_map_remove(char *base, size_t size);

#endif

/* From any pointer to the device memory segment that holds it: a three-level table over the address space
 * in granules of 2 MiB. Asking for the device takes no lock. */
#ifndef RUNTIME_SEGMENT_MAP_H
#define RUNTIME_SEGMENT_MAP_H

#include <stddef.h>

#include "xpu/status.h"

/* No segment is smaller, so at most two meet in a granule: one from below, one to above. */
#define SEGMENT_GRANULE ((size_t)2 << 20)

struct segment;

/* The device of the segment around `pointer`, or -1. */
int segment_map_device(const void *pointer);

/* The segment around `pointer`. The caller holds the lock of the device that segment_map_device gave. */
struct segment *segment_map_find(const void *pointer);

/* Enters a segment; the caller holds the device's lock. On failure nothing has changed. */
xpu_status segment_map_add(int device, struct segment *segment, char *base, size_t size);
void segment_map_remove(char *base, size_t size);

#endif

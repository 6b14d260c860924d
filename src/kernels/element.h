/* An opaque element of E bytes (1, 2, 4, 8 or 16), for kernels that only move data. */
#ifndef XPU_KERNELS_ELEMENT_H
#define XPU_KERNELS_ELEMENT_H
typedef uchar element_1;
typedef ushort element_2;
typedef uint element_4;
typedef ulong element_8;
typedef ulong2 element_16;
typedef XPU_CAT(element_, E) element;
#endif

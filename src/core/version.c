/* The library's version: xpu/version.h at the time of compilation. */
#include "xpu/version.h"

int xpu_version(void) { return XPU_VERSION; }

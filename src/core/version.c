/* The version, as xpu/version.h has it when the library is compiled. */
#include "xpu/version.h"

int xpu_version(void) { return XPU_VERSION; }

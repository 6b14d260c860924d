/* xpu/xpu.h: includes all of libxpu, except the operations (one header per family in xpu/ops/) and
 * xpu/dlpack.h. */
#ifndef XPU_XPU_H
#define XPU_XPU_H

#include "device.h"
#include "dtype.h"
#include "fault.h"
#include "graph.h"
#include "image.h"
#include "memory.h"
#include "ops.h"
#include "package.h"
#include "program.h"
#include "random.h"
#include "request.h"
#include "status.h"
#include "stream.h"
#include "tile.h"
#include "trace.h"
#include "version.h"

#endif

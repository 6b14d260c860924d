#pragma once

#include "export.h"

namespace openxpu {

// Returns when autograd's device threads have let go of every graph whose backward pass has ended.
OPENXPU_API void drain_autograd();

} // namespace openxpu

#pragma once

#include "export.h"

namespace openxpu {

// Waits until autograd's device threads have released every graph whose backward pass has ended.
OPENXPU_API void drain_autograd();

} // namespace openxpu

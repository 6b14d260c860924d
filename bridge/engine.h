#pragma once

namespace openxpu {

// Returns when autograd's device threads have let go of every graph whose backward pass has ended.
void drain_autograd();

} // namespace openxpu

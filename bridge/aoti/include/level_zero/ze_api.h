// Instead of Level Zero's: PyTorch's headers name a status of its calls, and call nothing.
#pragma once

typedef int ze_result_t;
enum { ZE_RESULT_SUCCESS = 0 };

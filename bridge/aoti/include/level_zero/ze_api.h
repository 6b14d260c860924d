// Replaces Level Zero's header: PyTorch's headers name its status type, and call nothing.
#pragma once

typedef int ze_result_t;
enum { ZE_RESULT_SUCCESS = 0 };

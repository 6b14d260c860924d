// openxpu functions that generated code calls instead of PyTorch's.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

extern "C" {

// aoti_torch_empty_strided, half of whose time is PyTorch's dispatcher; a model calls it hundreds of times.
// Like Inductor's Python, it fills nothing in deterministic mode. The caller owns `made`.
AOTI_TORCH_EXPORT AOTITorchError openxpu_aoti_empty_strided(int64_t dims, const int64_t *size,
                                                            const int64_t *stride, int32_t dtype,
                                                            int32_t device_type, int32_t device,
                                                            AtenTensorHandle *made);
}

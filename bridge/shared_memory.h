// Storages of CPU devices in memory shared between processes: the memory of a CPU storage that PyTorch
// creates for them. PyTorch thus controls owner, name and lifetime of the memory.
#pragma once

#include <c10/core/Storage.h>

#include "export.h"

namespace openxpu {

// Throws if the device doesn't use host memory, and in a process forked after the device was used.
OPENXPU_API void check_shareable(c10::DeviceIndex device);

// The CPU storage that owns an xpu storage's memory; empty if there is none.
OPENXPU_API c10::Storage shared_storage_of(const c10::Storage &storage);

// Moves an xpu storage into the memory of a CPU storage of the same size. Throws if a graph may use the
// old memory.
OPENXPU_API void move_into_shared(const c10::Storage &storage, const c10::Storage &shared);

// A storage of the device in the memory of a CPU storage.
OPENXPU_API c10::Storage storage_over(const c10::Storage &shared, c10::DeviceIndex device);

} // namespace openxpu

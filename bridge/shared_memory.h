// Storages of host devices in memory shared between processes: the memory of a CPU storage that PyTorch
// creates for them. PyTorch thus controls owner, name and lifetime of the memory.
#pragma once

#include <c10/core/Storage.h>

#include "export.h"

namespace openxpu {

// Throws where the device's memory isn't the host's, and in a process forked after the device was used.
OPENXPU_API void check_shareable(c10::DeviceIndex device);

// The CPU storage in whose memory an xpu storage lies; none where it lies elsewhere.
OPENXPU_API c10::Storage shared_storage_of(const c10::Storage &storage);

// Copies what an xpu storage holds to a CPU storage of its size, and lets the xpu storage lie in that one's
// memory from then on. Throws where a graph may use the old place.
OPENXPU_API void move_into_shared(const c10::Storage &storage, const c10::Storage &shared);

// A storage of the device in the memory of a CPU storage.
OPENXPU_API c10::Storage storage_over(const c10::Storage &shared, c10::DeviceIndex device);

} // namespace openxpu

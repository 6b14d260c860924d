// Tensors over existing storages: views, set_, resize_, record_stream.
#include <ATen/InferSize.h>
#include <ATen/native/Resize.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include "lower.h"
#include "xpu/memory.h"

namespace openxpu {
namespace {

// Resizes the storage to `size` bytes, keeping its contents as far as they fit.
void resize_storage(c10::StorageImpl *storage, size_t size) {
    TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
    const auto device = storage->device();
    const c10::DeviceGuard guard(device);
    auto block = c10::GetAllocator(c10::kXPU)->allocate(size);
    const auto kept = std::min(size, storage->nbytes());
    if (kept) {
        // The old block is freed: only work of this stream may still read it.
        check(xpu_memcpy(current_stream(device.index()), block.get(), storage->data(), kept, false));
    }
    storage->set_data_ptr(std::move(block)); // a lazy clone is none any more
    storage->set_nbytes(size);
}

void resize_impl(c10::TensorImpl *self, at::IntArrayRef size, at::OptionalIntArrayRef stride) {
    if (self->sizes() == size && (!stride || self->strides() == *stride)) return;
    const auto itemsize = self->dtype().itemsize();
    const auto offset = self->storage_offset();
    const size_t needed = stride ? at::detail::computeStorageNbytes(size, *stride, itemsize, offset)
                                 : at::detail::computeStorageNbytesContiguous(size, itemsize, offset);
    if (c10::multiply_integers(size) != 0) { // before the sizes: they stay where this fails
        auto *storage = self->unsafe_storage().unsafeGetStorageImpl();
        TORCH_CHECK(storage, "Tensor: invalid null storage");
        if (needed > storage->nbytes()) resize_storage(storage, needed);
    }
    if (stride)
        self->set_sizes_and_strides(size, *stride);
    else
        self->set_sizes_contiguous(size);
}

const at::Tensor &resize_(const at::Tensor &self, at::IntArrayRef size,
                          std::optional<at::MemoryFormat> format) {
    auto *impl = self.unsafeGetTensorImpl();
    const auto held = static_cast<int64_t>(self.storage().nbytes());
    resize_impl(impl, size, std::nullopt);
    if (format) {
        TORCH_CHECK(*format != at::MemoryFormat::Preserve,
                    "Unsupported memory format: resize_ needs a layout, not ", *format);
        impl->empty_tensor_restride(*format);
    }
    if (C10_UNLIKELY(at::globalContext().deterministicAlgorithms() &&
                     at::globalContext().deterministicFillUninitializedMemory()))
        at::native::fill_resize_deterministic_(self, held);
    return self;
}

at::Tensor &set_storage_offset(at::Tensor &self, at::Storage source, int64_t offset, at::IntArrayRef size,
                               at::IntArrayRef stride) {
    TORCH_CHECK(source.device() == self.device() || !self.storage(),
                "Attempted to set the storage of a tensor on device \"", self.device(),
                "\" to a storage on different device \"", source.device(), "\"");
    at::native::checkSetStorage(self, source, offset, size, stride);
    auto *impl = self.unsafeGetTensorImpl();
    impl->set_storage_offset(offset);
    resize_impl(impl, size, stride.data() ? at::OptionalIntArrayRef(stride) : std::nullopt);
    return self;
}

at::Tensor &set_storage(at::Tensor &self, at::Storage source) {
    const auto count = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
    return set_storage_offset(self, std::move(source), 0, count, {});
}

at::Tensor &set_empty(at::Tensor &self) {
    c10::Storage storage(c10::Storage::use_byte_size_t(), 0, c10::GetAllocator(c10::kXPU), true);
    return set_storage_offset(self, std::move(storage), 0, {0}, {});
}

void record_stream(at::Tensor &self, c10::Stream stream) {
    c10::impl::getDeviceGuardImpl(c10::kXPU)->recordDataPtrOnStream(self.storage().data_ptr(), stream);
}

} // namespace

TORCH_LIBRARY_IMPL(aten, XPU, m) {
    m.impl("resize_", resize_);
    m.impl("set_", set_empty);
    m.impl("set_.source_Storage", set_storage);
    m.impl("set_.source_Storage_storage_offset", set_storage_offset);
    m.impl("set_.source_Tensor", at::native::set_tensor_);
    m.impl("record_stream", record_stream);
    m.impl("as_strided", at::native::as_strided_tensorimpl);
    m.impl("view", at::native::view);
    m.impl("_reshape_alias", at::native::_reshape_alias);
    m.impl("unfold", at::native::unfold);
    m.impl("view_as_real", at::native::view_as_real);
    m.impl("view_as_complex", at::native::view_as_complex);
}

} // namespace openxpu
